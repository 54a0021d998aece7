#include "core/blocks.h"

#include <gtest/gtest.h>

#include <deque>
#include <set>

#include "crowd.h"
#include "numbered.h"
#include "sanitized.h"

namespace replay_buffer {
namespace {

using testing::code_of;
using testing::config_of;
using testing::crowd;
using testing::rounds;
using testing::small_schema;

struct TestBlocks {
  TestBlocks(std::uint64_t capacity, std::uint64_t block_rows)
      : segment(Segment::create({}, config_of(capacity, SamplingStrategy::Uniform, block_rows),
                                small_schema())),
        blocks(*segment) {}

  BlockWord word(std::size_t block) const {
    return BlockWord::unpack(segment->blocks()[block].word.load());
  }

  std::unique_ptr<Segment> segment;
  Blocks blocks;
};

constexpr Identity kMe{3, 7};

TEST(Blocks, AreClaimedInOrderLapAfterLap) {
  const TestBlocks t(10, 4);
  ASSERT_EQ(t.blocks.block_count(), 3u);
  std::uint64_t id = 0;
  for (std::uint64_t sequence = 0; sequence < 9; ++sequence) {
    const Claim claim = t.blocks.claim(kMe);
    EXPECT_EQ(claim.sequence, sequence);
    EXPECT_EQ(claim.block, sequence % 3);
    EXPECT_EQ(claim.lap, sequence / 3 + 1);
    EXPECT_EQ(claim.first_slot, claim.block * 4);
    EXPECT_EQ(claim.rows, claim.block == 2 ? 2u : 4u);
    for (std::size_t row = 0; row < claim.rows; ++row) EXPECT_EQ(claim.id(row, 10), id++);
    t.blocks.seal(claim);
  }
}

TEST(Blocks, AnOpenBlockNamesItsOwner) {
  const TestBlocks t(8, 4);
  const Claim claim = t.blocks.claim(kMe);
  EXPECT_EQ(t.word(0).state, BlockState::kOpen);
  EXPECT_EQ(t.word(0).owner, kMe.owner);
  EXPECT_EQ(t.word(0).epoch, kMe.epoch);
  EXPECT_EQ(t.word(0).lap, 1u);
  t.blocks.seal(claim);
  EXPECT_EQ(t.word(0).state, BlockState::kSealed);
  EXPECT_EQ(t.word(0).lap, 1u);
}

TEST(Blocks, AHeldBlockIsSkippedNeverStolen) {
  const TestBlocks t(16, 4);
  const Claim held = t.blocks.claim(kMe);
  for (int lap = 0; lap < 5; ++lap) {
    for (std::size_t b = 1; b < 4; ++b) {
      const Claim claim = t.blocks.claim({9, 9});
      EXPECT_EQ(claim.block, b);
      t.blocks.seal(claim);
    }
  }
  EXPECT_EQ(t.word(0).owner, kMe.owner);
  t.blocks.seal(held);
  const Claim again = t.blocks.claim(kMe);
  EXPECT_EQ(again.block, 0u);
  EXPECT_EQ(again.lap, 6u) << "the lap the head has reached, not the one after the block's last";
}

TEST(Blocks, ThrowsBusyWhenAllAreHeldAndGoesOnWhenOneIsFree) {
  const TestBlocks t(5, 1);
  std::deque<Claim> held;
  for (int i = 0; i < 5; ++i) held.push_back(t.blocks.claim(kMe));
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(code_of([&] { t.blocks.claim(kMe); }), ErrorCode::kBusy);
  }
  t.blocks.seal(held[2]);
  EXPECT_EQ(t.blocks.claim(kMe).block, 2u);
  EXPECT_EQ(code_of([&] { t.blocks.claim(kMe); }), ErrorCode::kBusy);
}

TEST(Blocks, OneBlockCanBeClaimedAgainAndAgain) {
  const TestBlocks t(1, 1);
  for (std::uint32_t lap = 1; lap < 100; ++lap) {
    const Claim claim = t.blocks.claim(kMe);
    EXPECT_EQ(claim.lap, lap);
    EXPECT_EQ(code_of([&] { t.blocks.claim(kMe); }), ErrorCode::kBusy);
    t.blocks.seal(claim);
    // The refused claim moved the head past this lap; what is claimed next is of the lap it is at.
    t.segment->counters().head.store(lap);
  }
}

// Ids and laps are finite; the end is an error, not a loop.
TEST(Blocks, ThrowsWhenTheLapsAreUsedUp) {
  const TestBlocks t(4, 2);
  t.segment->counters().head.store(std::uint64_t{kLastLap - 1} * 2);
  EXPECT_EQ(t.blocks.claim(kMe).lap, kLastLap);
  EXPECT_EQ(t.blocks.claim(kMe).lap, kLastLap);
  EXPECT_EQ(code_of([&] { t.blocks.claim(kMe); }), ErrorCode::kOutOfSpace);
}

TEST(Blocks, AClaimHelpsAHeadThatItsOwnerHasNotMovedYet) {
  const TestBlocks t(8, 4);
  const Claim first = t.blocks.claim(kMe);
  t.segment->counters().head.store(0);  // as if the owner were between its two steps
  EXPECT_EQ(t.blocks.claim({1, 1}).block, 1u);
  EXPECT_EQ(t.blocks.head(), 2u);
  EXPECT_EQ(t.word(first.block).owner, kMe.owner);
}

TEST(Blocks, UsedSlotsGrowWithTheRowsThenStay) {
  const TestBlocks t(10, 4);
  EXPECT_EQ(t.blocks.used_slots(), 0u);
  std::size_t rows = 0;
  for (int i = 0; i < 8; ++i) {
    const Claim claim = t.blocks.claim(kMe);
    for (std::uint32_t row = 1; row <= claim.rows; ++row) {
      t.blocks.set_fill(claim.block, {static_cast<std::uint16_t>(claim.lap), row, 0});
      EXPECT_EQ(t.blocks.used_slots(), std::min<std::size_t>(++rows, 10));
    }
    t.blocks.seal(claim);
  }
}

TEST(Blocks, LiveRowsAreTheCommittedOnesOfAllBlocks) {
  const TestBlocks t(10, 4);
  t.blocks.set_fill(0, {1, 4, 4});
  t.blocks.set_fill(2, {9, 1, 2});
  EXPECT_EQ(t.blocks.live_rows(), 6u);
  EXPECT_EQ(t.blocks.written(0), 4u);
  EXPECT_EQ(t.blocks.written(3), 0u) << "of the second lap of block 0 nothing is written";
}

TEST(Blocks, AnEraBeginsAtBlockZeroOfALaterLap) {
  const TestBlocks t(12, 4);
  EXPECT_EQ(t.blocks.begin_era(), 0u) << "nothing was claimed";
  t.blocks.seal(t.blocks.claim(kMe));
  EXPECT_EQ(t.blocks.begin_era(), 3u);
  EXPECT_EQ(t.blocks.begin_era(), 3u) << "nothing was claimed since";
  EXPECT_EQ(t.blocks.used_slots(), 0u);
  for (std::uint32_t lap = 2; lap < 4; ++lap) {
    for (std::size_t b = 0; b < 3; ++b) {
      const Claim claim = t.blocks.claim(kMe);
      EXPECT_EQ(claim.block, b);
      EXPECT_EQ(claim.lap, lap);
      t.blocks.seal(claim);
    }
  }
  EXPECT_EQ(t.blocks.begin_era(), 9u) << "a lap that is complete needs no rounding";
}

TEST(Blocks, AnEraKeepsABlockThatIsHeld) {
  const TestBlocks t(12, 4);
  const Claim held = t.blocks.claim(kMe);
  t.blocks.begin_era();
  EXPECT_EQ(t.blocks.claim({1, 1}).block, 1u);
  EXPECT_EQ(t.word(0).owner, kMe.owner);
  t.blocks.seal(held);
}

// Threads claim, hold and seal; an owner table says whether two ever hold one block, and the
// claims say whether one lap of a block was ever given out twice.
void expect_one_owner(std::size_t threads, std::size_t count, std::size_t held_at_once, bool eras) {
  const TestBlocks t(count * 2, 2);
  std::vector<std::atomic<int>> holders(count);
  std::vector<std::vector<std::uint64_t>> sequences(threads);
  std::atomic<std::size_t> busy{0};
  std::atomic<std::size_t> shared{0};
  const std::size_t claims = rounds(400'000) / threads;
  crowd(threads, [&](std::size_t me) {
    const Identity identity{static_cast<std::uint16_t>(me), 1};
    std::deque<Claim> held;
    const auto give_back = [&] {
      holders[held.front().block].fetch_sub(1);
      t.blocks.seal(held.front());
      held.pop_front();
    };
    while (sequences[me].size() < claims) {
      if (held.size() == held_at_once) give_back();
      try {
        const Claim claim = t.blocks.claim(identity);
        if (holders[claim.block].fetch_add(1) != 0) shared.fetch_add(1);
        if (t.word(claim.block).owner != me) shared.fetch_add(1);
        sequences[me].push_back(claim.sequence);
        held.push_back(claim);
      } catch (const Error& error) {
        if (error.code() != ErrorCode::kBusy) throw;
        busy.fetch_add(1);
        while (!held.empty()) give_back();
        std::this_thread::yield();
      }
      if (eras && me == 0 && sequences[me].size() % 16 == 0) t.blocks.begin_era();
    }
    while (!held.empty()) give_back();
  });
  EXPECT_EQ(shared.load(), 0u);
  std::set<std::uint64_t> all;
  for (const auto& mine : sequences) all.insert(mine.begin(), mine.end());
  EXPECT_EQ(all.size(), threads * claims) << "a block was claimed twice in one lap";
  if (threads * held_at_once <= count) {
    EXPECT_EQ(busy.load(), 0u) << "there was always a free block";
  }
  for (std::size_t b = 0; b < count; ++b) EXPECT_EQ(t.word(b).state, BlockState::kSealed);
  EXPECT_EQ(t.blocks.claim(kMe).rows, 2u);
}

TEST(Blocks, HaveOneOwnerUnderManyThreads) { expect_one_owner(8, 32, 2, false); }
TEST(Blocks, HaveOneOwnerWhenThereAreFewerThanWriters) { expect_one_owner(4, 3, 1, false); }
TEST(Blocks, HaveOneOwnerWhenThereIsOne) { expect_one_owner(3, 1, 1, false); }
TEST(Blocks, HaveOneOwnerWhileErasBegin) { expect_one_owner(4, 16, 2, true); }

TEST(Blocks, AWriterThatStopsDoesNotStopTheOthers) {
  const TestBlocks t(64, 2);
  const Claim stopped = t.blocks.claim(kMe);
  std::atomic<std::size_t> stolen{0};
  crowd(4, [&](std::size_t me) {
    for (std::size_t i = 0; i < rounds(50'000); ++i) {
      const Claim claim = t.blocks.claim({static_cast<std::uint16_t>(me), 0});
      if (claim.block == stopped.block) stolen.fetch_add(1);
      t.blocks.seal(claim);
    }
  });
  EXPECT_EQ(stolen.load(), 0u);
  EXPECT_EQ(t.word(stopped.block).owner, kMe.owner);
}

}  // namespace
}  // namespace replay_buffer
