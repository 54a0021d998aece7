#include "core/buffer.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <chrono>
#include <cmath>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "core/codec.h"
#include "core/powers.h"
#include "core/recent.h"
#include "os/clock.h"
#include "os/crash_point.h"
#include "os/let_go.h"
#include "os/process.h"
#include "os/threads.h"
#include "replay_buffer/error.h"

namespace replay_buffer {
namespace {

// Batches of more bytes than this are not read ahead: the cache would not keep them.
constexpr std::size_t kAheadBytes = 16 * 1024;
// Draws between two looks for owners that died while they changed priorities.
constexpr std::uint64_t kMendEvery = 256;
// Ratios of masses between this and its inverse are weighed as floats.
constexpr double kLeastRatio = 0x1.0p-126;
// For how long a file is tried that another process is about to recover.
constexpr std::uint64_t kRecoveryNs = 10'000'000'000;

float inverse_power(double x, float y) {
  return static_cast<float>(std::pow(x, -static_cast<double>(y)));
}

[[noreturn]] void throw_not_closed_well(const Segment& segment) {
  throw Error(
      ErrorCode::kCorrupt,
      segment.location().text() + " was open when the machine went down, and " +
          (segment.layout().durable() ? "has to be opened for writing once, which recovers it"
                                      : "without durable=True its rows cannot be checked"));
}

}  // namespace

Buffer::Buffer(std::unique_ptr<Segment> segment)
    : ring_(std::move(segment)),
      owners_(*ring_.segment),
      recovery_(ring_, owners_),
      limiter_(ring_),
      sampler_(make_sampler(ring_)),
      fetched_(sampler_->fetches()),
      own_seed_generation_(os::fork_generation() - 1),
      writer_(ring_, Identity{}, &recovery_),
      generation_(os::fork_generation()) {
  check_codecs(layout().schema);
  if (ring_.segment->location().kind == Location::Kind::kFile) {
    if (writable()) recover_after_boot();
    if (!closed_well()) throw_not_closed_well(*ring_.segment);  // who only reads cannot recover it
  }
  if (writable()) join();
}

Buffer::~Buffer() {
  leave();
  ring_.segment->release_file();  // who reads rows in place keeps the memory
}

void Buffer::leave() {
  // A child that never wrote has nothing of its own to give back.
  if (!writable() || generation_ != os::fork_generation()) {
    writer_.become({});
    return;
  }
  writer_.close();
  try {
    owners_.leave(me_);  // refused when somebody closed the file's descriptor
    REPLAY_CRASH_POINT("close.left");
    if (ring_.segment->location().kind == Location::Kind::kFile) close_file();
  } catch (const Error&) {
    return;  // it then counts as not closed
  }
}

// The last writer of a file leaves it whole on the disk, and says so there.
void Buffer::close_file() const {
  const Segment& segment = *ring_.segment;
  if (segment.try_alone()) {
    // What takes long is done while others may come.
    segment.share();
    segment.sync();
    if (segment.try_alone()) {
      REPLAY_CRASH_POINT("close.alone");
      segment.sync();
      ring_.counters().boot.store(0, std::memory_order_release);
      segment.sync_header();
    }
  }
  segment.leave();  // also where a forked child has the descriptor too
}

void Buffer::join() {
  me_ = owners_.join();
  writer_.become(me_);
  limiter_.become(&owners_.slot(me_));
  if (owners_.inherited(me_)) {
    recovery_.mend_sums(me_);
    owners_.finish_inherited(me_);
  }
  if (ring_.segment->file() != nullptr) recovery_.mend_all(me_);
}

// In the child of a fork the handle is still the parent's: it takes a place of its own. Private
// memory is a copy: there the parent is gone, and what its threads had under way is mended.
void Buffer::rejoin() {
  const bool copied = ring_.segment->file() == nullptr;
  if (copied) {
    owners_.leave(me_);
    ring_.segment->begin_lineage();  // from here on parent and child give the same ids to others
  } else {
    ring_.segment->reopen();
  }
  join();
  if (copied) recovery_.mend_all(me_);
  generation_ = os::fork_generation();
}

// A machine that went down has kept of a file what it had written by then.
void Buffer::recover_after_boot() {
  const Segment& segment = *ring_.segment;
  std::atomic<std::uint64_t>& boot = ring_.counters().boot;
  const std::uint64_t start = os::monotonic_ns();
  for (;;) {
    segment.share();  // waits for one that is recovering it; if that one is killed, this one does
    if (closed_well()) break;
    if (segment.try_alone()) {
      if (!closed_well()) {
        if (!ring_.layout().durable()) throw_not_closed_well(segment);
        recovery_.recover();
        REPLAY_CRASH_POINT("recover.done");
        boot.store(os::boot(), std::memory_order_release);
      }
      segment.share();
      break;
    }
    // Somebody else is between these two lines.
    if (os::monotonic_ns() - start > kRecoveryNs) throw_not_closed_well(segment);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  if (boot.load(std::memory_order_acquire) == os::boot()) return;
  boot.store(os::boot(), std::memory_order_release);
  segment.sync_header();  // before anything that needs it
}

// Whether no power cut lies between the last writer of the file and now.
bool Buffer::closed_well() const {
  const std::uint64_t last = ring_.counters().boot.load(std::memory_order_acquire);
  return last == 0 || last == os::boot();
}

void Buffer::check_writable() const {
  if (!writable()) {
    throw Error(ErrorCode::kReadOnly,
                ring_.segment->location().text() + " is open for reading only");
  }
}

void Buffer::append(std::size_t n, const std::byte* const* columns, const float* raws,
                    std::int64_t* ids, const Packed* packed) {
  if (generation_ != os::fork_generation()) [[unlikely]]
    rejoin();
  writer_.append(n, columns, raws, ids, nullptr, packed);
}

// The rows as the arenas will hold them; null where there are none. Before the lock is taken:
// threads compress side by side.
const Packed* Buffer::packed(std::size_t n, const std::byte* const* columns) const {
  if (!ring_.rows.has_arenas()) [[likely]]
    return nullptr;
  static thread_local Packed own;
  own.pack(ring_.layout(), n, columns);
  return &own;
}

void Buffer::add(std::size_t n, const std::byte* const* columns, const float* raws,
                 std::int64_t* ids) {
  check_writable();
  const Packed* values = packed(n, columns);
  const std::lock_guard guard(lock_);
  append(n, columns, raws, ids, values);
}

bool Buffer::try_add(std::size_t n, const std::byte* const* columns, const float* raws,
                     std::int64_t* ids) {
  check_writable();
  if (ring_.rows.has_arenas()) [[unlikely]]
    return false;  // packing takes longer than the caller would want to be kept
  const std::unique_lock guard(lock_, std::try_to_lock);
  if (guard) append(n, columns, raws, ids, nullptr);
  return guard.owns_lock();
}

Wait Buffer::wait_for(Want want, std::size_t n) {
  return Wait(limiter_, *sampler_, owners_, writable() ? &owner() : nullptr, want, n);
}

Share Buffer::take_share(Want want, std::size_t n) {
  if (!limiter_.active()) return {};
  if (!try_take(want, n)) {
    Wait wait = wait_for(want, n);
    while (!wait.sleep(Limiter::kSlice)) {
    }
  }
  return {limiter_, want, n};
}

void Buffer::release() {
  const std::lock_guard guard(lock_);
  if (generation_ == os::fork_generation()) writer_.close();
}

// The owner to change things as: in the child of a fork, one of its own.
Owner& Buffer::owner() {
  check_writable();
  if (generation_ != os::fork_generation()) [[unlikely]] {
    const std::lock_guard guard(lock_);
    if (generation_ != os::fork_generation()) rejoin();
  }
  return owners_.slot(me_);
}

// Who cannot take a place among the owners leaves it to others: a draw does not fail for that.
void Buffer::try_mend_changes() {
  try {
    owner();
    recovery_.mend_changes(me_);
  } catch (const Error&) {
    return;
  }
}

UpdateResult Buffer::update(std::span<const std::int64_t> ids, std::span<const float> raws) {
  const Change change(owner());
  return ring_.priorities->update(ids, raws);
}

void Buffer::set_alpha(float alpha) {
  const Change change(owner());
  ring_.priorities->set_alpha(alpha);
}

float Buffer::raw_of(std::int64_t id) const {
  const auto row = static_cast<std::uint64_t>(id);  // what is negative was never given
  const std::uint64_t word =
      ring_.rows.word(row % ring_.rows.capacity()).load(std::memory_order_relaxed);
  const bool last = ring_.blocks.live(word) && row_id(word) == row && !row_weighed(word);
  return last ? 0 : ring_.priorities->raw_of(id);
}

void Buffer::sample(const Batch& batch, float beta) {
  Draw draw(batch.rows);
  finish(draw, batch, beta);
}

void Buffer::begin(Draw& draw) {
  if (!sampler_->draws_freely() || ring_.blocks.used_slots() == 0) return;
  choose(draw, draws().load(std::memory_order_relaxed));
  prefetch(draw.picks().first(std::min(draw.rows_, Rows::kGather)));
  draw.begun_ = true;
}

// The rows that were chosen for this draw, unless another came before it: then others.
void Buffer::take_turn(Draw& draw) {
  if (sampler_->writes()) check_writable();
  // Asked of an empty buffer, a batch is refused before it counts as drawn.
  if (ring_.blocks.used_slots() == 0 && size() == 0) throw_not_enough(draw.rows_, 0);
  if (draw.begun_ &&
      draws().compare_exchange_strong(draw.turn_, draw.turn_ + 1, std::memory_order_relaxed)) {
    draw.counted_ = true;
  } else {
    draw.counted_ = sampler_->random();
    choose(draw, draws().fetch_add(draw.counted_ ? 1 : 0, std::memory_order_relaxed));
    prefetch(draw.picks().first(std::min(draw.rows_, Rows::kGather)));
  }
  if (cer()) pick_newest(draw.picks().front());
}

void Buffer::count_turn(Draw& draw) {
  if (!draw.counted_) draws().fetch_add(1, std::memory_order_relaxed);
}

// A draw that failed leaves its rows to others, and has not counted. Where others drew after it,
// its number stays unused.
void Buffer::give_back(Draw& draw) {
  if (draw.chosen_) sampler_->give_back(draw.picks());
  limiter_.lost(sampler_->lost());
  std::uint64_t next = draw.turn_ + 1;
  if (draw.counted_) {
    draws().compare_exchange_strong(next, draw.turn_, std::memory_order_relaxed);
  }
}

void Buffer::finish(Draw& draw, const Batch& batch, float beta) {
  try {
    take_turn(draw);
    copy_rows(draw.random_, draw.picks(), batch);
  } catch (...) {
    give_back(draw);
    throw;
  }
  if (batch.weights != nullptr) weigh(draw, batch.ids, beta, batch.weights);
  count_turn(draw);
  drawn_batch(draw, batch.rows);
  read_ahead(draw.turn_, batch.rows);
}

void Buffer::drawn_batch(const Draw& draw, std::size_t rows) {
  if (!writable()) return;
  limiter_.lost(sampler_->lost());
  ring_.counters().rows_sampled.fetch_add(rows, std::memory_order_relaxed);
  // Who draws comes by, now and then, what a learner left that was killed in an update.
  if (draw.turn_ % kMendEvery == 0 && ring_.segment->file() != nullptr) try_mend_changes();
}

// A learner that draws alone will ask for as many rows again: they come into the cache while it
// learns from these. A guess that turns out wrong costs nothing but the reading.
void Buffer::read_ahead(std::uint64_t turn, std::size_t rows) {
  const bool alone = last_turn_.load(std::memory_order_relaxed) + 1 == turn;
  last_turn_.store(turn, std::memory_order_relaxed);
  if (!alone || rows * ring_.layout().row_bytes > kAheadBytes) return;
  sampler_->foresee(Random(seed(), turn + 1), rows);
}

std::uint64_t Buffer::seed() {
  if (writable()) [[likely]]
    return ring_.settings().seed;
  // The acquire pairs with the release: who sees the generation sees its seed.
  if (own_seed_generation_.load(std::memory_order_acquire) != os::fork_generation()) {
    own_seed_.store(random_number(), std::memory_order_relaxed);
    own_seed_generation_.store(os::fork_generation(), std::memory_order_release);
  }
  return own_seed_.load(std::memory_order_relaxed);
}

// With combined experience replay the first place is the newest row's, and the others are drawn
// from all rows, the newest among them.
void Buffer::choose(Draw& draw, std::uint64_t turn) {
  draw.turn_ = turn;
  draw.chosen_ = false;
  draw.random_ = Random(seed(), turn);
  const std::span<Pick> picks = draw.picks();
  if (cer()) picks.front() = {0, Pick::kAny, 1};  // until finish() knows the newest row
  draw.mass_ = sampler_->draw(draw.random_, picks.subspan(cer() ? 1 : 0));
  draw.chosen_ = true;
}

// The newest row, with the mass that it would be drawn with. False when there is none.
bool Buffer::pick_newest(Pick& pick) const {
  const std::vector<Recent> newest = newest_rows(ring_, 1);
  if (newest.empty()) return false;
  pick = {newest[0].slot, newest[0].lap, 1};
  sampler_->weigh({&pick, 1});
  return true;
}

// Another row for a place of the batch.
bool Buffer::redraw(Random& random, Pick& pick, unsigned attempt, std::size_t at) const {
  if (at == 0 && cer()) return pick_newest(pick);
  const Pick gone = pick;
  if (!sampler_->redraw(random, pick, attempt)) return false;
  sampler_->overtaken(gone);
  return true;
}

bool Buffer::try_copy(const Pick& pick, const Batch& batch, std::size_t at) const {
  const std::uint64_t word = wanted_word(pick, ring_.blocks.oldest_id());
  if (word == 0) return false;
  if (!ring_.rows.read(pick.slot, word, batch.columns, at, batch.step)) return false;
  if (!same_mass(pick)) return false;
  batch.ids[at] = static_cast<std::int64_t>(row_id(word));
  return true;
}

void Buffer::copy_one(Random& random, Pick& pick, const Batch& batch, std::size_t at) {
  constexpr unsigned kManyAttempts = 4096;
  constexpr std::uint64_t kPatienceNs = 1'000'000'000;
  std::uint64_t since = 0;
  for (unsigned attempt = 1; !try_copy(pick, batch, at); ++attempt) {
    if (!redraw(random, pick, attempt, at)) throw_not_enough(batch.rows, 0);
    if (attempt % kManyAttempts != 0) continue;
    os::let_go();
    // What the sampler goes by leads to no row: rows that somebody was stopped or killed in the
    // midst of, or a damaged segment. The words of the rows are the truth.
    const std::uint64_t now = os::monotonic_ns();
    if (since == 0) since = now;
    if (!draw_by_scan(ring_, random, pick) || now - since > kPatienceNs) {
      throw Error(ErrorCode::kNotEnoughRows, "cannot sample " + std::to_string(batch.rows) +
                                                 " rows: none of them can be read whole");
    }
  }
}

// The word of the row that was picked; 0 when it is gone.
std::uint64_t Buffer::wanted_word(const Pick& pick, std::uint64_t oldest) const {
  const std::uint64_t word = ring_.rows.word(pick.slot).load(std::memory_order_acquire);
  return pick.is(word, oldest, ring_.rows.capacity()) ? word : 0;
}

// Whether a row that was drawn by its leaf still has it: else it was overwritten, or weighs
// something else by now. To be asked after the row was copied.
bool Buffer::same_mass(const Pick& pick) const {
  return pick.lap != Pick::kByMass || ring_.priorities->tree().leaf(pick.slot) == pick.mass;
}

// Up to Rows::kGather picks, to places from `at` on: all words, all cells, all words again.
void Buffer::copy_some(Random& random, std::span<Pick> picks, const Batch& batch, std::size_t at) {
  const Rows& rows = ring_.rows;
  const std::uint64_t oldest = ring_.blocks.oldest_id();
  std::uint64_t slots[Rows::kGather];
  std::uint64_t words[Rows::kGather];
  const std::size_t n = picks.size();
  for (std::size_t i = 0; i < n; ++i) slots[i] = picks[i].slot;
  for (std::size_t i = 0; i < n; ++i) words[i] = wanted_word(picks[i], oldest);
  rows.gather(slots, n, batch.columns, at, batch.step);
  std::atomic_thread_fence(std::memory_order_acquire);  // pairs with the fence in Rows::write
  for (std::size_t i = 0; i < n; ++i) {
    if (words[i] != 0 && rows.word(slots[i]).load(std::memory_order_relaxed) == words[i] &&
        same_mass(picks[i])) [[likely]] {
      batch.ids[at + i] = static_cast<std::int64_t>(row_id(words[i]));
    } else {
      copy_one(random, picks[i], batch, at + i);
    }
  }
}

void Buffer::copy_rows(Random& random, std::span<Pick> picks, const Batch& batch) {
  if (row_effort() * picks.size() < kParallelBytes) {
    // The first rows are on their way; the next ones follow while these are copied.
    for (std::size_t at = 0; at < picks.size(); at += Rows::kGather) {
      const std::size_t n = std::min(Rows::kGather, picks.size() - at);
      const std::size_t left = picks.size() - at - n;
      prefetch(picks.subspan(at + n, std::min(Rows::kGather, left)));
      copy_some(random, picks.subspan(at, n), batch, at);
    }
    return;
  }
  // Threads copy what they can; what was being overwritten is drawn again afterwards, in order, so
  // that the batch depends on the generator alone.
  std::vector<std::uint8_t> failed(picks.size(), 0);
  share_out(picks.size(), row_effort(), [&](std::size_t from, std::size_t end) {
    for (std::size_t i = from; i < end; ++i) failed[i] = try_copy(picks[i], batch, i) ? 0 : 1;
  });
  for (std::size_t i = 0; i < picks.size(); ++i) {
    if (failed[i] != 0) copy_one(random, picks[i], batch, i);
  }
}

// w(i) = (N P(i))^-beta, where P(i) is the share of the batch that row i is expected to have.
// Scaled by a maximum, N and the total cancel out.
void Buffer::weigh(Draw& draw, const std::int64_t* ids, float beta, float* weights) const {
  const std::span<Pick> picks = draw.picks();
  const std::size_t n = picks.size();
  if (cer()) return weigh_with_newest(draw, ids, beta, weights);
  float least = picks[0].mass;
  float most = least;
  for (const Pick& pick : picks) {
    least = std::min(least, pick.mass);
    most = std::max(most, pick.mass);
  }
  const double scale = 1 / mass_of_weight_one(draw.mass_, static_cast<double>(least));
  if (static_cast<double>(least) * scale >= kLeastRatio &&
      static_cast<double>(most) * scale <= 1 / kLeastRatio) [[likely]] {
    for (std::size_t i = 0; i < n; ++i) {
      weights[i] = static_cast<float>(static_cast<double>(picks[i].mass) * scale);
    }
    return powers(weights, n, -beta);
  }
  for (std::size_t i = 0; i < n; ++i) {
    weights[i] = inverse_power(static_cast<double>(picks[i].mass) * scale, beta);
  }
}

// One place of the batch is the newest row's for certain, the others are drawn by mass.
void Buffer::weigh_with_newest(Draw& draw, const std::int64_t* ids, float beta,
                               float* weights) const {
  const std::span<Pick> picks = draw.picks();
  const auto n = static_cast<double>(picks.size());
  const double drawn = (n - 1) / n;
  const double certain = draw.mass_.total / n;
  const auto mass = [&](std::size_t i) {
    const double own = static_cast<double>(picks[i].mass) * drawn;
    return ids[i] == ids[0] ? own + certain : own;
  };
  double least = mass(0);
  for (std::size_t i = 1; i < picks.size(); ++i) least = std::min(least, mass(i));
  Mass all = draw.mass_;
  all.lowest = picks.size() == 1 ? certain : all.lowest * drawn;
  const double scale = 1 / mass_of_weight_one(all, least);
  for (std::size_t i = 0; i < picks.size(); ++i) weights[i] = inverse_power(mass(i) * scale, beta);
}

// The mass of a row whose weight is 1, where the least mass of the batch is `least`.
double Buffer::mass_of_weight_one(const Mass& mass, double least) const {
  double unit = least;
  switch (static_cast<WeightScale>(ring_.settings().weights)) {
    case WeightScale::BatchMax:
      break;
    case WeightScale::GlobalMax:
      unit = mass.lowest;
      break;
    case WeightScale::None:
      unit = mass.total / static_cast<double>(std::max<std::size_t>(1, size()));
      break;
  }
  return unit > 0 ? unit : 1;
}

std::size_t Buffer::get(std::span<const std::int64_t> ids, std::byte* const* columns,
                        std::uint8_t* gone, std::size_t step) const {
  const std::uint64_t oldest = ring_.blocks.oldest_id();
  std::atomic<std::size_t> missing{0};
  share_out(ids.size(), row_effort(), [&](std::size_t from, std::size_t end) {
    std::size_t some = 0;
    for (std::size_t i = from; i < end; ++i) {
      bool found = false;
      if (ids[i] >= 0) {
        const auto id = static_cast<std::uint64_t>(ids[i]);
        const std::uint64_t slot = id % ring_.rows.capacity();
        const std::uint64_t word = ring_.rows.word(slot).load(std::memory_order_acquire);
        found = row_committed(word) && row_id(word) == id && id >= oldest &&
                ring_.rows.read(slot, word, columns, i, step);
      }
      if (gone != nullptr) gone[i] = found ? 0 : 1;
      some += found ? 0 : 1;
    }
    missing.fetch_add(some, std::memory_order_relaxed);
  });
  return missing.load(std::memory_order_relaxed);
}

std::size_t Buffer::latest(std::size_t n, std::int64_t* ids) const {
  const std::vector<Recent> newest = newest_rows(ring_, n);
  for (std::size_t i = 0; i < newest.size(); ++i) {
    ids[newest.size() - 1 - i] =
        static_cast<std::int64_t>((std::uint64_t{newest[i].lap} - 1) * capacity() + newest[i].slot);
  }
  return newest.size();
}

float Buffer::beta() const {
  const Settings& s = ring_.settings();
  if (s.beta_steps == 0) return s.beta;
  const double done =
      std::min(1.0, static_cast<double>(drawn()) / static_cast<double>(s.beta_steps));
  return static_cast<float>(s.beta + (static_cast<double>(s.beta_end) - s.beta) * done);
}

Stats Buffer::stats() const {
  const Layout& layout = ring_.layout();
  const Counters& c = ring_.counters();
  const auto of = [](const std::atomic<std::uint64_t>& count) {
    return count.load(std::memory_order_relaxed);
  };
  Stats stats;
  stats.size = size();
  stats.capacity = capacity();
  stats.block_rows = layout.settings.block_rows;
  stats.row_bytes = layout.row_bytes;
  stats.raw_bytes = layout.row_bytes * capacity();
  stats.segment_bytes = layout.total_bytes;
  stats.resident_bytes = ring_.segment->resident_bytes();
  stats.rows_added = ring_.rows_added();
  stats.rows_sampled = of(c.rows_sampled);
  stats.samples = of(c.draws);
  stats.updates_applied = of(c.updates_applied);
  stats.updates_stale = of(c.updates_stale);
  stats.bytes_in = of(c.bytes_in);
  stats.bytes_kept = of(c.bytes_kept);
  stats.balance = limiter_.balance();
  stats.episodes = of(c.episodes);
  stats.episode_steps = of(c.episode_steps);
  stats.return_sum = std::bit_cast<double>(of(c.return_bits));
  return stats;
}

void Buffer::clear() {
  const Change change(owner());
  const std::lock_guard guard(lock_);
  writer_.close();
  // Twice: dying in between leaves nothing owed for rows that are gone, and what is added in
  // between goes with them.
  limiter_.begin_anew();
  ring_.blocks.begin_era();
  limiter_.begin_anew();
  // The rows of a block that a writer has open are left to it, all but their priorities: they are
  // gone for every reader, and the writer takes them out when it comes by.
  for (std::size_t b = 0; b < ring_.blocks.block_count(); ++b) {
    if (ring_.blocks.fill(b).lap == 0) continue;  // never claimed
    recovery_.alter(b, me_);
    REPLAY_CRASH_POINT("clear.block");
  }
  if (limiter_.active()) limiter_.cleared();
}

}  // namespace replay_buffer
