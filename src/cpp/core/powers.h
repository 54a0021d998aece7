// Many powers at once: for SSE2, which every x86-64 has, and by std::pow.
#pragma once

#include <cmath>
#include <cstddef>

#include "core/simd.h"

namespace replay_buffer {

#if defined(REPLAY_SIMD_SSE2)
// x^y of four positive normal numbers, where the result is one too and |y| <= 4. The error is below
// 4e-7 of it for |y| <= 1.5, and grows with y.
inline __m128 power4(__m128 x, double y) {
  // x = 2^k m, where m is between the roots of 1/2 and 2.
  constexpr int kRootOfHalf = 0x3f3504f3;
  const __m128i shifted = _mm_sub_epi32(_mm_castps_si128(x), _mm_set1_epi32(kRootOfHalf));
  const __m128i k = _mm_srai_epi32(shifted, 23);
  const __m128 m = _mm_castsi128_ps(_mm_sub_epi32(_mm_castps_si128(x), _mm_slli_epi32(k, 23)));
  // log2 m = 2 / ln 2 (t + t^3 / 3 + t^5 / 5 + ...) with t = (m - 1) / (m + 1)
  const __m128 one = _mm_set1_ps(1);
  const __m128 t = _mm_div_ps(_mm_sub_ps(m, one), _mm_add_ps(m, one));
  const __m128 square = _mm_mul_ps(t, t);
  constexpr double kTwoLog2E = 2.8853900817779268;
  const auto series = [](__m128 at, const auto& coefficients) {
    __m128 sum = _mm_setzero_ps();
    for (const double c : coefficients) {
      sum = _mm_add_ps(_mm_mul_ps(sum, at), _mm_set1_ps(static_cast<float>(c)));
    }
    return sum;
  };
  constexpr double kLog[] = {kTwoLog2E / 9, kTwoLog2E / 7, kTwoLog2E / 5, kTwoLog2E / 3, kTwoLog2E};
  const __m128 log2m = _mm_mul_ps(t, series(square, kLog));
  // The whole exponent needs more digits than a float has: n + rest = y (k + log2 m).
  const __m128d factor = _mm_set1_pd(y);
  const __m128d low = _mm_mul_pd(_mm_add_pd(_mm_cvtepi32_pd(k), _mm_cvtps_pd(log2m)), factor);
  const __m128d high = _mm_mul_pd(
      _mm_add_pd(_mm_cvtepi32_pd(_mm_srli_si128(k, 8)), _mm_cvtps_pd(_mm_movehl_ps(log2m, log2m))),
      factor);
  const __m128i n_low = _mm_cvtpd_epi32(low);
  const __m128i n_high = _mm_cvtpd_epi32(high);
  const __m128i n = _mm_unpacklo_epi64(n_low, n_high);
  const __m128 rest = _mm_movelh_ps(_mm_cvtpd_ps(_mm_sub_pd(low, _mm_cvtepi32_pd(n_low))),
                                    _mm_cvtpd_ps(_mm_sub_pd(high, _mm_cvtepi32_pd(n_high))));
  // 2^rest, where rest is between -1/2 and 1/2: the series of e^(rest ln 2)
  constexpr double kExp[] = {
      1.5252733804059841e-5, 1.5403530393381609e-4, 1.3333558146428443e-3, 9.6181291076284772e-3,
      5.5504108664821580e-2, 2.4022650695910072e-1, 6.9314718055994531e-1, 1};
  const __m128i scale = _mm_slli_epi32(_mm_add_epi32(n, _mm_set1_epi32(127)), 23);
  return _mm_mul_ps(series(rest, kExp), _mm_castsi128_ps(scale));
}
#endif

// Replaces n numbers x >= 0 by x^y.
inline void powers(float* x, std::size_t n, float y) {
  std::size_t i = 0;
#if defined(REPLAY_SIMD_SSE2)
  // Where x^y has an exponent far from the ends of the range, and so has x.
  const float edge = std::exp2(std::fmin(120.0F, 120.0F / std::fmax(std::fabs(y), 1e-3F)));
  const __m128 most = _mm_set1_ps(edge);
  const __m128 least = _mm_set1_ps(1 / edge);
  for (; i + 4 <= n && std::fabs(y) <= 4; i += 4) {
    const __m128 four = _mm_loadu_ps(x + i);
    const __m128 ordinary = _mm_and_ps(_mm_cmple_ps(four, most), _mm_cmpge_ps(four, least));
    if (_mm_movemask_ps(ordinary) == 15) [[likely]] {
      _mm_storeu_ps(x + i, power4(four, static_cast<double>(y)));
    } else {
      for (std::size_t k = i; k < i + 4; ++k) x[k] = std::pow(x[k], y);
    }
  }
#endif
  for (; i < n; ++i) x[i] = std::pow(x[i], y);
}

}  // namespace replay_buffer
