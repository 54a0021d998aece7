// Queues. FIFO gives every row out at most max_times_sampled times, oldest first; LIFO gives the
// newest rows, newest first, as often as it is asked.
#include <algorithm>
#include <chrono>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "core/recent.h"
#include "core/sampler.h"
#include "os/crash_point.h"
#include "os/let_go.h"
#include "os/thread_lock.h"
#include "replay_buffer/error.h"

namespace replay_buffer {
namespace {

constexpr int kTries = 100;  // looks at a ring that is lapped meanwhile
constexpr std::size_t kMostSkipped = 64;
constexpr std::chrono::seconds kPatience{1};  // with a writer that stopped in the middle of a row

// What a block has given out lives in the block, tagged with its lap: [ lap : 32 | draws : 32 ]. A
// draw is taken with one compare-and-swap, so no two consumers, in whatever processes, get the same
// one; a consumer that dies with draws it took has consumed them. A batch that cannot be filled
// gives back what it took: others may have taken later draws of the same block meanwhile, so this
// is counted row by row (GivenBack), and is given out again first.
class FifoSampler final : public Sampler {
 public:
  explicit FifoSampler(const Ring& ring)
      : ring_(ring),
        blocks_(ring.segment->blocks()),
        given_back_(ring.segment->given_back()),
        times_(ring.settings().max_times_sampled) {}

  Mass draw(Random&, std::span<Pick> picks) override {
    const std::lock_guard guard(lock_);
    const std::size_t there = available(picks.size());
    if (there < picks.size()) throw_short(picks.size(), there);
    // A consumer in another process was faster, or rows were overwritten meanwhile: see redraw().
    for (std::size_t got = take(picks); got < picks.size(); ++got)
      picks[got] = {0, Priorities::kGone, 1};
    return {};
  }

  void give_back(std::span<const Pick> picks) override {
    std::uint64_t rows = 0;
    for (const Pick& pick : picks) {
      if (!give_back(pick)) {
        overtaken(pick);
        continue;
      }
      REPLAY_CRASH_POINT("sample.given_back");
      ++rows;
    }
    constexpr std::uint64_t kOnce = std::uint64_t{1} << 32;
    // Pairs with the acquire in take_given_back(): whoever takes a share of these finds them.
    if (rows != 0) total_given_back().fetch_add(kOnce + rows, std::memory_order_release);
  }

  // A place of the batch that no row was found for has not taken any.
  void overtaken(const Pick& pick) override {
    if (pick.lap != Priorities::kGone) lost_.fetch_add(1, std::memory_order_relaxed);
  }
  std::size_t lost() override {
    return lost_.load(std::memory_order_relaxed) == 0
               ? 0
               : lost_.exchange(0, std::memory_order_relaxed);
  }

  std::size_t left() const override { return available(~std::size_t{0}); }

  bool writes() const override { return true; }
  bool consumes() const override { return true; }
  bool random() const override { return false; }

  // A row that was taken and overwritten is lost; the one that took its place is in the queue, or
  // will be as soon as it is written. Writers overwrite the oldest rows next: one that is faster
  // than the copying is escaped by taking later ones.
  bool redraw(Random&, Pick& pick, unsigned attempt) override {
    Pick some[kMostSkipped];
    const std::size_t n = attempt < 4 ? 1 : std::min<std::size_t>(attempt, kMostSkipped);
    bool hope = true;
    for (Wait wait;; wait.pause()) {
      if (const std::size_t got = take_later({some, n}); got > 0) {
        pick = some[got - 1];
        give_back({some, got - 1});
        return true;
      }
      if (!hope) throw_overtaken();
      hope = being_written() && !wait.over();
    }
  }

 private:
  // Rows of a block, in a certain lap, that are written and not yet overwritten: [first, last).
  // Also draws of them.
  struct Span {
    std::uint64_t first;
    std::uint64_t last;
  };

  class Wait {
   public:
    bool over() const { return std::chrono::steady_clock::now() > until_; }
    void pause() {
      os::let_go();
      if (++turns_ < 1000) {
        std::this_thread::yield();
      } else {
        std::this_thread::sleep_for(std::chrono::microseconds(50));
      }
    }

   private:
    std::chrono::steady_clock::time_point until_ = std::chrono::steady_clock::now() + kPatience;
    int turns_ = 0;
  };

  // Calls visitor(sequence) for the blocks that may hold rows, oldest first, until it returns
  // false. A block being overwritten still has rows of the lap before.
  template <class Visitor>
  void visit(std::uint64_t head, Visitor&& visitor) const {
    const std::uint64_t reach = 2 * ring_.blocks.block_count();
    const std::uint64_t oldest = std::max(ring_.blocks.era(), head > reach ? head - reach : 0);
    for (const std::uint64_t s : passed_over(oldest)) {
      if (!visitor(s)) return;
    }
    for (std::uint64_t s = oldest; s < head; ++s) {
      if (!visitor(s)) return;
    }
  }

  // Claims before `oldest`, in their order, of blocks that slow writers hold, or held until now.
  // The head passes over such a block: it stays at its lap, and is filled on.
  std::vector<std::uint64_t> passed_over(std::uint64_t oldest) const {
    const std::uint64_t count = ring_.blocks.block_count();
    const std::uint64_t era = ring_.blocks.era();
    std::vector<std::uint64_t> found;
    if (oldest == era) return found;
    for (std::uint64_t b = 0; b < count; ++b) {
      const std::uint64_t lap =
          BlockWord::unpack(blocks_[b].word.load(std::memory_order_relaxed)).lap;
      const std::uint64_t sequence = (lap - 1) * count + b;
      if (lap != 0 && sequence >= era && sequence < oldest) found.push_back(sequence);
    }
    std::sort(found.begin(), found.end());
    return found;
  }

  // Calls look(head) until it is satisfied, or the head has stayed where it was: else there may be
  // rows beyond it in place of those that were looked for.
  template <class Look>
  void look_until(Look&& look) const {
    for (int tries = 0; tries < kTries; ++tries) {
      const std::uint64_t head = ring_.blocks.head();
      if (look(head) || ring_.blocks.head() == head) return;
    }
  }

  // The row of a block, in the lap of the claim at `sequence`: its id, and the word it has now.
  std::uint64_t id_of(std::uint64_t sequence, std::uint64_t row) const {
    const std::uint64_t slot = sequence % ring_.blocks.block_count() * ring_.blocks.block_rows();
    return (std::uint64_t{ring_.blocks.lap_of(sequence)} - 1) * ring_.rows.capacity() + slot + row;
  }
  std::uint64_t word_of(std::uint64_t sequence, std::uint64_t row) const {
    const std::uint64_t slot = sequence % ring_.blocks.block_count() * ring_.blocks.block_rows();
    return ring_.rows.word(slot + row).load(std::memory_order_relaxed);
  }
  bool there(std::uint64_t sequence, std::uint64_t row) const {
    const std::uint64_t word = word_of(sequence, row);
    return row_committed(word) && row_id(word) == id_of(sequence, row);
  }

  // Counted are the rows of runs that have ended; the rows themselves tell how far one got that has
  // not.
  Span rows_of(std::uint64_t sequence) const {
    const std::size_t b = sequence % ring_.blocks.block_count();
    const std::uint32_t lap = ring_.blocks.lap_of(sequence);
    // A claim changes `before` first, then the fill: whoever sees its fill sees its `before`.
    const Fill fill = ring_.blocks.fill(b);
    const std::uint64_t most = ring_.blocks.rows_in(b);  // what a damaged block says may be more
    if (fill.lap == static_cast<std::uint16_t>(lap)) {
      Span rows{0, std::min<std::uint64_t>(fill.written, most)};
      while (rows.last < most && there(sequence, rows.last)) ++rows.last;
      return rows;
    }
    const std::uint64_t before = blocks_[b].before.load(std::memory_order_relaxed);
    if (static_cast<std::uint32_t>(before >> 32) != lap) return {0, 0};
    Span rows{fill.written, std::min(before & 0xffffffff, most)};
    while (rows.first < rows.last && !there(sequence, rows.first)) ++rows.first;
    return rows;
  }

  // The word that counts what was given out of a lap; null when the block has no such lap.
  std::atomic<std::uint64_t>* taken_of(std::uint64_t sequence) const {
    Block& block = blocks_[sequence % ring_.blocks.block_count()];
    for (Block::Lap& lap : block.laps) {
      const std::uint64_t word = lap.taken.load(std::memory_order_relaxed);
      if (static_cast<std::uint32_t>(word >> 32) == ring_.blocks.lap_of(sequence))
        return &lap.taken;
    }
    return nullptr;
  }

  // The draws that a block can still give, after `taken` of them.
  Span left(std::uint64_t sequence, std::uint64_t taken) const {
    const Span rows = rows_of(sequence);
    const std::uint64_t first = std::max(taken & 0xffffffff, rows.first * times_);
    return {first, std::max(first, rows.last * times_)};
  }

  // One draw of a row. False when the row is gone.
  bool give_back(const Pick& pick) const {
    if (!pick.is(ring_.rows.word(pick.slot).load(std::memory_order_relaxed),
                 ring_.blocks.oldest_id(), ring_.rows.capacity())) {
      return false;
    }
    REPLAY_CRASH_POINT("sample.giving_back");
    std::uint64_t seen = given_back_[pick.slot].load(std::memory_order_relaxed);
    for (;;) {
      const GivenBack was = GivenBack::unpack(seen);
      if (was.lap > pick.lap) return false;  // another row has the slot by now
      const GivenBack next{pick.lap, was.lap == pick.lap ? was.draws + 1 : 1};
      if (given_back_[pick.slot].compare_exchange_weak(seen, next.pack(),
                                                       std::memory_order_relaxed)) {
        return true;
      }
    }
  }

  std::atomic<std::uint64_t>& total_given_back() const { return ring_.counters().given_back; }
  static std::uint32_t draws_of(std::uint64_t total) { return static_cast<std::uint32_t>(total); }
  static std::uint64_t times_of(std::uint64_t total) { return total >> 32; }

  // Calls visitor(slot, seen) for the rows of which draws were given back, oldest first, until it
  // returns false.
  template <class Visitor>
  void visit_given_back(std::uint64_t head, Visitor&& visitor) const {
    visit(head, [&](std::uint64_t sequence) {
      const std::size_t b = sequence % ring_.blocks.block_count();
      const std::size_t first = b * ring_.blocks.block_rows();
      for (std::size_t row = 0; row < ring_.blocks.rows_in(b); ++row) {
        const auto seen =
            GivenBack::unpack(given_back_[first + row].load(std::memory_order_acquire));
        if (seen.lap != ring_.blocks.lap_of(sequence) || seen.draws == 0) continue;
        if (there(sequence, row) && !visitor(first + row, seen)) return false;
      }
      return true;
    });
  }

  // Takes a share off the sum first, and then as many draws: so the sum is never too small but by
  // what somebody is about to take. Where there are fewer, rows are gone, and the rest of the share
  // stays off the sum. But if draws were given back meanwhile, somebody else may have taken ours
  // and left us those: then the rest goes back, for a later look.
  std::size_t take_given_back(std::span<Pick> picks) const {
    std::uint64_t total = total_given_back().load(std::memory_order_relaxed);
    std::size_t share = 0;
    do {
      share = std::min<std::size_t>(picks.size(), draws_of(total));
      if (share == 0) return 0;
    } while (
        !total_given_back().compare_exchange_weak(total, total - share, std::memory_order_acquire));
    std::size_t got = 0;
    visit_given_back(ring_.blocks.head(), [&](std::size_t slot, GivenBack seen) {
      while (got < share && seen.draws > 0) {
        std::uint64_t word = seen.pack();
        const GivenBack next{seen.lap, seen.draws - 1};
        // Whoever sees the draw taken sees what was given back before.
        if (given_back_[slot].compare_exchange_strong(word, next.pack(),
                                                      std::memory_order_acq_rel)) {
          REPLAY_CRASH_POINT("sample.taken_back");
          picks[got++] = {slot, seen.lap, 1};
          seen = next;
        } else {
          seen = GivenBack::unpack(word);
          if (seen.lap != next.lap) break;
        }
      }
      return got < share;
    });
    const std::uint64_t now = total_given_back().load(std::memory_order_relaxed);
    if (got < share && times_of(now) != times_of(total)) {
      total_given_back().fetch_add(share - got, std::memory_order_relaxed);
    }
    return got;
  }

  std::size_t available(std::size_t wanted) const {
    std::size_t sum = 0;
    look_until([&](std::uint64_t head) {
      sum = 0;
      if (draws_of(total_given_back().load(std::memory_order_relaxed)) != 0) {
        visit_given_back(head, [&](std::size_t, GivenBack seen) {
          sum += seen.draws;
          return sum < wanted;
        });
      }
      if (sum >= wanted) return true;
      visit(head, [&](std::uint64_t sequence) {
        if (const auto* taken = taken_of(sequence)) {
          const Span span = left(sequence, taken->load(std::memory_order_relaxed));
          sum += span.last - span.first;
        }
        return sum < wanted;
      });
      return sum >= wanted;
    });
    return sum;
  }

  // Whether a row is being written, or was just now.
  bool being_written() const {
    const std::uint64_t head = ring_.blocks.head();
    bool found = false;
    visit(head, [&](std::uint64_t sequence) {
      const std::size_t b = sequence % ring_.blocks.block_count();
      const Span rows = rows_of(sequence);
      if (rows.last < ring_.blocks.rows_in(b)) {
        const std::uint64_t id = id_of(sequence, rows.last);
        const std::uint64_t word = word_of(sequence, rows.last);
        found = row_id(word) == id && word != row_word(id, RowState::kEmpty);
      }
      return !found;
    });
    return found || ring_.blocks.head() != head;
  }

  std::size_t take(std::span<Pick> picks) const {
    const std::size_t got = take_given_back(picks);
    return got + take_oldest(picks.subspan(got));
  }

  // In place of a row that was overwritten: with more than one to choose from, rather a later one.
  std::size_t take_later(std::span<Pick> picks) {
    const std::lock_guard guard(lock_);
    if (picks.size() == 1) return take(picks);
    const std::size_t got = take_oldest(picks);
    return got > 0 ? got : take_given_back(picks.first(1));
  }

  std::size_t take_oldest(std::span<Pick> picks) const {
    std::size_t got = 0;
    look_until([&](std::uint64_t head) {
      visit(head, [&](std::uint64_t sequence) {
        got += take_from(sequence, picks.subspan(got));
        return got < picks.size();
      });
      return got == picks.size();
    });
    return got;
  }

  std::size_t take_from(std::uint64_t sequence, std::span<Pick> picks) const {
    std::atomic<std::uint64_t>* taken = taken_of(sequence);
    if (taken == nullptr) return 0;
    const std::uint32_t lap = ring_.blocks.lap_of(sequence);
    std::uint64_t word = taken->load(std::memory_order_relaxed);
    for (;;) {
      if (static_cast<std::uint32_t>(word >> 32) != lap) return 0;
      const Span span = left(sequence, word);
      const std::size_t n = std::min<std::uint64_t>(picks.size(), span.last - span.first);
      if (n == 0) return 0;
      const std::uint64_t next = (std::uint64_t{lap} << 32) | (span.first + n);
      if (!taken->compare_exchange_weak(word, next, std::memory_order_relaxed)) continue;
      REPLAY_CRASH_POINT("sample.taken");
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
  [[noreturn]] static void throw_overtaken() {
    throw Error(ErrorCode::kNotEnoughRows,
                "cannot fill the batch: rows of it were overwritten or cleared before they were "
                "copied, and the queue has 0 left to take their place");
  }

  const Ring& ring_;
  Block* blocks_;
  std::atomic<std::uint64_t>* given_back_;
  std::uint64_t times_;
  std::atomic<std::size_t> lost_{0};
  // For the threads of this process, between looking what there is and taking it.
  os::SpinLock lock_;
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

  bool random() const override { return false; }

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
