// Queues. FIFO gives every row out at most max_times_sampled times, oldest first; LIFO gives the
// newest rows, newest first, as often as it is asked.
#include <algorithm>
#include <string>

#include "core/recent.h"
#include "core/sampler.h"
#include "replay_buffer/error.h"

namespace replay_buffer {
namespace {

// What a block has given out lives in the block, tagged with its lap: [ lap : 32 | draws : 32 ]. A
// draw is taken with one compare-and-swap, so no two consumers, in whatever processes, get the same
// one; a consumer that dies with draws it took has consumed them.
class FifoSampler final : public Sampler {
 public:
  explicit FifoSampler(const Ring& ring)
      : ring_(ring), blocks_(ring.segment->blocks()), times_(ring.settings().max_times_sampled) {}

  Mass draw(Random&, std::span<Pick> picks) override {
    const std::size_t there = available(picks.size());
    if (there < picks.size()) throw_short(picks.size(), there);
    std::size_t got = 0;
    visit([&](std::uint64_t sequence) {
      got += take(sequence, picks.subspan(got));
      return got < picks.size();
    });
    // Another consumer was faster, or rows were overwritten: what is missing is drawn again.
    for (; got < picks.size(); ++got) picks[got] = {0, Priorities::kGone, 1};
    return {};
  }

  bool redraw(Random&, Pick& pick, unsigned) override {
    std::size_t got = 0;
    visit([&](std::uint64_t sequence) {
      got = take(sequence, {&pick, 1});
      return got == 0;
    });
    return got == 1;
  }

 private:
  // Calls visitor(sequence) for the blocks of the last lap, oldest first, until it returns false.
  template <class Visitor>
  void visit(Visitor&& visitor) const {
    const std::uint64_t head = ring_.blocks.head();
    const std::uint64_t count = ring_.blocks.count();
    const std::uint64_t oldest = std::max(ring_.blocks.era(), head > count ? head - count : 0);
    for (std::uint64_t s = oldest; s < head; ++s) {
      if (!visitor(s)) return;
    }
  }

  static std::uint32_t taken(std::uint64_t word, std::uint32_t lap) {
    return static_cast<std::uint32_t>(word >> 32) == lap ? static_cast<std::uint32_t>(word) : 0;
  }

  // Draws that a block can still give: of the rows written in this lap.
  std::uint64_t left(std::uint64_t sequence, std::uint64_t word) const {
    const std::uint64_t all = std::uint64_t{ring_.blocks.written(sequence)} * times_;
    const std::uint64_t gone = taken(word, ring_.blocks.lap_of(sequence));
    return all > gone ? all - gone : 0;
  }

  std::size_t available(std::size_t wanted) const {
    std::size_t sum = 0;
    visit([&](std::uint64_t sequence) {
      const std::size_t b = sequence % ring_.blocks.count();
      sum += left(sequence, blocks_[b].taken.load(std::memory_order_acquire));
      return sum < wanted;
    });
    return sum;
  }

  std::size_t take(std::uint64_t sequence, std::span<Pick> picks) const {
    const std::size_t b = sequence % ring_.blocks.count();
    const std::uint32_t lap = ring_.blocks.lap_of(sequence);
    std::uint64_t word = blocks_[b].taken.load(std::memory_order_acquire);
    for (;;) {
      const std::size_t n = std::min<std::uint64_t>(picks.size(), left(sequence, word));
      if (n == 0) return 0;
      const std::uint32_t first = taken(word, lap);
      const std::uint64_t next = (std::uint64_t{lap} << 32) | (first + n);
      if (!blocks_[b].taken.compare_exchange_weak(word, next, std::memory_order_acq_rel)) continue;
      for (std::size_t i = 0; i < n; ++i) {
        picks[i] = {b * ring_.blocks.block_rows() + (first + i) / times_, lap, 1};
      }
      return n;
    }
  }

  [[noreturn]] static void throw_short(std::size_t wanted, std::size_t there) {
    throw Error(ErrorCode::kNotEnoughRows, "cannot sample " + std::to_string(wanted) +
                                               " rows: the queue has " + std::to_string(there) + " left");
  }

  const Ring& ring_;
  Block* blocks_;
  std::uint32_t times_;
};

class LifoSampler final : public Sampler {
 public:
  explicit LifoSampler(const Ring& ring) : ring_(ring) {}

  Mass draw(Random&, std::span<Pick> picks) override {
    Recent recent(ring_);
    for (std::size_t i = 0; i < picks.size(); ++i) {
      std::size_t slot = 0;
      if (!recent.next(slot, picks[i].lap)) throw_not_enough(picks.size(), i);
      picks[i].slot = slot;
    }
    return {};
  }

  // A row among the newest was overwritten: the ring is being lapped, the newest will do.
  bool redraw(Random&, Pick& pick, unsigned) override {
    std::size_t slot = 0;
    if (!Recent(ring_).next(slot, pick.lap)) return false;
    pick.slot = slot;
    return true;
  }

 private:
  const Ring& ring_;
};

}  // namespace

std::unique_ptr<Sampler> make_fifo_sampler(const Ring& ring) {
  return std::make_unique<FifoSampler>(ring);
}

std::unique_ptr<Sampler> make_lifo_sampler(const Ring& ring) {
  return std::make_unique<LifoSampler>(ring);
}

}  // namespace replay_buffer
