# Warnings are a target so that they apply to this project's sources and to nobody else's; the
# sanitizer and crash-point flags are global, because every object of a program must agree on them.
add_library(replay_warnings INTERFACE)
target_compile_options(
  replay_warnings
  INTERFACE -Wall -Wextra -Wshadow -Wnon-virtual-dtor -Woverloaded-virtual -Wconversion
            -Wno-sign-conversion)
if(CMAKE_CXX_COMPILER_ID MATCHES "Clang")
  target_compile_options(replay_warnings INTERFACE -Wno-implicit-int-float-conversion)
endif()

if(REPLAY_CRASH_POINTS)
  add_compile_definitions(REPLAY_CRASH_POINTS=1)
endif()

if(REPLAY_SANITIZE)
  if(NOT REPLAY_SANITIZE MATCHES "^(address|undefined|address,undefined|thread)$")
    message(FATAL_ERROR "REPLAY_SANITIZE is '${REPLAY_SANITIZE}', "
                        "expected 'address,undefined', 'address', 'undefined' or 'thread'")
  endif()
  # -O1 for stack traces that can be read; assertions are on.
  add_compile_options(-fsanitize=${REPLAY_SANITIZE} -fno-omit-frame-pointer -g1 -O1 -UNDEBUG)
  add_link_options(-fsanitize=${REPLAY_SANITIZE})
  if(REPLAY_SANITIZE MATCHES "undefined")
    add_compile_options(-fno-sanitize-recover=undefined)
  endif()
  if(REPLAY_SANITIZE STREQUAL "thread" AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    # ThreadSanitizer does not model fences, and GCC says so at each of them.
    add_compile_options(-Wno-tsan)
  endif()
endif()
