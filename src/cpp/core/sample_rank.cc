// Prioritized, rank-based: P(i) is proportional to 1 / rank(i)^alpha, rank 1 the largest priority.
//
// The order is sorted anew when as much has changed as one in a hundred rows (at least one), so a
// draw sees ranks that are at most that much out of date. It is this handle's own.
#include <algorithm>
#include <bit>
#include <cmath>
#include <mutex>
#include <vector>

#include "core/sampler.h"
#include "os/thread_lock.h"

namespace replay_buffer {
namespace {

struct Ranked {
  std::uint32_t key;  // orders as the raw priority does: bits of a float that is >= 0
  std::uint64_t slot;
};

// Largest key first; rows of equal priority stay in the order of their slots.
void sort_by_key(std::vector<Ranked>& rows) {
  constexpr unsigned kBits = 11;
  constexpr std::size_t kBuckets = std::size_t{1} << kBits;
  std::vector<Ranked> other(rows.size());
  for (unsigned shift = 0; shift < 32; shift += kBits) {
    std::vector<std::size_t> start(kBuckets + 1, 0);
    const auto bucket = [shift](const Ranked& r) {
      return kBuckets - 1 - ((r.key >> shift) & (kBuckets - 1));
    };
    for (const Ranked& r : rows) ++start[bucket(r) + 1];
    for (std::size_t b = 0; b < kBuckets; ++b) start[b + 1] += start[b];
    for (const Ranked& r : rows) other[start[bucket(r)]++] = r;
    rows.swap(other);
  }
}

class RankSampler final : public Sampler {
 public:
  explicit RankSampler(const Ring& ring) : ring_(ring), priorities_(*ring.priorities) {}

  Mass draw(Random& random, std::span<Pick> picks) override {
    const std::lock_guard guard(lock_);
    if (out_of_date()) sort();
    if (order_.empty()) throw_not_enough(picks.size(), 0);
    const double width = 1.0 / static_cast<double>(picks.size());
    for (std::size_t i = 0; i < picks.size(); ++i) {
      picks[i] = choose((static_cast<double>(i) + random.unit()) * width);
    }
    return {upto_.back(), mass(order_.size() - 1)};
  }

  bool redraw(Random& random, Pick& pick, unsigned attempt) override {
    constexpr unsigned kGuesses = 8;
    const std::lock_guard guard(lock_);
    if (attempt % kGuesses == 0) sort();  // many of the ranked rows are gone
    if (order_.empty()) return false;
    pick = choose(random.unit());
    return true;
  }

  float mass_of(std::size_t slot) override {
    const std::lock_guard guard(lock_);
    const bool ranked = slot < rank_of_.size() && rank_of_[slot] < order_.size();
    return static_cast<float>(mass(ranked ? rank_of_[slot] : order_.size() - 1));
  }

 private:
  double mass(std::size_t rank) const {
    return std::pow(static_cast<double>(rank + 1), -static_cast<double>(alpha_));
  }

  Pick choose(double fraction) const {
    const auto at = std::upper_bound(upto_.begin(), upto_.end(), fraction * upto_.back());
    const std::size_t rank =
        std::min<std::size_t>(static_cast<std::size_t>(at - upto_.begin()), order_.size() - 1);
    const std::size_t slot = order_[rank].slot;
    return {slot, priorities_.of(slot).lap, static_cast<float>(mass(rank))};
  }

  std::uint64_t changes() const {
    return ring_.blocks.written_rows() +
           ring_.counters().updates_applied.load(std::memory_order_relaxed);
  }

  bool out_of_date() const {
    return alpha_ != priorities_.alpha() || era_ != ring_.blocks.era() ||
           changes() - sorted_at_ >= std::max<std::uint64_t>(1, order_.size() / 100);
  }

  void sort() {
    sorted_at_ = changes();
    era_ = ring_.blocks.era();
    alpha_ = priorities_.alpha();
    order_.clear();
    const std::size_t used = ring_.blocks.used_slots();
    for (std::size_t slot = 0; slot < used; ++slot) {
      if (!row_committed(ring_.rows.word(slot).load(std::memory_order_relaxed))) continue;
      order_.push_back({std::bit_cast<std::uint32_t>(priorities_.of(slot).raw + 0.0F), slot});
    }
    sort_by_key(order_);
    upto_.resize(order_.size());
    double sum = 0;
    for (std::size_t rank = 0; rank < order_.size(); ++rank) upto_[rank] = sum += mass(rank);
    if (ring_.settings().cer == 0) return;
    rank_of_.assign(used, order_.size());
    for (std::size_t rank = 0; rank < order_.size(); ++rank) rank_of_[order_[rank].slot] = rank;
  }

  const Ring& ring_;
  const Priorities& priorities_;
  os::SpinLock lock_;  // protects what follows
  std::vector<Ranked> order_;
  std::vector<std::size_t> rank_of_;  // by slot, for mass_of(); order_.size() is none
  std::vector<double> upto_;          // the mass of all ranks up to and with this one
  std::uint64_t sorted_at_ = 0;
  std::uint64_t era_ = 0;
  float alpha_ = -1;
};

}  // namespace

std::unique_ptr<Sampler> make_rank_sampler(const Ring& ring) {
  return std::make_unique<RankSampler>(ring);
}

}  // namespace replay_buffer
