#include "core/recent.h"

#include <gtest/gtest.h>

#include "core/writer.h"
#include "crowd.h"
#include "numbered.h"
#include "sanitized.h"

namespace replay_buffer {
namespace {

using testing::config_of;
using testing::count_from;
using testing::Countdown;
using testing::crowd;
using testing::NumberedBuffer;
using testing::NumberedRows;
using testing::Part;
using testing::rounds;
using testing::small_schema;

std::vector<std::int64_t> newest(const Ring& ring, std::size_t n) {
  std::vector<std::int64_t> ids;
  for (const Recent& row : newest_rows(ring, n)) {
    const std::uint64_t first = (std::uint64_t{row.lap} - 1) * ring.rows.capacity();
    ids.push_back(static_cast<std::int64_t>(first + row.slot));
  }
  return ids;
}

// All of them, newest first.
std::vector<std::int64_t> walk(const Ring& ring) {
  const std::vector<std::int64_t> all = newest(ring, ring.rows.capacity() + 1);
  for (std::size_t n = 0; n <= all.size(); ++n) {
    const std::vector<std::int64_t> some(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(n));
    EXPECT_EQ(newest(ring, n), some);
  }
  return all;
}

// One writer: exactly the rows that are there, newest first, whatever the capacity and block size.
TEST(Recent, GivesTheNewestRowsOfOneWriterExactly) {
  for (std::size_t capacity : {1, 2, 5, 8, 13}) {
    for (std::size_t block_rows = 1; block_rows <= capacity; ++block_rows) {
      NumberedBuffer b(config_of(capacity, SamplingStrategy::Uniform, block_rows));
      for (std::size_t total = 0; total <= 4 * capacity; ++total) {
        const std::size_t live = std::min(total, capacity);
        std::vector<std::int64_t> expected =
            count_from(static_cast<std::int64_t>(total - live), live);
        ASSERT_EQ(b.latest(capacity), expected);
        std::reverse(expected.begin(), expected.end());
        ASSERT_EQ(walk(b.buffer.ring()), expected);
        b.add();
      }
    }
  }
}

TEST(Recent, SkipsWhatASealedBlockLeftUnwritten) {
  NumberedBuffer b(config_of(12, SamplingStrategy::Uniform, 4));
  b.add(2);
  b.buffer.release();
  b.add(1);
  EXPECT_EQ(walk(b.buffer.ring()), (std::vector<std::int64_t>{4, 1, 0}));
  b.add(9);  // 5..7, 8..11, 12, 13: the second lap takes the places of 0 and 1
  EXPECT_EQ(walk(b.buffer.ring()), (std::vector<std::int64_t>{13, 12, 11, 10, 9, 8, 7, 6, 5, 4}));
}

TEST(Recent, StopsAtTheLastClear) {
  NumberedBuffer b(config_of(8, SamplingStrategy::Uniform, 2));
  b.add(7);
  b.buffer.clear();
  EXPECT_TRUE(walk(b.buffer.ring()).empty());
  b.add(3);
  EXPECT_EQ(walk(b.buffer.ring()), (std::vector<std::int64_t>{10, 9, 8}));
}

TEST(Recent, SeesTheRowsOfEveryWriter) {
  const Ring ring(Segment::create({}, config_of(12, SamplingStrategy::Uniform, 4), small_schema()));
  const NumberedRows rows(small_schema(), 12);
  Writer a(ring, {1, 1});
  Writer b(ring, {2, 1});
  a.append(2, rows.in(), nullptr, nullptr);  // 0 1
  b.append(3, rows.in(), nullptr, nullptr);  // 4 5 6
  a.append(1, rows.in(), nullptr, nullptr);  // 2
  EXPECT_EQ(walk(ring), (std::vector<std::int64_t>{6, 5, 4, 2, 1, 0}));
}

// Between the two steps of a claim the block is taken, and the head does not say so. There a
// claimer may be stopped or killed.
TEST(Recent, SeesOldRowsOfABlockWhoseClaimHasNotMovedTheHead) {
  const Ring ring(Segment::create({}, config_of(12, SamplingStrategy::Uniform, 4), small_schema()));
  const NumberedRows rows(small_schema(), 12);
  Writer writer(ring, {1, 1});
  writer.append(12, rows.in(), nullptr, nullptr);
  (void)ring.blocks.claim({2, 1});
  ring.counters().head.store(3);
  EXPECT_EQ(walk(ring), (std::vector<std::int64_t>{11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0}));
}

// A writer may keep a block open while the others go round several times.
TEST(Recent, SeesTheRowsOfAWriterThatIsSlow) {
  const Ring ring(Segment::create({}, config_of(12, SamplingStrategy::Uniform, 4), small_schema()));
  const NumberedRows rows(small_schema(), 12);
  Writer slow(ring, {1, 1});
  Writer fast(ring, {2, 1});
  slow.append(3, rows.in(), nullptr, nullptr);
  for (int lap = 0; lap < 10; ++lap) {
    fast.append(8, rows.in(), nullptr, nullptr);
    const std::vector<std::int64_t> ids = walk(ring);
    EXPECT_EQ(ids.size(), ring.blocks.live_rows()) << "lap " << lap;
    EXPECT_EQ(std::count(ids.begin(), ids.end(), 1), 1) << "lap " << lap;
  }
}

// While rows are added, a walk stays in order and misses nothing but what was overwritten
// meanwhile.
TEST(Recent, IsInOrderAndCompleteWhileRowsAreAdded) {
  constexpr std::size_t kCapacity = 10'000;
  NumberedBuffer b(config_of(kCapacity));
  b.add(kCapacity);
  Countdown writing(1);
  std::atomic<std::size_t> wrong{0};
  std::atomic<std::size_t> walks{0};
  std::atomic<std::int64_t> newest{kCapacity - 1};
  crowd(3, [&](std::size_t me) {
    if (me == 0) {
      const Part part(writing);
      for (std::size_t i = 0; i < rounds(500'000); ++i) newest.store(b.add().front());
      return;
    }
    while (writing.running()) {
      const std::int64_t before = newest.load();
      const std::vector<std::int64_t> ids = b.latest(100);
      bool right = ids.size() == 100 && ids.back() >= before;
      for (std::size_t i = 1; i < ids.size(); ++i) right &= ids[i] == ids[i - 1] + 1;
      if (newest.load() - before > static_cast<std::int64_t>(kCapacity / 2))
        continue;  // slept too long
      walks.fetch_add(1);
      if (!right) wrong.fetch_add(1);
    }
  });
  EXPECT_EQ(wrong.load(), 0u);
  EXPECT_GT(walks.load(), 0u);
}

}  // namespace
}  // namespace replay_buffer
