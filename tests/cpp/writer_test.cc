#include "core/writer.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "crowd.h"
#include "numbered.h"
#include "sanitized.h"

namespace replay_buffer {
namespace {

using testing::code_of;
using testing::config_of;
using testing::count_from;
using testing::crowd;
using testing::NumberedRows;
using testing::rounds;
using testing::small_schema;

struct TestRing {
  TestRing(std::uint64_t capacity, std::uint64_t block_rows,
           SamplingStrategy strategy = SamplingStrategy::Uniform)
      : ring(Segment::create({}, config_of(capacity, strategy, block_rows), small_schema())) {}

  // Appends n rows numbered from `number` and returns their ids.
  std::vector<std::int64_t> append(Writer& writer, std::size_t n, std::uint64_t number,
                                   const float* raws = nullptr) const {
    NumberedRows rows(small_schema(), n);
    for (std::size_t i = 0; i < n; ++i) rows.fill(i, number + i);
    std::vector<std::int64_t> ids(n);
    writer.append(n, rows.in(), raws, ids.data());
    return ids;
  }

  // id -> number of every committed row; a row that is not whole or not in its slot fails the test.
  std::map<std::uint64_t, std::uint64_t> stored() const {
    std::map<std::uint64_t, std::uint64_t> found;
    NumberedRows row(small_schema(), 1);
    for (std::size_t slot = 0; slot < ring.rows.capacity(); ++slot) {
      const std::uint64_t word = ring.rows.word(slot).load();
      if (!row_committed(word)) continue;
      EXPECT_TRUE(ring.rows.read(slot, word, row.out(), 0));
      EXPECT_TRUE(row.whole(0));
      EXPECT_EQ(row_id(word) % ring.rows.capacity(), slot);
      found[row_id(word)] = row.number(0);
    }
    return found;
  }

  Ring ring;
};

// One writer: row id = count of rows before it, and the ring holds the last `capacity` of them.
TEST(Writer, WrapsAtEveryOffsetWithEveryBlockSizeAndRunLength) {
  for (std::size_t capacity : {1, 2, 3, 5, 8, 11}) {
    for (std::size_t block_rows = 1; block_rows <= capacity; ++block_rows) {
      for (std::size_t run = 1; run <= capacity + 2; ++run) {
        const TestRing t(capacity, block_rows);
        Writer writer(t.ring, {});
        std::size_t total = 0;
        while (total < 3 * capacity) {
          ASSERT_EQ(t.append(writer, run, total),
                    count_from(static_cast<std::int64_t>(total), run));
          total += run;
          const std::size_t live = std::min(total, capacity);
          std::map<std::uint64_t, std::uint64_t> expected;
          for (std::size_t id = total - live; id < total; ++id) expected[id] = id;
          ASSERT_EQ(t.stored(), expected);
          ASSERT_EQ(t.ring.blocks.live_rows(), live);
          ASSERT_EQ(t.ring.blocks.used_slots(), live);
        }
      }
    }
  }
}

TEST(Writer, TakesMoreRowsAtOnceThanTheRingHolds) {
  const TestRing t(10, 4);
  Writer writer(t.ring, {});
  EXPECT_EQ(t.append(writer, 37, 0), count_from(0, 37));
  EXPECT_EQ(t.stored().begin()->first, 27u);
  EXPECT_EQ(t.stored().size(), 10u);
}

TEST(Writer, AppendingNothingDoesNothing) {
  const TestRing t(10, 4);
  Writer writer(t.ring, {});
  writer.append(0, nullptr, nullptr, nullptr);
  EXPECT_EQ(t.ring.blocks.head(), 0u);
}

TEST(Writer, IdsNeedNotBeAskedFor) {
  const TestRing t(4, 2);
  Writer writer(t.ring, {});
  NumberedRows rows(small_schema(), 3);
  for (std::size_t i = 0; i < 3; ++i) rows.fill(i, i);
  writer.append(3, rows.in(), nullptr, nullptr);
  EXPECT_EQ(t.stored().size(), 3u);
}

TEST(Writer, ClosingSealsTheBlockAndTheNextRowGoesToAnother) {
  const TestRing t(12, 4);
  Writer writer(t.ring, {});
  EXPECT_EQ(t.append(writer, 2, 0), count_from(0, 2));
  writer.close();
  writer.close();
  EXPECT_EQ(BlockWord::unpack(t.ring.segment->blocks()[0].word.load()).state, BlockState::kSealed);
  EXPECT_EQ(t.append(writer, 5, 2), count_from(4, 5));
  EXPECT_EQ(t.ring.blocks.live_rows(), 7u);
  // The second lap fills what the first left open; the old rows stay until then.
  EXPECT_EQ(t.append(writer, 3, 7), count_from(9, 3));
  EXPECT_EQ(t.append(writer, 1, 10), count_from(12, 1));
  const std::map<std::uint64_t, std::uint64_t> stored = t.stored();
  EXPECT_EQ(stored.count(0), 0u);
  EXPECT_EQ(stored.count(1), 1u);
  EXPECT_EQ(stored.size(), t.ring.blocks.live_rows());
}

TEST(Writer, SealsItsBlockWhenItGoes) {
  const TestRing t(4, 4);
  {
    Writer writer(t.ring, {1, 1});
    t.append(writer, 1, 0);
  }
  Writer writer(t.ring, {2, 1});
  EXPECT_EQ(t.append(writer, 1, 1), count_from(4, 1));
}

TEST(Writer, SeveralWritersKeepToTheirOwnBlocks) {
  const TestRing t(12, 4);
  Writer a(t.ring, {1, 1});
  Writer b(t.ring, {2, 1});
  EXPECT_EQ(t.append(a, 1, 0), count_from(0, 1));
  EXPECT_EQ(t.append(b, 1, 100), count_from(4, 1));
  EXPECT_EQ(t.append(a, 3, 1), count_from(1, 3));
  EXPECT_EQ(t.append(a, 1, 4), count_from(8, 1));
  EXPECT_EQ(t.append(b, 3, 101), count_from(5, 3));
  EXPECT_EQ(t.append(b, 1, 104), count_from(12, 1)) << "the block that a left sealed";
}

TEST(Writer, WhenAllBlocksAreHeldTheCallFailsAndALaterOneSucceeds) {
  const TestRing t(4, 2);
  Writer a(t.ring, {1, 1});
  Writer b(t.ring, {2, 1});
  Writer c(t.ring, {3, 1});
  t.append(a, 1, 0);
  t.append(b, 1, 0);
  EXPECT_EQ(code_of([&] { t.append(c, 1, 0); }), ErrorCode::kBusy);
  EXPECT_EQ(t.stored().size(), 2u);
  a.close();
  EXPECT_EQ(t.append(c, 1, 7).front() % 4, 0);
}

TEST(Writer, BeginsANewBlockAfterAnEra) {
  const TestRing t(12, 4);
  Writer writer(t.ring, {});
  t.append(writer, 2, 0);
  t.ring.blocks.begin_era();
  EXPECT_EQ(t.append(writer, 1, 2), count_from(12, 1));
}

TEST(Writer, CountsWhatItAddsInItsOwnersSlot) {
  const TestRing t(12, 4);
  Writer a(t.ring, {1, 1});
  Writer b(t.ring, {2, 1});
  t.append(a, 5, 0);
  t.append(b, 2, 0);
  t.append(a, 1, 0);
  EXPECT_EQ(t.ring.segment->owners()[1].rows_added.load(), 6u);
  EXPECT_EQ(t.ring.segment->owners()[2].rows_added.load(), 2u);
}

TEST(Writer, GivesNewRowsTheLargestPriorityOrTheirOwn) {
  const TestRing t(10, 4, SamplingStrategy::Prioritized);
  Writer writer(t.ring, {});
  const float own[3] = {0.5F, 3, 0};
  t.append(writer, 1, 0);
  t.append(writer, 3, 1, own);
  t.append(writer, 7, 4);
  const float expected[11] = {1, 0.5F, 3, 0, 3, 3, 3, 3, 3, 3, 3};
  for (std::int64_t id = 1; id < 11; ++id)
    EXPECT_EQ(t.ring.priorities->raw_of(id), expected[id]) << id;
  EXPECT_TRUE(std::isnan(t.ring.priorities->raw_of(0)));
}

TEST(Writer, ManyWritersLoseAndShareNothing) {
  constexpr std::size_t kWriters = 4;
  const TestRing t(1000, 8, SamplingStrategy::Prioritized);
  std::vector<std::map<std::uint64_t, std::uint64_t>> written(kWriters);
  crowd(kWriters, [&](std::size_t me) {
    Writer writer(t.ring, {static_cast<std::uint16_t>(me), 1});
    std::uint64_t number = me << 40;
    for (std::size_t i = 0; i < rounds(20'000); ++i) {
      const std::size_t n = 1 + i % 13;
      const std::vector<std::int64_t> ids = t.append(writer, n, number);
      for (const std::int64_t id : ids) written[me][static_cast<std::uint64_t>(id)] = number++;
      if (i % 50 == 0) writer.close();
    }
  });
  std::map<std::uint64_t, std::uint64_t> all;
  std::size_t sum = 0;
  for (const auto& mine : written) {
    all.insert(mine.begin(), mine.end());
    sum += mine.size();
  }
  EXPECT_EQ(all.size(), sum) << "an id was given twice";
  for (const auto& [id, number] : t.stored()) {
    ASSERT_EQ(all.count(id), 1u);
    ASSERT_EQ(all[id], number);
    ASSERT_EQ(t.ring.priorities->of(id % 1000).lap, id / 1000 + 1);
    ASSERT_GT(t.ring.priorities->tree().leaf(id % 1000), 0);
  }
  EXPECT_EQ(t.ring.blocks.live_rows(), t.stored().size());
}

}  // namespace
}  // namespace replay_buffer
