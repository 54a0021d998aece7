#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <mutex>

#include "chi_square.h"
#include "crowd.h"
#include "numbered.h"
#include "sanitized.h"

namespace replay_buffer {
namespace {

using testing::config_of;
using testing::count_from;
using testing::crowd;
using testing::equally_likely;
using testing::NumberedBuffer;
using testing::NumberedRows;
using testing::rounds;

BufferConfig epochs(std::uint64_t capacity, std::uint64_t seed = 0) {
  BufferConfig config = config_of(capacity, SamplingStrategy::WithoutReplacement);
  config.seed = seed;
  return config;
}

std::vector<std::int64_t> sorted(std::vector<std::int64_t> ids) {
  std::sort(ids.begin(), ids.end());
  return ids;
}

TEST(SampleEpoch, GivesEveryRowOnceInEachEpoch) {
  for (std::size_t n : {1, 2, 3, 4, 5, 15, 16, 17, 31, 33, 63, 64, 65, 100, 1000}) {
    NumberedBuffer b(epochs(n));
    b.add(n);
    for (int epoch = 0; epoch < 3; ++epoch) ASSERT_EQ(sorted(b.ids(n)), count_from(0, n)) << n;
    b.add(n / 2);
    for (int epoch = 0; epoch < 3; ++epoch) {
      ASSERT_EQ(sorted(b.ids(n)), count_from(static_cast<std::int64_t>(n / 2), n)) << n;
    }
  }
}

TEST(SampleEpoch, BatchesGoOverTheEndOfAnEpoch) {
  NumberedBuffer b(epochs(10));
  b.add(10);
  std::vector<std::int64_t> drawn;
  for (int i = 0; i < 20; ++i) {
    for (std::int64_t id : b.ids(7)) drawn.push_back(id);
  }
  for (std::size_t epoch = 0; epoch < 14; ++epoch) {
    const auto first = drawn.begin() + static_cast<std::ptrdiff_t>(epoch * 10);
    EXPECT_EQ(sorted({first, first + 10}), count_from(0, 10));
  }
  std::map<std::int64_t, int> times;
  for (std::int64_t id : b.ids(35)) ++times[id];
  for (const auto& [id, n] : times) EXPECT_GE(n, 3) << "a batch of several epochs";
}

TEST(SampleEpoch, EveryEpochHasAnOrderOfItsOwn) {
  NumberedBuffer b(epochs(50));
  b.add(50);
  const std::vector<std::int64_t> first = b.ids(50);
  EXPECT_NE(first, b.ids(50));
  NumberedBuffer other(epochs(50, 1));
  other.add(50);
  EXPECT_NE(first, other.ids(50));
  NumberedBuffer same(epochs(50));
  same.add(50);
  EXPECT_EQ(first, same.ids(50));
}

// The place of a row in the epoch is even over many epochs: a permutation, not a few rotations.
TEST(SampleEpoch, EveryPlaceIsEquallyLikelyForARow) {
  constexpr std::size_t kRows = 12;
  NumberedBuffer b(epochs(kRows));
  b.add(kRows);
  std::vector<std::uint64_t> counts(kRows * kRows);
  for (std::size_t i = 0; i < rounds(20'000) + 2000; ++i) {
    const std::vector<std::int64_t> ids = b.ids(kRows);
    for (std::size_t at = 0; at < kRows; ++at)
      ++counts[static_cast<std::size_t>(ids[at]) * kRows + at];
  }
  EXPECT_TRUE(equally_likely(counts));
}

TEST(SampleEpoch, RowsAddedMeanwhileComeAtTheLatestInTheNext) {
  NumberedBuffer b(epochs(100));
  b.add(20);
  std::vector<std::int64_t> first = b.ids(10);
  b.add(5);
  for (std::int64_t id : b.ids(10)) first.push_back(id);
  EXPECT_EQ(sorted(first), count_from(0, 20));
  EXPECT_EQ(sorted(b.ids(25)), count_from(0, 25));
}

TEST(SampleEpoch, AfterClearAnEpochOfTheNewRowsBegins) {
  NumberedBuffer b(epochs(100));
  b.add(100);
  b.ids(50);
  b.buffer.clear();
  const std::vector<std::int64_t> added = b.add(10);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(sorted(b.ids(10)), added);
}

TEST(SampleEpoch, ThreadsShareAnEpoch) {
  constexpr std::size_t kRows = 4000;
  NumberedBuffer b(epochs(kRows));
  b.add(kRows);
  std::mutex lock;
  std::map<std::int64_t, int> times;
  crowd(4, [&](std::size_t) {
    NumberedRows out(b.schema, 10);
    std::vector<std::int64_t> ids(10);
    std::vector<std::int64_t> mine;
    for (std::size_t i = 0; i < kRows / 40; ++i) {
      b.buffer.sample({10, out.out(), ids.data(), nullptr}, 0);
      mine.insert(mine.end(), ids.begin(), ids.end());
    }
    const std::lock_guard guard(lock);
    for (std::int64_t id : mine) ++times[id];
  });
  EXPECT_EQ(times.size(), kRows);
}

}  // namespace
}  // namespace replay_buffer
