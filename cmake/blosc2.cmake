# blosc2, which compresses columns. The Python package of that name ships the static library and its
# headers: it becomes a part of replay_core, and nothing of it is needed at run time. Else one that is
# installed on the system, or under CMAKE_PREFIX_PATH, is linked.
set(how "`pip install blosc2`, or blosc2 with its headers on the system, brings it")
find_package(Python 3.10 QUIET COMPONENTS Interpreter)
if(Python_FOUND)
  execute_process(
    COMMAND ${Python_EXECUTABLE} -c
            "import importlib.util as u; print(u.find_spec('blosc2').submodule_search_locations[0])"
    OUTPUT_VARIABLE blosc2_dir OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
endif()
set(blosc2_library NOTFOUND)
if(blosc2_dir)
  find_library(blosc2_library NAMES libblosc2.a PATHS ${blosc2_dir}/lib NO_DEFAULT_PATH NO_CACHE)
  set(blosc2_include ${blosc2_dir}/include)
endif()
set(blosc2_packaged ${blosc2_library})
if(NOT blosc2_library)
  find_library(blosc2_library NAMES blosc2 NO_CACHE)
  find_path(blosc2_include NAMES blosc2.h NO_CACHE)
endif()

# What was found may be for another machine than the one that is built for.
unset(blosc2_links CACHE)
if(blosc2_library)
  file(WRITE ${PROJECT_BINARY_DIR}/blosc2_links.cc
       "#include <blosc2.h>\nint main() { blosc2_init(); return BLOSC2_SPECIAL_ZERO; }\n")
  try_compile(
    blosc2_links ${PROJECT_BINARY_DIR} ${PROJECT_BINARY_DIR}/blosc2_links.cc
    CMAKE_FLAGS -DINCLUDE_DIRECTORIES=${blosc2_include}
    LINK_LIBRARIES ${blosc2_library} Threads::Threads ${CMAKE_DL_LIBS} m)
endif()
if(NOT blosc2_links)
  if(REPLAY_COMPRESSION STREQUAL "AUTO")
    message(STATUS "Compression is off: blosc2 was not found (${how})")
    return()
  endif()
  message(FATAL_ERROR "REPLAY_COMPRESSION needs blosc2 (${how}); or say -DREPLAY_COMPRESSION=OFF")
endif()
message(STATUS "Compression by ${blosc2_library}")

target_compile_definitions(replay_core PRIVATE REPLAY_WITH_BLOSC2)
target_include_directories(replay_core SYSTEM PRIVATE $<BUILD_INTERFACE:${blosc2_include}>)
if(NOT blosc2_packaged)
  target_link_libraries(replay_core PRIVATE $<BUILD_INTERFACE:${blosc2_library}>
                                            $<INSTALL_INTERFACE:blosc2>)
  return()
endif()
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
