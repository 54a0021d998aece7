// Priorities: raw values as the user gave them, and the tree of what they weigh.
//
// A row's leaf is (raw + epsilon)^alpha, computed once from the raw value, tagged with the row's lap.
// The tag is what makes a late update harmless: it names the row, not the slot.
//
// Thread safety: all methods may be called by any thread or process at any time.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

#include "core/tree.h"
#include "segment/segment.h"

namespace replay_buffer {

struct UpdateResult {
  std::size_t applied = 0;
  std::size_t stale = 0;  // the row was overwritten or cleared since it was drawn
};

class Priorities {
 public:
  // The tag of a leaf whose row is gone.
  static constexpr std::uint32_t kGone = ~std::uint32_t{0};

  // REQUIRES: segment.layout().has_priorities().
  explicit Priorities(const Segment& segment);

  // The priority a row gets when none is given: the largest raw value so far, at first 1.
  float max_raw() const;
  float alpha() const;
  float raw(std::size_t slot) const { return raw_[slot].load(std::memory_order_relaxed); }

  // The raw priority of a row by id; NaN when the row is gone.
  float raw_of(std::int64_t id) const;
  const Tree& tree() const { return tree_; }

  // Gives a freshly committed row its priority. Ancestors follow with refresh().
  void commit(std::size_t slot, std::uint32_t lap, float raw) const;
  void refresh(std::size_t first, std::size_t count) const { tree_.refresh_range(first, count); }
  // Takes the priority of a slot away: its row is gone.
  void drop(std::size_t slot) const;

  // Sets raw priorities. All or nothing: throws kInvalidArgument, before any write, when a value is
  // NaN, infinite or negative, or an id was never given to a row. Stale ids are skipped and counted.
  UpdateResult update(std::span<const std::int64_t> ids, std::span<const float> raws) const;

  // Changes the exponent and recomputes every leaf from its raw value.
  void set_alpha(float alpha) const;

 private:
  float weigh(float raw, float alpha) const;
  void raise_max(float raw) const;
  void check(std::span<const std::int64_t> ids, std::span<const float> raws) const;
  bool replace(std::size_t slot, std::uint32_t lap, float raw) const;

  Counters& counters_;
  std::atomic<float>* raw_;
  Tree tree_;
  std::size_t capacity_;
  float epsilon_;
};

}  // namespace replay_buffer
