// The sum tree: draws a leaf with probability proportional to its value.
//
// 16-ary, in shared memory, without a lock. Leaves are plain floats. An inner node is one 64-bit
// word {float sum, uint32 version}; refreshing it recomputes the sum from its children and never
// adds a difference, so sums do not drift and repeating it after a crash is harmless. The version
// makes it lossless: a refresh counts only when no other refresh of the node came between its
// reading and its writing, so the last one to succeed has seen every leaf stored before it began.
//
// Thread safety: all methods may be called by any thread or process at any time.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "os/cpu.h"
#include "segment/tree_shape.h"

namespace replay_buffer {

class Tree {
 public:
  // A tree over `TreeShape(leaves)` memory: size(0) floats and inner_nodes() words; all zero is a
  // valid empty tree. `lows`, when not null, has inner_nodes() words: the least positive leaf below
  // each.
  Tree(std::atomic<float>* leaves, std::atomic<std::uint64_t>* sums,
       std::atomic<std::uint64_t>* lows, std::size_t count);

  std::size_t count() const { return count_; }

  // Leaves and their ancestors are separate steps, so that many leaves share the second one.
  // REQUIRES: a value >= 0 and finite.
  float leaf(std::size_t i) const { return leaves_[i].load(std::memory_order_relaxed); }
  void store(std::size_t i, float value) const {
    leaves_[i].store(value, std::memory_order_seq_cst);  // see Priorities::refresh_leaf
  }
  void store_relaxed(std::size_t i, float value) const {
    leaves_[i].store(value, std::memory_order_relaxed);
  }
  REPLAY_ALWAYS_INLINE void prefetch(std::size_t leaf) const {
    os::prefetch_write(leaves_ + leaf);
    os::prefetch_write(sums_ + leaf / kFanout);
  }

  // Brings the ancestors of leaves up to date.
  void refresh_range(std::size_t first, std::size_t count) const;
  void refresh_many(std::span<const std::uint64_t> leaves) const;
  void refresh_all() const { refresh_range(0, count_); }

  // The crown is the last level. Its nodes added up, 16 at a time, are what would be the level
  // above it; and all of them are the sum of all leaves, as of the last refresh of the crown.
  struct Crown {
    std::size_t n;
    float groups[TreeShape::kCrown / kFanout];
    double total;
  };
  Crown crown() const;
  double total() const { return crown().total; }
  // The least positive leaf; 0 when there is none. REQUIRES: built with lows.
  float lowest() const;

  // For each target in [0, total), in rising order, the leaf whose part of the total it falls into.
  // A leaf of value 0 is never chosen; with nothing positive on the way the answer is kNone. Uses
  // up the targets.
  static constexpr std::uint64_t kNone = ~std::uint64_t{0};
  void find(std::span<double> targets, std::uint64_t* found) const {
    descend(walk(crown(), targets, found), targets, found);
  }
  // The same in two steps, of which the second may be done for a part of the targets at a time:
  // nodes of a level, which is returned, and from there down to the leaves.
  std::size_t walk(const Crown& crown, std::span<double> targets, std::uint64_t* found) const;
  void descend(std::size_t level, std::span<double> targets, std::uint64_t* found) const;

  // A node that does not hold what its children give.
  struct Stale {
    std::size_t level;
    std::size_t node;
    bool low;  // its least leaf, not its sum
    float held;
    float given;
  };
  // The first `most` of them. None in a tree that nobody is changing, when all ancestors of changed
  // leaves were refreshed.
  std::vector<Stale> stale(std::size_t most) const;

 private:
  using Word = std::atomic<std::uint64_t>;

  // The sums or lows of a level > 0.
  Word* level(Word* words, std::size_t level) const {
    return words + (shape_.start(level) - shape_.size(0));
  }
  // Nodes of a level that have something below them: the others are padding.
  std::size_t nodes(std::size_t level) const {
    return level == 0 ? count_ : shape_.size(level - 1) / kFanout;
  }
  std::size_t last_level() const { return shape_.levels() - 1; }
  void refresh_node(std::size_t level, std::size_t node) const;
  static constexpr std::size_t kTogether = 64;
  void refresh_nodes(std::size_t level, const std::uint64_t* nodes, std::size_t n) const;
  float sum_below(std::size_t level, std::size_t node) const;
  float low_below(std::size_t level, std::size_t node) const;

  std::atomic<float>* leaves_;
  Word* sums_;
  Word* lows_;
  std::size_t count_;
  TreeShape shape_;
};

}  // namespace replay_buffer
