#include "core/buffer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <deque>

#include "core/random.h"
#include "core/writer.h"
#include "numbered.h"

namespace replay_buffer {
namespace {

using testing::apart_schema;
using testing::code_of;
using testing::config_of;
using testing::count_from;
using testing::large_schema;
using testing::NumberedBuffer;
using testing::NumberedRows;
using testing::small_schema;

TEST(Buffer, ANewOneIsEmpty) {
  const NumberedBuffer b(config_of(10));
  EXPECT_EQ(b.buffer.size(), 0u);
  EXPECT_EQ(b.buffer.capacity(), 10u);
  EXPECT_TRUE(b.latest(5).empty());
}

TEST(Buffer, SizeGrowsToTheCapacity) {
  NumberedBuffer b(config_of(100));
  for (std::size_t i = 1; i <= 250; ++i) {
    b.add();
    ASSERT_EQ(b.buffer.size(), std::min<std::size_t>(i, 100));
  }
}

TEST(Buffer, GivesRowsByIdAndMarksThoseThatAreGone) {
  for (const Schema& schema : {small_schema(), apart_schema(), large_schema(3000)}) {
    NumberedBuffer b(config_of(10), schema);
    b.add(25);
    const std::vector<std::int64_t> ids = {24, 15, 14, 25, -1, 20, 1'000'000, 15};
    NumberedRows out(schema, ids.size());
    for (std::size_t i = 0; i < ids.size(); ++i) out.fill(i, 777);
    std::vector<std::uint8_t> gone(ids.size());
    EXPECT_EQ(b.buffer.get(ids, out.out(), gone.data()), 4u);
    for (std::size_t i = 0; i < ids.size(); ++i) {
      const bool there = ids[i] >= 15 && ids[i] < 25;
      EXPECT_EQ(gone[i], there ? 0 : 1) << ids[i];
      EXPECT_TRUE(out.whole(i, there ? static_cast<std::uint64_t>(ids[i]) : 777))
          << "a place of a gone row is left";
    }
    EXPECT_EQ(b.buffer.get(ids, out.out(), nullptr), 4u);
    EXPECT_EQ(b.buffer.get({}, out.out(), nullptr), 0u);
  }
}

TEST(Buffer, GivesTheNewestRowsOldestFirst) {
  NumberedBuffer b(config_of(10));
  b.add(4);
  EXPECT_EQ(b.latest(3), count_from(1, 3));
  EXPECT_EQ(b.latest(9), count_from(0, 4));
  b.add(21);
  EXPECT_EQ(b.latest(3), count_from(22, 3));
  EXPECT_EQ(b.latest(100), count_from(15, 10));
  EXPECT_TRUE(b.latest(0).empty());
}

TEST(Buffer, ClearForgetsRowsAndIdsGoOn) {
  for (SamplingStrategy strategy : {SamplingStrategy::Uniform, SamplingStrategy::Prioritized}) {
    for (std::size_t added : {0, 1, 7, 10, 11, 25, 30}) {
      NumberedBuffer b(config_of(10, strategy));
      b.add(added);
      b.buffer.clear();
      EXPECT_EQ(b.buffer.size(), 0u);
      EXPECT_TRUE(b.latest(10).empty());
      EXPECT_EQ(code_of([&] { b.ids(1); }), ErrorCode::kNotEnoughRows);
      NumberedRows out(b.schema, 30);
      EXPECT_EQ(b.buffer.get(count_from(0, 30), out.out(), nullptr), 30u);
      if (b.buffer.ring().priorities) {
        EXPECT_EQ(b.buffer.ring().priorities->tree().total(), 0);
      }
      const std::vector<std::int64_t> ids = b.add(12);
      EXPECT_GE(ids.front(), static_cast<std::int64_t>(added));
      EXPECT_EQ(ids, count_from(ids.front(), 12));
      EXPECT_EQ(b.buffer.size(), 10u);
      EXPECT_EQ(b.latest(10), count_from(ids.front() + 2, 10));
    }
  }
}

TEST(Buffer, ClearingAgainAndAgainIsHarmless) {
  NumberedBuffer b(config_of(10, SamplingStrategy::Prioritized));
  std::int64_t last = -1;
  for (std::size_t i = 0; i < 300; ++i) {
    b.buffer.clear();
    if (i % 3 == 0) b.buffer.clear();
    const std::vector<std::int64_t> ids = b.add(1 + i % 14);
    ASSERT_GT(ids.front(), last) << "an id was given twice";
    last = ids.back();
    ASSERT_EQ(b.buffer.size(), std::min<std::size_t>(10, 1 + i % 14));
    ASSERT_EQ(b.latest(1).front(), last);
  }
}

TEST(Buffer, CopiesOnlyTheColumnsAskedFor) {
  NumberedBuffer b(config_of(10));
  b.add(10);
  std::vector<std::uint64_t> numbers(4);
  std::vector<std::int64_t> ids(4);
  std::byte* columns[4] = {reinterpret_cast<std::byte*>(numbers.data()), nullptr, nullptr, nullptr};
  b.buffer.sample({4, columns, ids.data(), nullptr}, 0);
  for (std::size_t i = 0; i < 4; ++i) EXPECT_EQ(numbers[i], static_cast<std::uint64_t>(ids[i]));
}

TEST(Buffer, CopiesIntoAnArrayOfStructures) {
  struct Row {
    std::uint64_t number;
    char between[40];
    float obs[5];
  };
  NumberedBuffer b(config_of(10));
  b.add(10);
  std::vector<Row> rows(6);
  std::vector<std::int64_t> ids(6);
  std::byte* columns[4] = {reinterpret_cast<std::byte*>(&rows[0].number),
                           reinterpret_cast<std::byte*>(&rows[0].obs), nullptr, nullptr};
  b.buffer.sample({6, columns, ids.data(), nullptr, sizeof(Row)}, 0);
  NumberedRows expected(b.schema, 1);
  for (std::size_t i = 0; i < 6; ++i) {
    ASSERT_EQ(rows[i].number, static_cast<std::uint64_t>(ids[i]));
    expected.fill(0, rows[i].number);
    EXPECT_EQ(std::memcmp(rows[i].obs, expected.in()[1], sizeof(rows[i].obs)), 0);
    EXPECT_EQ(rows[i].between[0], 0);
  }
}

// Batches of more than 256 KiB are copied by several threads.
TEST(Buffer, ParallelCopiesOfLargeRowsAreWholeAndInPlace) {
  const Schema schema = large_schema(28'224);
  for (SamplingStrategy strategy : {SamplingStrategy::Uniform, SamplingStrategy::Prioritized}) {
    NumberedBuffer b(config_of(50, strategy), schema);
    b.add(80);
    for (std::size_t n : {9, 10, 33, 64, 300}) {
      const auto drawn = b.sample(n);
      for (std::size_t i = 0; i < n; ++i) {
        ASSERT_TRUE(drawn.rows.whole(i, static_cast<std::uint64_t>(drawn.ids[i])))
            << i << " of " << n;
      }
    }
  }
}

TEST(Buffer, ABatchDoesNotDependOnHowManyThreadsCopyIt) {
  NumberedBuffer small(config_of(1000));
  NumberedBuffer large(config_of(1000), large_schema(5000));
  small.add(1000);
  large.add(1000);
  for (std::size_t n : {10, 100, 300}) EXPECT_EQ(small.ids(n), large.ids(n));
}

TEST(Buffer, LargeBatchesAreAsGoodAsSmallOnes) {
  for (SamplingStrategy strategy : {SamplingStrategy::Uniform, SamplingStrategy::Prioritized,
                                    SamplingStrategy::Rank, SamplingStrategy::WithoutReplacement}) {
    NumberedBuffer b(config_of(100, strategy));
    b.add(100);
    const auto drawn = b.sample(10'000);
    for (std::size_t i = 0; i < 10'000; ++i) {
      ASSERT_TRUE(drawn.rows.whole(i, static_cast<std::uint64_t>(drawn.ids[i])));
      ASSERT_GT(drawn.weights[i], 0);
    }
  }
}

TEST(Buffer, CountsWhatWasAddedAndDrawn) {
  NumberedBuffer b(config_of(10));
  b.add(13);
  b.ids(4);
  b.ids(7);
  EXPECT_EQ(b.buffer.ring().segment->owners()[0].rows_added.load(), 13u);
  EXPECT_EQ(b.buffer.ring().counters().draws.load(), 2u);
  EXPECT_EQ(b.buffer.ring().counters().rows_sampled.load(), 11u);
}

TEST(Buffer, TryAddAddsWhenNobodyElseIsAdding) {
  NumberedBuffer b(config_of(10));
  NumberedRows row(b.schema, 1);
  row.fill(0, 5);
  std::int64_t id = -1;
  EXPECT_TRUE(b.buffer.try_add(1, row.in(), nullptr, &id));
  EXPECT_EQ(id, 0);
  EXPECT_EQ(b.buffer.size(), 1u);
}

TEST(Buffer, ReleaseSealsTheBlockForOthers) {
  NumberedBuffer b(config_of(4, SamplingStrategy::Uniform, 4));
  b.add(2);
  Writer other(b.buffer.ring(), b.buffer.owners().join());
  const NumberedRows row(b.schema, 1);
  EXPECT_EQ(code_of([&] { other.append(1, row.in(), nullptr, nullptr); }), ErrorCode::kBusy);
  b.buffer.release();
  other.append(1, row.in(), nullptr, nullptr);
  EXPECT_EQ(code_of([&] { b.add(); }), ErrorCode::kBusy);
  other.close();
  b.add();
  EXPECT_EQ(b.buffer.size(), 2u) << "one row of the buffer took the place of the other writer's";
}

// Random calls against a list of what should be there.
TEST(Buffer, AgreesWithAListUnderRandomCalls) {
  Random random(9, 0);
  for (int round = 0; round < 100; ++round) {
    const std::size_t capacity = 1 + random.below(40);
    NumberedBuffer b(
        config_of(capacity, SamplingStrategy::Prioritized, 1 + random.below(capacity)));
    std::deque<std::pair<std::int64_t, std::uint64_t>> model;  // id, number
    for (int call = 0; call < 60; ++call) {
      switch (random.below(8)) {
        case 0:
          b.buffer.clear();
          model.clear();
          break;
        case 1: {
          if (model.empty()) break;
          const std::int64_t id = model[random.below(model.size())].first;
          EXPECT_EQ(b.update({id}, {static_cast<float>(random.unit())}).applied, 1u);
          break;
        }
        default: {
          std::uint64_t number = b.numbers;
          for (std::int64_t id : b.add(random.below(2 * capacity)))
            model.emplace_back(id, number++);
          while (model.size() > capacity) model.pop_front();
        }
      }
      ASSERT_EQ(b.buffer.size(), model.size());
      std::vector<std::int64_t> ids;
      for (const auto& [id, number] : model) ids.push_back(id);
      ASSERT_EQ(b.latest(capacity), ids);
      NumberedRows out(b.schema, ids.size());
      ASSERT_EQ(b.buffer.get(ids, out.out(), nullptr), 0u);
      for (std::size_t i = 0; i < ids.size(); ++i) ASSERT_TRUE(out.whole(i, model[i].second));
      if (model.empty()) continue;
      for (std::int64_t id : b.ids(5)) ASSERT_EQ(std::count(ids.begin(), ids.end(), id), 1);
    }
  }
}

}  // namespace
}  // namespace replay_buffer
