// The sum tree: draws a leaf with probability proportional to its value.
//
// 16-ary, in shared memory, without a lock. A node is one 64-bit word {float value, uint32 tag}; a
// leaf's tag is the caller's (a row's lap), an inner node's tag is a version. refresh() recomputes a
// node from its children and never adds a difference, so sums do not drift and repeating it after a
// crash is harmless. The version makes it lossless: a refresh counts only when no other refresh of
// the node came between its reading and its writing, so the last one to succeed has seen every leaf
// stored before it began.
//
// Thread safety: all methods may be called by any thread or process at any time.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

#include "os/cpu.h"
#include "segment/tree_shape.h"

namespace replay_buffer {

struct Leaf {
  float value;
  std::uint32_t tag;
};

class Tree {
 public:
  // A tree over memory of `TreeShape(leaves).nodes()` words; all zero is a valid empty tree.
  // `lows`, when not null, has `inner_nodes()` words and holds the least positive leaf below each.
  Tree(std::atomic<std::uint64_t>* nodes, std::atomic<std::uint64_t>* lows, std::size_t leaves);

  std::size_t leaves() const { return leaves_; }
  Leaf leaf(std::size_t i) const;
  REPLAY_ALWAYS_INLINE void prefetch(std::size_t leaf) const {
    os::prefetch_write(nodes_ + leaf);
    os::prefetch_read(nodes_ + (leaf ^ 8));  // the other line of the leaf's group of 16
    os::prefetch_write(nodes_ + shape_.start(1) + leaf / kFanout);
  }

  // Leaves and their ancestors are separate steps, so that many leaves share the second one.
  // REQUIRES: a value >= 0 and finite.
  void store(std::size_t i, Leaf leaf) const;
  // Stores only over `expected`; otherwise says what is there.
  bool store_if(std::size_t i, Leaf& expected, Leaf leaf) const;

  // Brings the ancestors of leaves up to date.
  void refresh(std::size_t leaf) const;
  void refresh_range(std::size_t first, std::size_t count) const;
  void refresh_many(std::span<const std::uint64_t> leaves) const;
  void refresh_all() const;

  // The sum of all leaves, as of the last refresh of the root's children.
  double total() const;
  // The least positive leaf; 0 when there is none. REQUIRES: built with lows.
  float lowest() const;

  // For each target in [0, total) the leaf whose part of the total it falls into. A leaf of value 0
  // is never chosen; with nothing positive on the way the answer is kNone. Uses up the targets.
  static constexpr std::uint64_t kNone = ~std::uint64_t{0};
  void find(std::span<double> targets, std::uint64_t* leaves, Leaf* found) const;

 private:
  std::atomic<std::uint64_t>* children(std::size_t level, std::size_t node) const {
    return nodes_ + shape_.start(level - 1) + node * kFanout;
  }
  void refresh_node(std::size_t level, std::size_t node) const;
  void refresh_low(std::size_t level, std::size_t node) const;

  std::atomic<std::uint64_t>* nodes_;
  std::atomic<std::uint64_t>* lows_;
  std::size_t leaves_;
  TreeShape shape_;
};

}  // namespace replay_buffer
