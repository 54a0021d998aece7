#include "core/verify.h"

#include <gtest/gtest.h>

#include <bit>
#include <limits>
#include <string>

#include "numbered.h"

namespace replay_buffer {
namespace {

using testing::config_of;
using testing::NumberedBuffer;

constexpr std::size_t kCapacity = 300;  // three levels of the tree, and leaves that pad it

BufferConfig prioritized() {
  BufferConfig config = config_of(kCapacity, SamplingStrategy::Prioritized, 4);
  config.weights = WeightScale::GlobalMax;
  config.durable = true;
  return config;
}

struct Damaged : NumberedBuffer {
  Damaged() : NumberedBuffer(prioritized()) { add(kCapacity + 10); }

  const Segment& segment() const { return *buffer.ring().segment; }
  std::atomic<std::uint64_t>& row(std::size_t slot) { return buffer.ring().rows.word(slot); }
  Block& block(std::size_t b) { return segment().blocks()[b]; }

  std::vector<std::string> found() const { return verify(buffer.ring(), buffer.owners()); }
  void expect(const std::string& words) const {
    const std::vector<std::string> sentences = found();
    bool named = false;
    for (const std::string& sentence : sentences) {
      named |= sentence.find(words) != std::string::npos;
    }
    EXPECT_TRUE(named) << "\"" << words << "\" is in none of " << sentences.size() << " sentences, "
                       << (sentences.empty() ? "" : sentences[0]);
  }
};

std::uint64_t word_of(std::uint32_t lap, BlockState state, std::uint16_t owner = 0,
                      std::uint16_t epoch = 0) {
  return BlockWord{lap, epoch, owner, state}.pack();
}

TEST(Verify, FindsNothingInAWholeSegment) {
  for (const SamplingStrategy strategy :
       {SamplingStrategy::Uniform, SamplingStrategy::Prioritized, SamplingStrategy::Rank,
        SamplingStrategy::WithoutReplacement, SamplingStrategy::Fifo, SamplingStrategy::Lifo}) {
    for (const bool durable : {false, true}) {
      BufferConfig config = config_of(37, strategy, 4);
      config.durable = durable;
      NumberedBuffer b(config);
      const auto expect_whole = [&](const char* when) {
        const std::vector<std::string> found = verify(b.buffer.ring(), b.buffer.owners());
        EXPECT_TRUE(found.empty()) << when << ": " << found[0];
      };
      expect_whole("new");
      for (std::size_t n : {1, 2, 5, 40, 100}) {
        b.add(n);
        expect_whole("added");
      }
      b.sample(8);
      expect_whole("sampled");
      if (b.buffer.layout().has_priorities()) {
        const std::vector<std::int64_t> ids = b.latest(2);
        b.buffer.update(ids, std::vector<float>{0.0F, 50.0F});
        expect_whole("updated");
        b.buffer.set_alpha(1.5F);
        expect_whole("alpha");
      }
      b.buffer.clear();
      expect_whole("cleared");
      b.add(3);
      b.buffer.release();
      expect_whole("after clear");
    }
  }
}

TEST(Verify, FindsNothingWhenOnlyRowZeroWasWrittenAndCleared) {
  NumberedBuffer b(config_of(10, SamplingStrategy::Uniform, 4));
  b.add();
  b.buffer.clear();
  EXPECT_TRUE(verify(b.buffer.ring(), b.buffer.owners()).empty());
}

TEST(Verify, ReportsADamagedHeader) {
  Damaged d;
  reinterpret_cast<Header*>(d.segment().base())->settings.beta = 7;
  d.expect("checksum of the header");
}

TEST(Verify, ReportsCountersThatMakeNoSense) {
  Damaged d;
  d.segment().counters().era.store(d.buffer.ring().blocks.head() + 1);
  d.expect("is later than the head");
  d.segment().counters().era.store(1);
  d.expect("does not begin at the first block");
  d.segment().counters().era.store(d.buffer.ring().blocks.block_count());
  d.expect("row 50 was cleared and is still there");
  d.segment().counters().alpha_bits.store(
      std::bit_cast<std::uint32_t>(std::numeric_limits<float>::quiet_NaN()));
  d.expect("alpha is");
  d.segment().counters().max_raw_bits.store(std::bit_cast<std::uint32_t>(-1.0F));
  d.expect("the largest priority is");
}

TEST(Verify, ReportsBlocksThatNobodyAliveHolds) {
  Damaged d;
  d.block(20).word.store(word_of(1, BlockState::kOpen, 200, 9));
  d.expect("block 20 is held by owner 200, who is dead");
  d.block(20).word.store(word_of(1, BlockState::kReaping, 200, 9));
  d.expect("block 20 is held by owner 200, who is dead");
  d.block(20).word.store(word_of(1, BlockState::kOpen, 9999, 9));
  d.expect("block 20 is held by owner 9999, who is dead");
}

TEST(Verify, ReportsBlockWordsThatMakeNoSense) {
  Damaged d;
  d.block(20).word.store(3);
  d.expect("block 20 has no known state");
  d.block(20).word.store(word_of(1, BlockState::kSealed, 3, 1));
  d.expect("block 20 is sealed and names an owner");
  d.block(20).word.store(word_of(7, BlockState::kSealed));
  d.expect("block 20 is at lap 7, which the head");
  d.expect("block 20 is at lap 7 and remembers lap 1");
  d.expect("block 20 is at lap 7 and counts rows of lap 1");
}

TEST(Verify, ReportsDrawsThatABlockCannotHaveGiven) {
  Damaged d;
  d.block(20).laps[0].taken.store((std::uint64_t{1} << 32) | 100);
  d.expect("block 20 has given out 100 draws of 4");
}

TEST(Verify, ReportsRowsInTheWrongPlace) {
  Damaged d;
  d.row(50).store(row_word(51, RowState::kCommitted));
  d.expect("slot 50 holds row 51, which belongs in slot 51");
  d.row(50).store(row_word(50 + 5 * kCapacity, RowState::kCommitted));
  d.expect("slot 50 holds row 1550 of lap 6, and its block is at lap 1");
  d.row(50).store(row_word(50, RowState::kWriting));
  d.expect("row 50 is being written in a block that is not open");
  d.row(50).store(row_word(50, RowState{3}));
  d.expect("the row in slot 50 has no known state");
}

TEST(Verify, ReportsCountsThatAreOff) {
  Damaged d;
  d.buffer.ring().blocks.set_fill(20, {1, 4, 3});
  d.expect("block 20 counts 3 committed rows and has 4");
  d.buffer.ring().blocks.set_fill(20, {1, 2, 4});
  d.expect("block 20 counts 2 rows of lap 1 and has 4");
}

TEST(Verify, ReportsPrioritiesThatBelongToNoRow) {
  Damaged d;
  d.row(50).store(row_word(50, RowState::kEmpty));
  d.expect("slot 50 has a priority of lap 1 and no row");
  d.segment().priorities()[60].store(PriorityWord{1, 3}.pack());
  d.expect("row 60 has no priority");
  d.segment().priorities()[70].store(PriorityWord{-1, 1}.pack());
  d.expect("the priority in slot 70 is -1");
  d.segment().priorities()[80].store(PriorityWord{1000, 1}.pack());
  d.expect("the priority in slot 80 is 1000.000000, the largest is 1.0");
}

TEST(Verify, ReportsLeavesAndNodesThatDoNotFollow) {
  Damaged d;
  d.buffer.ring().priorities->tree().store(50, 123.0F);
  d.expect("the leaf of slot 50 is 123");
  d.expect("node 3 at level 1 of the tree has the sum 16");
  d.buffer.ring().priorities->tree().store(kCapacity + 1, 1.0F);
  d.expect("leaf 301 belongs to no row");
  Damaged e;
  e.buffer.ring().priorities->tree().store(50, std::numeric_limits<float>::quiet_NaN());
  e.expect("the leaf of slot 50 is nan");
  Damaged f;
  f.segment().sums()[18].store(0);
  f.expect("node 18 at level 1 of the tree has the sum 0");
  f.segment().sums()[31].store(std::bit_cast<std::uint32_t>(1.0F));
  f.expect("node 31 at level 1 of the tree has the sum 1");
  Damaged g;
  g.segment().lows()[0].store(0);
  g.expect("node 0 at level 1 of the tree has the least leaf 0");
}

TEST(Verify, ReportsRowsWhoseChecksumIsWrong) {
  Damaged d;
  *d.buffer.ring().rows.cell(1, 50) ^= std::byte{1};
  d.expect("the checksum of row 50 is wrong");
}

TEST(Verify, ReportsChangesThatDeadOwnersLeft) {
  Damaged d;
  d.segment().owners()[77].activity.store((std::uint64_t{5} << 32) | 1);
  d.expect("owner 77 died while it changed priorities");
}

TEST(Verify, ReportsAHundredAtMost) {
  Damaged d;
  for (std::size_t slot = 0; slot < kCapacity; ++slot) d.row(slot).store(0);
  EXPECT_EQ(d.found().size(), 100u);
}

}  // namespace
}  // namespace replay_buffer
