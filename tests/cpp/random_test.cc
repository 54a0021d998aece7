#include "core/random.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <set>
#include <vector>

#include "chi_square.h"

namespace replay_buffer {
namespace {

using testing::equally_likely;

TEST(Random, IsAFunctionOfSeedCallAndPosition) {
  Random a(7, 3);
  Random b(7, 3);
  for (int i = 0; i < 100; ++i) ASSERT_EQ(a.next(), b.next());
}

TEST(Random, NeighbouringSeedsAndCallsShareNothing) {
  std::set<std::uint64_t> seen;
  std::size_t drawn = 0;
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    for (std::uint64_t call = 0; call < 40; ++call) {
      Random random(seed, call);
      for (int i = 0; i < 40; ++i, ++drawn) seen.insert(random.next());
    }
  }
  EXPECT_EQ(seen.size(), drawn);
}

TEST(Random, TheStreamsOfNeighboursAreNotCorrelated) {
  for (const auto& [seed, call] : {std::pair{0, 1}, {1, 0}, {1, 1}}) {
    std::size_t equal_bits = 0;
    constexpr std::size_t kDraws = 20'000;
    for (std::uint64_t i = 0; i < kDraws; ++i) {
      Random a(i, i * 3);
      Random b(i + static_cast<std::uint64_t>(seed), i * 3 + static_cast<std::uint64_t>(call));
      equal_bits += static_cast<std::size_t>(std::popcount(~(a.next() ^ b.next())));
    }
    const double mean = 32.0 * kDraws;
    EXPECT_NEAR(static_cast<double>(equal_bits), mean, 6 * std::sqrt(16.0 * kDraws));
  }
}

TEST(Random, EveryBitIsSetHalfTheTime) {
  std::vector<std::uint64_t> ones(64);
  constexpr std::size_t kDraws = 100'000;
  Random random(5, 0);
  for (std::size_t i = 0; i < kDraws; ++i) {
    const std::uint64_t word = random.next();
    for (std::size_t bit = 0; bit < 64; ++bit) ones[bit] += word >> bit & 1;
  }
  for (std::uint64_t count : ones) {
    EXPECT_NEAR(static_cast<double>(count), kDraws / 2.0, 6 * std::sqrt(kDraws / 4.0));
  }
}

TEST(Random, UnitIsInZeroToOneAndEven) {
  Random random(2, 0);
  std::vector<std::uint64_t> counts(1000);
  for (int i = 0; i < 500'000; ++i) {
    const double u = random.unit();
    ASSERT_GE(u, 0);
    ASSERT_LT(u, 1);
    ++counts[static_cast<std::size_t>(u * 1000)];
  }
  EXPECT_TRUE(equally_likely(counts));
}

TEST(Random, BelowIsEvenForSmallNumbers) {
  for (std::uint64_t n : {2, 3, 5, 7, 10, 1000}) {
    Random random(3, n);
    std::vector<std::uint64_t> counts(n);
    for (int i = 0; i < 200'000; ++i) {
      const std::uint64_t drawn = random.below(n);
      ASSERT_LT(drawn, n);
      ++counts[drawn];
    }
    EXPECT_TRUE(equally_likely(counts)) << n;
  }
  Random random(3, 1);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(random.below(1), 0u);
}

// Multiply-and-shift alone would give some thirds of these ranges twice as often as others.
TEST(Random, BelowIsEvenForNumbersNearTheLimit) {
  for (std::uint64_t n : {std::uint64_t{3} << 62, (std::uint64_t{1} << 63) + 1, ~std::uint64_t{0},
                          std::uint64_t{0xAAAAAAAAAAAAAAAA}}) {
    Random random(4, n);
    std::vector<std::uint64_t> thirds(3);
    std::vector<std::uint64_t> modulo(3);
    for (int i = 0; i < 300'000; ++i) {
      const std::uint64_t drawn = random.below(n);
      ASSERT_LT(drawn, n);
      ++thirds[drawn / (n / 3 + 1)];
      ++modulo[drawn % 3];
    }
    EXPECT_TRUE(equally_likely(thirds)) << n;
    EXPECT_TRUE(equally_likely(modulo)) << n;
  }
}

}  // namespace
}  // namespace replay_buffer
