// Ids end with the last lap: its number is no mark, and its ids fit into a row word.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "core/buffer.h"
#include "numbered.h"

namespace replay_buffer {
namespace {

using testing::code_of;
using testing::NumberedBuffer;

const Schema kNumber{{"number", DType::kUInt64, {}}};

class LastLap : public ::testing::TestWithParam<std::uint64_t> {};

TEST_P(LastLap, IdsFitTheirWordsToTheEnd) {
  const std::uint64_t capacity = GetParam();
  BufferConfig config = testing::config_of(capacity);
  config.block_rows = std::min<std::uint64_t>(capacity, 1 << 23);
  NumberedBuffer b(config, kNumber);
  const Blocks& blocks = b.buffer.ring().blocks;
  const std::uint64_t last = last_lap(capacity);
  EXPECT_LT(last, Pick::kByMass);
  b.buffer.ring().counters().head.store((last - 1) * blocks.block_count());
  const auto first = static_cast<std::int64_t>((last - 1) * capacity);
  EXPECT_EQ(b.add()[0], first);
  EXPECT_EQ(b.latest(1)[0], first);
  EXPECT_EQ(b.ids(1)[0], first);
  std::uint8_t gone = 1;
  EXPECT_EQ(b.buffer.get(std::vector{first}, testing::NumberedRows(kNumber, 1).out(), &gone), 0u);
}

TEST_P(LastLap, AWriterIsToldAndClearChangesNothing) {
  const std::uint64_t capacity = GetParam();
  BufferConfig config = testing::config_of(capacity);
  config.block_rows = std::min<std::uint64_t>(capacity, 1 << 23);
  NumberedBuffer b(config, kNumber);
  const Blocks& blocks = b.buffer.ring().blocks;
  const std::uint64_t end = last_lap(capacity) * blocks.block_count();
  for (const std::uint64_t head : {end, end + 1, ~std::uint64_t{0}}) {
    b.buffer.ring().counters().head.store(head);
    EXPECT_EQ(code_of([&] { b.add(); }), ErrorCode::kOutOfSpace);
    EXPECT_EQ(blocks.head(), end);
    b.buffer.clear();
    EXPECT_EQ(b.buffer.ring().counters().head.load(), end);
    EXPECT_EQ(code_of([&] { b.add(); }), ErrorCode::kOutOfSpace);
  }
}

INSTANTIATE_TEST_SUITE_P(Capacities, LastLap,
                         ::testing::Values(1, 3, 1000, std::uint64_t{1} << 24,
                                           (std::uint64_t{1} << 24) + 1, std::uint64_t{1} << 31,
                                           std::uint64_t{1} << 33));

}  // namespace
}  // namespace replay_buffer
