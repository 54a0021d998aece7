# benchmarks/micro/*.cc as the binary replay_benchmarks, when Google Benchmark is installed.
find_package(benchmark QUIET)
file(GLOB sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/benchmarks/micro/*.cc)
if(NOT benchmark_FOUND)
  message(STATUS "Google Benchmark was not found: the C++ micro-benchmarks are not built")
elseif(sources)
  add_executable(replay_benchmarks ${sources})
  target_link_libraries(replay_benchmarks PRIVATE replay_buffer benchmark::benchmark_main
                                                  replay_warnings)
endif()
