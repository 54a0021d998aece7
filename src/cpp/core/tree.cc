#include "core/tree.h"

#include <algorithm>
#include <bit>

#include "core/sixteen.h"
#include "os/crash_point.h"

namespace replay_buffer {
namespace {

float least_positive(float a, float b) {
  if (!(a > 0)) return b;
  return b > 0 && b < a ? b : a;
}

std::uint64_t next_version(std::uint64_t seen, float value) {
  return (((seen >> 32) + 1) << 32) | std::bit_cast<std::uint32_t>(value);
}

// Recomputes a node until the result is its own: `compute` reads the children after the version.
// Acquire, here and when the exchange fails: what the refresh that made this version had seen is
// seen here too.
template <class Compute>
void renew(std::atomic<std::uint64_t>& word, Compute&& compute) {
  std::uint64_t seen = word.load(std::memory_order_acquire);
  while (
      !word.compare_exchange_weak(seen, next_version(seen, compute()), std::memory_order_acq_rel)) {
  }
}

// The child of 16 that holds `target`, which becomes relative to it. Targets are doubles, so that
// the rounding of large sums far up does not decide between small leaves far down. When rounding or
// a race points at a child of value 0 or past the end, the end of the nearest positive one before
// it is taken, else the beginning of the next one. Returns kFanout when no child is positive.
template <class Child>
REPLAY_ALWAYS_INLINE inline std::size_t choose_child(const Child* children, double& target) {
  const Found found = find16(children, static_cast<float>(target));
  std::size_t child = found.child;
  target -= static_cast<double>(found.before);
  if (child == kFanout || !(value_of(children[child]) > 0)) [[unlikely]] {
    const std::size_t edge = child;
    while (child > 0 && (child == kFanout || !(value_of(children[child]) > 0))) --child;
    target = static_cast<double>(value_of(children[child]));
    if (!(target > 0)) {
      child = edge;
      while (child < kFanout && !(value_of(children[child]) > 0)) ++child;
      if (child == kFanout) return kFanout;
      target = 0;
    }
  }
  if (target < 0) target = 0;
  return child;
}

// For each target, which rise, the first of n values at which their running sum exceeds it; the
// target becomes relative to it.
template <class Value>
REPLAY_ALWAYS_INLINE inline void place(std::size_t n, const Value& value, std::span<double> targets,
                                       std::uint64_t* found) {
  double sum = 0;
  std::size_t placed = 0;
  std::uint64_t last = Tree::kNone;
  for (std::size_t i = 0; i < n && placed < targets.size(); ++i) {
    const auto own = static_cast<double>(value(i));
    if (!(own > 0)) continue;
    last = i;
    for (; placed < targets.size() && targets[placed] < sum + own; ++placed) {
      found[placed] = i;
      targets[placed] -= sum;
    }
    sum += own;
  }
  for (; placed < targets.size(); ++placed) {  // beyond the end by rounding or a race
    found[placed] = last;
    targets[placed] = last == Tree::kNone ? 0 : static_cast<double>(value(last));
  }
}

}  // namespace

Tree::Tree(std::atomic<float>* leaves, std::atomic<std::uint64_t>* sums,
           std::atomic<std::uint64_t>* lows, std::size_t count)
    : leaves_(leaves), sums_(sums), lows_(lows), count_(count), shape_(count) {}

REPLAY_ALWAYS_INLINE inline float Tree::sum_below(std::size_t at, std::size_t node) const {
  return at == 1 ? sum16(leaves_ + node * kFanout) : sum16(level(sums_, at - 1) + node * kFanout);
}

float Tree::low_below(std::size_t at, std::size_t node) const {
  float low = 0;
  for (std::size_t i = node * kFanout; i < (node + 1) * kFanout; ++i) {
    low = least_positive(low, at == 1 ? value_of(leaves_[i]) : value_of(level(lows_, at - 1)[i]));
  }
  return low;
}

REPLAY_ALWAYS_INLINE inline void Tree::refresh_node(std::size_t at, std::size_t node) const {
  REPLAY_CRASH_POINT("tree.node");
  renew(level(sums_, at)[node], [&] { return sum_below(at, node); });
  if (lows_ != nullptr) renew(level(lows_, at)[node], [&] { return low_below(at, node); });
}

void Tree::refresh_range(std::size_t first, std::size_t count) const {
  if (count == 0) return;
  std::size_t last = first + count - 1;
  for (std::size_t at = 1; at < shape_.levels(); ++at) {
    first /= kFanout;
    last /= kFanout;
    for (std::size_t node = first; node <= last; ++node) refresh_node(at, node);
  }
}

// The same for nodes of one level, no more than kTogether: all are read before any is written. An
// exchange waits for everything before it, and everything after it waits for the exchange; so the
// sums are computed side by side, and not each between two exchanges.
void Tree::refresh_nodes(std::size_t at, const std::uint64_t* nodes, std::size_t n) const {
  Word* const words = level(sums_, at);
  std::uint64_t seen[kTogether];
  std::uint64_t next[kTogether];
  for (std::size_t i = 0; i < n; ++i) {
    seen[i] = words[nodes[i]].load(std::memory_order_acquire);
    next[i] = next_version(seen[i], sum_below(at, nodes[i]));
  }
  for (std::size_t i = 0; i < n; ++i) {
    REPLAY_CRASH_POINT("tree.node");
    Word& word = words[nodes[i]];
    if (!word.compare_exchange_strong(seen[i], next[i], std::memory_order_release)) [[unlikely]]
      renew(word, [&] { return sum_below(at, nodes[i]); });
    if (lows_ != nullptr)
      renew(level(lows_, at)[nodes[i]], [&] { return low_below(at, nodes[i]); });
  }
}

void Tree::refresh_many(std::span<const std::uint64_t> leaves) const {
  constexpr std::size_t kMarked = 512;  // levels this small share ancestors: refresh each once
  constexpr std::size_t kBits = 64;
  std::uint64_t marks[2][kMarked / kBits];  // of a level and of the one above it, in turns
  bool marked = false;
  std::uint64_t nodes[kTogether];
  for (std::size_t at = 1; at < shape_.levels(); ++at) {
    std::size_t n = 0;
    const auto refresh = [&](std::size_t node) {
      nodes[n++] = node;
      if (n < kTogether) return;
      refresh_nodes(at, nodes, n);
      n = 0;
    };
    const unsigned shift = static_cast<unsigned>(at) * kFanoutBits;
    if (shape_.size(at) > kMarked) {
      for (std::uint64_t leaf : leaves) refresh(leaf >> shift);
      refresh_nodes(at, nodes, n);
      continue;
    }
    std::uint64_t* const mine = marks[at % 2];
    std::uint64_t* const above = marks[(at + 1) % 2];
    const std::size_t groups = (shape_.size(at) + kBits - 1) / kBits;
    if (!marked) {
      std::fill_n(mine, groups, std::uint64_t{0});
      for (std::uint64_t leaf : leaves) {
        const std::size_t node = leaf >> shift;
        mine[node / kBits] |= std::uint64_t{1} << (node % kBits);
      }
      marked = true;
    }
    std::fill_n(above, (groups + kFanout - 1) / kFanout, std::uint64_t{0});
    for (std::size_t w = 0; w < groups; ++w) {
      for (std::uint64_t bits = mine[w]; bits != 0; bits &= bits - 1) {
        const std::size_t node = w * kBits + static_cast<std::size_t>(std::countr_zero(bits));
        refresh(node);
        const std::size_t parent = node / kFanout;
        above[parent / kBits] |= std::uint64_t{1} << (parent % kBits);
      }
    }
    refresh_nodes(at, nodes, n);
  }
}

Tree::Crown Tree::crown() const {
  const Word* const words = level(sums_, last_level());
  Crown crown;
  crown.n = shape_.size(last_level()) / kFanout;
  crown.total = 0;
  for (std::size_t i = 0; i < crown.n; ++i) {
    crown.groups[i] = sum16(words + i * kFanout);
    crown.total += static_cast<double>(crown.groups[i]);
  }
  return crown;
}

float Tree::lowest() const {
  const Word* const words = level(lows_, last_level());
  float low = 0;
  for (std::size_t i = 0; i < shape_.size(last_level()); ++i) {
    low = least_positive(low, value_of(words[i]));
  }
  return low;
}

std::vector<Tree::Stale> Tree::stale(std::size_t most) const {
  std::vector<Stale> found;
  // A value that is no number equals nothing, itself included.
  const auto compare = [&](std::size_t at, std::size_t node, bool low, float held, float given) {
    if (!(held == given) && found.size() < most) found.push_back({at, node, low, held, given});
  };
  for (std::size_t at = 1; at < shape_.levels(); ++at) {
    // Behind the last node stand some that pad their level, and have no children.
    for (std::size_t node = 0; node < shape_.size(at); ++node) {
      const bool real = node < nodes(at);
      compare(at, node, false, value_of(level(sums_, at)[node]), real ? sum_below(at, node) : 0);
      if (lows_ == nullptr) continue;
      compare(at, node, true, value_of(level(lows_, at)[node]), real ? low_below(at, node) : 0);
    }
  }
  return found;
}

// Places the targets, which rise, in one walk along a level of not many more nodes than there are
// targets, or along the groups of the crown; all levels above it need no visit. Returns that level.
std::size_t Tree::walk(const Crown& crown, std::span<double> targets, std::uint64_t* found) const {
  constexpr std::size_t kNodesForTarget = 4;
  const std::size_t handy = kNodesForTarget * targets.size();
  std::size_t at = last_level();
  if (shape_.size(at) > handy) {
    place(crown.n, [&](std::size_t i) { return crown.groups[i]; }, targets, found);
    return at + 1;
  }
  while (at > 1 && shape_.size(at - 1) <= handy) --at;
  const Word* const words = level(sums_, at);
  place(nodes(at), [&](std::size_t i) { return value_of(words[i]); }, targets, found);
  return at;
}

// Only a damaged segment has sums in the padding; they lead to the last node instead of outside.
void Tree::descend(std::size_t from, std::span<double> targets, std::uint64_t* found) const {
  // Level by level, so that the loads of different draws overlap.
  for (std::size_t at = from - 1; at >= 1; --at) {
    const Word* words = level(sums_, at);
    const std::uint64_t last = nodes(at) - 1;
    for (std::size_t i = 0; i < targets.size(); ++i) {
      if (found[i] == kNone) continue;
      const std::size_t child = choose_child(words + found[i] * kFanout, targets[i]);
      if (child == kFanout) {
        found[i] = kNone;
        continue;
      }
      found[i] = std::min(found[i] * kFanout + child, last);
      if (at == 1) {
        os::prefetch_read(leaves_ + found[i] * kFanout);
      } else {
        os::prefetch_read(level(sums_, at - 1) + found[i] * kFanout);
        os::prefetch_read(level(sums_, at - 1) + found[i] * kFanout + kFanout / 2);
      }
    }
  }
  for (std::size_t i = 0; i < targets.size(); ++i) {
    if (found[i] == kNone) continue;
    const std::size_t child = choose_child(leaves_ + found[i] * kFanout, targets[i]);
    found[i] =
        child == kFanout ? kNone : std::min<std::uint64_t>(found[i] * kFanout + child, count_ - 1);
  }
}

}  // namespace replay_buffer
