// Priorities: raw values as the user gave them, and the tree of what they weigh.
//
// The truth is one word for each row, {raw priority, lap}: the lap names the row, not the slot, so
// a late update cannot hit the row that took its place. A row's leaf in the tree is (raw +
// epsilon)^alpha, computed from that word alone; computing it again is always right.
//
// Thread safety: all methods may be called by any thread or process at any time.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

#include "core/tree.h"
#include "os/cpu.h"
#include "segment/segment.h"

namespace replay_buffer {

struct UpdateResult {
  std::size_t applied = 0;
  std::size_t stale = 0;  // the row was overwritten or cleared since it was drawn
};

class Priorities {
 public:
  // Stands for the lap where the row of a slot is gone.
  static constexpr std::uint32_t kGone = ~std::uint32_t{0};
  static_assert(kGone > kLastLap);

  // REQUIRES: segment.layout().has_priorities().
  explicit Priorities(const Segment& segment);

  const Tree& tree() const { return tree_; }
  float alpha() const;
  // The priority a row gets when none is given: the largest raw value so far, at first 1.
  float max_raw() const;

  PriorityWord of(std::size_t slot) const {
    return PriorityWord::unpack(words_[slot].load(std::memory_order_relaxed));
  }
  // The raw priority of a row by id; NaN when the row is gone.
  float raw_of(std::int64_t id) const;

  // What the leaf of a slot has to be.
  float weight_of(std::size_t slot) const { return weigh(of(slot), alpha()); }

  // Around the writing of a row, by the holder of its block: retire() before, so that nobody draws
  // the new row by the mass of the old one; commit() after, with the new row's priority. Ancestors
  // follow with tree().refresh_range().
  void retire(std::size_t slot) const;
  void commit(std::size_t slot, std::uint32_t lap, float raw) const;
  // Takes a row's priority away where no commit() follows.
  void drop(std::size_t slot) const;
  // The same, by anybody, where the row's id is below `oldest`.
  void drop_before(std::size_t slot, std::uint64_t oldest) const;

  // Makes the word and the leaf of a slot agree with its row, whose word is `row`: for a block that
  // nobody writes. A row that never got its priority gets the largest one.
  void mend(std::size_t slot, std::uint64_t row) const;

  // Recomputes every leaf and every sum.
  void refresh_all() const;

  // Sets raw priorities. All or nothing: throws kInvalidArgument, before any write, when a value is
  // NaN, infinite or negative, or an id was never given to a row. Stale ids are skipped and
  // counted.
  UpdateResult update(std::span<const std::int64_t> ids, std::span<const float> raws) const;

  // Changes the exponent and recomputes every leaf.
  void set_alpha(float alpha) const;

 private:
  // Where a row is, by its id. A division would cost as much as the rest of an update's arithmetic.
  struct Where {
    std::uint64_t slot;
    std::uint64_t lap;
  };
  Where where(std::int64_t id) const {
    constexpr std::uint64_t kExact = std::uint64_t{1} << 53;  // numbers that a double tells apart
    const auto number = static_cast<std::uint64_t>(id);
    if (number < capacity_) return {number, 1};
    if (number >= kExact) return {number % capacity_, number / capacity_ + 1};
    auto laps = static_cast<std::uint64_t>(static_cast<double>(id) * inverse_);
    if (number < laps * capacity_) --laps;  // rounded up
    std::uint64_t slot = number - laps * capacity_;
    if (slot >= capacity_) {  // rounded down
      slot -= capacity_;
      ++laps;
    }
    return {slot, laps + 1};
  }
  float weigh(PriorityWord word, float alpha) const;
  void refresh_leaf(std::size_t slot) const;
  void refresh_leaves(std::span<const std::uint64_t> slots) const;
  void raise_max(float raw) const;
  void check(std::span<const std::int64_t> ids, std::span<const float> raws, Where* rows) const;
  UpdateResult change(std::span<const Where> rows, std::span<const float> raws) const;
  bool exchange(std::size_t slot, std::uint32_t lap, PriorityWord next) const;
  bool never_given(std::int64_t id, const Where& row) const;

  Counters& counters_;
  std::atomic<std::uint64_t>* words_;
  Tree tree_;
  std::size_t capacity_;
  double inverse_;  // of it
  std::size_t block_rows_;
  std::size_t block_count_;
  const Block* blocks_;
  const std::atomic<std::uint64_t>* fills_;
  const std::byte* row_words_;
  std::size_t row_word_stride_;
  float epsilon_;
  float most_weight_;  // of a leaf
};

}  // namespace replay_buffer
