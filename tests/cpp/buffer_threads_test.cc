// One buffer, many threads: rows carry their own checksum, so that whatever is torn, lost or
// misplaced is noticed.
#include <gtest/gtest.h>

#include <cmath>
#include <ostream>
#include <string>

#include "core/buffer.h"
#include "core/random.h"
#include "core/writer.h"
#include "crowd.h"
#include "numbered.h"
#include "sanitized.h"

namespace replay_buffer {
namespace {

using testing::config_of;
using testing::Countdown;
using testing::crowd;
using testing::large_schema;
using testing::NumberedBuffer;
using testing::NumberedRows;
using testing::Part;
using testing::rounds;
using testing::small_schema;

struct Load {
  SamplingStrategy strategy;
  std::size_t row_bytes;  // 0: the small schema
  std::size_t capacity;
  std::size_t adds;
  std::size_t batch;
  const char* name;
};

void PrintTo(const Load& load, std::ostream* out) { *out << load.name; }

class BufferThreads : public ::testing::TestWithParam<Load> {};

// Writers add, learners sample and update, a reader looks rows up by id: numbers of a writer grow
// with its ids, and every row that is given out is whole.
TEST_P(BufferThreads, RowsAreNeverTornOrMixedUp) {
  constexpr std::size_t kWriters = 2;
  constexpr std::size_t kLearners = 2;
  const Load load = GetParam();
  const Schema schema = load.row_bytes == 0 ? small_schema() : large_schema(load.row_bytes);
  Buffer buffer(Segment::create({}, config_of(load.capacity, load.strategy), schema));
  {
    NumberedRows rows(schema, load.capacity);
    for (std::size_t i = 0; i < load.capacity; ++i) rows.fill(i, i);
    buffer.add(load.capacity, rows.in(), nullptr, nullptr);
  }
  Countdown writing(kWriters);
  std::atomic<std::size_t> wrong{0};
  std::atomic<std::size_t> seen{0};
  crowd(kWriters + kLearners + 1, [&](std::size_t me) {
    Random random(1, me);
    if (me < kWriters) {
      const Part part(writing);
      NumberedRows rows(schema, 4);
      std::int64_t ids[4];
      std::int64_t last = -1;
      std::uint64_t number = (me + 1) << 40;
      for (std::size_t i = 0; i < rounds(load.adds); ++i) {
        const std::size_t n = 1 + random.below(4);
        for (std::size_t k = 0; k < n; ++k) rows.fill(k, number++);
        buffer.add(n, rows.in(), nullptr, ids);
        for (std::size_t k = 0; k < n; ++k) {
          if (ids[k] <= last) wrong.fetch_add(1);
          last = ids[k];
        }
      }
      return;
    }
    NumberedRows out(schema, load.batch);
    std::vector<std::int64_t> ids(load.batch);
    std::vector<float> weights(load.batch, 1);
    std::vector<std::uint8_t> gone(load.batch, 0);
    while (writing.running()) {
      if (me < kWriters + kLearners) {
        buffer.sample({load.batch, out.out(), ids.data(), weights.data()}, 0.5F);
        if (buffer.ring().priorities) buffer.ring().priorities->update(ids, weights);
      } else {
        ids.resize(buffer.latest(load.batch, ids.data()));
        buffer.get(ids, out.out(), gone.data());
      }
      for (std::size_t k = 0; k < ids.size(); ++k) {
        if (gone[k] == 0 && !out.whole(k)) wrong.fetch_add(1);
      }
      seen.fetch_add(ids.size());
      ids.resize(load.batch);
    }
  });
  EXPECT_EQ(wrong.load(), 0u);
  EXPECT_GT(seen.load(), 0u);
  EXPECT_EQ(buffer.size(), load.capacity);
}

INSTANTIATE_TEST_SUITE_P(
    Loads, BufferThreads,
    ::testing::Values(
        Load{SamplingStrategy::Uniform, 0, 64, 150'000, 32, "UniformSmall"},
        Load{SamplingStrategy::Uniform, 0, 5, 100'000, 16, "UniformTiny"},
        Load{SamplingStrategy::Uniform, 20'000, 16, 4'000, 32, "UniformFrames"},
        Load{SamplingStrategy::Prioritized, 0, 64, 100'000, 32, "PrioritizedSmall"},
        Load{SamplingStrategy::Prioritized, 20'000, 16, 4'000, 32, "PrioritizedFrames"},
        Load{SamplingStrategy::Rank, 0, 64, 20'000, 32, "Rank"},
        Load{SamplingStrategy::WithoutReplacement, 0, 64, 50'000, 32, "WithoutReplacement"},
        Load{SamplingStrategy::Lifo, 0, 1000, 50'000, 8, "Lifo"}),
    [](const auto& load) { return std::string(load.param.name); });

// Every add is one row, with an id of its own, and what is found under the id is that row.
TEST(BufferThreads, EveryAddIsThereUnderItsId) {
  constexpr std::size_t kWriters = 4;
  const std::size_t each = rounds(50'000);
  const Schema schema = small_schema();
  Buffer buffer(Segment::create({}, config_of(kWriters * each), schema));
  std::vector<std::vector<std::int64_t>> ids(kWriters);
  crowd(kWriters, [&](std::size_t me) {
    NumberedRows row(schema, 1);
    for (std::size_t i = 0; i < each; ++i) {
      row.fill(0, (me << 40) + i);
      std::int64_t id = -1;
      if (i % 2 == 0 || !buffer.try_add(1, row.in(), nullptr, &id))
        buffer.add(1, row.in(), nullptr, &id);
      ids[me].push_back(id);
    }
  });
  EXPECT_EQ(buffer.size(), kWriters * each);
  for (std::size_t me = 0; me < kWriters; ++me) {
    NumberedRows out(schema, each);
    ASSERT_EQ(buffer.get(ids[me], out.out(), nullptr), 0u);
    for (std::size_t i = 0; i < each; ++i) ASSERT_TRUE(out.whole(i, (me << 40) + i));
  }
}

// Writers with blocks of their own, and learners; at the end the books balance.
TEST(BufferThreads, WritersOfTheirOwnBlocksAndLearners) {
  constexpr std::size_t kWriters = 3;
  const Schema schema = small_schema();
  Buffer buffer(Segment::create({}, config_of(2000, SamplingStrategy::Prioritized, 16), schema));
  Countdown writing(kWriters);
  std::atomic<std::size_t> torn{0};
  crowd(kWriters + 2, [&](std::size_t me) {
    if (me < kWriters) {
      const Part part(writing);
      Writer writer(buffer.ring(), {static_cast<std::uint16_t>(me + 1), 1});
      NumberedRows rows(schema, 7);
      for (std::size_t i = 0; i < rounds(30'000); ++i) {
        for (std::size_t k = 0; k < 7; ++k) rows.fill(k, (me << 40) + i * 7 + k);
        writer.append(7, rows.in(), nullptr, nullptr);
      }
      return;
    }
    NumberedRows out(schema, 32);
    std::vector<std::int64_t> ids(32);
    std::vector<float> weights(32);
    while (writing.running()) {
      try {
        buffer.sample({32, out.out(), ids.data(), weights.data()}, 0.5F);
      } catch (const Error& error) {
        if (error.code() != ErrorCode::kNotEnoughRows) throw;
        continue;
      }
      for (std::size_t k = 0; k < 32; ++k) torn.fetch_add(out.whole(k) ? 0 : 1);
      buffer.ring().priorities->update(ids, weights);
    }
  });
  EXPECT_EQ(torn.load(), 0u);
  std::size_t committed = 0;
  double sum = 0;
  for (std::size_t slot = 0; slot < 2000; ++slot) {
    if (!row_committed(buffer.ring().rows.word(slot).load())) continue;
    ++committed;
    sum += static_cast<double>(buffer.ring().priorities->tree().leaf(slot));
  }
  EXPECT_EQ(buffer.size(), committed);
  EXPECT_NEAR(buffer.ring().priorities->tree().total(), sum, 1e-6 * sum);
}

// A clear in the middle of others' writing leaves books that balance.
TEST(BufferThreads, ClearWhileOthersWriteLeavesTheBooksBalanced) {
  const Schema schema = small_schema();
  Buffer buffer(Segment::create({}, config_of(500, SamplingStrategy::Prioritized, 16), schema));
  // Writers known to the table of owners, as those of a handle are: else clear() takes them for
  // dead, and mends the blocks they write in.
  const Recovery recovery(buffer.ring(), buffer.owners());
  Countdown writing(2);
  crowd(3, [&](std::size_t me) {
    if (me < 2) {
      const Part part(writing);
      Writer writer(buffer.ring(), buffer.owners().join(), &recovery);
      const NumberedRows rows(schema, 40);
      for (std::size_t i = 0; i < rounds(20'000); ++i)
        writer.append(1 + i % 40, rows.in(), nullptr, nullptr);
      return;
    }
    while (writing.running()) buffer.clear();
  });
  std::size_t committed = 0;
  std::size_t weightless = 0;
  for (std::size_t slot = 0; slot < 500; ++slot) {
    const std::uint64_t word = buffer.ring().rows.word(slot).load();
    if (!row_committed(word)) continue;
    ++committed;
    if (std::isnan(buffer.ring().priorities->raw_of(static_cast<std::int64_t>(row_id(word)))))
      ++weightless;
  }
  EXPECT_EQ(buffer.size(), committed);
  EXPECT_EQ(weightless, 0u) << "rows that stayed lost their priority";
  EXPECT_LE(buffer.size(), buffer.capacity());
  buffer.clear();
  EXPECT_EQ(buffer.size(), 0u);
  EXPECT_EQ(buffer.ring().priorities->tree().total(), 0);
}

}  // namespace
}  // namespace replay_buffer
