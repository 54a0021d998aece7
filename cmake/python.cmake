# The Python module replay_buffer._core. NumPy 2 headers; the module also loads under NumPy 1.24.
find_package(Python 3.10 REQUIRED COMPONENTS Interpreter Development.Module NumPy)
execute_process(
  COMMAND ${Python_EXECUTABLE} -m nanobind --cmake_dir
  OUTPUT_VARIABLE nanobind_ROOT OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
find_package(nanobind CONFIG REQUIRED)

file(GLOB sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/cpp/python/*.cc)
# NOMINSIZE: nanobind compiles a module for size (-Os) unless told otherwise.
nanobind_add_module(_core NB_STATIC NOMINSIZE NB_SUPPRESS_WARNINGS ${sources})
target_compile_definitions(
  _core PRIVATE NPY_NO_DEPRECATED_API=NPY_2_0_API_VERSION NPY_TARGET_VERSION=NPY_1_23_API_VERSION
                REPLAY_VERSION="${PROJECT_VERSION}")
target_link_libraries(_core PRIVATE replay_core Python::NumPy replay_warnings)

# The hot calls go through all libraries: optimised as one program they are a little faster. Only
# for a build of the package: archives of such objects, when installed, bind to one compiler.
if(DEFINED SKBUILD)
  include(CheckIPOSupported)
  check_ipo_supported(RESULT ipo_supported OUTPUT ipo_output LANGUAGES CXX)
  if(ipo_supported)
    set_target_properties(replay_os replay_segment replay_core _core
                          PROPERTIES INTERPROCEDURAL_OPTIMIZATION ON)
  endif()
endif()
if(NOT APPLE)
  # A process may have another blosc2 beside ours.
  target_link_options(_core PRIVATE -Wl,--exclude-libs,ALL)
endif()
install(TARGETS _core LIBRARY DESTINATION replay_buffer COMPONENT python)
