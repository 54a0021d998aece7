// Four for SSE2. What its members do is said at PlainFour.
#pragma once

#include <emmintrin.h>

#include "core/simd_plain.h"

namespace replay_buffer {

struct Four {
  using Whole = __m128i;
  using Answers = __m128i;

  __m128 v;

  static Four load(const std::atomic<float>* children) {
    return {_mm_load_ps(reinterpret_cast<const float*>(children))};
  }
  static Four load(const std::atomic<std::uint64_t>* children) {
    const auto* p = reinterpret_cast<const float*>(children);
    return {_mm_shuffle_ps(_mm_load_ps(p), _mm_load_ps(p + 4), _MM_SHUFFLE(2, 0, 2, 0))};
  }
  static Four load(const float* numbers) { return {_mm_loadu_ps(numbers)}; }
  static Four all(float x) { return {_mm_set1_ps(x)}; }
  void store(float* numbers) const { _mm_storeu_ps(numbers, v); }

  friend Four operator+(Four a, Four b) { return {_mm_add_ps(a.v, b.v)}; }
  friend Four operator-(Four a, Four b) { return {_mm_sub_ps(a.v, b.v)}; }
  friend Four operator*(Four a, Four b) { return {_mm_mul_ps(a.v, b.v)}; }
  friend Four operator/(Four a, Four b) { return {_mm_div_ps(a.v, b.v)}; }

  float sum() const {
    const __m128 two = _mm_add_ps(v, _mm_movehl_ps(v, v));
    return _mm_cvtss_f32(_mm_add_ss(two, _mm_shuffle_ps(two, two, 1)));
  }
  Four running_sums() const {
    const __m128 two = _mm_add_ps(v, _mm_castsi128_ps(_mm_slli_si128(_mm_castps_si128(v), 4)));
    return {_mm_add_ps(two, _mm_castsi128_ps(_mm_slli_si128(_mm_castps_si128(two), 8)))};
  }
  Four last() const { return {_mm_shuffle_ps(v, v, _MM_SHUFFLE(3, 3, 3, 3))}; }

  Answers above(Four limits) const { return _mm_castps_si128(_mm_cmpgt_ps(v, limits.v)); }
  static std::size_t first(const Answers (&answers)[4]) {
    const __m128i bytes = _mm_packs_epi16(_mm_packs_epi32(answers[0], answers[1]),
                                          _mm_packs_epi32(answers[2], answers[3]));
    const auto mask = static_cast<unsigned>(_mm_movemask_epi8(bytes)) | 0x10000U;
    return static_cast<std::size_t>(std::countr_zero(mask));
  }
  bool between(float least, float most) const {
    const __m128 inside =
        _mm_and_ps(_mm_cmple_ps(v, _mm_set1_ps(most)), _mm_cmpge_ps(v, _mm_set1_ps(least)));
    return _mm_movemask_ps(inside) == 15;
  }

  Parts<Four> split() const {
    const __m128i bits = _mm_castps_si128(v);
    const __m128i n = _mm_srai_epi32(_mm_sub_epi32(bits, _mm_set1_epi32(kRootOfHalf)), kExponentAt);
    return {n, {_mm_castsi128_ps(_mm_sub_epi32(bits, _mm_slli_epi32(n, kExponentAt)))}};
  }
  static Parts<Four> multiply(double y, const Parts<Four>& x) {
    const __m128d factor = _mm_set1_pd(y);
    const auto product = [&](__m128i whole, __m128 rest) {  // of the lower two
      return _mm_mul_pd(_mm_add_pd(_mm_cvtepi32_pd(whole), _mm_cvtps_pd(rest)), factor);
    };
    const __m128d low = product(x.whole, x.rest.v);
    const __m128d high = product(_mm_srli_si128(x.whole, 8), _mm_movehl_ps(x.rest.v, x.rest.v));
    const __m128i n_low = _mm_cvtpd_epi32(low);
    const __m128i n_high = _mm_cvtpd_epi32(high);
    return {_mm_unpacklo_epi64(n_low, n_high),
            {_mm_movelh_ps(_mm_cvtpd_ps(_mm_sub_pd(low, _mm_cvtepi32_pd(n_low))),
                           _mm_cvtpd_ps(_mm_sub_pd(high, _mm_cvtepi32_pd(n_high))))}};
  }
  Four scaled(Whole n) const {
    const __m128i exponent = _mm_add_epi32(n, _mm_set1_epi32(kExponentOfOne));
    return {_mm_mul_ps(v, _mm_castsi128_ps(_mm_slli_epi32(exponent, kExponentAt)))};
  }
};

}  // namespace replay_buffer
