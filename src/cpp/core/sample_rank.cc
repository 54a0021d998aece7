// Prioritized, rank-based: P(i) is proportional to 1 / rank(i)^alpha, rank 1 the largest priority.
//
// The order is sorted anew when as much has changed as one in a hundred rows (at least one), so a
// draw sees ranks that are at most that much out of date. It is this handle's own.
#include <algorithm>
#include <bit>
#include <cmath>
#include <vector>

#include "core/guarded.h"
#include "core/sampler.h"
#include "os/let_go.h"

namespace replay_buffer {
namespace {

struct Ranked {
  std::uint32_t key;  // orders as the raw priority does: bits of a float that is >= 0
  std::uint32_t lap;  // with the slot, names the row: another one in its place has no rank yet
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

// The rows by rank, as of the last sorting.
struct Order {
  std::vector<Ranked> rows;
  std::vector<double> upto;          // the mass of all ranks up to and with this one
  std::vector<std::size_t> rank_of;  // by slot; rows.size() is none; made by weigh() only
  std::uint64_t changes = 0;
  std::uint64_t era = 0;
  float exponent = -1;  // the buffer's alpha then
  float alpha = -1;     // the one in use: 0 when all priorities are 0

  double mass(std::size_t rank) const {
    return std::pow(static_cast<double>(rank + 1), -static_cast<double>(alpha));
  }
};

class RankSampler final : public Sampler {
 public:
  explicit RankSampler(const Ring& ring) : ring_(ring), priorities_(*ring.priorities) {}

  Mass draw(Random& random, std::span<Pick> picks) override {
    return order_.with([&](Order& order) -> Mass {
      if (out_of_date(order)) sort(order);
      if (order.rows.empty()) throw_not_enough(picks.size(), 0);
      const double width = 1.0 / static_cast<double>(picks.size());
      for (std::size_t i = 0; i < picks.size(); ++i) {
        picks[i] = choose(order, (static_cast<double>(i) + random.unit()) * width);
      }
      return {order.upto.back(), order.mass(order.rows.size() - 1)};
    });
  }

  bool redraw(Random& random, Pick& pick, unsigned attempt) override {
    constexpr unsigned kGuesses = 64;
    constexpr unsigned kOrders = 8;
    if (attempt > kGuesses * kOrders) {  // no row has the priority that was sorted
      pick.mass = 1;
      return draw_by_count(ring_, random, pick);
    }
    return order_.with([&](Order& order) {
      if (attempt % kGuesses == 0) sort(order);  // many of the ranked rows are gone
      if (order.rows.empty()) return false;
      pick = choose(order, random.unit());
      return true;
    });
  }

  // A row that came after the last sorting has no mass: it cannot be drawn before the next one.
  void weigh(std::span<Pick> rows) override {
    order_.with([&](Order& order) {
      if (order.rank_of.empty()) number(order);
      for (Pick& row : rows) {
        const std::size_t rank =
            row.slot < order.rank_of.size() ? order.rank_of[row.slot] : order.rows.size();
        const bool ranked = rank < order.rows.size() && order.rows[rank].lap == row.lap;
        row.mass = ranked ? static_cast<float>(order.mass(rank)) : 0;
      }
    });
  }

 private:
  Pick choose(const Order& order, double fraction) const {
    const std::vector<double>& upto = order.upto;
    const auto at = std::upper_bound(upto.begin(), upto.end(), fraction * upto.back());
    const auto rank = std::min(static_cast<std::size_t>(at - upto.begin()), upto.size() - 1);
    const Ranked& row = order.rows[rank];
    return {row.slot, row.lap, static_cast<float>(order.mass(rank))};
  }

  std::uint64_t changes() const {
    return ring_.rows_added() + ring_.counters().updates_applied.load(std::memory_order_relaxed);
  }

  bool out_of_date(const Order& order) const {
    return order.exponent != priorities_.alpha() || order.era != ring_.blocks.era() ||
           changes() - order.changes >= std::max<std::uint64_t>(1, order.rows.size() / 100);
  }

  void sort(Order& order) const {
    const std::size_t used = ring_.blocks.used_slots();
    if (os::is_long(2 * used * os::kLookWork)) os::let_go();
    order.changes = changes();
    order.era = ring_.blocks.era();
    order.exponent = order.alpha = priorities_.alpha();
    order.rows.clear();
    order.rank_of.clear();
    for (std::size_t slot = 0; slot < used; ++slot) {
      const std::uint64_t word = ring_.rows.word(slot).load(std::memory_order_relaxed);
      const PriorityWord priority = priorities_.of(slot);
      const auto lap = static_cast<std::uint32_t>(row_id(word) / ring_.rows.capacity() + 1);
      if (!ring_.blocks.live(word) || !row_weighed(word)) continue;
      const float raw = priority.lap == lap ? priority.raw : 0;  // else its own is on the way
      order.rows.push_back({std::bit_cast<std::uint32_t>(raw), lap, slot});
    }
    sort_by_key(order.rows);
    if (!order.rows.empty() && order.rows.front().key == 0) order.alpha = 0;  // all are equal
    order.upto.resize(order.rows.size());
    double sum = 0;
    for (std::size_t rank = 0; rank < order.rows.size(); ++rank) {
      order.upto[rank] = sum += order.mass(rank);
    }
  }

  // Makes the way back from slots to ranks.
  void number(Order& order) const {
    order.rank_of.assign(ring_.rows.capacity(), order.rows.size());
    for (std::size_t rank = 0; rank < order.rows.size(); ++rank) {
      order.rank_of[order.rows[rank].slot] = rank;
    }
  }

  const Ring& ring_;
  const Priorities& priorities_;
  Guarded<Order> order_;
};

}  // namespace

std::unique_ptr<Sampler> make_rank_sampler(const Ring& ring) {
  return std::make_unique<RankSampler>(ring);
}

}  // namespace replay_buffer
