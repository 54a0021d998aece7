#include "core/rows.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "crowd.h"
#include "numbered.h"
#include "sanitized.h"

namespace replay_buffer {
namespace {

using testing::apart_schema;
using testing::config_of;
using testing::Countdown;
using testing::crowd;
using testing::large_schema;
using testing::NumberedRows;
using testing::Part;
using testing::rounds;
using testing::small_schema;

TEST(Rows, CopiesEveryLengthExactly) {
  for (std::size_t n = 0; n <= 300; ++n) {
    std::vector<std::byte> from(n + 2);
    for (std::size_t i = 0; i < from.size(); ++i) from[i] = static_cast<std::byte>(i * 7 + 1);
    std::vector<std::byte> to(n + 2, std::byte{0xee});
    copy_shared(to.data() + 1, from.data() + 1, n);
    EXPECT_EQ(to.front(), std::byte{0xee}) << n;
    EXPECT_EQ(to.back(), std::byte{0xee}) << n;
    EXPECT_EQ(std::memcmp(to.data() + 1, from.data() + 1, n), 0) << n;
  }
}

// So many lines are prefetched: one less, and a draw waits for what was left out.
TEST(Rows, MostLinesAreThoseOfTheRecordThatLiesWorst) {
  for (std::size_t stride = 1; stride <= 1100; ++stride) {
    std::size_t most = 0;
    for (std::size_t i = 0; i < kLine; ++i) {
      most = std::max(most, (i * stride + stride - 1) / kLine - i * stride / kLine + 1);
    }
    ASSERT_EQ(Rows::most_lines(stride), most) << stride;
  }
}

// Reads a row by the word it has now.
bool read(const Rows& rows, std::size_t slot, NumberedRows& out, std::size_t at = 0) {
  const std::uint64_t word = rows.word(slot).load(std::memory_order_acquire);
  return row_committed(word) && rows.read(slot, word, out.out(), at);
}

TEST(Rows, GivesBackWhatWasWrittenAndTouchesNoNeighbour) {
  for (const Schema& schema : {small_schema(), apart_schema(), large_schema(5000)}) {
    const auto segment = Segment::create({}, config_of(5), schema);
    const Rows rows(*segment);
    NumberedRows in(schema, 5);
    NumberedRows out(schema, 5);
    for (std::size_t slot : {4, 0, 2, 1, 3, 2, 4}) {
      in.fill(slot, slot + 100);
      EXPECT_LE(row_id(rows.write(slot, slot + 5, in.in(), slot)), slot + 5);
    }
    for (std::size_t slot = 0; slot < 5; ++slot) {
      ASSERT_TRUE(read(rows, slot, out, slot));
      EXPECT_TRUE(out.whole(slot, slot + 100));
      EXPECT_EQ(row_id(rows.word(slot).load()), slot + 5);
    }
  }
}

TEST(Rows, ANeverWrittenRowIsNotCommitted) {
  const auto segment = Segment::create({}, config_of(3), small_schema());
  const Rows rows(*segment);
  for (std::size_t slot = 0; slot < 3; ++slot) EXPECT_EQ(rows.word(slot).load(), 0u);
  NumberedRows in(small_schema(), 1);
  EXPECT_EQ(rows.write(1, 1, in.in(), 0), 0u);
  EXPECT_TRUE(row_committed(rows.write(1, 4, in.in(), 0)));
  EXPECT_EQ(rows.word(0).load(), 0u);
  EXPECT_EQ(rows.word(2).load(), 0u);
}

TEST(Rows, LeavesOutColumnsThatAreNotWanted) {
  const auto segment = Segment::create({}, config_of(1), small_schema());
  const Rows rows(*segment);
  NumberedRows in(small_schema(), 1);
  in.fill(0, 9);
  rows.write(0, 0, in.in(), 0);
  std::uint64_t number = 0;
  std::vector<std::byte*> wanted(small_schema().size(), nullptr);
  wanted[0] = reinterpret_cast<std::byte*>(&number);
  EXPECT_TRUE(rows.read(0, rows.word(0).load(), wanted.data(), 0));
  EXPECT_EQ(number, 9u);
}

TEST(Rows, RefusesARowThatIsNotTheExpectedOne) {
  const auto segment = Segment::create({}, config_of(2), small_schema());
  const Rows rows(*segment);
  NumberedRows in(small_schema(), 1);
  NumberedRows out(small_schema(), 1);
  rows.write(0, 0, in.in(), 0);
  const std::uint64_t before = rows.word(0).load();
  rows.write(0, 2, in.in(), 0);
  EXPECT_FALSE(rows.read(0, before, out.out(), 0));
  rows.word(0).store(row_word(4, RowState::kWriting));
  EXPECT_FALSE(rows.read(0, row_word(4, RowState::kCommitted), out.out(), 0));
}

// One writer goes round a few slots as fast as it can; readers look at all of them. A row that is
// accepted is whole and is the row its word names.
void expect_never_torn(const Schema& schema, std::size_t slots, std::size_t writes) {
  constexpr std::size_t kReaders = 3;
  const auto segment = Segment::create({}, config_of(slots), schema);
  const Rows rows(*segment);
  Countdown writing(1);
  std::atomic<std::size_t> accepted{0};
  std::atomic<std::size_t> torn{0};
  crowd(1 + kReaders, [&](std::size_t me) {
    NumberedRows row(schema, 1);
    if (me == 0) {
      const Part part(writing);
      for (std::uint64_t id = 0; id < writes; ++id) {
        row.fill(0, id);
        rows.write(id % slots, id, row.in(), 0);
      }
      return;
    }
    std::size_t good = 0;
    for (std::size_t i = 0; writing.running() || i < slots; ++i) {
      const std::size_t slot = i % slots;
      const std::uint64_t word = rows.word(slot).load(std::memory_order_acquire);
      if (!row_committed(word) || !rows.read(slot, word, row.out(), 0)) continue;
      ++good;
      if (!row.whole(0, row_id(word))) torn.fetch_add(1);
    }
    accepted.fetch_add(good);
  });
  EXPECT_EQ(torn.load(), 0u);
  EXPECT_GT(accepted.load(), 0u);
}

TEST(Rows, ReadersNeverSeeATornRecord) { expect_never_torn(small_schema(), 3, rounds(3'000'000)); }

TEST(Rows, ReadersNeverSeeATornRecordWhoseWordIsApart) {
  expect_never_torn(apart_schema(), 3, rounds(1'000'000));
}

TEST(Rows, ReadersNeverSeeATornLargeColumn) {
  expect_never_torn(large_schema(1500), 2, rounds(200'000));
}

TEST(Rows, ReadersNeverSeeATornRowOfMostlyWords) {
  // Torn rows are likeliest where the copy takes longest.
  expect_never_torn({{"number", DType::kUInt64, {}}, {"words", DType::kUInt64, {100}}}, 1,
                    rounds(1'000'000));
}

}  // namespace
}  // namespace replay_buffer
