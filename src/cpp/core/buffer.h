// A buffer: the ring, the writer behind add(), and the sampler of its strategy.
//
// Thread safety: every method may be called by any number of threads at once. add() holds a lock of
// this process for the copy; draws by rank, by epoch and from queues hold one while they choose; a
// uniform or prioritized draw takes none. A handle that a fork copied into a
// child joins as an owner of its own when the child first writes.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "core/limiter.h"
#include "core/random.h"
#include "core/recovery.h"
#include "core/ring.h"
#include "core/sampler.h"
#include "core/unfilled.h"
#include "core/view.h"
#include "core/writer.h"
#include "os/cpu.h"
#include "os/thread_lock.h"
#include "os/threads.h"
#include "replay_buffer/stats.h"

namespace replay_buffer {

// Batches of more bytes than this are copied by several threads.
inline constexpr std::size_t kParallelBytes = 256 * 1024;
// What one of them takes at a time.
inline constexpr std::size_t kTaskBytes = 64 * 1024;

// Where a batch goes: row ids, weights (null: not wanted), and the columns (null: not wanted). Row
// i of column c goes to columns[c] + i * step; a step of 0 is the column's own size, a plain array.
struct Batch {
  std::size_t rows = 0;
  std::byte* const* columns = nullptr;
  std::int64_t* ids = nullptr;
  float* weights = nullptr;
  std::size_t step = 0;
};

// The choice of rows for one batch. Begun before the batch has a place to go to, so that the rows
// are on their way into the cache while the caller makes that place.
class Draw {
 public:
  explicit Draw(std::size_t rows) : rows_(rows) {
    if (rows > kInline) more_.resize(rows);
  }
  static constexpr std::size_t kInline = 256;  // small batches stay on the stack

 private:
  friend class Buffer;
  std::span<Pick> picks() { return {more_.empty() ? few_ : more_.data(), rows_}; }

  std::size_t rows_;
  bool begun_ = false;
  bool counted_ = false;
  bool chosen_ = false;
  std::uint64_t turn_ = 0;  // the draw this would be, unless another one comes before
  Random random_{0, 0};
  Mass mass_;
  Pick few_[kInline];
  std::vector<Pick> more_;
};

class Buffer {
 public:
  // Opened for writing, it takes a place among the owners and mends what dead ones left. Throws
  // kBusy when there is no place, kCorrupt for a file that a power cut left and cannot be checked.
  explicit Buffer(std::unique_ptr<Segment> segment);
  ~Buffer();
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  const Layout& layout() const { return ring_.layout(); }
  const Ring& ring() const { return ring_; }
  const Owners& owners() const { return owners_; }
  bool writable() const { return ring_.segment->writable(); }

  // For writers beside the one of add(): who they write as, in the child of a fork somebody of its
  // own; and who mends for them.
  Identity identity() {
    owner();
    return me_;
  }
  const Reaper& reaper() const { return recovery_; }
  // In the child of a fork, whose memory is a copy: mends what other threads of the parent were in
  // the midst of. Writing does so by itself.
  void mend_after_fork() {
    if (writable() && ring_.segment->file() == nullptr) owner();
  }

  // The rate limiter, which add() and sample() leave to the caller: where it is active, a call has
  // its share before it begins.
  Limiter& limiter() { return limiter_; }
  const Limiter& limiter() const { return limiter_; }
  // Takes the share if it is to be had at once.
  bool try_take(Want want, std::size_t n) {
    if (want == Want::kAdd && writable()) owner();  // who announces it
    return limiter_.try_take(want, n);
  }
  // For a call that could not have its share at once.
  Wait wait_for(Want want, std::size_t n);
  // For calls that wait elsewhere: see Limiter. REQUIRES: the handle may write.
  void count_waits(Want want, int more) { limiter_.count_waits(owner(), want, more); }
  // Takes the share, however long that takes.
  Share take_share(Want want, std::size_t n);

  // Adds n rows; see Writer::append.
  void add(std::size_t n, const std::byte* const* columns, const float* raws, std::int64_t* ids);
  // The same if it takes no time to speak of. False, with nothing done, when another thread is
  // adding or values have to be packed.
  bool try_add(std::size_t n, const std::byte* const* columns, const float* raws,
               std::int64_t* ids);

  // Fills a batch drawn by the buffer's strategy, weights with exponent beta. Throws
  // kNotEnoughRows when there is nothing to draw from.
  void sample(const Batch& batch, float beta);

  // The same in two steps, with the caller's work in between. A draw that is begun and not finished
  // leaves no trace. REQUIRES: finish() with a batch of as many rows.
  void begin(Draw& draw);
  void finish(Draw& draw, const Batch& batch, float beta);

  // A batch of what a view makes of the rows drawn. Throws kNotEnoughRows when no row is a start.
  void begin(Draw& draw, const View& view);
  void finish(Draw& draw, const View& view, const ViewBatch& batch, float beta);
  // What a view makes of these rows. Returns how many of them are no start, or gone; `not_made`
  // gets 1 for those, and their places in the batch hold nothing of use. Goals are chosen by the
  // number of the `call`.
  std::size_t make(const View& view, std::span<const std::int64_t> ids, const ViewBatch& batch,
                   std::uint8_t* not_made, std::uint64_t call) const;
  // All rows that are a start for a view now, by slot.
  std::vector<Place> starts(const View& view, std::size_t time) const;

  // Sets raw priorities; see Priorities. REQUIRES: the ring has priorities.
  UpdateResult update(std::span<const std::int64_t> ids, std::span<const float> raws);
  void set_alpha(float alpha);
  // The raw priority of a row by id; 0 of a last observation, which nobody draws; NaN when the row
  // is gone. REQUIRES: the ring has priorities.
  float raw_of(std::int64_t id) const;

  // Copies rows by id, `step` bytes apart as in a Batch. Returns how many of them are gone; `gone`,
  // when not null, gets 1 for those, and their places in the columns hold nothing of use.
  std::size_t get(std::span<const std::int64_t> ids, std::byte* const* columns, std::uint8_t* gone,
                  std::size_t step = 0) const;

  // Ids of the newest n committed rows (fewer when there are fewer), oldest first.
  std::size_t latest(std::size_t n, std::int64_t* ids) const;

  std::size_t size() const { return ring_.blocks.live_rows(); }
  std::size_t capacity() const { return ring_.settings().capacity; }
  // Whether rows that are added now take the room of others. Where values vary in size that may be
  // so with fewer rows than the capacity.
  bool is_full() const {
    return size() == capacity() ||
           (ring_.rows.has_arenas() && ring_.blocks.used_slots() == capacity());
  }

  // Forgets all rows and priorities; ids go on growing. Rows added meanwhile may go or stay.
  void clear();

  // Seals the block of add(); the next add() claims another.
  void release();
  // Blocks in which this handle has room left, for a checkpoint: the one that is taken up next
  // comes last.
  std::vector<Room> room();
  // For a buffer made from a checkpoint: writers go on there.
  void resume(std::span<const Room> room);

  // Where writers of steps that are closed left room.
  Unfilled& unfilled() { return unfilled_; }

  // Draws so far, of everybody; through a handle for reading, its own as well, which nobody else
  // sees.
  std::uint64_t drawn() const {
    const std::uint64_t shared = ring_.counters().draws.load(std::memory_order_relaxed);
    return writable() ? shared : shared + own_draws_.load(std::memory_order_relaxed);
  }

  Stats stats() const;

  // The importance-weight exponent of the next batch: the config's, or where its schedule is.
  float beta() const;

  // Returns when what was written is on the disk. For files.
  void flush() const { ring_.segment->sync(); }

 private:
  void join();
  void rejoin();
  void leave();
  void recover_after_boot();
  bool closed_well() const;
  void close_file() const;
  void try_mend_changes();
  void check_writable() const;
  Owner& owner();
  std::atomic<std::uint64_t>& draws() { return writable() ? ring_.counters().draws : own_draws_; }
  std::uint64_t seed();
  void append(std::size_t n, const std::byte* const* columns, const float* raws, std::int64_t* ids,
              const Packed* packed);
  const Packed* packed(std::size_t n, const std::byte* const* columns) const;
  REPLAY_ALWAYS_INLINE void prefetch(std::span<const Pick> picks) const {
    if (fetched_) return;
    for (const Pick& pick : picks) ring_.rows.prefetch(pick.slot);
  }
  // Bytes of a row, as far as reading it goes: to unpack takes longer than to copy.
  std::size_t row_effort() const {
    return ring_.layout().row_bytes * (ring_.rows.has_arenas() ? 4 : 1);
  }
  // Calls f(from, end) for all parts of [0, n), on several threads where there is enough to read.
  template <class Function>
  static void share_out(std::size_t n, std::size_t bytes_each, const Function& f) {
    if (n * bytes_each < kParallelBytes) return f(std::size_t{0}, n);
    const std::size_t each = std::max<std::size_t>(1, kTaskBytes / bytes_each);
    os::parallel_try((n + each - 1) / each,
                     [&](std::size_t task) { f(task * each, std::min(n, (task + 1) * each)); });
  }
  void copy_rows(Random& random, std::span<Pick> picks, const Batch& batch);
  void copy_some(Random& random, std::span<Pick> picks, const Batch& batch, std::size_t at);
  void copy_one(Random& random, Pick& pick, const Batch& batch, std::size_t at);
  std::uint64_t wanted_word(const Pick& pick, std::uint64_t oldest) const;
  bool same_mass(const Pick& pick) const;
  bool try_copy(const Pick& pick, const Batch& batch, std::size_t at) const;
  bool cer() const { return ring_.settings().cer != 0; }
  void take_turn(Draw& draw);
  void count_turn(Draw& draw);
  void give_back(Draw& draw);
  void choose(Draw& draw, std::uint64_t turn);
  void read_ahead(std::uint64_t turn, std::size_t rows);
  bool pick_newest(Pick& pick) const;
  bool redraw(Random& random, Pick& pick, unsigned attempt, std::size_t at) const;
  void make_some(const View& view, std::span<const Pick> picks, const ViewBatch& batch,
                 std::size_t at, std::uint64_t salt, std::uint8_t* failed, Window& window) const;
  bool try_make(const View& view, const Pick& pick, const ViewBatch& batch, std::size_t at,
                std::uint64_t salt, Window& window) const;
  // What is at hand for the places of a batch that could not be filled at first.
  struct Spare {
    std::vector<Pick> picks;  // drawn, of which so many are used
    std::size_t used = 0;
    std::size_t wanted = 1;     // to be drawn next time
    std::uint64_t guesses = 0;  // that may still be made
    std::size_t work = 0;       // of those that were made, as in os/let_go.h
    std::vector<Pick> starts;   // all of them, where guessing did not lead to one
  };
  bool redraw(const View& view, Random& random, Pick& pick, Spare& spare);
  void make_one(const View& view, Random& random, Pick& pick, const ViewBatch& batch,
                std::size_t at, std::uint64_t salt, Spare& spare);
  void make_items(const View& view, Random& random, std::span<Pick> picks, const ViewBatch& batch);
  std::vector<Pick> weighed_starts(const View& view, std::size_t time);
  void drawn_batch(const Draw& draw, std::size_t rows);
  void weigh(Draw& draw, const std::int64_t* ids, float beta, float* weights) const;
  void weigh_with_newest(Draw& draw, const std::int64_t* ids, float beta, float* weights) const;
  double mass_of_weight_one(const Mass& mass, double least) const;

  Ring ring_;
  Owners owners_;
  Recovery recovery_;
  Limiter limiter_;
  std::unique_ptr<Sampler> sampler_;
  bool fetched_;  // by the sampler, before anybody else could
  // Of a handle for reading, which has a generator of its own: no two draw the same batches.
  std::atomic<std::uint64_t> own_draws_{0};
  std::atomic<std::uint64_t> own_seed_{0};
  std::atomic<std::uint64_t> own_seed_generation_;  // of forks: a child has another seed
  std::atomic<std::uint64_t> last_turn_{0};         // of the draws through this handle
  Unfilled unfilled_;
  os::SpinLock lock_;  // protects what follows
  Writer writer_;
  Identity me_;
  std::uint64_t generation_;  // of forks; another one means this is a child's copy
};

}  // namespace replay_buffer
