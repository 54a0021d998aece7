#include "core/recovery.h"

#include <algorithm>
#include <vector>

#include "os/crash_point.h"

namespace replay_buffer {
namespace {

bool row_writing(std::uint64_t word) {
  return (word & 3) == static_cast<std::uint64_t>(RowState::kWriting);
}

}  // namespace

bool Recovery::reap(std::size_t block, std::uint64_t seen, Identity me) const {
  const BlockWord held = BlockWord::unpack(seen);
  const Identity owner{held.owner, held.epoch};
  if (owner == me || !owners_.dead(owner)) return false;
  std::atomic<std::uint64_t>& word = ring_.segment->blocks()[block].word;
  const BlockWord mine{held.lap, me.epoch, me.owner, BlockState::kReaping};
  // Acquire: what the dead owner wrote is seen, by the kernel's word that it is gone.
  if (!word.compare_exchange_strong(seen, mine.pack(), std::memory_order_acq_rel)) return true;
  REPLAY_CRASH_POINT("reap.held");
  mend_block(block, held.lap);
  REPLAY_CRASH_POINT("reap.mended");
  word.store(BlockWord{held.lap, 0, 0, BlockState::kSealed}.pack(), std::memory_order_release);
  return true;
}

void Recovery::mend_block(std::size_t block, std::uint32_t lap) const {
  const Rows& rows = ring_.rows;
  const std::size_t first = block * ring_.blocks.block_rows();
  const std::size_t end = first + ring_.blocks.rows_in(block);
  ring_.blocks.begin_lap(block, lap);
  REPLAY_CRASH_POINT("reap.begun");
  for (std::size_t slot = first; slot < end; ++slot) {
    const std::uint64_t word = rows.word(slot).load(std::memory_order_relaxed);
    if (row_writing(word)) {
      rows.word(slot).store(row_word(row_id(word), RowState::kEmpty), std::memory_order_release);
      REPLAY_CRASH_POINT("reap.row");
    }
    if (ring_.priorities) ring_.priorities->mend(slot, rows.word(slot).load(std::memory_order_relaxed));
  }
  recount(block, lap);
  REPLAY_CRASH_POINT("reap.counted");
  if (ring_.priorities) ring_.priorities->tree().refresh_range(first, end - first);
}

// Rows of the block's lap are a run from its first row on.
void Recovery::recount(std::size_t block, std::uint32_t lap) const {
  const Rows& rows = ring_.rows;
  const std::size_t first = block * ring_.blocks.block_rows();
  Fill fill{static_cast<std::uint16_t>(lap), 0, 0};
  for (std::size_t row = 0; row < ring_.blocks.rows_in(block); ++row) {
    const std::uint64_t word = rows.word(first + row).load(std::memory_order_relaxed);
    const std::uint64_t id = (std::uint64_t{lap} - 1) * rows.capacity() + first + row;
    if (word != 0 && row_id(word) == id) fill.written = static_cast<std::uint32_t>(row + 1);
    if (row_committed(word)) ++fill.committed;
  }
  ring_.blocks.set_fill(block, fill);
}

void Recovery::mend_all(Identity me) const {
  const Block* blocks = ring_.segment->blocks();
  for (std::size_t b = 0; b < ring_.blocks.block_count(); ++b) {
    const std::uint64_t seen = blocks[b].word.load(std::memory_order_acquire);
    if (BlockWord::unpack(seen).state != BlockState::kSealed) reap(b, seen, me);
  }
  mend_changes(me);
  for (const Identity dead : owners_.all_dead()) owners_.bury(dead);
}

void Recovery::mend_changes(Identity me) const {
  const std::vector<Identity> dead = owners_.dead_in_a_change();
  if (dead.empty()) return;
  mend_sums(me);
  REPLAY_CRASH_POINT("reap.sums");
  for (const Identity who : dead) owners_.bury(who);
}

// Who died may have been changing priorities, or clearing: a row may be gone and still counted.
void Recovery::mend_sums(Identity me) const {
  // Rows of an open block are counted by its owner.
  for (std::size_t b = 0; b < ring_.blocks.block_count(); ++b) alter(b, me, [] {});
  if (ring_.priorities) ring_.priorities->refresh_all();
}

void Recovery::recover() const {
  const Rows& rows = ring_.rows;
  const std::size_t capacity = rows.capacity();
  Block* blocks = ring_.segment->blocks();
  std::uint64_t head = ring_.blocks.head();
  for (std::size_t b = 0; b < ring_.blocks.block_count(); ++b) {
    const std::size_t first = b * ring_.blocks.block_rows();
    const std::size_t end = first + ring_.blocks.rows_in(b);
    std::uint32_t lap = BlockWord::unpack(blocks[b].word.load(std::memory_order_relaxed)).lap;
    for (std::size_t slot = first; slot < end; ++slot) {
      const std::uint64_t word = rows.word(slot).load(std::memory_order_relaxed);
      const std::uint64_t id = row_id(word);
      const bool keep = row_committed(word) && id % capacity == slot && rows.sound(slot, id);
      if (keep) {
        lap = std::max(lap, static_cast<std::uint32_t>(id / capacity + 1));
      } else if (word != 0) {
        rows.word(slot).store(row_word(id, RowState::kEmpty), std::memory_order_relaxed);
      }
    }
    for (std::size_t slot = first; slot < end && ring_.priorities; ++slot) {
      ring_.priorities->mend(slot, rows.word(slot).load(std::memory_order_relaxed));
    }
    REPLAY_CRASH_POINT("recover.block");
    if (lap != 0) {
      ring_.blocks.begin_lap(b, lap);
      recount(b, lap);
      head = std::max<std::uint64_t>(
          head, (std::uint64_t{lap} - 1) * ring_.blocks.block_count() + b + 1);
    }
    blocks[b].word.store(BlockWord{lap, 0, 0, BlockState::kSealed}.pack(),
                         std::memory_order_release);
  }
  ring_.counters().head.store(head, std::memory_order_release);
  if (ring_.counters().era.load(std::memory_order_relaxed) > head) {
    ring_.counters().era.store(0, std::memory_order_relaxed);
  }
  if (ring_.priorities) ring_.priorities->refresh_all();
}

}  // namespace replay_buffer
