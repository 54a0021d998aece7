// Whether counts agree with the probabilities they should follow.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace replay_buffer::testing {

// What a chi-square of k degrees of freedom exceeds once in a million (Wilson and Hilferty).
inline double chi_square_limit(std::size_t k) {
  constexpr double kOnceInAMillion = 4.7534;  // standard deviations
  const double a = 2.0 / (9.0 * static_cast<double>(k));
  const double root = 1 - a + kOnceInAMillion * std::sqrt(a);
  return static_cast<double>(k) * root * root * root;
}

// Counts against weights (not necessarily normalised); what has weight 0 must not occur at all.
// Cells that expect fewer than 5 are taken together.
inline ::testing::AssertionResult agrees(const std::vector<std::uint64_t>& counts,
                                         const std::vector<double>& weights) {
  double total = 0;
  double mass = 0;
  for (std::size_t i = 0; i < counts.size(); ++i) {
    total += static_cast<double>(counts[i]);
    mass += weights[i];
    if (weights[i] == 0 && counts[i] != 0) {
      return ::testing::AssertionFailure()
             << i << " has weight 0 and came " << counts[i] << " times";
    }
  }
  double statistic = 0;
  double rare_expected = 0;
  double rare_seen = 0;
  std::size_t cells = 0;
  const auto add = [&](double seen, double expected) {
    statistic += (seen - expected) * (seen - expected) / expected;
    ++cells;
  };
  for (std::size_t i = 0; i < counts.size(); ++i) {
    const double expected = total * weights[i] / mass;
    if (expected >= 5) {
      add(static_cast<double>(counts[i]), expected);
    } else {
      rare_expected += expected;
      rare_seen += static_cast<double>(counts[i]);
    }
  }
  if (rare_expected >= 5) add(rare_seen, rare_expected);
  if (cells < 2) return ::testing::AssertionFailure() << "too few draws to tell";
  const double limit = chi_square_limit(cells - 1);
  if (statistic < limit) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << "chi-square " << statistic << " over the limit " << limit
                                       << " of " << cells << " cells";
}

inline ::testing::AssertionResult equally_likely(const std::vector<std::uint64_t>& counts) {
  return agrees(counts, std::vector<double>(counts.size(), 1.0));
}

}  // namespace replay_buffer::testing
