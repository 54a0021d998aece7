// Observations and actions of any length, through the public headers.
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "code_of.h"
#include "crowd.h"
#include "os_child.h"
#include "replay_buffer/shared.h"
#include "sanitized.h"

namespace replay_buffer {
namespace {

using os::testing::Child;
using os::testing::Directory;
using testing::code_of;
using testing::Countdown;
using testing::crowd;
using testing::Part;
using testing::rounds;

using Observation = std::vector<float>;
using Action = std::vector<std::array<std::int16_t, 2>>;
using Local = ReplayBuffer<Observation, Action>;
using Circular = SharedCircularBuffer<Observation, Action>;
using Prioritized = SharedPrioritizedReplayBuffer<Observation, Action>;
using Row = Local::Row;

// Everything in it follows from its number.
Row row_of(std::size_t number) {
  const auto x = static_cast<float>(number);
  const auto small = static_cast<std::int16_t>(number % 1000);
  Row row;
  row.observation.assign(number % 40, x);
  row.action.assign(number % 3, {small, small});
  row.reward = x;
  row.next_observation.assign((number + 1) % 40, x + 1);
  row.done = number % 5 == 0;
  return row;
}

bool whole(const Row& row, std::size_t number) {
  const Row expected = row_of(number);
  return row.observation == expected.observation && row.action == expected.action &&
         row.reward == expected.reward && row.next_observation == expected.next_observation &&
         row.done == expected.done;
}
bool whole(const Row& row) { return whole(row, static_cast<std::size_t>(row.reward)); }

bool can_compress() {
  return code_of([] { Local({.capacity = 1, .enable_compression = true}); }) == ErrorCode{};
}

class TypedVaried : public ::testing::TestWithParam<std::tuple<SamplingStrategy, bool>> {
 protected:
  void SetUp() override {
    if (std::get<1>(GetParam()) && !can_compress()) GTEST_SKIP() << "built without blosc2";
  }
  static BufferConfig config() {
    return {.capacity = 100,
            .strategy = std::get<0>(GetParam()),
            .enable_compression = std::get<1>(GetParam())};
  }
};

TEST_P(TypedVaried, RowsComeBackAsTheyWentIn) {
  Local buffer(config());
  for (std::size_t i = 0; i < 250; ++i) EXPECT_EQ(buffer.add(row_of(i)), i);
  EXPECT_EQ(buffer.size(), 100u);
  EXPECT_TRUE(buffer.is_full());
  for (const Row& row : buffer.sample(50)) {
    EXPECT_TRUE(whole(row));
    EXPECT_GE(row.reward, 150);
  }
  const Local::Batch batch = buffer.sample_batch(30);
  for (std::size_t i = 0; i < 30; ++i) EXPECT_TRUE(whole(batch.transitions[i], batch.indices[i]));
  const std::vector<std::size_t> newest = buffer.latest(100);
  const std::vector<Row> rows = buffer.get(newest);
  for (std::size_t i = 0; i < newest.size(); ++i) EXPECT_TRUE(whole(rows[i], newest[i]));
  EXPECT_EQ(code_of([&] { (void)buffer.get(std::vector<std::size_t>{249, 3}); }),
            ErrorCode::kRowGone);
  EXPECT_TRUE(buffer.visit(
      247, [](const Observation& o, const Action& a, float reward, const Observation& next,
              bool done) { EXPECT_TRUE(whole({o, a, reward, next, done}, 247)); }));
  EXPECT_TRUE(buffer.visit_observation(
      248, [](std::span<const float> observation) { EXPECT_EQ(observation.size(), 248u % 40); }));
  EXPECT_FALSE(buffer.visit(149, [](const auto&...) { FAIL(); }));
}

TEST_P(TypedVaried, ABatchIsDrawnIntoTheRowsOfAnother) {
  Local buffer(config());
  for (std::size_t i = 0; i < 100; ++i) buffer.add(row_of(i));
  std::vector<Row> rows(20);
  std::vector<std::size_t> ids(20);
  std::vector<float> weights(20);
  for (int round = 0; round < 5; ++round) {
    buffer.sample(rows, ids, weights);
    for (std::size_t i = 0; i < 20; ++i) EXPECT_TRUE(whole(rows[i], ids[i]));
  }
}

TEST_P(TypedVaried, AnotherProcessWritesAndAHandleForReadingReads) {
  const Directory directory;
  for (const std::string& location :
       {"shm:test.varied." + std::to_string(::getpid()), "file:" + directory / "buffer"}) {
    Circular buffer = Circular::create(location, config());
    for (std::size_t i = 0; i < 10; ++i) buffer.add(row_of(i));
    Child child([&] {
      Circular other = Circular::open(location);
      for (std::size_t i = 10; i < 30; ++i) other.add(row_of(i));
      return 0;
    });
    EXPECT_EQ(child.join(), 0);
    Circular reader = Circular::open(location, true);
    EXPECT_EQ(reader.size(), 30u);
    for (const Row& row : reader.get(reader.latest(30))) EXPECT_TRUE(whole(row));
    EXPECT_EQ(reader.config().strategy, config().strategy);
    EXPECT_EQ(reader.config().enable_compression, config().enable_compression);
    EXPECT_EQ(code_of([&] { reader.add(row_of(0)); }), ErrorCode::kReadOnly);
    using Fixed = SharedCircularBuffer<std::array<float, 4>, Action>;
    EXPECT_EQ(code_of([&] { Fixed::open(location); }), ErrorCode::kSchemaMismatch);
    Circular::unlink(location);
  }
}

TEST_P(TypedVaried, ACheckpointHasEveryRow) {
  const Directory directory;
  Local buffer(config());
  for (std::size_t i = 0; i < 150; ++i) buffer.add(row_of(i));
  EXPECT_EQ(buffer.checkpoint(directory / "c").rows, 100u);
  Local restored = Local::restore(directory / "c");
  EXPECT_EQ(restored.latest(100), buffer.latest(100));
  for (const Row& row : restored.get(restored.latest(100))) EXPECT_TRUE(whole(row));
  EXPECT_EQ(restored.add(row_of(150)), 150u);
}

INSTANTIATE_TEST_SUITE_P(
    Strategies, TypedVaried,
    ::testing::Combine(::testing::Values(SamplingStrategy::Uniform, SamplingStrategy::Prioritized,
                                         SamplingStrategy::Rank,
                                         SamplingStrategy::WithoutReplacement,
                                         SamplingStrategy::Fifo, SamplingStrategy::Lifo),
                       ::testing::Bool()));

TEST(TypedVariedRows, LongOnesFitWithoutAWordOnTheirLength) {
  Local buffer({.capacity = 60});
  for (std::size_t i = 0; i < 80; ++i) {
    buffer.add({.observation = Observation(20'000, static_cast<float>(i)),
                .reward = static_cast<float>(i)});
  }
  EXPECT_TRUE(buffer.is_full());
  for (const Row& row : buffer.sample(10)) {
    EXPECT_EQ(row.observation, Observation(20'000, row.reward));
  }
}

TEST(TypedVariedRows, AsManyAsTheCapacityAreKeptThoughTheyAreLongerThanThoseOfMost) {
  Local buffer({.capacity = 2000});
  for (std::size_t i = 0; i < 2000; ++i) buffer.add({.observation = Observation(4000, 1.0F)});
  EXPECT_EQ(buffer.size(), 2000u);
}

TEST(TypedVariedRows, ShortOnesTakeLittleMemoryInALargeBuffer) {
  Local buffer({.capacity = 1'000'000});
  for (std::size_t i = 0; i < 20'000; ++i) buffer.add({.observation = Observation(8, 1.0F)});
  EXPECT_LT(buffer.stats().resident_bytes, std::size_t{32} << 20);
}

TEST(TypedVariedRows, AreRefusedWhereTheyDoNotFitAndFitWhereTheyAreExpected) {
  const std::string location = "shm:test.expected." + std::to_string(::getpid());
  Row row;
  row.observation.assign(5000, 1.0F);
  {
    Circular buffer = Circular::create(location, {.capacity = 20});
    try {
      buffer.add(row);
      ADD_FAILURE() << "a value of 20,000 bytes fits";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kSchemaMismatch);
      for (const char* part : {"'obs'", "20000", "expected"}) {
        EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
      }
    }
    EXPECT_EQ(buffer.size(), 0u);
  }
  Circular buffer = Circular::create(location, {.capacity = 20, .expected = 5000}, true);
  for (int i = 0; i < 20; ++i) buffer.add(row);
  EXPECT_EQ(buffer.size(), 20u);
  Circular::unlink(location);
}

// A loop that adds until the buffer is full comes to an end.
TEST(TypedVariedRows, ABufferWhoseRowsAreLongerThanExpectedIsFullWhenItGoesRound) {
  Local buffer({.capacity = 4000, .expected = 1});
  std::size_t added = 0;
  while (!buffer.is_full()) {
    ASSERT_LT(added++, 4000u);
    buffer.add({.observation = Observation(100, 1.0F)});
  }
  EXPECT_LT(buffer.size(), 4000u);
  EXPECT_GE(buffer.size() + 32, added);
}

TEST(TypedVariedRows, WritersAndLearnersSeeWholeRows) {
  Local buffer({.capacity = 200, .strategy = SamplingStrategy::Prioritized});
  for (std::size_t i = 0; i < 200; ++i) buffer.add(row_of(i));
  Countdown writing(2);
  std::atomic<std::size_t> torn{0};
  crowd(4, [&](std::size_t me) {
    if (me < 2) {
      const Part part(writing);
      for (std::size_t i = 0; i < rounds(20'000); ++i) buffer.add(row_of(i));
      return;
    }
    while (writing.running()) {
      const Local::Batch batch = buffer.sample_batch(32);
      for (const Row& row : batch.transitions) torn.fetch_add(whole(row) ? 0 : 1);
      buffer.update_priorities(batch.indices, batch.weights);
      for (const std::size_t id : buffer.latest(3)) {
        Row seen;
        if (buffer.visit(id, [&](const auto& o, const auto& a, float r, const auto& n, bool d) {
              seen = {o, a, r, n, d};
            })) {
          torn.fetch_add(whole(seen) ? 0 : 1);
        }
      }
    }
  });
  EXPECT_EQ(torn.load(), 0u);
}

TEST(SharedCheckpoint, IsRestoredWhereProcessesShareIt) {
  const Directory directory;
  const std::string location = "shm:test.restored." + std::to_string(::getpid());
  ReplayBuffer<float, int> uniform({.capacity = 10});
  uniform.add({.observation = 1});
  uniform.checkpoint(directory / "uniform");
  ReplayBuffer<float, int> weighted({.capacity = 10, .strategy = SamplingStrategy::Rank});
  weighted.add({.observation = 2, .priority = 5});
  weighted.checkpoint(directory / "weighted");
  using Plain = SharedCircularBuffer<float, int>;
  using Weighted = SharedPrioritizedReplayBuffer<float, int>;
  Weighted buffer = Weighted::restore(directory / "weighted", location);
  EXPECT_EQ(Weighted::open(location).sample(1)[0].priority, 5);
  EXPECT_EQ(code_of([&] { Plain::restore(directory / "uniform", location); }),
            ErrorCode::kAlreadyExists);
  // What does not fit is refused before anything is replaced.
  EXPECT_EQ(code_of([&] { Weighted::restore(directory / "uniform", location, true); }),
            ErrorCode::kInvalidArgument);
  using Other = SharedCircularBuffer<double, int>;
  EXPECT_EQ(code_of([&] { Other::restore(directory / "uniform", location, true); }),
            ErrorCode::kSchemaMismatch);
  EXPECT_EQ(Weighted::open(location).size(), 1u);
  EXPECT_EQ(Plain::restore(directory / "uniform", location, true).sample(1)[0].observation, 1);
  EXPECT_EQ(code_of([&] { Plain::restore(directory / "nothing", "heap:"); }), ErrorCode::kNotFound);
  Plain::unlink(location);
}

TEST(TypedStats, CountWhatHappened) {
  ReplayBuffer<float, int> buffer({.capacity = 10, .strategy = SamplingStrategy::Prioritized});
  for (int i = 0; i < 15; ++i) buffer.add({.action = i});
  (void)buffer.sample(4);
  buffer.update_priorities({0, 12, 13}, {1, 2, 3});
  const Stats stats = buffer.stats();
  EXPECT_EQ(stats.size, 10u);
  EXPECT_EQ(stats.capacity, 10u);
  EXPECT_EQ(stats.rows_added, 15u);
  EXPECT_EQ(stats.samples, 1u);
  EXPECT_EQ(stats.rows_sampled, 4u);
  EXPECT_EQ(stats.updates_applied, 2u);
  EXPECT_EQ(stats.updates_stale, 1u);
  EXPECT_EQ(stats.row_bytes, 17u);
  EXPECT_EQ(stats.raw_bytes, 170u);
  EXPECT_GT(stats.segment_bytes, stats.raw_bytes);
  EXPECT_GT(stats.resident_bytes, 0u);
}

}  // namespace
}  // namespace replay_buffer
