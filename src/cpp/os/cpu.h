// Hints to the processor. None of them changes what a program computes.
#pragma once

#include <cstddef>

// For functions that only prefetch. GCC takes one that was not inlined for a function without
// effect and drops the call.
#define REPLAY_ALWAYS_INLINE __attribute__((always_inline))

namespace replay_buffer::os {

// Distance at which two words written by different threads do not slow each other down.
#if defined(__APPLE__) && defined(__aarch64__)
inline constexpr std::size_t kCacheLine = 128;
#else
inline constexpr std::size_t kCacheLine = 64;
#endif

// For the body of a loop that waits for another thread: saves power and lets a sibling hardware
// thread run. On arm64 `yield` does nothing on most processors, so `isb` is used.
inline void cpu_relax() noexcept {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ __volatile__("isb" ::: "memory");
#else
  __asm__ __volatile__("" ::: "memory");
#endif
}

// Start to bring the line at `address` into the cache. Any address is allowed, mapped or not.
REPLAY_ALWAYS_INLINE inline void prefetch_read(const void* address) noexcept {
  __builtin_prefetch(address, 0, 3);
}
REPLAY_ALWAYS_INLINE inline void prefetch_write(const void* address) noexcept {
  __builtin_prefetch(address, 1, 3);
}

}  // namespace replay_buffer::os
