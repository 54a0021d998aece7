// Prioritized, proportional: the total is cut into as many equal strata as the batch has rows, and
// one point is drawn in each.
#include <algorithm>

#include "core/sampler.h"

namespace replay_buffer {
namespace {

class PrioritizedSampler final : public Sampler {
 public:
  explicit PrioritizedSampler(const Ring& ring) : ring_(ring), tree_(ring.priorities->tree()) {}

  Mass draw(Random& random, std::span<Pick> picks) override {
    const Tree::Crown crown = tree_.crown();
    const double total = crown.total;
    if (!(total > 0)) return draw_equal(random, picks);
    constexpr std::size_t kChunk = 256;
    constexpr std::size_t kPart = 32;
    const double width = total / static_cast<double>(picks.size());
    for (std::size_t from = 0; from < picks.size(); from += kChunk) {
      const std::size_t n = picks.size() - from < kChunk ? picks.size() - from : kChunk;
      double targets[kChunk];
      std::uint64_t leaves[kChunk];
      for (std::size_t i = 0; i < n; ++i) {
        targets[i] = (static_cast<double>(from + i) + random.unit()) * width;
      }
      // The rows of one part come into the cache while the leaves of the next are found.
      const std::size_t level = tree_.walk(crown, {targets, n}, leaves);
      for (std::size_t at = 0; at < n; at += kPart) {
        const std::size_t end = std::min(n, at + kPart);
        tree_.descend(level, {targets + at, end - at}, leaves + at);
        for (std::size_t i = at; i < end; ++i) {
          picks[from + i] = to_pick(leaves[i]);
          ring_.rows.prefetch(picks[from + i].slot);
        }
      }
    }
    return {total, lowest()};
  }

  bool draws_freely() const override { return true; }
  bool fetches() const override { return true; }

  bool redraw(Random& random, Pick& pick, unsigned attempt) override {
    // Whatever has a priority may be held by a writer that was stopped: what is left is equal.
    constexpr unsigned kGuesses = 1000;
    const double total = tree_.total();
    if (attempt > kGuesses || !(total > 0)) {
      pick.mass = 1;
      return draw_by_count(ring_, random, pick);
    }
    double target = random.unit() * total;
    std::uint64_t leaf = 0;
    tree_.find({&target, 1}, &leaf);
    pick = to_pick(leaf);
    return true;
  }

  // Leaves are found together, in rising order, and then mixed: any of the rows may be the first.
  bool redraw_many(Random& random, std::span<Pick> picks) override {
    const Tree::Crown crown = tree_.crown();
    if (!(crown.total > 0)) return Sampler::redraw_many(random, picks);
    constexpr std::size_t kChunk = 64;
    for (std::size_t from = 0; from < picks.size(); from += kChunk) {
      const std::span<Pick> some = picks.subspan(from, std::min(kChunk, picks.size() - from));
      double targets[kChunk];
      std::uint64_t leaves[kChunk];
      for (std::size_t i = 0; i < some.size(); ++i) targets[i] = random.unit() * crown.total;
      std::sort(targets, targets + some.size());
      const std::span<double> wanted{targets, some.size()};
      tree_.descend(tree_.walk(crown, wanted, leaves), wanted, leaves);
      for (std::size_t i = 0; i < some.size(); ++i) {
        const std::size_t at = random.below(i + 1);
        some[i] = some[at];
        some[at] = to_pick(leaves[i]);
      }
    }
    return true;
  }

  void weigh(std::span<Pick> rows) override {
    const bool equal = !(tree_.total() > 0);
    for (Pick& row : rows) row.mass = equal ? 1 : tree_.leaf(row.slot);
  }

 private:
  // A leaf that lost its value on the way becomes a pick that no row matches: it is drawn again.
  Pick to_pick(std::uint64_t leaf) const {
    const float mass = leaf == Tree::kNone ? 0 : tree_.leaf(leaf);
    if (!(mass > 0)) return {0, Priorities::kGone, 0};
    return {leaf, Pick::kByMass, mass};
  }

  // Every priority is zero: all rows are equal.
  Mass draw_equal(Random& random, std::span<Pick> picks) {
    const std::size_t used = ring_.blocks.used_slots();
    const std::size_t live = ring_.blocks.live_rows();
    if (live == 0) throw_not_enough(picks.size(), 0);
    for (Pick& pick : picks) pick = {used == 0 ? 0 : random.below(used), Pick::kAny, 1};
    return {static_cast<double>(live), 1};
  }

  double lowest() const {
    return ring_.layout().has_lows() ? static_cast<double>(tree_.lowest()) : 0;
  }

  const Ring& ring_;
  const Tree& tree_;
};

}  // namespace

std::unique_ptr<Sampler> make_prioritized_sampler(const Ring& ring) {
  return std::make_unique<PrioritizedSampler>(ring);
}

}  // namespace replay_buffer
