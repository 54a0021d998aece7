// Queues. FIFO gives every row out at most max_times_sampled times, oldest first; LIFO gives the
// newest rows, newest first, as often as it is asked.
#include <algorithm>
#include <mutex>
#include <string>
#include <vector>

#include "core/recent.h"
#include "core/sampler.h"
#include "os/thread_lock.h"
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
    if (!ring_.segment->writable()) {
      throw Error(ErrorCode::kReadOnly,
                  ring_.segment->location().text() +
                      " is open for reading only, and a draw from a queue is taken out of it");
    }
    const std::lock_guard guard(lock_);
    const std::size_t there = available(picks.size());
    if (there < picks.size()) throw_short(picks.size(), there);
    std::size_t got = 0;
    visit([&](std::uint64_t sequence) {
      got += take(sequence, picks.subspan(got));
      return got < picks.size();
    });
    // A consumer in another process was faster, or rows were overwritten meanwhile.
    for (; got < picks.size(); ++got) picks[got] = {0, Priorities::kGone, 1};
    return {};
  }

  bool writes() const override { return true; }

  bool redraw(Random&, Pick& pick, unsigned) override {
    const std::lock_guard guard(lock_);
    std::size_t got = 0;
    visit([&](std::uint64_t sequence) {
      got = take(sequence, {&pick, 1});
      return got == 0;
    });
    return got == 1;
  }

 private:
  // Calls visitor(sequence) for the blocks that may hold rows, oldest first, until it returns
  // false. A block being overwritten still has rows of the lap before.
  template <class Visitor>
  void visit(Visitor&& visitor) const {
    const std::uint64_t head = ring_.blocks.head();
    const std::uint64_t reach = 2 * ring_.blocks.block_count();
    const std::uint64_t oldest = std::max(ring_.blocks.era(), head > reach ? head - reach : 0);
    for (std::uint64_t s = oldest; s < head; ++s) {
      if (!visitor(s)) return;
    }
  }

  // Rows of a block, in a certain lap, that are written and not yet overwritten: [first, last).
  struct Span {
    std::uint64_t first;
    std::uint64_t last;
  };
  Span rows_of(std::uint64_t sequence) const {
    const std::size_t b = sequence % ring_.blocks.block_count();
    const std::uint32_t lap = ring_.blocks.lap_of(sequence);
    const std::uint64_t before = blocks_[b].before.load(std::memory_order_acquire);
    const Fill fill = ring_.blocks.fill(b);
    const std::uint64_t most = ring_.blocks.rows_in(b);  // what a damaged block says may be more
    if (fill.lap == static_cast<std::uint16_t>(lap)) {
      return {0, std::min<std::uint64_t>(fill.written, most)};
    }
    if (static_cast<std::uint32_t>(before >> 32) == lap) {
      return {fill.written, std::min(before & 0xffffffff, most)};
    }
    return {0, 0};
  }

  // The word that counts what was given out of a lap; null when the block has no such lap.
  std::atomic<std::uint64_t>* taken_of(std::uint64_t sequence) const {
    Block& block = blocks_[sequence % ring_.blocks.block_count()];
    for (Block::Lap& lap : block.laps) {
      const std::uint64_t word = lap.taken.load(std::memory_order_acquire);
      if (static_cast<std::uint32_t>(word >> 32) == ring_.blocks.lap_of(sequence))
        return &lap.taken;
    }
    return nullptr;
  }

  // The draws [first, last) that a block can still give, after `taken` of them.
  Span left(std::uint64_t sequence, std::uint64_t taken) const {
    const Span rows = rows_of(sequence);
    const std::uint64_t first = std::max(taken & 0xffffffff, rows.first * times_);
    return {first, std::max(first, rows.last * times_)};
  }

  std::size_t available(std::size_t wanted) const {
    std::size_t sum = 0;
    visit([&](std::uint64_t sequence) {
      if (const auto* taken = taken_of(sequence)) {
        const Span span = left(sequence, taken->load(std::memory_order_acquire));
        sum += span.last - span.first;
      }
      return sum < wanted;
    });
    return sum;
  }

  std::size_t take(std::uint64_t sequence, std::span<Pick> picks) const {
    std::atomic<std::uint64_t>* taken = taken_of(sequence);
    if (taken == nullptr) return 0;
    const std::uint32_t lap = ring_.blocks.lap_of(sequence);
    std::uint64_t word = taken->load(std::memory_order_acquire);
    for (;;) {
      if (static_cast<std::uint32_t>(word >> 32) != lap) return 0;
      const Span span = left(sequence, word);
      const std::size_t n = std::min<std::uint64_t>(picks.size(), span.last - span.first);
      if (n == 0) return 0;
      const std::uint64_t next = (std::uint64_t{lap} << 32) | (span.first + n);
      if (!taken->compare_exchange_weak(word, next, std::memory_order_acq_rel)) continue;
      const std::size_t first_slot =
          sequence % ring_.blocks.block_count() * ring_.blocks.block_rows();
      for (std::size_t i = 0; i < n; ++i)
        picks[i] = {first_slot + (span.first + i) / times_, lap, 1};
      return n;
    }
  }

  [[noreturn]] static void throw_short(std::size_t wanted, std::size_t there) {
    throw Error(ErrorCode::kNotEnoughRows, "cannot sample " + std::to_string(wanted) +
                                               " rows: the queue has " + std::to_string(there) +
                                               " left");
  }

  const Ring& ring_;
  Block* blocks_;
  std::uint64_t times_;
  os::SpinLock
      lock_;  // between looking what there is and taking it, for the threads of this process
};

class LifoSampler final : public Sampler {
 public:
  explicit LifoSampler(const Ring& ring) : ring_(ring) {}

  Mass draw(Random&, std::span<Pick> picks) override {
    const std::vector<Recent> newest = newest_rows(ring_, picks.size());
    if (newest.size() < picks.size()) throw_not_enough(picks.size(), newest.size());
    for (std::size_t i = 0; i < picks.size(); ++i) picks[i] = {newest[i].slot, newest[i].lap, 1};
    return {};
  }

  // A row among the newest was overwritten: the ring is being lapped, the newest will do.
  bool redraw(Random&, Pick& pick, unsigned) override {
    const std::vector<Recent> newest = newest_rows(ring_, 1);
    if (!newest.empty()) pick = {newest[0].slot, newest[0].lap, 1};
    return !newest.empty();
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
