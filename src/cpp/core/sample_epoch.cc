// Without replacement: every stored row once, in random order, then again in another order.
//
// An epoch is a pseudo-random permutation of the slots in use when it began, walked from front to
// back. Rows added meanwhile wait for the next epoch unless they take the place
// of one not yet drawn. A batch that reaches the end of an epoch goes on into the next. The epochs
// are this handle's own.
#include <bit>
#include <cstdint>
#include <numeric>
#include <utility>
#include <vector>

#include "core/guarded.h"
#include "core/sampler.h"

namespace replay_buffer {
namespace {

// A bijection of [0, n). A small one is a shuffled table; a large one takes no memory: a Feistel
// network on the next power of four, walked until it lands below n.
class Permutation {
 public:
  Permutation() = default;
  Permutation(std::size_t n, Random random) : n_(n) {
    constexpr std::size_t kTable = 4096;
    if (n <= kTable) {
      table_.resize(n);
      std::iota(table_.begin(), table_.end(), std::uint32_t{0});
      for (std::size_t i = n; i > 1; --i) std::swap(table_[i - 1], table_[random.below(i)]);
      return;
    }
    const auto bits = static_cast<unsigned>(std::bit_width(n - 1));
    half_ = (bits + 1) / 2;
    for (std::uint64_t& key : keys_) key = random.next();
  }

  std::size_t size() const { return n_; }

  std::size_t operator()(std::size_t i) const {
    if (!table_.empty()) return table_[i];
    do {
      i = shuffle(i);
    } while (i >= n_);
    return i;
  }

 private:
  std::size_t shuffle(std::size_t x) const {
    const std::uint64_t mask = (std::uint64_t{1} << half_) - 1;
    std::uint64_t left = x >> half_;
    std::uint64_t right = x & mask;
    for (std::uint64_t key : keys_) {
      const std::uint64_t f = Random(key, right).next() & mask;
      const std::uint64_t next = left ^ f;
      left = right;
      right = next;
    }
    return static_cast<std::size_t>((left << half_) | right);
  }

  std::size_t n_ = 0;
  std::vector<std::uint32_t> table_;
  unsigned half_ = 1;
  std::uint64_t keys_[6] = {};
};

// How far the present epoch has come.
struct Walk {
  Permutation order;
  std::size_t at = 0;
  std::uint64_t era = 0;
};

class EpochSampler final : public Sampler {
 public:
  explicit EpochSampler(const Ring& ring) : ring_(ring) {}

  Mass draw(Random& random, std::span<Pick> picks) override {
    walk_.with([&](Walk& walk) {
      for (Pick& pick : picks) {
        if (!next(walk, random, pick)) throw_not_enough(picks.size(), 0);
      }
    });
    return {};
  }

  bool consumes() const override { return true; }

  bool redraw(Random& random, Pick& pick, unsigned) override {
    return walk_.with([&](Walk& walk) { return next(walk, random, pick); });
  }

 private:
  // The next committed row of the walk. False when a whole epoch holds none.
  bool next(Walk& walk, Random& random, Pick& pick) const {
    for (int begun = 0; begun < 2;) {
      const std::uint64_t era = ring_.blocks.era();
      if (walk.at == walk.order.size() || walk.era != era) {
        walk = {Permutation(ring_.blocks.used_slots(), Random(random.next(), 0)), 0, era};
        ++begun;
        if (walk.order.size() == 0) return false;
      }
      while (walk.at < walk.order.size()) {
        const std::size_t slot = walk.order(walk.at++);
        if (ring_.blocks.live(ring_.rows.word(slot).load(std::memory_order_relaxed))) {
          pick = {slot, Pick::kAny, 1};
          return true;
        }
      }
    }
    return false;
  }

  const Ring& ring_;
  Guarded<Walk> walk_;
};

}  // namespace

std::unique_ptr<Sampler> make_epoch_sampler(const Ring& ring) {
  return std::make_unique<EpochSampler>(ring);
}

}  // namespace replay_buffer
