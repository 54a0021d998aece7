#include "core/tree.h"

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

// Which of 16 children holds `fraction` of their sum, and the fraction of that child. Sums are
// taken in double: exact enough that the smallest child keeps its share next to the largest.
// Returns kFanout when no child is positive.
std::size_t choose_child(const Values16& x, double& fraction) {
  double group[4];
  for (std::size_t g = 0; g < 4; ++g) {
    group[g] = (static_cast<double>(x.v[4 * g]) + static_cast<double>(x.v[4 * g + 1])) +
               (static_cast<double>(x.v[4 * g + 2]) + static_cast<double>(x.v[4 * g + 3]));
  }
  const double one = group[0];
  const double two = one + group[1];
  const double three = two + group[2];
  double target = fraction * (three + group[3]);

  const std::size_t g = static_cast<std::size_t>(target >= one) + static_cast<std::size_t>(target >= two) +
                        static_cast<std::size_t>(target >= three);
  const double before[4] = {0, one, two, three};
  target -= before[g];
  const float* v = x.v + 4 * g;
  const double a = v[0];
  const double b = a + static_cast<double>(v[1]);
  const double c = b + static_cast<double>(v[2]);
  std::size_t k = static_cast<std::size_t>(target >= a) + static_cast<std::size_t>(target >= b) +
                  static_cast<std::size_t>(target >= c);
  const double within[4] = {0, a, b, c};
  double rest = target - within[k];
  std::size_t child = 4 * g + k;
  if (!(x.v[child] > 0)) [[unlikely]] {
    // Rounding put the target on an edge: step back to the last positive child, else forward.
    std::size_t at = child;
    while (at > 0 && !(x.v[at] > 0)) --at;
    if (!(x.v[at] > 0)) {
      at = child;
      while (at < kFanout && !(x.v[at] > 0)) ++at;
      if (at == kFanout) return kFanout;
    }
    child = at;
    rest = 0;
  }
  fraction = rest / static_cast<double>(x.v[child]);
  if (!(fraction < 1)) fraction = 0x1.fffffffffffffp-1;
  return child;
}

}  // namespace

Tree::Tree(std::atomic<std::uint64_t>* nodes, std::atomic<std::uint64_t>* lows, std::size_t leaves)
    : nodes_(nodes), lows_(lows), leaves_(leaves), shape_(leaves) {}

Leaf Tree::leaf(std::size_t i) const { return unpack(nodes_[i].load(std::memory_order_acquire)); }

void Tree::prefetch(std::size_t leaf) const {
  os::prefetch_write(nodes_ + leaf);
  os::prefetch_read(nodes_ + (leaf ^ 8));  // the other line of the leaf's group of 16
  os::prefetch_write(nodes_ + shape_.start(1) + leaf / kFanout);
}

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
    const Values16 x = load16(below);
    float low = 0;
    for (float v : x.v) low = least_positive(low, v);
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
  const Values16 x = load16(children(shape_.levels() - 1, 0));
  double sum = 0;
  for (float v : x.v) sum += static_cast<double>(v);
  return sum;
}

float Tree::lowest() const {
  return node_value(lows_[shape_.nodes() - shape_.size(0) - 1].load(std::memory_order_acquire));
}

void Tree::find(std::span<const double> fractions, std::uint64_t* leaves, Leaf* found) const {
  // Level by level over a chunk of draws, so that the loads of different draws overlap.
  constexpr std::size_t kChunk = 64;
  double rest[kChunk];
  for (std::size_t from = 0; from < fractions.size(); from += kChunk) {
    const std::size_t n = fractions.size() - from < kChunk ? fractions.size() - from : kChunk;
    std::uint64_t* at = leaves + from;
    for (std::size_t i = 0; i < n; ++i) {
      rest[i] = fractions[from + i];
      at[i] = 0;
    }
    for (std::size_t level = shape_.levels() - 1; level >= 1; --level) {
      for (std::size_t i = 0; i < n; ++i) {
        if (at[i] == kNone) continue;
        const std::size_t child = choose_child(load16(children(level, at[i])), rest[i]);
        at[i] = child == kFanout ? kNone : at[i] * kFanout + child;
        if (level > 1 && child != kFanout) {
          const std::atomic<std::uint64_t>* next = children(level - 1, at[i]);
          os::prefetch_read(next);
          os::prefetch_read(next + kFanout / 2);
        }
      }
    }
    for (std::size_t i = 0; i < n; ++i) {
      found[from + i] = at[i] == kNone ? Leaf{0, 0} : leaf(at[i]);
      if (!(found[from + i].value > 0)) at[i] = kNone;
    }
  }
}

}  // namespace replay_buffer
