// The public C++ face, through its headers alone.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <limits>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "code_of.h"
#include "crowd.h"
#include "replay_buffer/buffer.h"
#include "sanitized.h"

namespace replay_buffer {
namespace {

using testing::code_of;
using testing::Countdown;
using testing::crowd;
using testing::kSanitized;
using testing::Part;
using testing::rounds;

using Observation = std::array<float, 8>;
using Plain = ReplayBuffer<Observation, std::int64_t>;

Plain prioritized(BufferConfig config) {
  config.strategy = SamplingStrategy::Prioritized;
  return config;
}

// Everything in it follows from its number.
Plain::Row row(int number, float priority = -1) {
  Plain::Row r;
  r.observation.fill(static_cast<float>(number));
  r.action = number;
  r.reward = static_cast<float>(number) / 2;
  r.next_observation.fill(static_cast<float>(number + 1));
  r.done = number % 3 == 0;
  r.priority = priority;
  return r;
}

bool whole(const Plain::Row& r) {
  const Plain::Row expected = row(static_cast<int>(r.action));
  return r.observation == expected.observation && r.reward == expected.reward &&
         r.next_observation == expected.next_observation && r.done == expected.done;
}

TEST(TypedBuffer, KeepsTheNewestTransitions) {
  Plain buffer({.capacity = 10});
  EXPECT_EQ(buffer.size(), 0u);
  EXPECT_EQ(buffer.capacity(), 10u);
  for (int i = 0; i < 25; ++i) {
    EXPECT_EQ(buffer.is_full(), i >= 10);
    EXPECT_EQ(buffer.add(row(i)), static_cast<std::size_t>(i));
  }
  EXPECT_EQ(buffer.size(), 10u);
  std::set<std::int64_t> seen;
  for (const Plain::Row& r : buffer.sample(500)) {
    EXPECT_TRUE(whole(r));
    seen.insert(r.action);
  }
  EXPECT_EQ(seen.size(), 10u);
  EXPECT_EQ(*seen.begin(), 15);
}

TEST(TypedBuffer, DrawsIntoWhatTheCallerHas) {
  Plain buffer({.capacity = 100});
  for (int i = 0; i < 100; ++i) buffer.add(row(i));
  std::vector<Plain::Row> rows(64);
  std::vector<std::size_t> ids(64);
  buffer.sample(rows, ids);
  for (std::size_t i = 0; i < 64; ++i) {
    EXPECT_TRUE(whole(rows[i]));
    EXPECT_EQ(rows[i].action, static_cast<std::int64_t>(ids[i]));
  }
}

// Small batches come by another way than large ones, and rows that are large by yet another.
TEST(TypedBuffer, DrawsTheSameWhateverTheWay) {
  struct Frame {
    std::array<std::int64_t, 3000> pixels;
  };
  const auto expect_same = [](auto observation, std::size_t n) {
    using Typed = ReplayBuffer<decltype(observation), std::int64_t>;
    Typed one({.capacity = 300});
    Typed other({.capacity = 300});
    for (int i = 0; i < 300; ++i) {
      one.add({.action = i, .reward = 0.5F});
      other.add({.action = i, .reward = 0.5F});
    }
    std::vector<typename Typed::Row> rows(n);
    std::vector<std::size_t> ids(n);
    other.sample(rows, ids);
    const std::vector<typename Typed::Row> batch = one.sample(n);
    ASSERT_EQ(batch.size(), n);
    for (std::size_t i = 0; i < n; ++i) {
      EXPECT_EQ(batch[i].action, rows[i].action);
      EXPECT_EQ(batch[i].reward, 0.5F);
      EXPECT_EQ(batch[i].priority, -1) << "of no meaning here, but not left to chance";
    }
  };
  for (std::size_t n : {1U, 32U, 256U, 257U, 1000U}) {
    expect_same(Observation{}, n);
    expect_same(char{}, n);
  }
  expect_same(Frame{}, 1);
  expect_same(Frame{}, 3);
}

TEST(TypedBuffer, ReadsARowInPlace) {
  Plain buffer({.capacity = 10});
  for (int i = 0; i < 25; ++i) buffer.add(row(i));
  Plain::Row seen;
  EXPECT_TRUE(buffer.visit(20, [&](const Observation& observation, std::int64_t action,
                                   float reward, const Observation& next_observation, bool done) {
    seen = {observation, action, reward, next_observation, done};
  }));
  EXPECT_EQ(seen.action, 20);
  EXPECT_TRUE(whole(seen));
  float sum = 0;
  EXPECT_TRUE(buffer.visit_observation(17, [&](std::span<const float> values) {
    for (float value : values) sum += value;
  }));
  EXPECT_EQ(sum, 8 * 17.0F);
  for (std::size_t gone : {std::size_t{3}, std::size_t{25}, ~std::size_t{0}}) {
    EXPECT_FALSE(buffer.visit(gone, [](const auto&...) { FAIL(); }));
  }
}

TEST(TypedBuffer, AVisitOfARowOverwrittenMeanwhileIsRefused) {
  Plain buffer({.capacity = 4});
  for (int i = 0; i < 4; ++i) buffer.add(row(i));
  EXPECT_FALSE(buffer.visit(0, [&](const auto&...) { buffer.add(row(4)); }));
}

TEST(TypedBuffer, GivesTheNewestAndForgetsThem) {
  Plain buffer({.capacity = 10});
  for (int i = 0; i < 25; ++i) buffer.add(row(i));
  EXPECT_EQ(buffer.latest(3), (std::vector<std::size_t>{22, 23, 24}));
  EXPECT_EQ(buffer.latest(1'000'000'000'000).size(), 10u);
  buffer.clear();
  EXPECT_EQ(buffer.size(), 0u);
  EXPECT_TRUE(buffer.latest(3).empty());
}

TEST(TypedBuffer, RefusesWhatCannotBe) {
  EXPECT_EQ(code_of([] { Plain({.capacity = 0}); }), ErrorCode::kInvalidArgument);
  Plain buffer({.capacity = 10});
  EXPECT_EQ(code_of([&] { buffer.sample(3); }), ErrorCode::kNotEnoughRows);
  buffer.add(row(1));
  EXPECT_EQ(code_of([&] { buffer.sample(0); }), ErrorCode::kInvalidArgument);
}

TEST(TypedBuffer, CanBeMoved) {
  Plain a({.capacity = 10});
  a.add(row(1));
  Plain b(std::move(a));
  EXPECT_EQ(b.sample(1)[0].action, 1);
}

// Numbers, nested arrays and structures of any alignment come back as they went in.
TEST(TypedBuffer, StoresManyTypes) {
  struct Pose {
    double x;
    std::int16_t joint;
    bool operator==(const Pose&) const = default;
  };
  using Image = std::array<std::array<std::uint8_t, 50>, 40>;
  const auto expect_kept = [](auto observation, auto action) {
    ReplayBuffer<decltype(observation), decltype(action)> buffer({.capacity = 3});
    buffer.add({observation, action, 1, observation, true});
    buffer.add({observation, action, 1, observation, true});
    const auto drawn = buffer.sample(5);
    for (const auto& r : drawn) {
      EXPECT_EQ(r.observation, observation);
      EXPECT_EQ(r.action, action);
      EXPECT_EQ(r.next_observation, observation);
      EXPECT_TRUE(r.done);
    }
    EXPECT_TRUE(buffer.visit(1, [&](const auto& o, const auto& a, const auto&...) {
      EXPECT_EQ(reinterpret_cast<std::uintptr_t>(&o) % alignof(decltype(observation)), 0u);
      EXPECT_EQ(o, observation);
      EXPECT_EQ(a, action);
    }));
  };
  Image image;
  for (auto& line : image) line.fill(7);
  expect_kept(3, true);
  expect_kept(2.5, std::int8_t{-3});
  expect_kept(image, std::uint16_t{9});
  expect_kept(Pose{0.5, 3}, std::array<float, 3>{1, 2, 3});
  expect_kept(std::array<Pose, 3>{Pose{1, 1}, Pose{2, 2}, Pose{3, 3}}, 'c');
  expect_kept(std::array<bool, 5>{true, false, true, true, false},
              std::array<std::int16_t, 3>{1, 2, 3});
}

TEST(TypedBuffer, HasEveryStrategy) {
  for (SamplingStrategy strategy :
       {SamplingStrategy::Uniform, SamplingStrategy::Prioritized, SamplingStrategy::Rank,
        SamplingStrategy::WithoutReplacement, SamplingStrategy::Fifo, SamplingStrategy::Lifo}) {
    Plain buffer({.capacity = 100, .strategy = strategy});
    for (int i = 0; i < 150; ++i) buffer.add(row(i));
    for (const Plain::Row& r : buffer.sample(50)) EXPECT_TRUE(whole(r));
  }
}

// ---------------------------------------------------------------------------------- by priority

TEST(TypedPrioritized, DrawsByPriorityWithWeights) {
  Plain buffer = prioritized({.capacity = 4, .alpha = 1, .beta = 1, .epsilon = 0});
  for (int i = 0; i < 4; ++i) buffer.add(row(i, static_cast<float>(i)));
  const auto batch = buffer.sample_batch(6000);
  std::array<int, 4> counts{};
  for (std::size_t i = 0; i < 6000; ++i) {
    const Plain::Row& r = batch.transitions[i];
    EXPECT_TRUE(whole(r));
    EXPECT_EQ(r.action, static_cast<std::int64_t>(batch.indices[i]));
    EXPECT_EQ(r.priority, static_cast<float>(r.action));
    EXPECT_FLOAT_EQ(batch.weights[i], 1 / static_cast<float>(r.action));
    ++counts[static_cast<std::size_t>(r.action)];
  }
  // In strata, so nearly exact.
  EXPECT_EQ(counts[0], 0);
  for (int i = 1; i < 4; ++i) EXPECT_NEAR(counts[static_cast<std::size_t>(i)], 1000 * i, 2);
}

TEST(TypedPrioritized, DrawsIntoWhatTheCallerHas) {
  Plain one = prioritized({.capacity = 100, .beta = 0.7F});
  Plain other = prioritized({.capacity = 100, .beta = 0.7F});
  for (int i = 0; i < 150; ++i) {
    one.add(row(i, static_cast<float>(i % 7)));
    other.add(row(i, static_cast<float>(i % 7)));
  }
  std::vector<Plain::Row> rows(70);
  std::vector<std::size_t> ids(70);
  std::vector<float> weights(70);
  for (int round = 0; round < 2; ++round) {
    const auto batch = round == 0 ? one.sample_batch(70) : one.sample_batch(70, 0.2F);
    if (round == 0) {
      other.sample(rows, ids, weights);
    } else {
      other.sample(rows, ids, weights, 0.2F);
    }
    EXPECT_EQ(batch.indices, ids);
    EXPECT_EQ(batch.weights, weights);
    for (std::size_t i = 0; i < 70; ++i) {
      EXPECT_TRUE(whole(rows[i]));
      EXPECT_EQ(rows[i].action, static_cast<std::int64_t>(ids[i]));
      EXPECT_EQ(rows[i].priority, static_cast<float>(ids[i] % 7));
      EXPECT_EQ(batch.transitions[i].action, rows[i].action);
      EXPECT_EQ(batch.transitions[i].priority, rows[i].priority);
    }
  }
  other.sample(rows, ids);  // without weights
  EXPECT_TRUE(whole(rows[0]));
  std::vector<float> few(69);
  EXPECT_EQ(code_of([&] { other.sample(rows, ids, few); }), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code_of([&] { other.sample({rows.data(), 69}, ids, few); }),
            ErrorCode::kInvalidArgument);
  EXPECT_EQ(code_of([&] { other.sample({rows.data(), 0}, {ids.data(), 0}, {few.data(), 0}); }),
            ErrorCode::kInvalidArgument);
}

TEST(TypedBuffer, RefusesBatchesOf2To31RowsAndMore) {
  Plain buffer({.capacity = 16});
  for (int i = 0; i < 10; ++i) buffer.add(row(i));
  for (const std::size_t n : {std::size_t{0}, std::size_t{1} << 31, std::size_t{1} << 60,
                              std::size_t{1} << 63, ~std::size_t{0}}) {
    EXPECT_EQ(code_of([&] { buffer.sample(n); }), ErrorCode::kInvalidArgument) << n;
    EXPECT_EQ(code_of([&] { buffer.sample_batch(n); }), ErrorCode::kInvalidArgument) << n;
    EXPECT_EQ(code_of([&] { buffer.sample_batch(n, 0.5F); }), ErrorCode::kInvalidArgument) << n;
    auto view = buffer.view(NStep{.n = 2, .one_stream = true});
    EXPECT_EQ(code_of([&] { view.sample(n); }), ErrorCode::kInvalidArgument) << n;
  }
  EXPECT_EQ(buffer.sample(20).size(), 20u);
}

// Sanitizers end the process where there would be a bad_alloc.
TEST(TypedBuffer, ABatchThatDoesNotFitInMemoryIsOutOfSpace) {
  if (kSanitized) GTEST_SKIP() << "of memory that cannot be had";
  struct Large {
    std::array<float, 1 << 24> values;
  };
  ReplayBuffer<Large, std::int64_t> buffer({.capacity = 1});
  constexpr std::size_t kRows = std::size_t{1} << 21;  // of 128 MiB: beyond all addresses
  EXPECT_EQ(code_of([&] { buffer.sample(kRows); }), ErrorCode::kOutOfSpace);
  EXPECT_EQ(code_of([&] { buffer.sample_batch(kRows); }), ErrorCode::kOutOfSpace);
}

TEST(TypedPrioritized, PrioritiesOfRowsThatAreGoneAreNotANumber) {
  Store store({.capacity = 4, .strategy = SamplingStrategy::Prioritized},
              {{"k", DType::kInt64, {}}});
  for (std::int64_t k = 0; k < 6; ++k) {
    const void* columns[] = {&k};
    const auto raw = static_cast<float>(k);
    store.add(columns, &raw);
  }
  const std::vector<std::size_t> ids = {5, 1, 2, 6, ~std::size_t{0}, 4, 3, std::size_t{1} << 60};
  std::vector<float> raws(3 * ids.size(), 9);
  store.priorities(ids, raws.data(), 3 * sizeof(float));
  const std::vector<float> expected = {5, -1, 2, -1, -1, 4, 3, -1};  // -1: not a number
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const float raw = raws[3 * i];
    EXPECT_EQ(std::isnan(raw) ? -1 : raw, expected[i]) << ids[i];
    EXPECT_EQ(raws[3 * i + 1], 9);
  }
}

TEST(TypedPrioritized, TakesUpdatesByRowId) {
  Plain buffer = prioritized({.capacity = 4, .alpha = 1, .epsilon = 0});
  for (int i = 0; i < 6; ++i) buffer.add(row(i));
  const std::vector<std::size_t> ids = {1, 2, 3, 4, 5};
  const std::vector<float> priorities = {9, 0, 0, 7, 0};
  EXPECT_EQ(buffer.update_priorities(ids, priorities), 4u) << "row 1 is gone";
  for (const Plain::Row& r : buffer.sample(100)) {
    EXPECT_EQ(r.action, 4);
    EXPECT_EQ(r.priority, 7);
  }
  EXPECT_EQ(code_of([&] { buffer.update_priorities(ids, std::vector<float>{1}); }),
            ErrorCode::kInvalidArgument);
  EXPECT_EQ(code_of([&] {
              buffer.update_priorities(std::vector<std::size_t>{6}, std::vector<float>{1});
            }),
            ErrorCode::kInvalidArgument);
}

TEST(TypedPrioritized, APriorityBelowZeroMeansTheLargestSoFar) {
  Plain buffer = prioritized({.capacity = 10});
  buffer.add(row(0));
  buffer.add(row(1, 5));
  buffer.add(row(2));
  std::array<float, 3> priorities{};
  for (const Plain::Row& r : buffer.sample(200)) {
    priorities[static_cast<std::size_t>(r.action)] = r.priority;
  }
  EXPECT_EQ(priorities, (std::array<float, 3>{1, 5, 5}));
}

TEST(TypedPrioritized, RefusesAPriorityThatIsNoNumber) {
  Plain buffer = prioritized({.capacity = 10});
  for (float bad :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    EXPECT_EQ(code_of([&] { buffer.add(row(0, bad)); }), ErrorCode::kInvalidArgument) << bad;
  }
  EXPECT_EQ(buffer.size(), 0u);
}

TEST(TypedPrioritized, WritersAndLearnersAtOnce) {
  Plain buffer = prioritized({.capacity = 200});
  for (int i = 0; i < 200; ++i) buffer.add(row(i));
  Countdown writing(2);
  std::atomic<std::size_t> torn{0};
  crowd(4, [&](std::size_t me) {
    if (me < 2) {
      const Part part(writing);
      for (std::size_t i = 0; i < rounds(100'000); ++i) buffer.add(row(static_cast<int>(i)));
      return;
    }
    while (writing.running()) {
      const auto batch = buffer.sample_batch(32);
      for (const Plain::Row& r : batch.transitions) torn.fetch_add(whole(r) ? 0 : 1);
      buffer.update_priorities(batch.indices, batch.weights);
    }
  });
  EXPECT_EQ(torn.load(), 0u);
}

}  // namespace
}  // namespace replay_buffer
