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

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>

#include "core/ring.h"
#include "os/cpu.h"

namespace replay_buffer {

// A row as it was seen.
struct Place {
  std::uint64_t slot;
  std::uint64_t word;

  std::uint64_t id() const { return row_id(word); }
  bool has(std::uint64_t flags) const { return (row_flags(word) & flags) != 0; }
};

// Rows of one block that lie evenly, each `distance` slots after the one before. What is not an
// ordinary step, and so has flags, is by itself.
struct Stretch {
  std::uint64_t slot = 0;
  std::uint64_t word = 0;  // of the first row
  std::uint64_t distance = 0;
  std::uint64_t n = 0;

  static Stretch one(const Place& row) { return {row.slot, row.word, 0, 1}; }
  Place operator[](std::uint64_t i) const {
    return {slot + i * distance, word + i * row_word(distance, RowState::kEmpty)};
  }
  bool has(std::uint64_t flags) const { return (row_flags(word) & flags) != 0; }
  Stretch first(std::uint64_t rows) const { return {slot, word, distance, rows}; }
  Stretch behind(std::uint64_t rows) const {
    const Place row = (*this)[rows];
    return {row.slot, row.word, distance, n - rows};
  }
};

class Streams {
 public:
  // The ring must outlive it.
  explicit Streams(const Ring& ring)
      : ring_(ring),
        block_rows_(ring.blocks.block_rows()),
        block_mask_(std::has_single_bit(block_rows_) ? block_rows_ - 1 : 0),
        block_bits_(static_cast<unsigned>(std::countr_zero(block_rows_))),
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
    const std::uint64_t end =
        block_mask_ != 0 ? (slot | block_mask_) + 1 : slot - offset(slot) + block_rows_;
    return end < capacity_ ? end : capacity_;
  }

  // The next row of the stream, whatever episode it is of.
  bool next(const Place& from, Place& to) const {
    const std::uint64_t distance = link(from).ahead;
    const std::uint64_t slot = from.slot + distance;
    if (offset(from.slot) + distance < block_rows_ && slot < capacity_) [[likely]] {
      if (distance != 0 && found(slot, from.id() + distance, to)) return follows(to, distance);
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

  // The ordinary steps that follow a row in its block, as far as they lie evenly: up to `most`.
  // REQUIRES: rows are steps, and the row is not the last of its episode.
  Stretch run(const Place& from, std::size_t most) const {
    const Rows::Heads heads = ring_.rows.heads();
    const std::uint64_t distance = heads.link(from.slot).ahead;
    if (distance == 0) return {};
    const std::uint64_t room = (block_end(from.slot) - 1 - from.slot) / distance;
    const std::uint64_t word = row_word(from.id() + distance, RowState::kCommitted);
    const Stretch all{from.slot + distance, word, distance, std::min<std::uint64_t>(most, room)};
    return all.first(
        heads.even<&Link::ahead>(all.slot, static_cast<std::int64_t>(distance), word, all.n));
  }

  // The same in the other direction. REQUIRES: the row is not the first of its episode.
  Stretch run_back(const Place& from, std::size_t most) const {
    const Rows::Heads heads = ring_.rows.heads();
    const std::uint64_t distance = heads.link(from.slot).behind;
    const std::uint64_t oldest = ring_.blocks.oldest_id();
    if (distance == 0 || from.id() < oldest) return {};
    const std::uint64_t room = std::min(offset(from.slot), from.id() - oldest) / distance;
    const std::uint64_t word = row_word(from.id() - distance, RowState::kCommitted);
    const std::uint64_t n =
        heads.even<&Link::behind>(from.slot - distance, -static_cast<std::int64_t>(distance), word,
                                  std::min<std::uint64_t>(most, room));
    return {from.slot - n * distance, row_word(from.id() - n * distance, RowState::kCommitted),
            distance, n};
  }

  // Where the next row has to be, which is not in the block of this one: `distance` rows of the
  // chain ahead, as its link says. Not whether it is there.
  bool across(const Place& from, std::uint64_t distance, std::uint64_t& slot,
              std::uint64_t& id) const {
    slot = from.slot + distance;
    id = from.id() + distance;
    // Most often the writer took the block beside this one.
    if (beside(from, slot)) [[likely]]
      return true;
    return far_across(from, distance, slot, id);
  }

  // Whether a slot ahead of a row is in the block beside its own, and the writer went on there: the
  // row's distance leads to it as it would inside a block.
  bool beside(const Place& from, std::uint64_t slot) const {
    const std::uint64_t block = block_of(from.slot);
    return !early_ && slot < capacity_ && block_of(slot) == block + 1 &&
           ring_.blocks.went_on(block, from.id() - from.slot);
  }

  // Bring rows into the cache, of a row or of many rows the `back` before and the `on` after each.
  // By a guess where they are in other blocks.
  //
  // Where they lie side by side:
  bool side_by_side(std::uint64_t slot) const {
    const Link link = ring_.rows.link(slot);
    return link.ahead <= 1 && link.behind <= 1;
  }
  void fetch_beside(std::uint64_t slot, std::uint64_t back, std::uint64_t on) const {
    ring_.rows.prefetch(slot - std::min(back, slot), std::min(slot + on + 1, capacity_));
  }
  // And elsewhere: of all the next row before of any the one after that, as far as the episode goes
  // unless `cross`.
  void fetch_apart(std::span<const std::uint64_t> from, std::uint64_t back, std::uint64_t on,
                   bool cross) const {
    std::uint64_t slots[kMostApart];
    const Rows rows = ring_.rows;
    const Rows::Heads heads = rows.heads();
    const auto walk = [&](std::uint64_t steps, std::uint64_t end, auto next) {
      std::copy(from.begin(), from.end(), slots);
      std::size_t left = from.size();
      for (std::uint64_t t = 0; t < steps && left > 0; ++t) {
        std::size_t going = 0;
        for (std::size_t i = 0; i < left; ++i) {
          const std::uint64_t slot = next(slots[i], heads.link(slots[i]));
          const std::uint64_t word = heads.word(slots[i], std::memory_order_relaxed);
          if (slot >= capacity_ || slot == slots[i]) continue;
          rows.prefetch(slot);
          if ((row_flags(word) & end) == 0) slots[going++] = slot;
        }
        left = going;
      }
    };
    walk(back, cross ? 0 : row_flag::kFirst,
         [](std::uint64_t slot, const Link& link) { return slot - link.behind; });
    walk(on, cross ? 0 : row_flag::kEnded,
         [](std::uint64_t slot, const Link& link) { return slot + link.ahead; });
  }
  static constexpr std::size_t kMostApart = 64;

 private:
  std::uint64_t offset(std::uint64_t slot) const {
    return block_mask_ != 0 ? slot & block_mask_ : slot % block_rows_;
  }
  std::uint64_t block_of(std::uint64_t slot) const {
    return block_mask_ != 0 ? slot >> block_bits_ : slot / block_rows_;
  }
  bool far_across(const Place& from, std::uint64_t distance, std::uint64_t& slot,
                  std::uint64_t& id) const;
  bool found(std::uint64_t slot, std::uint64_t id, Place& to) const {
    return at(slot, to) && to.id() == id;
  }
  bool next_block(const Place& from, std::uint64_t distance, Place& to) const {
    std::uint64_t slot = 0;
    std::uint64_t id = 0;
    return across(from, distance, slot, id) && found(slot, id, to) && follows(to, distance);
  }
  // Whether a row, `distance` ahead of another as that one says, is of the same stream. Where a
  // writer was closed, the first rows of the next may be there: they have nothing behind them.
  bool follows(const Place& to, std::uint64_t distance) const {
    return !to.has(row_flag::kFirst) || link(to).behind == distance;
  }
  bool previous_block(const Place& from, std::uint64_t distance, Place& to) const;
  void locate(std::uint64_t sequence, std::uint64_t offset, std::uint64_t& slot,
              std::uint64_t& id) const {
    slot = sequence % ring_.blocks.block_count() * block_rows_ + offset;
    id = sequence / ring_.blocks.block_count() * capacity_ + slot;
  }
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
  unsigned block_bits_;
  std::uint64_t capacity_;
  bool steps_;
  bool early_;  // a writer may go on before its block has all its rows: when the arena is full
};

}  // namespace replay_buffer
