#include "core/limiter.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <thread>

#include "os/clock.h"
#include "os/crash_point.h"
#include "os/futex.h"
#include "replay_buffer/error.h"

namespace replay_buffer {
namespace {

constexpr std::uint64_t kNever = ~std::uint64_t{0};
// Amounts stay below, whatever a damaged segment says, so that no sum of two overflows.
constexpr std::int64_t kMost = std::int64_t{1} << 61;
// How long a handle for reading sleeps at a time: it cannot ask to be woken.
constexpr std::chrono::milliseconds kReaderSlice{2};
// So many of those who wait are named.
constexpr std::size_t kNamed = 8;

std::int64_t to_amount(double rows) {
  return static_cast<std::int64_t>(
      std::clamp(std::round(rows * static_cast<double>(kBalanceUnit)), 0.0, double{kMost}));
}
double to_rows(std::int64_t amount) {
  return static_cast<double>(amount) / static_cast<double>(kBalanceUnit);
}

std::string text(const char* format, double value) {
  char buffer[32];
  std::snprintf(buffer, sizeof(buffer), format, value);
  return buffer;
}
std::string number(double value) { return text("%.15g", value); }

std::string rows(double n) { return number(n) + (n == 1 ? " row" : " rows"); }

// With a ratio, drawing needs at least a row.
std::size_t least_size(const Settings& s) {
  return s.samples_per_insert > 0 && s.min_size == 0 ? 1 : s.min_size;
}

std::string call_name(Want want, std::size_t n, bool steps) {
  if (want == Want::kDraw) return "sample(" + std::to_string(n) + ")";
  if (steps) return "append of " + std::to_string(n) + (n == 1 ? " step" : " steps");
  return n == 1 ? "add" : "add_batch of " + std::to_string(n) + " rows";
}

}  // namespace

Limiter::Limiter(const Ring& ring)
    : ring_(ring),
      counters_(ring.counters()),
      writable_(ring.segment->writable()),
      min_size_(least_size(ring.settings())),
      per_row_(to_amount(ring.settings().samples_per_insert)),
      low_(amount(Want::kAdd, min_size_) - to_amount(ring.settings().tolerance)),
      high_(amount(Want::kAdd, min_size_) + to_amount(ring.settings().tolerance)),
      once_(ring.layout().is_queue() && per_row_ >= kBalanceUnit),
      announces_(ring.layout().is_queue() && per_row_ != 0 && writable_),
      active_(min_size_ != 0),
      filled_era_(kNever) {}

std::int64_t Limiter::amount(Want want, std::size_t n) const {
  const double each = static_cast<double>(want == Want::kDraw ? kBalanceUnit : per_row_);
  const double sum = each * static_cast<double>(n);
  if (sum >= double{kMost}) return kMost;
  return (want == Want::kDraw ? kBalanceUnit : per_row_) * static_cast<std::int64_t>(n);
}

// Rows go only by clear(), which begins a new era before it takes any away: so long as the era is
// the same, and as many rows were written in it, they are there.
bool Limiter::filled() {
  const std::uint64_t era = ring_.blocks.era();
  if (filled_era_.load(std::memory_order_relaxed) == era) return true;
  const std::size_t written = ring_.blocks.used_slots();
  if (ring_.blocks.live_rows() < min_size_) return false;
  if (written >= min_size_ && ring_.blocks.era() == era) {
    filled_era_.store(era, std::memory_order_relaxed);
  }
  return true;
}

bool Limiter::take_draw(std::int64_t amount) {
  std::int64_t seen = counters_.balance.load(std::memory_order_relaxed);
  for (;;) {
    const std::int64_t left = std::clamp(seen, -kMost, kMost) - amount;
    if (left < low_) return false;
    if (counters_.balance.compare_exchange_weak(seen, left, std::memory_order_relaxed)) return true;
  }
}

bool Limiter::take_add(std::int64_t amount) {
  std::int64_t seen = counters_.balance.load(std::memory_order_relaxed);
  for (;;) {
    const std::int64_t sum = std::clamp(seen, -kMost, kMost) + amount;
    if (sum > high_ && filled()) return false;
    // Release: whoever finds the share taken finds it announced.
    if (counters_.balance.compare_exchange_weak(seen, sum, std::memory_order_release)) return true;
  }
}

// Adds to the balance, wherever that leads.
void Limiter::put(std::int64_t amount) {
  std::int64_t seen = counters_.balance.load(std::memory_order_relaxed);
  while (!counters_.balance.compare_exchange_weak(seen, std::clamp(seen, -kMost, kMost) + amount,
                                                  std::memory_order_relaxed)) {
  }
}

bool Limiter::try_take(Want want, std::size_t n) {
  const std::int64_t share = amount(want, n);
  if (want == Want::kDraw) {
    if (has_ratio() && writable_ && share + per_row_ > high_ - low_) throw_impossible(want, n);
    if (once_ && writable_ && share > high_) throw_too_many(n);
    if (!filled()) return false;
    if (!has_ratio() || !writable_) return true;
    if (!take_draw(share)) return false;
    REPLAY_CRASH_POINT("limiter.taken");
    changed();
    return true;
  }
  // Who must not write is told so by the buffer.
  if (!has_ratio() || !writable_) return true;
  if (share + kBalanceUnit > high_ - low_ && filled()) throw_impossible(want, n);
  if (announces_) me_->announced.fetch_add(n, std::memory_order_relaxed);
  if (take_add(share)) return true;
  withdraw(me_, n);
  return false;
}

void Limiter::withdraw(Owner* who, std::size_t n) {
  // Release: whoever does not find it announced finds the rows.
  if (announces_) who->announced.fetch_sub(n, std::memory_order_release);
}

// Those of dead owners will never be there.
std::size_t Limiter::announced(const Owners& owners) const {
  std::size_t sum = 0;
  for (std::size_t i = 0; i < kOwnerCount; ++i) {
    const Owner& owner = ring_.segment->owners()[i];
    const std::uint64_t rows = owner.announced.load(std::memory_order_acquire);
    if (rows != 0 && !owners.dead(owners.identity_of(i))) sum += rows;
  }
  return sum;
}

void Limiter::give_back(Want want, std::size_t n, std::uint64_t era) {
  if (!has_ratio() || !writable_ || era != this->era()) return;
  put(want == Want::kDraw ? amount(want, n) : -amount(want, n));
  changed();
}

void Limiter::lost(std::size_t n) {
  if (n == 0 || !has_ratio() || !writable_) return;
  put(-amount(Want::kDraw, n));
  changed();
}

void Limiter::forgive(const Sampler& sampler, const Owners& owners) {
  if (!announces_) return;
  // In this order, so that no row is left out: it has its share of the balance, then it is there,
  // then it is no longer announced.
  std::int64_t seen = counters_.balance.load(std::memory_order_acquire);
  const std::int64_t coming = amount(Want::kAdd, announced(owners));
  const std::int64_t most = amount(Want::kDraw, sampler.left()) + coming;
  if (seen > most) {
    counters_.balance.compare_exchange_strong(seen, most, std::memory_order_relaxed);
  }
}

void Limiter::begin_anew() { counters_.balance.store(0, std::memory_order_relaxed); }

// A queue is not filled further than that.
void Limiter::throw_too_many(std::size_t n) const {
  const Settings& s = ring_.settings();
  throw Error(ErrorCode::kInvalidArgument,
              call_name(Want::kDraw, n, false) + " could wait for ever: with min_size=" +
                  std::to_string(min_size_) + " and tolerance=" + number(s.tolerance) +
                  " this queue is not filled further than " + number(to_rows(high_)) +
                  " draws; give it a min_size of at least a batch");
}

// Draws and adds that together move more than the band is wide can both be too large at once.
void Limiter::throw_impossible(Want want, std::size_t n) const {
  const Settings& s = ring_.settings();
  const double least = want == Want::kDraw
                           ? (static_cast<double>(n) + s.samples_per_insert) / 2
                           : (static_cast<double>(n) * s.samples_per_insert + 1) / 2;
  throw Error(ErrorCode::kInvalidArgument,
              call_name(want, n, ring_.layout().has_steps()) +
                  " could wait for ever: with samples_per_insert=" + number(s.samples_per_insert) +
                  " it needs a tolerance of at least " + number(least) + ", and that is " +
                  number(s.tolerance));
}

// See limiter.h for the order of these steps.
void Limiter::changed() {
  if (!writable_) return;
  std::atomic_thread_fence(std::memory_order_seq_cst);  // pairs with the fence in Wait::sleep
  if (counters_.waiting.load(std::memory_order_relaxed) != 0) [[unlikely]]
    wake();
}

void Limiter::wake() {
  if (!writable_) return;
  counters_.waiting.store(0, std::memory_order_relaxed);
  REPLAY_CRASH_POINT("limiter.lowered");
  // Release pairs with the acquire in Wait::sleep: who reads this bell raises `waiting` later.
  counters_.bell.fetch_add(1, std::memory_order_release);
  os::futex::wake_all(counters_.bell);
}

void Limiter::count_waits(Owner& me, Want want, int more) {
  waits_.with([&](Waits& waits) {
    (want == Want::kDraw ? waits.draws : waits.adds) += static_cast<std::uint32_t>(more);
    const std::uint32_t bits = (waits.draws != 0 ? static_cast<std::uint32_t>(Want::kDraw) : 0) |
                               (waits.adds != 0 ? static_cast<std::uint32_t>(Want::kAdd) : 0);
    me.waits.store(bits, std::memory_order_relaxed);
  });
}

void Limiter::cleared() {
  filled_era_.store(kNever, std::memory_order_relaxed);
  changed();
}

double Limiter::balance() const {
  return to_rows(counters_.balance.load(std::memory_order_relaxed));
}

std::string Limiter::reason(Want want, std::size_t n) const {
  const std::size_t there = ring_.blocks.live_rows();
  if (want == Want::kDraw && there < min_size_) {
    return std::to_string(there) + " of " + rows(static_cast<double>(min_size_)) +
           " are there (min_size)";
  }
  if (!has_ratio()) return "the rows it waited for are there now";
  const std::int64_t balance =
      std::clamp(counters_.balance.load(std::memory_order_relaxed), -kMost, kMost);
  const std::int64_t share = amount(want, n);
  const std::int64_t short_by = std::max<std::int64_t>(
      0, want == Want::kDraw ? low_ - (balance - share) : balance + share - high_);
  const double missing =
      want == Want::kDraw ? std::ceil(static_cast<double>(short_by) / static_cast<double>(per_row_))
                          : std::ceil(to_rows(short_by));
  const Settings& s = ring_.settings();
  const std::uint64_t drawn = counters_.rows_sampled.load(std::memory_order_relaxed);
  return rows(static_cast<double>(drawn)) + (drawn == 1 ? " was" : " were") + " drawn for " +
         std::to_string(ring_.rows_added()) +
         " added (samples_per_insert=" + number(s.samples_per_insert) +
         ", tolerance=" + number(s.tolerance) + "), " + number(missing) + " more must be " +
         (want == Want::kDraw ? "added" : "drawn") + " first";
}

// ------------------------------------------------------------------------------------------
// waiting
Wait::Wait(Limiter& limiter, const Sampler& sampler, const Owners& owners, Owner* me, Want want,
           std::size_t n)
    : limiter_(limiter), sampler_(sampler), owners_(owners), me_(me), want_(want), n_(n) {
  if (me_ != nullptr) limiter_.count_waits(*me_, want_, 1);
}

Wait::~Wait() {
  if (me_ != nullptr) limiter_.count_waits(*me_, want_, -1);
}

bool Wait::sleep(std::chrono::nanoseconds slice) {
  slice = std::min<std::chrono::nanoseconds>(slice, Limiter::kSlice);
  if (me_ == nullptr) return sleep_reading(slice);
  Counters& counters = limiter_.counters_;
  const std::uint32_t bell = counters.bell.load(std::memory_order_acquire);
  counters.waiting.store(1, std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_seq_cst);  // pairs with the fence in changed()
  if (limiter_.try_take(want_, n_)) return true;
  REPLAY_CRASH_POINT("limiter.asleep");
  os::futex::wait(counters.bell, bell, slice);
  if (limiter_.try_take(want_, n_)) return true;
  const bool nothing_changed = counters.bell.load(std::memory_order_relaxed) == bell;
  if (want_ != Want::kAdd || !nothing_changed) return false;
  limiter_.forgive(sampler_, owners_);
  return limiter_.try_take(want_, n_);
}

bool Wait::sleep_reading(std::chrono::nanoseconds slice) {
  const std::uint64_t end =
      os::monotonic_ns() + static_cast<std::uint64_t>(std::max<std::int64_t>(0, slice.count()));
  for (;;) {
    if (limiter_.try_take(want_, n_)) return true;
    const std::uint64_t now = os::monotonic_ns();
    if (now >= end) return false;
    std::this_thread::sleep_for(
        std::min<std::chrono::nanoseconds>(kReaderSlice, std::chrono::nanoseconds(end - now)));
  }
}

std::string Wait::complaint(double seconds) const {
  const std::string waited =
      seconds > 0 ? " waited " + text("%.1f", seconds) + " s: " : " would have to wait: ";
  return call_name(want_, n_, limiter_.ring_.layout().has_steps()) + waited +
         limiter_.reason(want_, n_) + "; " + others();
}

std::string Wait::others() const {
  std::vector<std::string> names;
  std::uint32_t all = 0;
  std::size_t count = 0;
  for (const Owner* owner : waiting_owners(limiter_.ring_, owners_)) {
    std::uint32_t waits = owner->waits.load(std::memory_order_relaxed);
    const bool mine = owner == me_;
    if (mine) waits &= ~static_cast<std::uint32_t>(want_);  // that is this call, or more like it
    if (waits == 0) continue;
    all |= waits;
    if (++count > kNamed) continue;
    const std::string who =
        mine ? "another thread"
             : "process " + std::to_string(owner->pid.load(std::memory_order_relaxed));
    names.push_back(who + (waits == 1   ? " waits to sample"
                           : waits == 2 ? " waits to add"
                                        : " waits to sample and to add"));
  }
  if (count == 0) return "nobody else waits";
  std::string said;
  for (const std::string& name : names) said += (said.empty() ? "" : ", ") + name;
  if (count > kNamed) said += " and " + std::to_string(count - kNamed) + " more";
  const std::uint32_t other = 3 - static_cast<std::uint32_t>(want_);
  if (limiter_.has_ratio() && (all & other) != 0 &&
      limiter_.ring_.blocks.live_rows() >= limiter_.min_size_) {
    said += "; where both wait the tolerance is less than half of what one add and one batch move";
  }
  return said;
}

std::int64_t fresh_balance(const Settings& settings, std::size_t rows, std::size_t left) {
  const bool queue = left != Sampler::kNoEnd;
  const std::size_t counted = queue ? rows : std::min(rows, least_size(settings));
  const std::int64_t due =
      static_cast<std::int64_t>(counted) * to_amount(settings.samples_per_insert);
  return queue ? std::min(due, static_cast<std::int64_t>(left) * kBalanceUnit) : due;
}

std::vector<const Owner*> waiting_owners(const Ring& ring, const Owners& owners) {
  std::vector<const Owner*> found;
  for (std::size_t i = 0; i < kOwnerCount; ++i) {
    const Owner& owner = ring.segment->owners()[i];
    if (owner.waits.load(std::memory_order_relaxed) != 0 &&
        owner.pid.load(std::memory_order_relaxed) != 0) {
      found.push_back(&owner);
    }
  }
  if (found.empty()) return found;
  for (const Identity dead : owners.all_dead()) {
    std::erase(found, &ring.segment->owners()[dead.owner]);
  }
  return found;
}

}  // namespace replay_buffer
