# The C++ package: public headers, the static libraries, and what find_package(replay_buffer) reads.
set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/replay_buffer)

install(
  TARGETS replay_os replay_segment replay_core replay_buffer
  EXPORT replay_bufferTargets
  ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT cpp)
install(
  DIRECTORY ${PROJECT_SOURCE_DIR}/include/
  DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
  COMPONENT cpp
  FILES_MATCHING PATTERN "*.h")
install(
  EXPORT replay_bufferTargets
  NAMESPACE replay_buffer::
  DESTINATION ${package_dir}
  COMPONENT cpp)

configure_package_config_file(
  ${PROJECT_SOURCE_DIR}/cmake/replay_bufferConfig.cmake.in
  ${PROJECT_BINARY_DIR}/replay_bufferConfig.cmake INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(
  ${PROJECT_BINARY_DIR}/replay_bufferConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(
  FILES ${PROJECT_BINARY_DIR}/replay_bufferConfig.cmake
        ${PROJECT_BINARY_DIR}/replay_bufferConfigVersion.cmake
  DESTINATION ${package_dir}
  COMPONENT cpp)
