#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "chi_square.h"
#include "core/random.h"
#include "crowd.h"
#include "numbered.h"
#include "sanitized.h"

namespace replay_buffer {
namespace {

using testing::agrees;
using testing::config_of;
using testing::count_from;
using testing::Countdown;
using testing::crowd;
using testing::equally_likely;
using testing::NumberedBuffer;
using testing::NumberedRows;
using testing::Part;
using testing::rounds;

BufferConfig prioritized(std::uint64_t capacity, float alpha, float epsilon) {
  BufferConfig config = config_of(capacity, SamplingStrategy::Prioritized);
  config.alpha = alpha;
  config.epsilon = epsilon;
  return config;
}

std::vector<double> powers(const std::vector<float>& raws, float alpha, float epsilon) {
  std::vector<double> weights;
  for (float raw : raws)
    weights.push_back(std::pow(static_cast<double>(raw + epsilon), static_cast<double>(alpha)));
  return weights;
}

// Frequencies against (p + epsilon)^alpha, one draw at a time and in strata.
void expect_proportional(const std::vector<float>& raws, float alpha = 0.6F,
                         float epsilon = 1e-3F) {
  NumberedBuffer b(prioritized(raws.size(), alpha, epsilon));
  b.add(raws);
  EXPECT_TRUE(agrees(b.counts(rounds(100'000), 1), powers(raws, alpha, epsilon)));
  EXPECT_TRUE(agrees(b.counts(rounds(100'000) / 32 + 1, 32), powers(raws, alpha, epsilon)));
}

std::vector<float> made(std::size_t n, const std::function<double(std::size_t)>& value) {
  std::vector<float> raws;
  for (std::size_t i = 0; i < n; ++i) raws.push_back(static_cast<float>(value(i)));
  return raws;
}

TEST(SamplePrioritized, EqualPriorities) {
  expect_proportional(made(100, [](std::size_t) { return 3; }));
}
TEST(SamplePrioritized, SkewedPriorities) {
  expect_proportional(made(100, [](std::size_t i) { return std::pow(1.1, i); }));
  expect_proportional(made(37, [](std::size_t i) { return i; }), 1);
}
TEST(SamplePrioritized, TinyPriorities) {
  expect_proportional(made(100, [](std::size_t i) { return 1e-30 * static_cast<double>(i + 1); }),
                      1, 0);
}
TEST(SamplePrioritized, HugePriorities) {
  expect_proportional(made(100, [](std::size_t i) { return 1e20 * static_cast<double>(i + 1); }), 1,
                      0);
}
TEST(SamplePrioritized, SomeZeroPriorities) {
  expect_proportional(made(100, [](std::size_t i) { return i % 3 == 0 ? 0 : 1; }), 0.6F, 0);
}
TEST(SamplePrioritized, OneOfManyHasAllTheWeight) {
  NumberedBuffer b(prioritized(10'000, 1, 0));
  b.add(made(10'000, [](std::size_t i) { return i == 7'777 ? 1e-20 : 0; }));
  EXPECT_EQ(b.ids(500), std::vector<std::int64_t>(500, 7'777));
}
TEST(SamplePrioritized, AlphaZeroIsUniform) {
  expect_proportional(made(50, [](std::size_t i) { return i + 1; }), 0, 0);
}

// 0^0 is 1, and would let rows come back as alpha gets to 0 that no alpha above it draws.
TEST(SamplePrioritized, AlphaZeroDrawsNoRowOfPriorityZero) {
  NumberedBuffer b(prioritized(50, 0, 0));
  b.add(made(50, [](std::size_t i) { return i % 2; }));
  std::vector<double> weights(50);
  for (std::size_t i = 0; i < 50; ++i) weights[i] = static_cast<double>(i % 2);
  EXPECT_TRUE(agrees(b.counts(rounds(50'000), 1), weights));
}

TEST(SamplePrioritized, FollowsUpdatesAndTheWrap) {
  NumberedBuffer b(prioritized(60, 0.7F, 1e-3F));
  Random random(1, 0);
  std::vector<float> raws(60);
  std::int64_t next = 0;
  for (int round = 0; round < 5; ++round) {
    const std::vector<float> fresh = made(25, [&](std::size_t) { return random.unit(); });
    b.add(fresh);
    for (float raw : fresh) raws[static_cast<std::size_t>(next++) % 60] = raw;
    const std::int64_t oldest = std::max<std::int64_t>(0, next - 60);
    const std::vector<std::int64_t> some = count_from(oldest, 10);
    const std::vector<float> changed = made(10, [&](std::size_t) { return 5 * random.unit(); });
    b.update(some, changed);
    for (std::size_t i = 0; i < 10; ++i) raws[static_cast<std::size_t>(some[i]) % 60] = changed[i];
    std::vector<double> weights = powers(raws, 0.7F, 1e-3F);
    for (auto slot = static_cast<std::size_t>(next); slot < 60; ++slot) weights[slot] = 0;
    EXPECT_TRUE(agrees(b.counts(rounds(50'000), 1), weights)) << round;
  }
}

// A batch takes exactly one row from each of as many equal strata.
TEST(SamplePrioritized, DrawsOneRowFromEachStratum) {
  NumberedBuffer b(prioritized(1024, 0, 0));  // every leaf is 1
  b.add(1024);
  for (int i = 0; i < 20; ++i) EXPECT_EQ(b.ids(1024), count_from(0, 1024));
  for (int i = 0; i < 100; ++i) {
    const std::vector<std::int64_t> ids = b.ids(32);
    for (std::size_t k = 0; k < 32; ++k) ASSERT_EQ(static_cast<std::size_t>(ids[k]) / 32, k);
  }
}

TEST(SamplePrioritized, AllPrioritiesZeroIsUniform) {
  NumberedBuffer b(prioritized(50, 0.6F, 0));
  b.add(std::vector<float>(30, 0));
  std::vector<double> weights(50, 0);
  std::fill_n(weights.begin(), 30, 1);
  EXPECT_TRUE(agrees(b.counts(rounds(20'000) / 32 + 100, 32), weights));
  for (float weight : b.sample(16, 1).weights) EXPECT_EQ(weight, 1);
  b.add(std::vector<float>(120, 0));
  EXPECT_TRUE(equally_likely(b.counts(rounds(20'000) / 32 + 100, 32)));
  b.update({149}, {1});
  EXPECT_EQ(b.ids(100), std::vector<std::int64_t>(100, 149));
}

TEST(SamplePrioritized, NeverGivesARowOfPriorityZeroWhileOthersChange) {
  NumberedBuffer b(prioritized(1000, 1, 0));
  b.add(std::vector<float>(1000, 0));
  const std::vector<std::int64_t> even = [] {
    std::vector<std::int64_t> ids;
    for (std::int64_t id = 0; id < 1000; id += 2) ids.push_back(id);
    return ids;
  }();
  b.update(even, std::vector<float>(500, 1));
  Countdown updating(1);
  std::atomic<std::size_t> wrong{0};
  crowd(3, [&](std::size_t me) {
    Random random(3, me);
    if (me == 0) {
      const Part part(updating);
      for (std::size_t i = 0; i < rounds(20'000); ++i) {
        std::vector<std::int64_t> ids(8);
        for (std::int64_t& id : ids) id = even[random.below(500)];
        b.update(ids, made(8, [&](std::size_t) { return 1e-6 + std::pow(random.unit(), 10); }));
      }
      return;
    }
    NumberedRows out(b.schema, 64);
    std::vector<std::int64_t> ids(64);
    while (updating.running()) {
      b.buffer.sample({64, out.out(), ids.data(), nullptr}, 0);
      for (std::int64_t id : ids) wrong.fetch_add(static_cast<std::size_t>(id % 2));
    }
  });
  EXPECT_EQ(wrong.load(), 0u);
}

// The row with nearly all the weight is held by a writer that stopped in the middle of it.
TEST(SamplePrioritized, TerminatesWhenTheHeaviestRowIsBeingWritten) {
  NumberedBuffer b(prioritized(10, 1, 0));
  b.add(made(10, [](std::size_t i) { return i == 4 ? 1e9 : 1e-9; }));
  b.buffer.ring().rows.word(4).store(row_word(14, RowState::kWriting));
  for (std::int64_t id : b.ids(50)) EXPECT_NE(id, 4);
}

TEST(SamplePrioritized, DrawsOnlyWholeLiveRowsWhileWritersOverwrite) {
  NumberedBuffer b(prioritized(300, 0.6F, 1e-3F));
  b.add(300);
  Countdown writing(1);
  std::atomic<std::size_t> wrong{0};
  std::atomic<std::size_t> drawn{0};
  crowd(3, [&](std::size_t me) {
    if (me == 0) {
      const Part part(writing);
      for (std::size_t i = 0; i < rounds(60'000); ++i) b.add(1 + i % 5);
      return;
    }
    NumberedRows out(b.schema, 32);
    std::vector<std::int64_t> ids(32);
    std::vector<float> weights(32);
    Random random(5, me);
    while (writing.running()) {
      b.buffer.sample({32, out.out(), ids.data(), weights.data()}, 0.5F);
      std::vector<float> raws(32);
      for (std::size_t k = 0; k < 32; ++k) {
        const bool right = out.whole(k, static_cast<std::uint64_t>(ids[k])) && weights[k] > 0 &&
                           weights[k] <= 1.0F;
        if (!right) wrong.fetch_add(1);
        raws[k] = static_cast<float>(random.unit());
      }
      b.update(ids, raws);
      drawn.fetch_add(32);
    }
  });
  EXPECT_EQ(wrong.load(), 0u);
  EXPECT_GT(drawn.load(), 0u);
}

}  // namespace
}  // namespace replay_buffer
