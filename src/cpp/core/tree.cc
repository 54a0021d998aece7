#include "core/tree.h"

#include <algorithm>
#include <bit>

#include "core/simd.h"
#include "os/cpu.h"

namespace replay_buffer {
namespace {

std::uint64_t pack(float value, std::uint32_t tag) {
  return (std::uint64_t{tag} << 32) | std::bit_cast<std::uint32_t>(value);
}

Leaf unpack(std::uint64_t word) { return {node_value(word), static_cast<std::uint32_t>(word >> 32)}; }

float least_positive(float a, float b) {
  if (!(a > 0)) return b;
  return b > 0 && b < a ? b : a;
}

// The child of 16 that holds `target`, which becomes relative to it. Targets are doubles, so that the
// rounding of large sums far up does not decide between small leaves far down. When rounding or a
// race points at a child of value 0 or past the end, the nearest positive one before it is taken,
// else after it. Returns kFanout when no child is positive.
std::size_t choose_child(const std::atomic<std::uint64_t>* words, double& target) {
  const Found found = find16(words, static_cast<float>(target));
  std::size_t child = found.child;
  target -= static_cast<double>(found.before);
  if (child == kFanout || !(node_float(words[child]) > 0)) [[unlikely]] {
    const std::size_t edge = child;
    while (child > 0 && (child == kFanout || !(node_float(words[child]) > 0))) --child;
    if (!(node_float(words[child]) > 0)) {
      child = edge;
      while (child < kFanout && !(node_float(words[child]) > 0)) ++child;
      if (child == kFanout) return kFanout;
    }
    target = 0;
  }
  if (target < 0) target = 0;
  return child;
}

}  // namespace

Tree::Tree(std::atomic<std::uint64_t>* nodes, std::atomic<std::uint64_t>* lows, std::size_t leaves)
    : nodes_(nodes), lows_(lows), leaves_(leaves), shape_(leaves) {}

Leaf Tree::leaf(std::size_t i) const { return unpack(nodes_[i].load(std::memory_order_acquire)); }

void Tree::store(std::size_t i, Leaf leaf) const {
  nodes_[i].store(pack(leaf.value, leaf.tag), std::memory_order_release);
}

bool Tree::store_if(std::size_t i, Leaf& expected, Leaf leaf) const {
  std::uint64_t word = pack(expected.value, expected.tag);
  if (nodes_[i].compare_exchange_strong(word, pack(leaf.value, leaf.tag), std::memory_order_acq_rel)) {
    return true;
  }
  expected = unpack(word);
  return false;
}

void Tree::refresh_node(std::size_t level, std::size_t node) const {
  std::atomic<std::uint64_t>& word = nodes_[shape_.start(level) + node];
  const std::atomic<std::uint64_t>* below = children(level, node);
  // Acquire, here and when the exchange fails: the children are read after the version, so what the
  // refresh that made this version had seen is seen here too.
  std::uint64_t seen = word.load(std::memory_order_acquire);
  for (;;) {
    const float sum = sum16(below);
    const auto version = static_cast<std::uint32_t>(seen >> 32) + 1;
    if (word.compare_exchange_weak(seen, pack(sum, version), std::memory_order_acq_rel)) break;
  }
  if (lows_ != nullptr) refresh_low(level, node);
}

void Tree::refresh_low(std::size_t level, std::size_t node) const {
  std::atomic<std::uint64_t>* inner = lows_ - shape_.size(0);
  std::atomic<std::uint64_t>& word = inner[shape_.start(level) + node];
  const std::atomic<std::uint64_t>* below =
      level == 1 ? children(1, node) : inner + shape_.start(level - 1) + node * kFanout;
  std::uint64_t seen = word.load(std::memory_order_acquire);
  for (;;) {
    float low = 0;
    for (std::size_t i = 0; i < kFanout; ++i) low = least_positive(low, node_float(below[i]));
    const auto version = static_cast<std::uint32_t>(seen >> 32) + 1;
    if (word.compare_exchange_weak(seen, pack(low, version), std::memory_order_acq_rel)) return;
  }
}

void Tree::refresh(std::size_t leaf) const {
  std::size_t node = leaf;
  for (std::size_t level = 1; level < shape_.levels(); ++level) {
    node /= kFanout;
    refresh_node(level, node);
  }
}

void Tree::refresh_range(std::size_t first, std::size_t count) const {
  if (count == 0) return;
  std::size_t last = first + count - 1;
  for (std::size_t level = 1; level < shape_.levels(); ++level) {
    first /= kFanout;
    last /= kFanout;
    for (std::size_t node = first; node <= last; ++node) refresh_node(level, node);
  }
}

void Tree::refresh_many(std::span<const std::uint64_t> leaves) const {
  constexpr std::size_t kMarked = 4096;  // levels this small share ancestors: refresh each once
  std::size_t divisor = kFanout;
  for (std::size_t level = 1; level < shape_.levels(); ++level, divisor *= kFanout) {
    if (shape_.size(level) > kMarked) {
      for (std::uint64_t leaf : leaves) refresh_node(level, leaf / divisor);
      continue;
    }
    std::uint64_t marked[kMarked / 64] = {};
    for (std::uint64_t leaf : leaves) {
      const std::size_t node = leaf / divisor;
      marked[node / 64] |= std::uint64_t{1} << (node % 64);
    }
    for (std::size_t w = 0; w * 64 < shape_.size(level); ++w) {
      for (std::uint64_t bits = marked[w]; bits != 0; bits &= bits - 1) {
        refresh_node(level, w * 64 + static_cast<std::size_t>(std::countr_zero(bits)));
      }
    }
  }
}

void Tree::refresh_all() const { refresh_range(0, shape_.size(0)); }

double Tree::total() const {
  const std::atomic<std::uint64_t>* top = children(shape_.levels() - 1, 0);
  double sum = 0;
  for (std::size_t i = 0; i < kFanout; ++i) sum += static_cast<double>(node_float(top[i]));
  return sum;
}

float Tree::lowest() const {
  return node_value(lows_[shape_.nodes() - shape_.size(0) - 1].load(std::memory_order_acquire));
}

void Tree::find(std::span<double> targets, std::uint64_t* leaves, Leaf* found) const {
  std::fill_n(leaves, targets.size(), 0);
  // Level by level, so that the loads of different draws overlap.
  for (std::size_t level = shape_.levels() - 1; level >= 1; --level) {
    for (std::size_t i = 0; i < targets.size(); ++i) {
      if (leaves[i] == kNone) continue;
      const std::size_t child = choose_child(children(level, leaves[i]), targets[i]);
      leaves[i] = child == kFanout ? kNone : leaves[i] * kFanout + child;
      if (level > 1 && child != kFanout) {
        const std::atomic<std::uint64_t>* next = children(level - 1, leaves[i]);
        os::prefetch_read(next);
        os::prefetch_read(next + kFanout / 2);
      }
    }
  }
  for (std::size_t i = 0; i < targets.size(); ++i) {
    found[i] = leaves[i] == kNone ? Leaf{0, 0} : leaf(leaves[i]);
    if (!(found[i].value > 0)) leaves[i] = kNone;
  }
}

}  // namespace replay_buffer
