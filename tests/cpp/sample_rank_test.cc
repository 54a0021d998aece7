#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "chi_square.h"
#include "core/random.h"
#include "crowd.h"
#include "numbered.h"
#include "sanitized.h"

namespace replay_buffer {
namespace {

using testing::agrees;
using testing::code_of;
using testing::config_of;
using testing::Countdown;
using testing::crowd;
using testing::NumberedBuffer;
using testing::NumberedRows;
using testing::Part;
using testing::rounds;

BufferConfig ranked(std::uint64_t capacity, float alpha = 0.7F) {
  BufferConfig config = config_of(capacity, SamplingStrategy::Rank);
  config.alpha = alpha;
  return config;
}

// 1 / rank^alpha of every slot, the largest raw priority first, equal ones by slot.
std::vector<double> rank_masses(const std::vector<float>& raws, float alpha) {
  std::vector<std::size_t> order(raws.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return raws[a] > raws[b]; });
  std::vector<double> masses(raws.size());
  for (std::size_t rank = 0; rank < order.size(); ++rank) {
    masses[order[rank]] = std::pow(static_cast<double>(rank + 1), -static_cast<double>(alpha));
  }
  return masses;
}

std::vector<float> random_raws(std::size_t n, std::uint64_t seed) {
  Random random(seed, 0);
  std::vector<float> raws(n);
  for (float& raw : raws) raw = static_cast<float>(std::exp(40 * (random.unit() - 0.5)));
  return raws;
}

TEST(SampleRank, DrawsByRankNotBySize) {
  for (float alpha : {0.0F, 0.7F, 1.5F}) {
    const std::vector<float> raws = random_raws(90, 1);
    NumberedBuffer b(ranked(90, alpha));
    b.add(raws);
    EXPECT_TRUE(agrees(b.counts(rounds(80'000), 1), rank_masses(raws, alpha))) << alpha;
    EXPECT_TRUE(agrees(b.counts(rounds(80'000) / 16 + 1, 16), rank_masses(raws, alpha))) << alpha;
  }
}

TEST(SampleRank, TakesEqualPrioritiesInTheOrderOfTheirSlots) {
  const std::vector<float> raws = {0, 5, 0, 5, 1e-45F, 3e38F, 5, 0};
  NumberedBuffer b(ranked(8));
  b.add(raws);
  EXPECT_TRUE(agrees(b.counts(rounds(50'000), 1), rank_masses(raws, 0.7F)));
}

TEST(SampleRank, FollowsUpdatesAlphaAndTheWrap) {
  std::vector<float> raws = random_raws(40, 2);
  NumberedBuffer b(ranked(40));
  b.add(raws);
  b.ids(4);  // sorts
  b.update({3}, {1e30F});
  raws[3] = 1e30F;
  EXPECT_TRUE(agrees(b.counts(rounds(50'000), 1), rank_masses(raws, 0.7F)));
  b.buffer.ring().priorities->set_alpha(1.2F);
  EXPECT_TRUE(agrees(b.counts(rounds(50'000), 1), rank_masses(raws, 1.2F)));
  const std::vector<float> fresh = random_raws(55, 3);
  b.add(fresh);
  for (std::size_t i = 0; i < 55; ++i) raws[i % 40] = fresh[i];
  EXPECT_TRUE(agrees(b.counts(rounds(50'000), 1), rank_masses(raws, 1.2F)));
}

TEST(SampleRank, AfterClearRanksOnlyNewRows) {
  NumberedBuffer b(ranked(40));
  b.add(random_raws(40, 4));
  b.ids(4);
  b.buffer.clear();
  EXPECT_EQ(code_of([&] { b.ids(1); }), ErrorCode::kNotEnoughRows);
  b.add(std::vector<float>{1, 2});
  std::vector<double> masses(40, 0);
  masses[0] = std::pow(2.0, -0.7);
  masses[1] = 1;
  EXPECT_TRUE(agrees(b.counts(rounds(20'000), 1), masses));
}

TEST(SampleRank, DrawsOneRowFromEachStratum) {
  NumberedBuffer b(ranked(64, 0));
  b.add(random_raws(64, 5));
  for (int i = 0; i < 50; ++i) {
    std::vector<std::int64_t> ids = b.ids(64);
    std::sort(ids.begin(), ids.end());
    EXPECT_EQ(ids, testing::count_from(0, 64));
  }
}

TEST(SampleRank, DrawsOnlyWholeLiveRowsWhileWritersOverwrite) {
  NumberedBuffer b(ranked(300));
  b.add(300);
  Countdown writing(1);
  std::atomic<std::size_t> wrong{0};
  crowd(3, [&](std::size_t me) {
    if (me == 0) {
      const Part part(writing);
      for (std::size_t i = 0; i < rounds(20'000); ++i) b.add(1 + i % 5);
      return;
    }
    NumberedRows out(b.schema, 32);
    std::vector<std::int64_t> ids(32);
    Random random(6, me);
    while (writing.running()) {
      b.buffer.sample({32, out.out(), ids.data(), nullptr}, 0);
      std::vector<float> raws(32);
      for (std::size_t k = 0; k < 32; ++k) {
        if (!out.whole(k, static_cast<std::uint64_t>(ids[k]))) wrong.fetch_add(1);
        raws[k] = static_cast<float>(random.unit());
      }
      b.update(ids, raws);
    }
  });
  EXPECT_EQ(wrong.load(), 0u);
}

}  // namespace
}  // namespace replay_buffer
