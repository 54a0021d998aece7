// Many powers at once.
#pragma once

#include <cmath>
#include <cstddef>

#include "core/simd.h"

namespace replay_buffer {

// x^y of four positive normal numbers, where the result is one too and |y| <= 4. The error is below
// 4e-7 of it for |y| <= 1.5, and grows with y.
template <class Lanes>
inline Lanes power4(const Lanes& x, double y) {
  const auto series = [](const Lanes& at, const auto& coefficients) {
    Lanes sum = Lanes::all(0);
    for (const double c : coefficients) sum = sum * at + Lanes::all(static_cast<float>(c));
    return sum;
  };
  Parts<Lanes> logarithm = x.split();
  // log2 m = 2 / ln 2 (t + t^3 / 3 + t^5 / 5 + ...) with t = (m - 1) / (m + 1)
  const Lanes one = Lanes::all(1);
  const Lanes t = (logarithm.rest - one) / (logarithm.rest + one);
  constexpr double kTwoLog2E = 2.8853900817779268;
  constexpr double kLog[] = {kTwoLog2E / 9, kTwoLog2E / 7, kTwoLog2E / 5, kTwoLog2E / 3, kTwoLog2E};
  logarithm.rest = t * series(t * t, kLog);
  // The whole exponent needs more digits than a float has.
  const Parts<Lanes> exponent = Lanes::multiply(y, logarithm);
  // 2^rest, where rest is between -1/2 and 1/2: the series of e^(rest ln 2)
  constexpr double kExp[] = {
      1.5252733804059841e-5, 1.5403530393381609e-4, 1.3333558146428443e-3, 9.6181291076284772e-3,
      5.5504108664821580e-2, 2.4022650695910072e-1, 6.9314718055994531e-1, 1};
  return series(exponent.rest, kExp).scaled(exponent.whole);
}

// Replaces n numbers x >= 0 by x^y.
template <class Lanes = Four>
inline void powers(float* x, std::size_t n, float y) {
  // Where x^y has an exponent far from the ends of the range, and so has x.
  const float edge = std::exp2(std::fmin(120.0F, 120.0F / std::fmax(std::fabs(y), 1e-3F)));
  std::size_t i = 0;
  for (; i + 4 <= n && std::fabs(y) <= 4; i += 4) {
    const Lanes four = Lanes::load(x + i);
    if (four.between(1 / edge, edge)) [[likely]] {
      power4(four, static_cast<double>(y)).store(x + i);
    } else {
      for (std::size_t k = i; k < i + 4; ++k) x[k] = std::pow(x[k], y);
    }
  }
  for (; i < n; ++i) x[i] = std::pow(x[i], y);
}

}  // namespace replay_buffer
