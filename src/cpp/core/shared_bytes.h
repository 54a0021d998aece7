// Bytes that another thread may be writing while they are read: what is torn is thrown away by the
// seqlock (rows.h).
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace replay_buffer {

// Copies them. The sanitizer is told that this is meant by copying with relaxed atomics.
inline void copy_shared(void* to, const void* from, std::size_t n) {
#if defined(__SANITIZE_THREAD__)
  auto* t = static_cast<std::uint8_t*>(to);
  auto* f = static_cast<const std::uint8_t*>(from);
  for (std::size_t i = 0; i < n; ++i) {
    __atomic_store_n(t + i, __atomic_load_n(f + i, __ATOMIC_RELAXED), __ATOMIC_RELAXED);
  }
#else
  // Small sizes without a call: two moves that may overlap.
  auto* t = static_cast<std::byte*>(to);
  const auto* f = static_cast<const std::byte*>(from);
  if (n > 64) {
    std::memcpy(t, f, n);
  } else if (n >= 16) {
    for (std::size_t at = 0; at + 16 < n; at += 16) std::memcpy(t + at, f + at, 16);
    std::memcpy(t + n - 16, f + n - 16, 16);
  } else if (n >= 8) {
    std::memcpy(t, f, 8);
    std::memcpy(t + n - 8, f + n - 8, 8);
  } else if (n >= 4) {
    std::memcpy(t, f, 4);
    std::memcpy(t + n - 4, f + n - 4, 4);
  } else {
    for (std::size_t at = 0; at < n; ++at) t[at] = f[at];
  }
#endif
}

// Whether they are the same.
inline bool equal_shared(const std::byte* a, const std::byte* b, std::size_t n) {
#if defined(__SANITIZE_THREAD__)
  const auto at = [](const std::byte* from, std::size_t i) {
    return __atomic_load_n(reinterpret_cast<const std::uint8_t*>(from) + i, __ATOMIC_RELAXED);
  };
  std::size_t same = 0;
  while (same < n && at(a, same) == at(b, same)) ++same;
  return same == n;
#else
  if (n > 64 || n < 8) return std::memcmp(a, b, n) == 0;
  const auto differ = [&](std::size_t at) { return std::memcmp(a + at, b + at, 8) != 0; };
  for (std::size_t at = 0; at + 8 < n; at += 8) {
    if (differ(at)) return false;
  }
  return !differ(n - 8);
#endif
}

template <class T>
T load_shared(const std::byte* from) {
  T value;
  copy_shared(&value, from, sizeof(T));
  return value;
}

// A row word by its address.
inline std::uint64_t word_at(const std::byte* at, std::memory_order order) {
  return reinterpret_cast<const std::atomic<std::uint64_t>*>(at)->load(order);
}

// Bytes that become zero.
inline void clear_shared(void* to, std::size_t n) {
#if defined(__SANITIZE_THREAD__)
  auto* t = static_cast<std::uint8_t*>(to);
  for (std::size_t i = 0; i < n; ++i) __atomic_store_n(t + i, std::uint8_t{0}, __ATOMIC_RELAXED);
#else
  std::memset(to, 0, n);
#endif
}

}  // namespace replay_buffer
