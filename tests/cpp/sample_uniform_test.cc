#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <set>

#include "chi_square.h"
#include "core/sampler.h"
#include "core/writer.h"
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
using testing::equally_likely;
using testing::NumberedBuffer;
using testing::NumberedRows;
using testing::Part;
using testing::rounds;
using testing::small_schema;

TEST(SampleUniform, AnEmptyBufferHasNothingToGive) {
  NumberedBuffer b(config_of(10));
  EXPECT_EQ(code_of([&] { b.ids(1); }), ErrorCode::kNotEnoughRows);
  b.add(3);
  b.buffer.clear();
  EXPECT_EQ(code_of([&] { b.ids(1); }), ErrorCode::kNotEnoughRows);
}

TEST(SampleUniform, OneRowIsGivenAsOftenAsAsked) {
  NumberedBuffer b(config_of(1'000'000));
  b.add();
  EXPECT_EQ(b.ids(100), std::vector<std::int64_t>(100, 0));
}

// Every row that is stored, the newest and the oldest too, at every fill and after the wrap.
TEST(SampleUniform, EveryStoredRowIsEquallyLikely) {
  for (std::size_t block_rows : {1, 7, 32}) {
    for (std::size_t added : {1, 2, 31, 32, 33, 99, 100, 101, 150, 1'033}) {
      NumberedBuffer b(config_of(100, SamplingStrategy::Uniform, block_rows));
      b.add(added);
      const std::size_t live = std::min<std::size_t>(added, 100);
      std::vector<double> weights(100, 0);
      for (std::size_t id = added - live; id < added; ++id) weights[id % 100] = 1;
      const std::vector<std::uint64_t> counts = b.counts(rounds(20'000) / 32 + 200, 32);
      if (live == 1) continue;
      EXPECT_TRUE(agrees(counts, weights)) << added << " rows, blocks of " << block_rows;
    }
  }
}

TEST(SampleUniform, GivesTheRowThatTheIdNames) {
  NumberedBuffer b(config_of(100));
  for (int i = 0; i < 50; ++i) {
    b.add(13);
    const auto drawn = b.sample(64);
    for (std::size_t k = 0; k < 64; ++k) {
      ASSERT_TRUE(drawn.rows.whole(k, static_cast<std::uint64_t>(drawn.ids[k])));
      ASSERT_LT(drawn.ids[k], static_cast<std::int64_t>(b.numbers));
      ASSERT_GE(drawn.ids[k], static_cast<std::int64_t>(b.numbers) - 100);
      ASSERT_EQ(drawn.weights[k], 1);
    }
  }
}

TEST(SampleUniform, TheSameSeedAndContentGiveTheSameBatches) {
  BufferConfig config = config_of(500);
  config.seed = 11;
  NumberedBuffer a(config);
  NumberedBuffer b(config);
  config.seed = 12;
  NumberedBuffer c(config);
  for (NumberedBuffer* buffer : {&a, &b, &c}) buffer->add(700);
  const std::vector<std::int64_t> first = a.ids(32);
  EXPECT_EQ(first, b.ids(32));
  EXPECT_NE(first, c.ids(32));
  EXPECT_NE(first, a.ids(32)) << "each call draws anew";
  EXPECT_NE(a.ids(300), a.ids(300));
  b.ids(32);
  b.ids(300);
  b.ids(300);
  b.ids(1);
  a.ids(1);
  EXPECT_EQ(a.ids(1), b.ids(1)) << "and depends on the number of the call alone";
}

TEST(SampleUniform, ARefusedBatchDoesNotCount) {
  NumberedBuffer a(config_of(10));
  NumberedBuffer b(config_of(10));
  code_of([&] { a.ids(4); });
  a.add(10);
  b.add(10);
  EXPECT_EQ(a.ids(8), b.ids(8));
}

TEST(SampleUniform, ChangesNothingThatIsStored) {
  for (SamplingStrategy strategy :
       {SamplingStrategy::Uniform, SamplingStrategy::Prioritized, SamplingStrategy::Rank,
        SamplingStrategy::WithoutReplacement, SamplingStrategy::Lifo}) {
    NumberedBuffer b(config_of(100, strategy));
    b.add(130);
    const Segment& segment = *b.buffer.ring().segment;
    const std::size_t from = segment.layout().owners_at;  // behind the counters
    const std::vector<std::byte> before(segment.base() + from,
                                        segment.base() + segment.layout().total_bytes);
    for (int i = 0; i < 20; ++i) b.ids(50);
    EXPECT_EQ(std::memcmp(segment.base() + from, before.data(), before.size()), 0);
  }
}

// ---------------------------------------------------------------------- few rows among many slots

// 40 writers, each with one row in a block of 1000: 40 rows among 40,000 slots, mostly guessed
// wrong.
TEST(SampleUniform, FindsFewRowsAmongManySlotsEvenly) {
  const Schema schema = small_schema();
  Buffer buffer(Segment::create({}, config_of(100'000, SamplingStrategy::Uniform, 1000), schema));
  std::vector<std::unique_ptr<Writer>> writers;
  const NumberedRows row(schema, 1);
  for (std::uint16_t i = 0; i < 40; ++i) {
    writers.push_back(std::make_unique<Writer>(buffer.ring(), Identity{i, 1}));
    writers.back()->append(1, row.in(), nullptr, nullptr);
  }
  EXPECT_EQ(buffer.size(), 40u);
  std::vector<std::uint64_t> counts(40);
  NumberedRows out(schema, 50);
  std::vector<std::int64_t> ids(50);
  for (std::size_t i = 0; i < 100; ++i) {
    buffer.sample({50, out.out(), ids.data(), nullptr}, 0);
    for (const std::int64_t id : ids) {
      ASSERT_EQ(id % 1000, 0);
      ++counts[static_cast<std::size_t>(id / 1000)];
    }
  }
  EXPECT_TRUE(equally_likely(counts));
}

TEST(SampleUniform, AfterClearOnlyNewRowsAreDrawn) {
  for (SamplingStrategy strategy : {SamplingStrategy::Uniform, SamplingStrategy::Prioritized,
                                    SamplingStrategy::Rank, SamplingStrategy::WithoutReplacement}) {
    NumberedBuffer b(config_of(100'000, strategy));
    b.add(100'000);
    b.ids(10);
    b.buffer.clear();
    EXPECT_EQ(code_of([&] { b.ids(1); }), ErrorCode::kNotEnoughRows);
    const std::vector<std::int64_t> added = b.add(3);
    const std::set<std::int64_t> expected(added.begin(), added.end());
    const std::vector<std::int64_t> ids = b.ids(300);
    EXPECT_EQ(std::set<std::int64_t>(ids.begin(), ids.end()), expected);
  }
}

// Rows that a stopped writer left half written are passed over, the others stay equally likely.
TEST(SampleUniform, PassesOverRowsBeingWritten) {
  NumberedBuffer b(config_of(100));
  b.add(100);
  std::vector<double> weights(100, 1);
  for (std::size_t slot = 0; slot < 100; ++slot) {
    if (slot % 10 == 3) continue;
    weights[slot] = 0;
    b.buffer.ring().rows.word(slot).store(row_word(slot + 100, RowState::kWriting));
  }
  EXPECT_TRUE(agrees(b.counts(100, 32), weights));
}

TEST(SampleUniform, ClearWhileSamplingGivesRowsOrAnError) {
  for (SamplingStrategy strategy :
       {SamplingStrategy::Uniform, SamplingStrategy::Prioritized, SamplingStrategy::Rank,
        SamplingStrategy::WithoutReplacement, SamplingStrategy::Lifo, SamplingStrategy::Fifo}) {
    NumberedBuffer b(config_of(200, strategy));
    Countdown writing(1);
    std::atomic<std::size_t> torn{0};
    crowd(3, [&](std::size_t me) {
      if (me == 0) {
        const Part part(writing);
        for (std::size_t i = 0; i < rounds(5'000); ++i) {
          b.add(1 + i % 37);
          if (i % 5 == 0) b.buffer.clear();
        }
        return;
      }
      NumberedRows out(b.schema, 8);
      std::int64_t ids[8];
      while (writing.running()) {
        try {
          b.buffer.sample({8, out.out(), ids, nullptr}, 0);
          for (std::size_t k = 0; k < 8; ++k) {
            if (!out.whole(k)) torn.fetch_add(1);
          }
        } catch (const Error& error) {
          if (error.code() != ErrorCode::kNotEnoughRows) throw;
        }
      }
    });
    EXPECT_EQ(torn.load(), 0u);
    b.buffer.clear();
    EXPECT_EQ(b.buffer.size(), 0u);
  }
}

}  // namespace
}  // namespace replay_buffer
