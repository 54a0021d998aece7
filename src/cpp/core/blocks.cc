#include "core/blocks.h"

#include <algorithm>
#include <chrono>
#include <string>
#include <thread>
#include <utility>

#include "os/crash_point.h"
#include "os/let_go.h"
#include "replay_buffer/error.h"

namespace replay_buffer {
namespace {

// Milliseconds for which a claim waits for those who mend the last free blocks: one may be stopped.
constexpr unsigned kMostWaits = 1000;

// A block is taken up again while it is among the newest of this share of the ring: rows that are
// written to it are overwritten with it.
constexpr std::uint64_t kYoung = 8;

}  // namespace

Blocks::Blocks(const Segment& segment)
    : counters_(segment.counters()),
      blocks_(segment.blocks()),
      fills_(segment.fills()),
      count_(segment.layout().block_count),
      block_rows_(segment.layout().settings.block_rows),
      capacity_(segment.layout().settings.capacity),
      end_(last_lap(capacity_) * count_),
      queue_(segment.layout().settings.strategy ==
             static_cast<std::uint32_t>(SamplingStrategy::Fifo)) {}

Claim Blocks::claim(Identity me, const Reaper* reaper) const {
  std::size_t skipped = 0;
  std::size_t mending = 0;  // of those skipped, held by somebody who mends them, not by a writer
  unsigned waits = 0;
  for (;;) {
    std::uint64_t head = counters_.head.load(std::memory_order_relaxed);
    const std::size_t b = head % count_;
    if (head >= end_) {
      throw Error(ErrorCode::kOutOfSpace,
                  "the row ids of this buffer are used up after " +
                      std::to_string(last_lap(capacity_)) +
                      " laps; its rows can still be read: copy them to a new buffer to go on");
    }
    const std::uint32_t lap = lap_of(head);
    std::uint64_t word = blocks_[b].word.load(std::memory_order_acquire);
    const BlockWord held = BlockWord::unpack(word);
    if (held.lap < lap) {
      if (held.state == BlockState::kSealed) {
        const BlockWord mine{lap, me.epoch, me.owner, BlockState::kOpen};
        // Acquire pairs with the release in seal(): the last owner's rows are seen before they go.
        // Release: whoever finds us in the word finds us among the living owners.
        if (!blocks_[b].word.compare_exchange_strong(word, mine.pack(),
                                                     std::memory_order_acq_rel)) {
          continue;
        }
        REPLAY_CRASH_POINT("claim.held");
        // Whoever sees anything of what we store in the block sees that we have it, and whoever
        // sees the head move sees the rows of our last block.
        std::atomic_thread_fence(std::memory_order_release);
        begin_lap(b, lap);
        REPLAY_CRASH_POINT("claim.begun");
        const std::uint64_t sequence = head;
        counters_.head.compare_exchange_strong(head, head + 1, std::memory_order_relaxed);
        REPLAY_CRASH_POINT("claim.done");
        return {sequence, b, lap, b * block_rows_, rows_in(b)};
      }
      if (reaper != nullptr && reaper->reap(b, word, me)) continue;
      if (held.state == BlockState::kReaping) ++mending;
      if (++skipped > count_) {
        if (mending != 0 && ++waits < kMostWaits) {
          os::let_go();
          std::this_thread::sleep_for(std::chrono::milliseconds(1));
          skipped = mending = 0;
          continue;
        }
        throw_all_held(reaper);
      }
    }
    if (held.lap > lap && counters_.head.load(std::memory_order_relaxed) == head) {
      // A block gets a lap from the head, and the head does not go back.
      throw Error(ErrorCode::kCorrupt, "the head of this buffer lies behind its blocks");
    }
    // Claimed by somebody who has not moved the head yet, or held open by a live writer.
    counters_.head.compare_exchange_strong(head, head + 1, std::memory_order_release);
  }
}

void Blocks::throw_all_held(const Reaper* reaper) const {
  throw Error(ErrorCode::kBusy,
              "all " + std::to_string(count_) + " blocks of this buffer are held by live writers" +
                  (reaper != nullptr ? " (" + reaper->holders() + ")" : "") +
                  ", one each; a smaller block_rows (it is " + std::to_string(block_rows_) +
                  ") or a larger capacity makes room for more of them");
}

std::optional<Claim> Blocks::reclaim(std::uint64_t sequence, Identity me, bool any_age) const {
  const std::uint64_t head = this->head();
  const std::uint64_t most = std::max<std::uint64_t>(1, count_ / kYoung);
  if (sequence < era() || sequence >= head) return {};
  if (head - sequence > most && !any_age) return {};
  const std::size_t b = sequence % count_;
  const std::uint32_t lap = lap_of(sequence);
  if (fill(b).lap != static_cast<std::uint16_t>(lap) || written(sequence) >= rows_in(b)) return {};
  std::uint64_t sealed = BlockWord{lap, 0, 0, BlockState::kSealed}.pack();
  const BlockWord mine{lap, me.epoch, me.owner, BlockState::kOpen};
  if (!blocks_[b].word.compare_exchange_strong(sealed, mine.pack(), std::memory_order_acq_rel)) {
    return {};
  }
  return Claim{sequence, b, lap, b * block_rows_, rows_in(b)};
}

// Of the two laps a block remembers, the older makes room. The fill comes last: while it still has
// the lap before, this has to be done again.
void Blocks::begin_lap(std::size_t b, std::uint32_t lap) const {
  Block& block = blocks_[b];
  const Fill was = fill(b);
  Block::Lap* older = &block.laps[0];
  Block::Lap* newer = &block.laps[1];
  if (older->taken.load(std::memory_order_relaxed) > newer->taken.load(std::memory_order_relaxed)) {
    std::swap(older, newer);
  }
  const bool remembered = newer->taken.load(std::memory_order_relaxed) >> 32 == lap;
  if (remembered && was.lap == static_cast<std::uint16_t>(lap)) return;
  // The lap before, from its low bits.
  const auto ago = static_cast<std::uint16_t>(lap - was.lap);
  const std::uint32_t last = lap - (ago != 0 ? ago : 0x10000U);
  block.before.store((std::uint64_t{last} << 32) | was.written, std::memory_order_relaxed);
  REPLAY_CRASH_POINT("claim.before");
  if (!remembered) {
    older->back.store(std::uint64_t{lap} << 32, std::memory_order_relaxed);
    older->on.store(std::uint64_t{lap} << 32, std::memory_order_relaxed);
    older->taken.store(std::uint64_t{lap} << 32, std::memory_order_release);
  }
  REPLAY_CRASH_POINT("claim.taken");
  set_fill(b, {static_cast<std::uint16_t>(lap), 0, was.committed});
}

// A link names the lap it is of in the same word: one that was given to a later lap is not mistaken
// for it, and not overwritten by who is late.
void Blocks::link(std::uint64_t from, const Claim& to) const {
  const std::uint64_t distance = to.sequence - from;
  if (to.sequence <= from || distance > 0xffffffff) return;
  for (Block::Lap& one : blocks_[to.block].laps) {
    if (one.back.load(std::memory_order_relaxed) >> 32 != to.lap) continue;
    one.back.store((std::uint64_t{to.lap} << 32) | distance, std::memory_order_relaxed);
  }
  REPLAY_CRASH_POINT("claim.linked");
  const std::uint64_t lap = std::uint64_t{lap_of(from)} << 32;
  for (Block::Lap& one : blocks_[from % count_].laps) {
    std::uint64_t none = lap;
    // Pairs with the acquire in after(): who sees it sees what leave() stored.
    one.on.compare_exchange_strong(none, lap | distance, std::memory_order_release);
  }
}

void Blocks::forget_lost_claims() const {
  const std::uint64_t head = this->head();
  for (std::size_t b = 0; b < count_; ++b) {
    for (Block::Lap& one : blocks_[b].laps) {
      const std::uint64_t on = one.on.load(std::memory_order_relaxed);
      const std::uint64_t lap = on >> 32;
      if (lap == 0 || (lap - 1) * count_ + b + (on & 0xffffffff) < head) continue;
      one.on.store(lap << 32, std::memory_order_relaxed);
    }
  }
}

bool Blocks::after(std::uint64_t& sequence) const {
  for (const Block::Lap& one : blocks_[sequence % count_].laps) {
    const std::uint64_t on = one.on.load(std::memory_order_acquire);
    if (on >> 32 != lap_of(sequence) || (on & 0xffffffff) == 0) continue;
    sequence += on & 0xffffffff;
    return true;
  }
  return false;
}

bool Blocks::before(std::uint64_t& sequence) const {
  for (const Block::Lap& one : blocks_[sequence % count_].laps) {
    const std::uint64_t back = one.back.load(std::memory_order_relaxed);
    const std::uint64_t distance = back & 0xffffffff;
    if (back >> 32 != lap_of(sequence) || distance == 0 || distance > sequence) continue;
    sequence -= distance;
    return true;
  }
  return false;
}

void Blocks::leave(const Claim& claim, std::uint32_t rows) const {
  if (queue_) return;
  const std::uint64_t lap = std::uint64_t{claim.lap} << 32;
  for (Block::Lap& one : blocks_[claim.block].laps) {
    if (one.taken.load(std::memory_order_relaxed) >> 32 != claim.lap) continue;
    one.taken.store(lap | rows, std::memory_order_relaxed);  // before link() says where it went on
  }
}

std::size_t Blocks::left_after(std::uint64_t sequence) const {
  const std::size_t b = sequence % count_;
  for (const Block::Lap& one : blocks_[b].laps) {
    const std::uint64_t taken = one.taken.load(std::memory_order_relaxed);
    if (taken >> 32 != lap_of(sequence)) continue;
    const std::size_t rows = queue_ ? 0 : taken & 0xffffffff;
    return rows != 0 && rows < rows_in(b) ? rows : rows_in(b);
  }
  return 0;
}

void Blocks::seal(const Claim& claim) const {
  REPLAY_CRASH_POINT("seal.before");
  const BlockWord sealed{claim.lap, 0, 0, BlockState::kSealed};
  // In one order with the writer's next look at the era, and with clear(), which begins an era and
  // then looks at the block: one of the two sees the other.
  blocks_[claim.block].word.store(sealed.pack(), std::memory_order_seq_cst);
}

std::size_t Blocks::live_rows() const {
  // A block that is still at a lap of an era past counts nothing. Laps are compared by their low
  // bits; long after the last clear() there is no such block.
  const auto first = static_cast<std::uint16_t>(era() / count_ + 1);
  const std::uint64_t laps = (head() - era()) / count_;
  const bool compare = era() != 0 && laps < 0x7fff;
  std::size_t sum = 0;
  for (std::size_t b = 0; b < count_; ++b) {
    const Fill fill = Fill::unpack(fills_[b].load(std::memory_order_relaxed));
    if (compare && static_cast<std::uint16_t>(fill.lap - first) >= 0x8000) continue;
    sum += fill.committed <= block_rows_ ? fill.committed : 0;  // more: the segment is damaged
  }
  return sum;
}

std::size_t Blocks::used_slots() const {
  const std::uint64_t head = this->head();
  const std::uint64_t era = counters_.era.load(std::memory_order_relaxed);
  const std::uint64_t claimed = head - era;
  if (claimed > count_) return capacity_;
  if (claimed == 0) return 0;
  // An era begins at block 0, and the newest block fills from its first row.
  const std::size_t used = (claimed - 1) * block_rows_ + written(head - 1);
  return used < capacity_ ? used : capacity_;
}

std::uint64_t Blocks::begin_era() const {
  std::uint64_t head = counters_.head.load(std::memory_order_relaxed);
  for (;;) {
    const std::uint64_t era = (std::min(head, end_) + count_ - 1) / count_ * count_;
    if (counters_.head.compare_exchange_weak(head, era, std::memory_order_relaxed)) {
      REPLAY_CRASH_POINT("clear.head");
      // An era that another began meanwhile is later, and stays. Who sees this one sees the head.
      std::uint64_t last = counters_.era.load(std::memory_order_relaxed);
      while (last < era &&
             !counters_.era.compare_exchange_weak(last, era, std::memory_order_seq_cst)) {
      }
      REPLAY_CRASH_POINT("clear.era");
      return era;
    }
  }
}

}  // namespace replay_buffer
