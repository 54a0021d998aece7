# benchmarks/micro/*.cc as the binary benchmarks/replay_buffer_benchmarks.
find_package(benchmark QUIET)
if(NOT benchmark_FOUND)
  message(STATUS "The C++ benchmarks are not built: Google Benchmark was not found "
                 "(`apt-get install libbenchmark-dev` or `brew install google-benchmark` brings it)")
  return()
endif()
file(GLOB sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/benchmarks/micro/*.cc)
add_executable(replay_buffer_benchmarks ${sources})
set_target_properties(replay_buffer_benchmarks PROPERTIES RUNTIME_OUTPUT_DIRECTORY
                                                          ${PROJECT_BINARY_DIR}/benchmarks)
target_link_libraries(replay_buffer_benchmarks PRIVATE replay_buffer benchmark::benchmark
                                                       replay_warnings)
