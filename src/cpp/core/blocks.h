// Blocks: how writers share the ring without a lock.
//
// A writer claims the block at the head with one compare-and-swap that names its owner, fills its
// rows without any read-modify-write, then seals it. Everybody helps the head forward; a block
// whose owner is alive is skipped, never stolen; one whose owner is dead is mended first. Old rows
// stay valid until each is overwritten.
//
// Thread safety: every method may be called by any thread or process at any time, except that
// seal() is for the holder of the claim.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "segment/owners.h"
#include "segment/segment.h"

namespace replay_buffer {

// Mends blocks whose owner is dead.
class Reaper {
 public:
  virtual ~Reaper() = default;
  // Whether the block whose word was `seen` may have changed: mended, or somebody else was faster.
  // False when its owner is alive.
  virtual bool reap(std::size_t block, std::uint64_t seen, Identity me) const = 0;
  // Drops the rows of eras past from a block that the caller holds at `lap`; from one that it has
  // just sealed, unless somebody else has it by now.
  virtual void renew(std::size_t block, std::uint32_t lap) const = 0;
  virtual void renew_sealed(std::size_t block, Identity me) const = 0;
  // The processes that hold blocks, for a message.
  virtual std::string holders() const = 0;
};

// A block held open by one writer.
struct Claim {
  std::uint64_t sequence = 0;  // head at which it was claimed
  std::size_t block = 0;
  std::uint32_t lap = 0;
  std::size_t first_slot = 0;
  std::size_t rows = 0;

  std::uint64_t id(std::size_t row, std::size_t capacity) const {
    return (std::uint64_t{lap} - 1) * capacity + first_slot + row;
  }
};

class Blocks {
 public:
  explicit Blocks(const Segment& segment);

  // Claims the next block for `me`. Throws kBusy when every block is held by a live writer, and
  // kOutOfSpace after the last lap. Without a reaper every owner counts as alive.
  Claim claim(Identity me, const Reaper* reaper = nullptr) const;

  // The block claimed at `sequence` once more, when it has room left, is one of the newest (or of
  // any age), and nobody holds it or has claimed it since. Its rows up to written(sequence) are
  // there.
  std::optional<Claim> reclaim(std::uint64_t sequence, Identity me, bool any_age = false) const;

  // Says that the writer who claimed the block at `from` went on in the one of `to`, which it still
  // holds.
  void link(std::uint64_t from, const Claim& to) const;
  // Says that its writer leaves a block, which it still holds, after so many rows; 0: after all.
  // Known of queues it is not: there nobody goes from one such block to another.
  void leave(const Claim& claim, std::uint32_t rows) const;
  // After how many rows the block claimed at `sequence` was left, if its writer went on. 0 when the
  // block is too many laps further to remember.
  std::size_t left_after(std::uint64_t sequence) const;
  // The claim that the same writer made after the one at `sequence`, or before it. False when there
  // is none, or the block is too many laps further to remember.
  bool after(std::uint64_t& sequence) const;
  bool before(std::uint64_t& sequence) const;
  // Whether the writer that had a block, in the lap whose first row has this id, went on with the
  // very next claim.
  bool went_on(std::size_t block, std::uint64_t first_id) const {
    const auto one_on = [&](const Block::Lap& lap) {
      const std::uint64_t on = lap.on.load(std::memory_order_relaxed);
      return (on & 0xffffffff) == 1 && ((on >> 32) - 1) * capacity_ == first_id;
    };
    return one_on(blocks_[block].laps[0]) || one_on(blocks_[block].laps[1]);
  }

  // After a restore or a power cut: links to blocks that the head has not come to are forgotten.
  // The claims they were made for are lost, and whoever claims such a block next is another writer.
  void forget_lost_claims() const;

  // Gives a claimed block back; its rows stay.
  void seal(const Claim& claim) const;

  // Committed rows in the ring now.
  std::size_t live_rows() const;

  // Slots [0, n) that may hold a committed row. Exact with one writer that never lapped.
  std::size_t used_slots() const;

  // How full a block is. Only its holder counts.
  Fill fill(std::size_t block) const {
    return Fill::unpack(fills_[block].load(std::memory_order_acquire));
  }
  void count(std::size_t block, std::uint32_t written, std::uint32_t committed) const {
    const std::uint64_t was = fills_[block].load(std::memory_order_relaxed);
    fills_[block].store(was + Fill{0, written, committed}.pack(), std::memory_order_release);
  }
  // The same where rows were taken out: no more than a damaged segment says there were.
  void count(std::size_t block, std::uint32_t written, std::uint32_t committed,
             std::uint32_t gone) const {
    Fill now = fill(block);
    now.written += written;
    now.committed += committed;
    now.committed -= gone < now.committed ? gone : now.committed;
    set_fill(block, now);
  }
  void set_fill(std::size_t block, Fill fill) const {
    fills_[block].store(fill.pack(), std::memory_order_release);
  }
  // Rows written so far in the block claimed at head `sequence`, in the lap of that claim: never
  // more than the block has, whatever a damaged segment says.
  std::size_t written(std::uint64_t sequence) const {
    const std::size_t b = sequence % count_;
    const std::size_t n = fill(b).written_in(lap_of(sequence));
    return n < rows_in(b) ? n : rows_in(b);
  }
  std::uint32_t lap_of(std::uint64_t sequence) const {
    return static_cast<std::uint32_t>(sequence / count_ + 1);
  }

  // The lap of the row with this id; 0 for an id that no row can have.
  std::uint32_t lap_of_id(std::uint64_t id) const {
    const std::uint64_t lap = id / capacity_ + 1;
    return lap <= last_lap(capacity_) ? static_cast<std::uint32_t>(lap) : 0;
  }

  // Whether a writer of a queue that has this claim open should make another one. Blocks are
  // overwritten in the order of their claims: rows that a slow writer adds to an old one would be
  // gone before anybody could take them. Half the ring is left to a row at least.
  bool too_old(std::uint64_t sequence) const {
    return queue_ && head() - sequence > (count_ < 4 ? count_ : count_ / 2);
  }

  // Whether somebody writes in the block, or did when he died.
  bool open(std::size_t block) const {
    return BlockWord::unpack(blocks_[block].word.load(std::memory_order_relaxed)).state !=
           BlockState::kSealed;
  }

  std::size_t block_count() const { return count_; }
  std::size_t block_rows() const { return block_rows_; }
  std::size_t rows_in(std::size_t block) const {
    const std::size_t first = block * block_rows_;
    return capacity_ - first < block_rows_ ? capacity_ - first : block_rows_;
  }
  // The next claim: not beyond the last lap, whatever a damaged segment says.
  std::uint64_t head() const {
    const std::uint64_t head = counters_.head.load(std::memory_order_acquire);
    return head < end_ ? head : end_;
  }
  // The same with a claim that has its block and has not moved the head yet.
  std::uint64_t claimed() const {
    const std::uint64_t head = this->head();
    const std::uint64_t word = blocks_[head % count_].word.load(std::memory_order_relaxed);
    return head < end_ && BlockWord::unpack(word).lap == lap_of(head) ? head + 1 : head;
  }
  std::uint64_t era() const { return counters_.era.load(std::memory_order_acquire); }
  // The same in one order with begin_era(), for who has sealed a block or stored priorities: either
  // clear() sees that, or they see its era.
  std::uint64_t latest_era() const { return counters_.era.load(std::memory_order_seq_cst); }
  // Rows with smaller ids are gone, whatever their words say: they are of an era past, in a block
  // whose writer has not come by yet.
  std::uint64_t oldest_id() const {
    const std::uint64_t at = era();
    return at == 0 ? 0 : at / count_ * capacity_;
  }
  // Whether a row with this word is there.
  bool live(std::uint64_t word) const { return row_committed(word) && row_id(word) >= oldest_id(); }
  // Whether the block, which the caller holds, was last claimed in an era past.
  bool outdated(std::size_t block) const {
    return blocks_[block].before.load(std::memory_order_relaxed) >> 32 < era() / count_ + 1;
  }

  // Starts a new era: the next claim is block 0 of a later lap. Returns the new era.
  std::uint64_t begin_era() const;

  // What a claim does after it has the block; done again, it changes nothing. REQUIRES: the caller
  // holds the block at `lap`.
  void begin_lap(std::size_t block, std::uint32_t lap) const;

 private:
  [[noreturn]] void throw_all_held(const Reaper* reaper) const;

  Counters& counters_;
  Block* blocks_;
  std::atomic<std::uint64_t>* fills_;
  std::size_t count_;
  std::size_t block_rows_;
  std::size_t capacity_;
  std::uint64_t end_;  // the head after the last lap
  bool queue_;         // what was given out of a block is counted where leave() would write
};

}  // namespace replay_buffer
