// Streams: from a row to the one before or after it.
//
// Rows say how far their neighbours are (Link), counted along the blocks that their writer filled
// one after the other; where rows are transitions, all of a writer's are one stream. The way is
// arithmetic inside a block and one look per block across. What is found is the very row that was
// meant, by its id: a neighbour that was overwritten, or not written yet, is not there.
//
// Thread safety: everything may be called at any time. What a row says of its neighbours is true if
// the row's word is still the same afterwards: whoever walks keeps the places and looks again.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

#include "core/ring.h"
#include "os/cpu.h"

namespace replay_buffer {

// A row as it was seen.
struct Place {
  std::uint64_t slot = 0;
  std::uint64_t word = 0;

  std::uint64_t id() const { return row_id(word); }
  bool has(std::uint64_t flags) const { return (row_flags(word) & flags) != 0; }
};

class Streams {
 public:
  // The ring must outlive it.
  explicit Streams(const Ring& ring)
      : ring_(ring),
        block_rows_(ring.blocks.block_rows()),
        block_mask_(std::has_single_bit(block_rows_) ? block_rows_ - 1 : 0),
        capacity_(ring.rows.capacity()),
        steps_(ring.layout().has_steps()),
        early_(ring.layout().has_arenas()) {}

  // The row in a slot. False when none is committed there, or it was cleared.
  bool at(std::uint64_t slot, Place& place) const {
    place = {slot, ring_.rows.word(slot).load(std::memory_order_acquire)};
    return ring_.blocks.live(place.word);
  }

  // Whether the row is still the one that was seen. REQUIRES: an acquire fence after what was read.
  bool same(const Place& place) const {
    return ring_.rows.word(place.slot).load(std::memory_order_relaxed) == place.word;
  }

  Link link(const Place& place) const {
    return steps_ ? ring_.rows.link(place.slot) : Link{1, 1, 0};
  }

  // The slots of a row's block end here.
  std::uint64_t block_end(std::uint64_t slot) const {
    const std::uint64_t end = slot - offset(slot) + block_rows_;
    return end < capacity_ ? end : capacity_;
  }

  // The next row of the stream, whatever episode it is of.
  bool next(const Place& from, Place& to) const {
    const std::uint64_t distance = link(from).ahead;
    const std::uint64_t slot = from.slot + distance;
    if (offset(from.slot) + distance < block_rows_ && slot < capacity_) [[likely]] {
      if (distance != 0 && found(slot, from.id() + distance, to)) return true;
      if (!early_) [[likely]]
        return false;
    }
    return next_block(from, distance, to);
  }

  // The row before, likewise.
  bool previous(const Place& from, Place& to) const {
    const std::uint64_t distance = link(from).behind;
    if (offset(from.slot) >= distance) [[likely]] {
      return distance != 0 && found(from.slot - distance, from.id() - distance, to);
    }
    return previous_block(from, distance, to);
  }

  // The rows that follow one another from a row on, as far apart as it says and with no flag, so
  // that they are ordinary steps: up to `most`, as many as are found easily. Writes them to `to`
  // and returns how many. REQUIRES: rows are steps, and the row is not the last of its episode.
  std::size_t run(const Place& from, std::size_t most, Place* to) const {
    const Rows::Heads heads = ring_.rows.heads();
    const std::uint64_t distance = heads.link(from.slot).ahead;
    if (distance == 0) return 0;
    const std::uint64_t end = block_end(from.slot);
    std::uint64_t slot = from.slot;
    std::uint64_t expected = row_word(from.id(), RowState::kCommitted);
    std::size_t n = 0;
    while (n < most && slot + distance < end) {
      slot += distance;
      expected += row_word(distance, RowState::kEmpty);
      prefetch_far(slot + kFar * distance);
      if (heads.word(slot, std::memory_order_acquire) != expected) break;
      to[n++] = {slot, expected};
      if (heads.link(slot).ahead != distance) break;
    }
    return n;
  }

  // The same in the other direction. REQUIRES: the row is not the first of its episode.
  std::size_t run_back(const Place& from, std::size_t most, Place* to) const {
    const std::uint64_t oldest = row_word(ring_.blocks.oldest_id(), RowState::kEmpty);
    const Rows::Heads heads = ring_.rows.heads();
    const std::uint64_t distance = heads.link(from.slot).behind;
    if (distance == 0) return 0;
    const std::uint64_t first = from.slot - offset(from.slot);
    std::uint64_t slot = from.slot;
    std::uint64_t expected = row_word(from.id(), RowState::kCommitted);
    std::size_t n = 0;
    while (n < most && slot >= first + distance) {
      slot -= distance;
      expected -= row_word(distance, RowState::kEmpty);
      prefetch_far(slot - kFar * distance);
      if (expected < oldest || heads.word(slot, std::memory_order_acquire) != expected) {
        break;
      }
      to[n++] = {slot, expected};
      if (heads.link(slot).behind != distance) break;
    }
    return n;
  }

 private:
  static constexpr std::uint64_t kFar = 8;  // steps ahead of the walk that rows come into the cache

  std::uint64_t offset(std::uint64_t slot) const {
    return block_mask_ != 0 ? slot & block_mask_ : slot % block_rows_;
  }
  // By a guess: that the blocks of a writer lie side by side.
  REPLAY_ALWAYS_INLINE void prefetch_far(std::uint64_t slot) const {
    if (slot < capacity_) ring_.rows.prefetch(slot);
  }
  bool found(std::uint64_t slot, std::uint64_t id, Place& to) const {
    return at(slot, to) && to.id() == id;
  }
  bool next_block(const Place& from, std::uint64_t distance, Place& to) const;
  bool previous_block(const Place& from, std::uint64_t distance, Place& to) const;
  bool found_in(std::uint64_t sequence, std::uint64_t offset, Place& to) const;
  // Rows of a block that its writer has left.
  std::uint64_t rows_of(std::uint64_t sequence) const {
    const Blocks& blocks = ring_.blocks;
    return early_ ? blocks.left_after(sequence) : blocks.rows_in(sequence % blocks.block_count());
  }
  std::uint64_t sequence_of(const Place& place) const {
    return place.id() / capacity_ * ring_.blocks.block_count() + place.slot / block_rows_;
  }

  const Ring& ring_;
  std::uint64_t block_rows_;
  std::uint64_t block_mask_;  // 0 where it is no power of two
  std::uint64_t capacity_;
  bool steps_;
  bool early_;  // a writer may go on before its block has all its rows: when the arena is full
};

}  // namespace replay_buffer
