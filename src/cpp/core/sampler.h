// Samplers: how rows are chosen. One small interface, one file for each way of choosing.
//
// A sampler only chooses; the buffer copies what was chosen and asks again for a row that turned
// out to be overwritten or half written. Samplers never change what is stored.
//
// Thread safety: draw() and redraw() may be called by any number of threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "core/random.h"
#include "core/ring.h"

namespace replay_buffer {

// A chosen row.
struct Pick {
  static constexpr std::uint32_t kAny = 0;
  static constexpr std::uint32_t kByMass = kLastLap + 1;
  static_assert(kByMass < Priorities::kGone);

  std::uint64_t slot;
  std::uint32_t lap;  // of the row; or kAny; or kByMass: any whose leaf is still `mass`
  float mass;         // its share of the total, up to a factor common to the batch

  // Whether it is one row and no other.
  bool exact() const { return lap != kAny && lap != kByMass; }
  // Whether the row with this word in the slot is committed and the one that was chosen. Rows with
  // ids below `oldest` are gone.
  bool is(std::uint64_t word, std::uint64_t oldest, std::uint64_t capacity) const {
    if (!row_committed(word) || row_id(word) < oldest) return false;
    return !exact() || row_id(word) == (std::uint64_t{lap} - 1) * capacity + slot;
  }
};

// What importance weights need of a draw besides the masses.
struct Mass {
  double total = 0;   // P(i) = mass / total
  double lowest = 0;  // the least mass a row can have; 0 when not known
};

class Sampler {
 public:
  virtual ~Sampler() = default;

  // Chooses picks.size() rows. Throws kNotEnoughRows when the buffer cannot give that many.
  virtual Mass draw(Random& random, std::span<Pick> picks) = 0;

  // Whether draw() leaves no trace, so that rows may be chosen for a batch that is then not taken.
  virtual bool draws_freely() const { return false; }

  // Whether draw() brings the rows it chooses into the cache.
  virtual bool fetches() const { return false; }

  // Whether draw() writes to the segment, so that a handle for reading cannot.
  virtual bool writes() const { return false; }

  // Whether a row that was chosen counts as given out, so that none may be chosen in vain.
  virtual bool consumes() const { return false; }

  // Takes rows back that were chosen for a batch that failed, where choosing took them from others.
  virtual void give_back(std::span<const Pick>) {}

  // A row that was chosen was overwritten before it could be copied, and another one takes its
  // place in the batch.
  virtual void overtaken(const Pick&) {}
  // Where choosing takes rows from others: how many of them nobody got, since this was last asked.
  virtual std::size_t lost() { return 0; }
  // Where rows are given out so many times and no more: how many draws there are still to make.
  static constexpr std::size_t kNoEnd = ~std::size_t{0};
  virtual std::size_t left() const { return kNoEnd; }

  // Whether the generator decides what draw() chooses. Then a draw takes its turn of the generator
  // before it chooses, and has counted even when it fails; else it counts once it is done.
  virtual bool random() const { return true; }

  // Chooses one row in place of `pick`, which is gone; `attempt` counts from 1 for the same place.
  // Returns false when there is nothing to choose.
  virtual bool redraw(Random& random, Pick& pick, unsigned attempt) = 0;

  // Chooses many rows, each as redraw() would at a first attempt. Returns false, with nothing
  // chosen, when there is nothing to choose.
  virtual bool redraw_many(Random& random, std::span<Pick> picks);

  // Brings into the cache the rows that a draw of `rows` with this generator would choose now.
  virtual void foresee(Random, std::size_t) const {}

  // Sets the masses of given rows to those they would be drawn with now. All equal when none of the
  // rows in the buffer has any.
  virtual void weigh(std::span<Pick> rows) {
    for (Pick& row : rows) row.mass = 1;
  }
};

// The sampler of the ring's strategy. The ring must outlive it.
std::unique_ptr<Sampler> make_sampler(const Ring& ring);

std::unique_ptr<Sampler> make_uniform_sampler(const Ring& ring);
std::unique_ptr<Sampler> make_prioritized_sampler(const Ring& ring);
std::unique_ptr<Sampler> make_rank_sampler(const Ring& ring);
std::unique_ptr<Sampler> make_epoch_sampler(const Ring& ring);
std::unique_ptr<Sampler> make_fifo_sampler(const Ring& ring);
std::unique_ptr<Sampler> make_lifo_sampler(const Ring& ring);

// Exactly uniform over committed rows, however few there are: counts them first.
bool draw_by_count(const Ring& ring, Random& random, Pick& pick);

// Any committed row, by looking at all of them, when there is one. False when there is none and
// nobody is writing one.
bool draw_by_scan(const Ring& ring, Random& random, Pick& pick);

[[noreturn]] void throw_not_enough(std::size_t wanted, std::size_t there);

}  // namespace replay_buffer
