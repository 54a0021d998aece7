# blosc2, which compresses columns: the static library and headers of the Python package of that
# name. It becomes a part of replay_core; nothing of it is needed at run time.
find_package(Python 3.10 REQUIRED COMPONENTS Interpreter)
execute_process(
  COMMAND ${Python_EXECUTABLE} -c
          "import importlib.util as u; print(u.find_spec('blosc2').submodule_search_locations[0])"
  OUTPUT_VARIABLE blosc2_dir OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE failed)
find_library(blosc2_library NAMES libblosc2.a PATHS ${blosc2_dir}/lib NO_DEFAULT_PATH NO_CACHE)
if(failed OR NOT blosc2_library)
  message(FATAL_ERROR "REPLAY_COMPRESSION needs blosc2 and its static library: pip install blosc2, "
                      "or -DREPLAY_COMPRESSION=OFF")
endif()

target_compile_definitions(replay_core PRIVATE REPLAY_WITH_BLOSC2)
target_include_directories(replay_core SYSTEM PRIVATE $<BUILD_INTERFACE:${blosc2_dir}/include>)
target_link_libraries(
  replay_core
  PRIVATE $<BUILD_INTERFACE:${blosc2_library}>
          $<INSTALL_INTERFACE:$<INSTALL_PREFIX>/${CMAKE_INSTALL_LIBDIR}/libreplay_blosc2.a>
          ${CMAKE_DL_LIBS} m)
install(
  FILES ${blosc2_library}
  DESTINATION ${CMAKE_INSTALL_LIBDIR}
  RENAME libreplay_blosc2.a
  COMPONENT cpp)
# Its licence goes where the library goes.
file(GLOB blosc2_licence ${blosc2_dir}/../blosc2-*.dist-info/licenses/LICENSE.txt)
if(blosc2_licence)
  install(
    FILES ${blosc2_licence}
    DESTINATION replay_buffer/licenses
    RENAME blosc2.txt
    COMPONENT python)
endif()
