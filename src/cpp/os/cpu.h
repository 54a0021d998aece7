// Hints to the processor. None of them changes what a program computes.
#pragma once

#include <cstddef>

// For functions that are mostly prefetches.
#define REPLAY_ALWAYS_INLINE __attribute__((always_inline))

// In front of a short loop that runs often: four rounds of it become one.
#if defined(__clang__)
#define REPLAY_UNROLL _Pragma("clang loop unroll_count(4)")
#else
#define REPLAY_UNROLL _Pragma("GCC unroll 4")
#endif

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
//
// What is read goes to the second level: the first has few misses under way at a time and makes
// further prefetches wait (see docs/decisions/0011). The empty statement keeps GCC from taking a
// function that only prefetches for one without effect, and dropping calls of it.
REPLAY_ALWAYS_INLINE inline void prefetch_read(const void* address) noexcept {
  __builtin_prefetch(address, 0, 2);
  __asm__ __volatile__("");
}
REPLAY_ALWAYS_INLINE inline void prefetch_write(const void* address) noexcept {
  __builtin_prefetch(address, 1, 3);
  __asm__ __volatile__("");
}

}  // namespace replay_buffer::os
