// The two inner loops of the tree: for SSE2, which every x86-64 has, and in plain C++.
//
// Children are floats (leaves) or words {float value, uint32 version} (inner nodes). Other threads
// may be storing them: each of them is read whole, and the callers redo or reject what raced. Under
// the thread sanitizer the plain version loads them as atomics.
#pragma once

#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>

#if defined(__SSE2__) && !defined(__SANITIZE_THREAD__)
#define REPLAY_SIMD_SSE2 1
#include <emmintrin.h>
#endif

namespace replay_buffer {

inline float value_of(const std::atomic<float>& leaf) {
  return leaf.load(std::memory_order_relaxed);
}
inline float value_of(const std::atomic<std::uint64_t>& node) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(node.load(std::memory_order_relaxed)));
}

#if defined(REPLAY_SIMD_SSE2)
// Four values, from child 4 * i on. REQUIRES: 16-byte aligned children.
inline __m128 load4(const std::atomic<float>* children, std::size_t i) {
  return _mm_load_ps(reinterpret_cast<const float*>(children) + i * 4);
}
inline __m128 load4(const std::atomic<std::uint64_t>* children, std::size_t i) {
  const auto* p = reinterpret_cast<const float*>(children) + i * 8;
  return _mm_shuffle_ps(_mm_load_ps(p), _mm_load_ps(p + 4), _MM_SHUFFLE(2, 0, 2, 0));
}
#endif

// The sum of 16 values, always added in the same order.
template <class Child>
inline float sum16(const Child* children) {
#if defined(REPLAY_SIMD_SSE2)
  __m128 sum = _mm_add_ps(_mm_add_ps(load4(children, 0), load4(children, 1)),
                          _mm_add_ps(load4(children, 2), load4(children, 3)));
  sum = _mm_add_ps(sum, _mm_movehl_ps(sum, sum));
  return _mm_cvtss_f32(_mm_add_ss(sum, _mm_shuffle_ps(sum, sum, 1)));
#else
  float lane[4];
  for (std::size_t i = 0; i < 4; ++i) {
    lane[i] = (value_of(children[i]) + value_of(children[i + 4])) +
              (value_of(children[i + 8]) + value_of(children[i + 12]));
  }
  return (lane[0] + lane[2]) + (lane[1] + lane[3]);
#endif
}

// The first of 16 values at which their running sum exceeds `target`, and the running sum before
// it. 16 when none does. Running sums are rounded, so the value found may be 0: the caller checks.
struct Found {
  std::size_t child;
  float before;
};

template <class Child>
inline Found find16(const Child* children, float target) {
#if defined(REPLAY_SIMD_SSE2)
  const __m128 wanted = _mm_set1_ps(target);
  alignas(16) float upto[20];
  upto[3] = 0;
  __m128 carry = _mm_setzero_ps();
  __m128i over[4];
  for (std::size_t i = 0; i < 4; ++i) {
    __m128 x = load4(children, i);
    x = _mm_add_ps(x, _mm_castsi128_ps(_mm_slli_si128(_mm_castps_si128(x), 4)));
    x = _mm_add_ps(x, _mm_castsi128_ps(_mm_slli_si128(_mm_castps_si128(x), 8)));
    x = _mm_add_ps(x, carry);
    carry = _mm_shuffle_ps(x, x, _MM_SHUFFLE(3, 3, 3, 3));
    _mm_store_ps(upto + 4 + i * 4, x);
    over[i] = _mm_castps_si128(_mm_cmpgt_ps(x, wanted));
  }
  const __m128i packed =
      _mm_packs_epi16(_mm_packs_epi32(over[0], over[1]), _mm_packs_epi32(over[2], over[3]));
  const auto mask = static_cast<unsigned>(_mm_movemask_epi8(packed)) | 0x10000U;
  const auto child = static_cast<std::size_t>(std::countr_zero(mask));
  return {child, upto[3 + child]};
#else
  float sum = 0;
  for (std::size_t i = 0; i < 16; ++i) {
    const float next = sum + value_of(children[i]);
    if (next > target) return {i, sum};
    sum = next;
  }
  return {16, sum};
#endif
}

}  // namespace replay_buffer
