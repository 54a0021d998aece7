// The two vector loops of the tree, for SSE2 (every x86-64) and NEON (every arm64), and in plain C++.
//
// Words are {float value, uint32 tag}. Other threads may be storing them: 8-byte lanes of an aligned
// vector load are whole on both architectures, and the callers redo or reject what raced. Under the
// thread sanitizer the plain version loads them as atomics.
#pragma once

#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>

#if defined(__SANITIZE_THREAD__)
#define REPLAY_SIMD_PLAIN 1
#elif defined(__SSE2__)
#include <emmintrin.h>
#elif defined(__ARM_NEON) && defined(__aarch64__)
#include <arm_neon.h>
#else
#define REPLAY_SIMD_PLAIN 1
#endif

namespace replay_buffer {

using NodeWord = std::atomic<std::uint64_t>;

inline float node_value(std::uint64_t word) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(word));
}

// The values of 16 words.
struct alignas(16) Values16 {
  float v[16];
};

inline Values16 load16(const NodeWord* words) {
  Values16 out;
#if defined(REPLAY_SIMD_PLAIN)
  for (std::size_t i = 0; i < 16; ++i) out.v[i] = node_value(words[i].load(std::memory_order_relaxed));
#elif defined(__SSE2__)
  const auto* p = reinterpret_cast<const float*>(words);
  for (std::size_t i = 0; i < 4; ++i) {
    const __m128 a = _mm_load_ps(p + i * 8);
    const __m128 b = _mm_load_ps(p + i * 8 + 4);
    _mm_store_ps(out.v + i * 4, _mm_shuffle_ps(a, b, _MM_SHUFFLE(2, 0, 2, 0)));
  }
#else
  const auto* p = reinterpret_cast<const float*>(words);
  for (std::size_t i = 0; i < 4; ++i) vst1q_f32(out.v + i * 4, vld2q_f32(p + i * 8).val[0]);
#endif
  return out;
}

// The sum of 16 values, always added in the same order.
inline float sum16(const NodeWord* words) {
#if defined(__SSE2__) && !defined(REPLAY_SIMD_PLAIN)
  const auto* p = reinterpret_cast<const float*>(words);
  __m128 sum = _mm_setzero_ps();
  for (std::size_t i = 0; i < 4; ++i) {
    const __m128 a = _mm_load_ps(p + i * 8);
    const __m128 b = _mm_load_ps(p + i * 8 + 4);
    sum = _mm_add_ps(sum, _mm_shuffle_ps(a, b, _MM_SHUFFLE(2, 0, 2, 0)));
  }
  sum = _mm_add_ps(sum, _mm_movehl_ps(sum, sum));
  return _mm_cvtss_f32(_mm_add_ss(sum, _mm_shuffle_ps(sum, sum, 1)));
#else
  const Values16 x = load16(words);
  float lane[4] = {0, 0, 0, 0};
  for (std::size_t i = 0; i < 16; ++i) lane[i % 4] += x.v[i];
  return (lane[0] + lane[2]) + (lane[1] + lane[3]);
#endif
}

}  // namespace replay_buffer
