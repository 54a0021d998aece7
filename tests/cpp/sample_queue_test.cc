#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "core/sampler.h"
#include "crowd.h"
#include "numbered.h"
#include "sanitized.h"

namespace replay_buffer {
namespace {

using testing::code_of;
using testing::config_of;
using testing::count_from;
using testing::Countdown;
using testing::crowd;
using testing::NumberedBuffer;
using testing::NumberedRows;
using testing::Part;
using testing::rounds;

BufferConfig fifo(std::uint64_t capacity, std::uint32_t times = 1, std::uint64_t block_rows = 0) {
  BufferConfig config = config_of(capacity, SamplingStrategy::Fifo, block_rows);
  config.max_times_sampled = times;
  return config;
}

// What stands in for a row that could not be given.
TEST(Pick, OneThatNoRowMatchesMatchesNone) {
  const Pick none{0, Priorities::kGone, 0};
  EXPECT_TRUE(none.exact());
  EXPECT_FALSE(none.is(row_word(0, RowState::kCommitted), 0, 100));
}

TEST(SampleFifo, GivesRowsInTheOrderTheyCame) {
  NumberedBuffer b(fifo(100));
  b.add(10);
  EXPECT_EQ(b.ids(3), count_from(0, 3));
  EXPECT_EQ(b.ids(1), count_from(3, 1));
  b.add(4);
  EXPECT_EQ(b.ids(10), count_from(4, 10));
  EXPECT_EQ(code_of([&] { b.ids(1); }), ErrorCode::kNotEnoughRows);
}

TEST(SampleFifo, GivesEachRowAtMostAsOftenAsAllowed) {
  NumberedBuffer b(fifo(100, 3));
  b.add(4);
  EXPECT_EQ(b.ids(5), (std::vector<std::int64_t>{0, 0, 0, 1, 1}));
  EXPECT_EQ(b.ids(7), (std::vector<std::int64_t>{1, 2, 2, 2, 3, 3, 3}));
  EXPECT_EQ(code_of([&] { b.ids(1); }), ErrorCode::kNotEnoughRows);
  b.add(1);
  EXPECT_EQ(b.ids(3), (std::vector<std::int64_t>{4, 4, 4}));
}

TEST(SampleFifo, ABatchThatCannotBeFilledTakesNothing) {
  NumberedBuffer b(fifo(100, 2));
  b.add(3);
  EXPECT_EQ(code_of([&] { b.ids(7); }), ErrorCode::kNotEnoughRows);
  EXPECT_EQ(b.ids(6), (std::vector<std::int64_t>{0, 0, 1, 1, 2, 2}));
}

// What is stored and was not drawn is given out, oldest first, wherever the ring's seam is.
TEST(SampleFifo, GivesExactlyWhatIsStoredAndNotDrawnAtEveryOffset) {
  for (std::size_t capacity : {1, 2, 5, 8, 11}) {
    for (std::size_t block_rows = 1; block_rows <= capacity; ++block_rows) {
      for (std::uint32_t times : {1U, 2U}) {
        for (std::size_t drawn = 0; drawn <= capacity; ++drawn) {
          for (std::size_t more = 0; more <= 2 * capacity; ++more) {
            NumberedBuffer b(fifo(capacity, times, block_rows));
            b.add(capacity);
            if (drawn > 0) b.ids(drawn);
            b.add(more);
            // Draws of rows overwritten by `more` are lost, as are those taken.
            std::vector<std::int64_t> expected;
            for (std::size_t draw = 0; draw < (capacity + more) * times; ++draw) {
              const std::size_t id = draw / times;
              if (draw >= drawn && id >= more) expected.push_back(static_cast<std::int64_t>(id));
            }
            ASSERT_EQ(code_of([&] { b.ids(expected.size() + 1); }), ErrorCode::kNotEnoughRows);
            if (!expected.empty()) {
              ASSERT_EQ(b.ids(expected.size()), expected)
                  << "capacity " << capacity << ", blocks of " << block_rows << ", " << times
                  << " times, drawn " << drawn << ", then added " << more;
            }
          }
        }
      }
    }
  }
}

TEST(SampleFifo, AfterClearTheQueueIsEmpty) {
  NumberedBuffer b(fifo(10));
  b.add(7);
  b.ids(2);
  b.buffer.clear();
  EXPECT_EQ(code_of([&] { b.ids(1); }), ErrorCode::kNotEnoughRows);
  const std::vector<std::int64_t> added = b.add(4);
  EXPECT_EQ(b.ids(4), added);
}

TEST(SampleFifo, ASealedBlockLeavesNoHoleInTheQueue) {
  NumberedBuffer b(fifo(12, 1, 4));
  b.add(2);
  b.buffer.release();
  b.add(2);
  EXPECT_EQ(b.ids(4), (std::vector<std::int64_t>{0, 1, 4, 5}));
}

// Consumers of several threads: every row exactly `times` times, and a refused batch takes nothing.
void expect_shared_out(std::uint32_t times, std::size_t batch) {
  const std::size_t rows = rounds(40'000) + 1003;
  NumberedBuffer b(fifo(rows, times));
  b.add(rows);
  std::mutex lock;
  std::map<std::int64_t, std::uint32_t> given;
  crowd(4, [&](std::size_t) {
    NumberedRows out(b.schema, batch);
    std::vector<std::int64_t> ids(batch);
    std::vector<std::int64_t> mine;
    for (;;) {
      try {
        b.buffer.sample({batch, out.out(), ids.data(), nullptr}, 0);
      } catch (const Error&) {
        break;
      }
      mine.insert(mine.end(), ids.begin(), ids.end());
    }
    const std::lock_guard guard(lock);
    for (std::int64_t id : mine) ++given[id];
  });
  for (const std::int64_t id : b.ids(rows * times % batch)) ++given[id];
  EXPECT_EQ(given.size(), rows);
  for (const auto& [id, n] : given) ASSERT_EQ(n, times) << id;
}

TEST(SampleFifo, ConsumersShareTheRowsOut) { expect_shared_out(1, 7); }
TEST(SampleFifo, ConsumersShareTheRowsOutSeveralTimes) { expect_shared_out(3, 10); }

// A producer that never laps the consumers loses nothing, and the order is kept for each of them.
TEST(SampleFifo, NothingIsLostBetweenAProducerAndConsumers) {
  constexpr std::size_t kConsumers = 2;
  constexpr std::size_t kCapacity = 4096;
  const std::size_t rows = rounds(300'000);
  NumberedBuffer b(fifo(kCapacity));
  std::atomic<std::size_t> consumed{0};
  // What was consumed when a consumer last asked: the row it is being given is no older.
  std::atomic<std::size_t> asked[kConsumers] = {};
  std::atomic<std::size_t> disorder{0};
  std::mutex lock;
  std::map<std::int64_t, int> given;
  crowd(1 + kConsumers, [&](std::size_t me) {
    if (me == kConsumers) {
      while (b.numbers < rows) {
        if (b.numbers > std::min(asked[0].load(), asked[1].load()) + kCapacity / 2) {
          std::this_thread::yield();
          continue;
        }
        b.add(std::min<std::size_t>(1 + b.numbers % 9, rows - b.numbers));
      }
      return;
    }
    NumberedRows out(b.schema, 1);
    std::int64_t id = 0;
    std::vector<std::int64_t> mine;
    while (consumed.load() < rows) {
      asked[me].store(consumed.load());
      try {
        b.buffer.sample({1, out.out(), &id, nullptr}, 0);
      } catch (const Error&) {
        std::this_thread::yield();
        continue;
      }
      consumed.fetch_add(1);
      if (!mine.empty() && id <= mine.back()) disorder.fetch_add(1);
      if (!out.whole(0, static_cast<std::uint64_t>(id))) disorder.fetch_add(1);
      mine.push_back(id);
    }
    asked[me].store(rows);
    const std::lock_guard guard(lock);
    for (std::int64_t each : mine) ++given[each];
  });
  EXPECT_EQ(disorder.load(), 0u);
  EXPECT_EQ(given.size(), rows);
}

// Rows overwritten between the draw and the copy are replaced by others, also by those of a run
// that its writer has not counted yet.
TEST(SampleFifo, RowsThatAreGoneAreReplacedByTheOldestThatAreThere) {
  NumberedBuffer b(fifo(8, 1, 4));
  b.add(8);
  b.buffer.release();
  const Ring& ring = b.buffer.ring();
  const std::unique_ptr<Sampler> sampler = make_fifo_sampler(ring);
  Random random(1, 1);
  std::vector<Pick> picks(6);
  sampler->draw(random, picks);
  const Claim claim = ring.blocks.claim({});
  const NumberedRows rows(b.schema, 3);
  for (std::size_t row = 0; row < 3; ++row)
    ring.rows.write(claim.first_slot + row, claim.id(row, 8), rows.in(), row);
  std::vector<std::uint64_t> ids;
  for (std::size_t i = 0; i < 5; ++i) {
    ASSERT_TRUE(sampler->redraw(random, picks[i], 1));
    ids.push_back((picks[i].lap - 1) * 8 + picks[i].slot);
  }
  EXPECT_EQ(ids, (std::vector<std::uint64_t>{6, 7, 8, 9, 10}));
  try {
    sampler->redraw(random, picks[5], 1);
    FAIL() << "there is no row left";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kNotEnoughRows);
    EXPECT_NE(std::string(error.what()).find("overwritten"), std::string::npos) << error.what();
  }
}

// A row that is just being written is waited for, not taken for none.
TEST(SampleFifo, ADrawWaitsForARowThatIsBeingWritten) {
  NumberedBuffer b(fifo(4));
  b.add(4);
  b.buffer.release();
  const Ring& ring = b.buffer.ring();
  const std::unique_ptr<Sampler> sampler = make_fifo_sampler(ring);
  Random random(1, 1);
  std::vector<Pick> picks(4);
  sampler->draw(random, picks);
  const Claim claim = ring.blocks.claim({});
  std::atomic<std::uint64_t>& word = ring.rows.word(claim.first_slot);
  word.store(row_word(claim.id(0, 4), RowState::kWriting));
  std::thread writer([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    word.store(row_word(claim.id(0, 4), RowState::kCommitted));
  });
  EXPECT_TRUE(sampler->redraw(random, picks[0], 1));
  EXPECT_EQ(picks[0].slot, claim.first_slot);
  EXPECT_EQ(picks[0].lap, claim.lap);
  writer.join();
}

// A writer that laps the ring all the time: in place of every row that goes there is another, so a
// draw that has begun can be finished.
void expect_always_filled(const Schema& schema, std::size_t capacity, std::size_t run,
                          std::size_t adds, std::size_t batch) {
  NumberedBuffer b(fifo(capacity), schema);
  b.add(capacity);
  Countdown writing(1);
  std::atomic<std::size_t> drawn{0};
  std::atomic<std::size_t> wrong{0};
  crowd(2, [&](std::size_t me) {
    if (me == 0) {
      const Part part(writing);
      for (std::size_t i = 0; i < rounds(adds) || drawn.load() < 100; ++i) b.add(run);
      return;
    }
    NumberedRows out(schema, batch);
    std::vector<std::int64_t> ids(batch);
    while (writing.running()) {
      try {
        b.buffer.sample({batch, out.out(), ids.data(), nullptr}, 0);
      } catch (const Error& error) {
        // Before anything was taken: the writer has not added as many since the last draw.
        const bool short_queue =
            std::string(error.what()).find("rows: the queue has") != std::string::npos;
        if (!short_queue) wrong.fetch_add(1);
        continue;
      }
      drawn.fetch_add(1);
      for (std::size_t k = 0; k < batch; ++k) {
        if (!out.whole(k, static_cast<std::uint64_t>(ids[k]))) wrong.fetch_add(1);
      }
      std::vector<std::int64_t> each = ids;
      std::sort(each.begin(), each.end());
      if (std::adjacent_find(each.begin(), each.end()) != each.end()) wrong.fetch_add(1);
    }
  });
  EXPECT_EQ(wrong.load(), 0u);
}

TEST(SampleFifo, ALapMeanwhileLeavesNoDrawEmptyHanded) {
  expect_always_filled(testing::small_schema(), 64, 16, 100'000, 24);
}
TEST(SampleFifo, ALapMeanwhileLeavesNoDrawOfAllRowsEmptyHanded) {
  expect_always_filled(testing::small_schema(), 16, 3, 100'000, 16);
}
TEST(SampleFifo, ALapMeanwhileLeavesNoDrawOfFramesEmptyHanded) {
  expect_always_filled(testing::large_schema(20'000), 16, 4, 5'000, 8);
}

TEST(SampleLifo, GivesTheNewestRowsNewestFirstAgainAndAgain) {
  NumberedBuffer b(config_of(10, SamplingStrategy::Lifo, 4));
  b.add(4);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(b.ids(3), (std::vector<std::int64_t>{3, 2, 1}));
  b.add(9);
  EXPECT_EQ(b.ids(4), (std::vector<std::int64_t>{12, 11, 10, 9}));
  EXPECT_EQ(b.ids(10).back(), 3);
  EXPECT_EQ(code_of([&] { b.ids(11); }), ErrorCode::kNotEnoughRows);
}

TEST(SampleLifo, GivesWholeRowsWhileOthersAreAdded) {
  NumberedBuffer b(config_of(500, SamplingStrategy::Lifo));
  b.add(500);
  Countdown writing(1);
  std::atomic<std::size_t> wrong{0};
  crowd(3, [&](std::size_t me) {
    if (me == 0) {
      const Part part(writing);
      for (std::size_t i = 0; i < rounds(50'000); ++i) b.add(1 + i % 4);
      return;
    }
    NumberedRows out(b.schema, 20);
    std::vector<std::int64_t> ids(20);
    while (writing.running()) {
      b.buffer.sample({20, out.out(), ids.data(), nullptr}, 0);
      for (std::size_t k = 0; k < 20; ++k) {
        if (!out.whole(k, static_cast<std::uint64_t>(ids[k]))) wrong.fetch_add(1);
      }
    }
  });
  EXPECT_EQ(wrong.load(), 0u);
}

}  // namespace
}  // namespace replay_buffer
