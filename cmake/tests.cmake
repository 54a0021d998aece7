# tests/cpp/*_test.cc as the one binary replay_tests, and every test in it as a test of ctest.
# Without GoogleTest there is no such target; REPLAY_HAVE_TESTS in the cache says which it was.
find_package(GTest QUIET)
if(NOT GTest_FOUND AND REPLAY_FETCH_GTEST)
  include(FetchContent)
  FetchContent_Declare(
    googletest
    URL https://github.com/google/googletest/archive/refs/tags/v1.15.2.tar.gz
    URL_HASH SHA256=7b42b4d6ed48810c5362c265a17faebe90dc2373c885e5216439d37927f02926)
  set(INSTALL_GTEST OFF CACHE BOOL "" FORCE)
  FetchContent_MakeAvailable(googletest)
endif()

if(NOT TARGET GTest::gtest_main)
  set(REPLAY_HAVE_TESTS OFF CACHE INTERNAL "The target replay_tests exists")
  message(STATUS "The C++ tests are not built: GoogleTest was not found "
                 "(`apt-get install libgtest-dev` or `brew install googletest` brings it, "
                 "-DREPLAY_FETCH_GTEST=ON downloads it)")
  return()
endif()
set(REPLAY_HAVE_TESTS ON CACHE INTERNAL "The target replay_tests exists")

include(GoogleTest)
enable_testing()
file(GLOB sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tests/cpp/*_test.cc)
add_executable(replay_tests ${sources})
target_link_libraries(replay_tests PRIVATE replay_buffer GTest::gtest_main replay_warnings)
# The tests' own code need not be fast, only quickly compiled; what they test is as it is shipped.
target_compile_options(replay_tests PRIVATE -O1)
target_precompile_headers(replay_tests PRIVATE <gtest/gtest.h> <algorithm> <atomic> <string> <thread> <vector>)
# Tests are listed when ctest runs, not when the binary is linked, so that the environment in which
# ctest is started (sanitizer options, address randomisation off) holds for the listing too.
gtest_discover_tests(replay_tests DISCOVERY_MODE PRE_TEST DISCOVERY_TIMEOUT 60 PROPERTIES TIMEOUT 300)

# tests/crash/*.cc as the binary replay_crash_tests, which kills and stops children of its own.
if(REPLAY_CRASH_POINTS)
  file(GLOB sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tests/crash/*.cc)
  add_executable(replay_crash_tests ${sources})
  target_include_directories(replay_crash_tests PRIVATE ${PROJECT_SOURCE_DIR}/tests/cpp)
  target_link_libraries(replay_crash_tests PRIVATE replay_buffer GTest::gtest_main replay_warnings)
endif()
