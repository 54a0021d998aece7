// The rate limiter: how many rows are drawn for each row added.
//
//   balance = samples_per_insert * rows added - rows drawn
//   middle  = samples_per_insert * min_size
//
//   draw n   needs  rows in the ring >= min_size   and
//                   balance - n >= middle - tolerance
//   add n    needs  rows in the ring < min_size    or
//                   balance + n * samples_per_insert <= middle + tolerance
//
// A call takes its share of the balance before it does anything, with one compare-and-swap, so that
// the limit holds exactly for any number of threads and processes; one that fails afterwards gives
// it back. A process killed in between has had its share. Only what is being added while the ring
// fills up to min_size, and a share given back, can carry the balance over its upper end. clear()
// sets the balance to 0, as in a new buffer.
//
// Without samples_per_insert there is no balance: draws wait for min_size, adds for nothing.
// Through a handle for reading, min_size holds too, and nothing is counted.
//
// Who has to wait sleeps on Counters::bell. Nobody sleeps through a change that would let it go on:
//
//   who waits:    b = bell;  waiting = 1;  fence;  try;     sleep while bell == b
//   who changes:  change;    fence;  if waiting: waiting = 0;  ++bell;  wake
//
// Of the two fences one is first. If it is that of the change, `try` sees the change; else the
// change finds `waiting` raised, by this waiter or by one whose bell this waiter has yet to read.
// As b is read before `waiting` is raised, whoever lowers it moves the bell away from b. A process
// that is killed while it waits leaves `waiting` raised, which costs the next change one wake-up;
// one that is killed between lowering it and the bell delays the others by one slice of sleep.
//
// Thread safety: all methods may be called by any thread or process at any time.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "core/guarded.h"
#include "core/ring.h"
#include "core/sampler.h"
#include "segment/owners.h"

namespace replay_buffer {

// What a call wants, and what Owner::waits says: 0 or the sum of what the owner's calls wait for.
enum class Want : std::uint32_t { kDraw = 1, kAdd = 2 };

class Limiter {
 public:
  // Nobody sleeps longer at a time: signals are served and dead peers noticed.
  static constexpr std::chrono::milliseconds kSlice{100};

  // The ring must outlive it.
  explicit Limiter(const Ring& ring);

  // Whether there is anything to limit. If not, nothing else needs to be called.
  bool active() const { return active_; }

  // Whose calls these are, from now on; null for a handle for reading.
  void become(Owner* me) { me_ = me; }

  // Takes the share of a call that draws or adds n rows; false when it has to wait. Throws
  // kInvalidArgument when it could wait for ever: the tolerance, or a queue, is too small for so
  // many.
  bool try_take(Want want, std::size_t n);
  // The call failed. What it took before the last clear() is not given back.
  void give_back(Want want, std::size_t n, std::uint64_t era);
  // Of a queue: n draws can never be made, because their rows were overwritten before they were
  // copied. They count as made, or adds would wait for them for ever.
  void lost(std::size_t n);
  // Of a queue: no more draws are owed than can still be made, and those of rows that are being
  // added. For adds that have waited a while: rows may have been overwritten before anybody took
  // them, or their writer was killed before it wrote them.
  void forgive(const Sampler& sampler, const Owners& owners);
  // The rows that a call had the share for are there, or never will be.
  void withdraw(Owner* who, std::size_t n);
  Owner* me() const { return me_; }
  // The era in which a share is taken now.
  std::uint64_t era() const { return ring_.blocks.era(); }
  // clear() begins: nothing is owed for the rows that go.
  void begin_anew();
  // Rows were added: somebody may go on. (Taking, giving back and clearing say so themselves.)
  void added() { changed(); }
  // All rows are gone.
  void cleared();
  // Wakes all who wait, for another reason than the limit.
  void wake();

  // So many calls of this handle more, or fewer, wait for their share; its owner says so.
  void count_waits(Owner& me, Want want, int more);

  std::size_t min_size() const { return min_size_; }
  bool has_ratio() const { return per_row_ != 0; }
  double balance() const;  // in rows

 private:
  friend class Wait;
  struct Waits {
    std::uint32_t draws = 0;
    std::uint32_t adds = 0;
  };

  std::size_t announced(const Owners& owners) const;
  bool filled();
  bool take_draw(std::int64_t amount);
  bool take_add(std::int64_t amount);
  void put(std::int64_t amount);
  void changed();
  std::int64_t amount(Want want, std::size_t n) const;
  [[noreturn]] void throw_impossible(Want want, std::size_t n) const;
  [[noreturn]] void throw_too_many(std::size_t n) const;
  std::string reason(Want want, std::size_t n) const;

  const Ring& ring_;
  Counters& counters_;
  const bool writable_;
  const std::size_t min_size_;
  const std::int64_t per_row_;  // what a row added is worth; like all amounts in 1 / kBalanceUnit
  const std::int64_t low_;
  const std::int64_t high_;
  const bool once_;       // a queue that holds no more draws than are owed
  const bool announces_;  // a queue whose adds are limited
  const bool active_;
  Owner* me_ = nullptr;
  // The era in which min_size rows were there: until the next clear() they need not be counted.
  std::atomic<std::uint64_t> filled_era_;
  Guarded<Waits> waits_;  // the calls of this handle that wait
};

// The share of a call under way: given back at the end unless it is kept.
class Share {
 public:
  Share() = default;
  Share(Limiter& limiter, Want want, std::size_t n)
      : limiter_(&limiter), me_(limiter.me()), want_(want), n_(n), era_(limiter.era()) {}
  Share(Share&& other) noexcept { swap(other); }
  Share& operator=(Share&& other) noexcept {
    swap(other);
    return *this;
  }
  ~Share() { give_back(); }

  bool taken() const { return limiter_ != nullptr; }
  // The call did what it has the share for.
  void keep() {
    if (limiter_ != nullptr && want_ == Want::kAdd) {
      limiter_->withdraw(me_, n_);
      limiter_->added();
    }
    limiter_ = nullptr;
  }
  void give_back() {
    if (limiter_ != nullptr) limiter_->give_back(want_, n_, era_);
    if (limiter_ != nullptr && want_ == Want::kAdd) limiter_->withdraw(me_, n_);
    limiter_ = nullptr;
  }

 private:
  void swap(Share& other) noexcept {
    std::swap(limiter_, other.limiter_);
    std::swap(me_, other.me_);
    std::swap(want_, other.want_);
    std::swap(n_, other.n_);
    std::swap(era_, other.era_);
  }

  Limiter* limiter_ = nullptr;
  Owner* me_ = nullptr;
  Want want_ = Want::kDraw;
  std::size_t n_ = 0;
  std::uint64_t era_ = 0;
};

// A call that waits for its share. The owner table says so for as long as this lives.
class Wait {
 public:
  // `me` is null for a handle for reading.
  Wait(Limiter& limiter, const Sampler& sampler, const Owners& owners, Owner* me, Want want,
       std::size_t n);
  ~Wait();
  Wait(const Wait&) = delete;
  Wait& operator=(const Wait&) = delete;

  // Takes the share, if need be after sleeping until something changes, `slice` and
  // Limiter::kSlice at most. False when it is still not to be had.
  bool sleep(std::chrono::nanoseconds slice);

  // For who waited too long: what for, and who else waits.
  std::string complaint(double seconds) const;

 private:
  bool sleep_reading(std::chrono::nanoseconds slice);
  std::string others() const;

  Limiter& limiter_;
  const Sampler& sampler_;
  const Owners& owners_;
  Owner* me_;
  Want want_;
  std::size_t n_;
};

// The balance of a limiter that begins anew in a ring that holds `rows`: as if of these as many as
// min_size says had just been added, and none drawn. Of a queue with `left` draws still to make: as
// if all had been added, and the other draws made.
std::int64_t fresh_balance(const Settings& settings, std::size_t rows,
                           std::size_t left = Sampler::kNoEnd);

// The live owners that wait.
std::vector<const Owner*> waiting_owners(const Ring& ring, const Owners& owners);

}  // namespace replay_buffer
