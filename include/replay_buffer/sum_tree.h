// The sum tree by itself: leaves with values, drawn in proportion to them.
#pragma once

#include <cstddef>
#include <memory>
#include <span>

namespace replay_buffer {

// Thread safety: every method may be called by any number of threads at once, without a lock. Sums
// are recomputed from the leaves and do not drift.
class SumTree {
 public:
  // All leaves are 0. Throws kInvalidArgument for 0 leaves.
  explicit SumTree(std::size_t leaves);
  ~SumTree();
  SumTree(SumTree&& other) noexcept;
  SumTree& operator=(SumTree&& other) noexcept;

  std::size_t leaves() const;

  // Sets one leaf or several. Throws kInvalidArgument, before any write, when a value is negative,
  // NaN or infinite, or an index is too large.
  void set(std::size_t leaf, float value);
  void set(std::span<const std::size_t> leaves, std::span<const float> values);

  float get(std::size_t leaf) const;
  double total() const;

  // The leaf whose part of [0, total) `target` falls into: never one of value 0, while any is
  // positive; with none, leaves().
  std::size_t find(double target) const;

 private:
  struct Memory;
  std::unique_ptr<Memory> memory_;
};

}  // namespace replay_buffer
