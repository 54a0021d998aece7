// How much work a test does: less when a sanitizer, valgrind or an emulator makes every step slow.
#pragma once

#include <cstddef>

namespace replay_buffer::testing {

#if defined(__SANITIZE_THREAD__)
#define REPLAY_TEST_THREAD_SANITIZER 1
#elif defined(__SANITIZE_ADDRESS__)
#define REPLAY_TEST_ADDRESS_SANITIZER 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define REPLAY_TEST_THREAD_SANITIZER 1
#elif __has_feature(address_sanitizer)
#define REPLAY_TEST_ADDRESS_SANITIZER 1
#endif
#endif

#if defined(REPLAY_TEST_THREAD_SANITIZER) || defined(REPLAY_TEST_ADDRESS_SANITIZER)
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif

// n, or a part of it. scripts/test_valgrind.sh and test_arm64.sh define what no compiler does.
constexpr std::size_t rounds(std::size_t n) {
#if defined(REPLAY_TEST_THREAD_SANITIZER) || defined(REPLAY_TEST_VALGRIND)
  return n / 50 > 0 ? n / 50 : 1;
#elif defined(REPLAY_TEST_ADDRESS_SANITIZER) || defined(REPLAY_TEST_EMULATED)
  return n / 5 > 0 ? n / 5 : 1;
#else
  return n;
#endif
}

}  // namespace replay_buffer::testing
