#include "core/recovery.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <vector>

#include "os/crash_point.h"
#include "os/threads.h"
#include "segment/tree_shape.h"

namespace replay_buffer {
namespace {

bool row_writing(std::uint64_t word) {
  return (word & 3) == static_cast<std::uint64_t>(RowState::kWriting);
}

}  // namespace

void Recovery::renew(std::size_t block, std::uint32_t lap) const { mend_block(block, lap); }

void Recovery::renew_sealed(std::size_t block, Identity me) const { alter(block, me); }

bool Recovery::alter(std::size_t block, Identity me) const {
  std::atomic<std::uint64_t>& word = ring_.segment->blocks()[block].word;
  for (;;) {
    // In one order with the seal of a writer that looks at the era afterwards.
    std::uint64_t seen = word.load(std::memory_order_seq_cst);
    const BlockWord held = BlockWord::unpack(seen);
    if (held.lap == 0) return true;
    if (held.state != BlockState::kSealed) {
      if (reap(block, seen, me)) continue;
      if (ring_.priorities) drop_old_priorities(block);
      return false;
    }
    const BlockWord mine{held.lap, me.epoch, me.owner, BlockState::kReaping};
    if (!word.compare_exchange_strong(seen, mine.pack(), std::memory_order_acq_rel)) continue;
    mend_block(block, held.lap);
    word.store(seen, std::memory_order_release);
    return true;
  }
}

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

std::string Recovery::holders() const {
  std::vector<std::size_t> slots;
  for (std::size_t b = 0; b < ring_.blocks.block_count(); ++b) {
    const BlockWord held =
        BlockWord::unpack(ring_.segment->blocks()[b].word.load(std::memory_order_relaxed));
    if (held.state == BlockState::kOpen && held.owner < kOwnerCount) slots.push_back(held.owner);
  }
  return owners_.names_of(slots);
}

void Recovery::mend_block(std::size_t block, std::uint32_t lap) const {
  const Rows& rows = ring_.rows;
  const std::size_t first = block * ring_.blocks.block_rows();
  const std::size_t end = first + ring_.blocks.rows_in(block);
  const std::uint64_t oldest = ring_.blocks.oldest_id();
  ring_.blocks.begin_lap(block, lap);
  REPLAY_CRASH_POINT("reap.begun");
  for (std::size_t slot = first; slot < end; ++slot) {
    const std::uint64_t word = rows.word(slot).load(std::memory_order_relaxed);
    if (row_writing(word) || (row_committed(word) && row_id(word) < oldest)) {
      // Whoever sees that clear() took it out sees the era.
      rows.word(slot).store(row_word(row_id(word), RowState::kEmpty), std::memory_order_release);
      REPLAY_CRASH_POINT("reap.row");
    }
    if (ring_.priorities)
      ring_.priorities->mend(slot, rows.word(slot).load(std::memory_order_relaxed));
  }
  REPLAY_CRASH_POINT("reap.rows");
  recount(block, lap);
  REPLAY_CRASH_POINT("reap.counted");
  if (ring_.priorities) ring_.priorities->tree().refresh_range(first, end - first);
}

void Recovery::drop_old_priorities(std::size_t block) const {
  const std::size_t first = block * ring_.blocks.block_rows();
  const std::size_t rows = ring_.blocks.rows_in(block);
  const std::uint64_t oldest = ring_.blocks.oldest_id();
  for (std::size_t slot = first; slot < first + rows; ++slot) {
    ring_.priorities->drop_before(slot, oldest);
  }
  ring_.priorities->tree().refresh_range(first, rows);
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
}

void Recovery::mend_changes(Identity me) const {
  // Only these are mended and buried: one who dies meanwhile may have left something else.
  const std::vector<Identity> dead = owners_.dead_in_a_change();
  if (dead.empty()) return;
  // Who dies in here leaves as much to mend as those it mends.
  const Change change(owners_.slot(me));
  mend_sums(me);
  REPLAY_CRASH_POINT("reap.sums");
  for (const Identity who : dead) owners_.bury(who);
}

// Who died may have been changing priorities, or clearing: a row may be gone and still counted.
void Recovery::mend_sums(Identity me) const {
  // Rows of an open block are counted by its owner.
  for (std::size_t b = 0; b < ring_.blocks.block_count(); ++b) alter(b, me);
  if (ring_.priorities) ring_.priorities->refresh_all();
}

// A power cut leaves every page of the file as it was at a time of its own.
void Recovery::recover() const {
  ring_.segment->begin_lineage();  // ids that were lost may be given again
  const std::size_t count = ring_.blocks.block_count();
  std::vector<std::uint32_t> newest(count);
  os::parallel_for(count, [&](std::size_t b) noexcept { newest[b] = keep_sound_rows(b); });
  REPLAY_CRASH_POINT("recover.rows");
  std::uint64_t head = 0;
  for (std::size_t b = 0; b < count; ++b) {
    if (newest[b] != 0) head = std::max(head, (std::uint64_t{newest[b]} - 1) * count + b + 1);
  }
  settle_counters(head);
  REPLAY_CRASH_POINT("recover.counters");
  for (std::size_t b = 0; b < count; ++b) {
    settle_block(b, newest[b]);
    REPLAY_CRASH_POINT("recover.block");
  }
  ring_.blocks.forget_lost_claims();
  for (std::size_t i = 0; i < kOwnerCount; ++i) {
    Owner& owner = ring_.segment->owners()[i];
    const std::uint64_t epoch = owner.activity.load(std::memory_order_relaxed) >> 32;
    owner.activity.store(epoch << 32, std::memory_order_relaxed);
    owner.waits.store(0, std::memory_order_relaxed);
    owner.announced.store(0, std::memory_order_relaxed);
    owner.pid.store(0, std::memory_order_relaxed);
  }
  REPLAY_CRASH_POINT("recover.owners");
  if (!ring_.priorities) return;
  const Segment& segment = *ring_.segment;
  const TreeShape shape(ring_.rows.capacity());
  for (std::size_t i = ring_.rows.capacity(); i < shape.size(0); ++i) {
    segment.weights()[i].store(0, std::memory_order_relaxed);
  }
  for (std::size_t i = 0; i < shape.inner_nodes(); ++i) {
    segment.sums()[i].store(0, std::memory_order_relaxed);
    if (ring_.layout().has_lows()) segment.lows()[i].store(0, std::memory_order_relaxed);
  }
  ring_.priorities->refresh_all();
}

// Drops the rows of a block that are not whole. Returns the lap of the newest that is; 0: none.
std::uint32_t Recovery::keep_sound_rows(std::size_t block) const {
  const Rows& rows = ring_.rows;
  const std::size_t first = block * ring_.blocks.block_rows();
  std::uint32_t newest = 0;
  std::uint32_t end = 0;  // of the arena, as far as rows have it
  for (std::size_t slot = first; slot < first + ring_.blocks.rows_in(block); ++slot) {
    const std::uint64_t word = rows.word(slot).load(std::memory_order_relaxed);
    if (word == 0) continue;
    const std::uint64_t id = row_id(word);
    const std::uint32_t lap = ring_.blocks.lap_of_id(id);
    const bool possible = id % rows.capacity() == slot && lap != 0;
    bool whole = possible && row_committed(word) && rows.sound(slot, word);
    if (whole && rows.has_arenas()) {
      // A row that was taken out for its bytes may have come back with all of them. Writers rely on
      // the order, and no row that belongs there is out of it.
      const auto [begin, last] = rows.extent(slot);
      whole = begin >= end;
      if (whole) end = last;
    }
    if (whole) {
      newest = std::max(newest, lap);
    } else {
      rows.word(slot).store(possible ? row_word(id, RowState::kEmpty) : 0,
                            std::memory_order_relaxed);
    }
  }
  return newest;
}

// The head may be ahead of the rows, which were lost or never written, but not by ages.
void Recovery::settle_counters(std::uint64_t least_head) const {
  constexpr std::uint64_t kAges = std::uint64_t{1} << 20;  // laps
  Counters& counters = ring_.counters();
  const std::uint64_t count = ring_.blocks.block_count();
  const std::uint64_t head = ring_.blocks.head();
  if (head < least_head || (head - least_head) / count > kAges) {
    counters.head.store(least_head, std::memory_order_relaxed);
  }
  const std::uint64_t era = ring_.blocks.era();
  if (era > ring_.blocks.head() || era % count != 0) {
    counters.era.store(0, std::memory_order_relaxed);
  }
  const auto settle = [](std::atomic<std::uint32_t>& bits, float otherwise) {
    const auto value = std::bit_cast<float>(bits.load(std::memory_order_relaxed));
    if (std::isfinite(value) && value >= 0) return;
    bits.store(std::bit_cast<std::uint32_t>(otherwise), std::memory_order_relaxed);
  };
  settle(counters.alpha_bits, BufferConfig{}.alpha);
  settle(counters.max_raw_bits, 1.0F);
}

void Recovery::settle_block(std::size_t b, std::uint32_t newest) const {
  const Rows& rows = ring_.rows;
  const std::size_t first = b * ring_.blocks.block_rows();
  const std::uint64_t count = ring_.blocks.block_count();
  Block& block = ring_.segment->blocks()[b];
  // A block's lap is below the head; its newest row may have been lost.
  const std::uint32_t held = BlockWord::unpack(block.word.load(std::memory_order_relaxed)).lap;
  const bool believed =
      held > newest && (std::uint64_t{held} - 1) * count + b < ring_.blocks.head();
  const std::uint32_t lap = believed ? held : newest;
  std::uint64_t before = 0;  // the lap before, and its last row
  for (std::size_t row = 0; row < ring_.blocks.rows_in(b); ++row) {
    std::atomic<std::uint64_t>& word = rows.word(first + row);
    const std::uint64_t seen = word.load(std::memory_order_relaxed);
    const std::uint64_t of = row_id(seen) / rows.capacity() + 1;
    if (of > lap) {
      word.store(0, std::memory_order_relaxed);
    } else if (row_committed(seen) && (of - 1) * count + b < ring_.blocks.era()) {
      word.store(row_word(row_id(seen), RowState::kEmpty), std::memory_order_relaxed);
    } else if (row_committed(seen) && of < lap && of >= before >> 32) {
      before = (of << 32) | (row + 1);
    }
    if (ring_.priorities) settle_priority(first + row);
    // The ids of rows that were lost are given again, to rows that nobody has drawn.
    const bool lost = !row_committed(word.load(std::memory_order_relaxed));
    if (lost && ring_.layout().is_queue()) {
      ring_.segment->given_back()[first + row].store(0, std::memory_order_relaxed);
    }
  }
  block.before.store(before, std::memory_order_relaxed);
  bool remembered = lap == 0;
  for (Block::Lap& one : block.laps) {
    const std::uint64_t of = one.taken.load(std::memory_order_relaxed) >> 32;
    if (of == lap && !remembered) {
      remembered = true;
    } else if (of != before >> 32) {
      one.taken.store(0, std::memory_order_relaxed);
      one.back.store(0, std::memory_order_relaxed);
      one.on.store(0, std::memory_order_relaxed);
    }
  }
  if (!remembered) {
    const bool swapped = block.laps[0].taken.load(std::memory_order_relaxed) >
                         block.laps[1].taken.load(std::memory_order_relaxed);
    Block::Lap& older = block.laps[swapped ? 1 : 0];
    older.back.store(std::uint64_t{lap} << 32, std::memory_order_relaxed);
    older.on.store(std::uint64_t{lap} << 32, std::memory_order_relaxed);
    older.taken.store(std::uint64_t{lap} << 32, std::memory_order_relaxed);
  }
  if (lap == 0) {
    ring_.blocks.set_fill(b, {});
  } else {
    recount(b, lap);
  }
  block.word.store(BlockWord{lap, 0, 0, BlockState::kSealed}.pack(), std::memory_order_relaxed);
}

// A priority is kept when it is one, and of the row that is there.
void Recovery::settle_priority(std::size_t slot) const {
  std::atomic<std::uint64_t>& word = ring_.segment->priorities()[slot];
  const std::uint64_t row = ring_.rows.word(slot).load(std::memory_order_relaxed);
  const PriorityWord seen = PriorityWord::unpack(word.load(std::memory_order_relaxed));
  const auto lap = static_cast<std::uint32_t>(row_id(row) / ring_.rows.capacity() + 1);
  std::atomic<std::uint32_t>& most = ring_.counters().max_raw_bits;
  const auto max_raw = std::bit_cast<float>(most.load(std::memory_order_relaxed));
  PriorityWord next{0, row == 0 ? 0 : Priorities::kGone};
  if (row_weighed(row)) {
    const bool own = seen.lap == lap && std::isfinite(seen.raw) && seen.raw >= 0;
    next = {own ? seen.raw : max_raw, lap};
    if (next.raw > max_raw) {
      most.store(std::bit_cast<std::uint32_t>(next.raw), std::memory_order_relaxed);
    }
  }
  word.store(next.pack(), std::memory_order_relaxed);
  ring_.segment->weights()[slot].store(0, std::memory_order_relaxed);  // until refresh_all()
}

}  // namespace replay_buffer
