// Views: what a batch is made of, derived from the rows of a stream when they are read.
//
// A view turns one drawn row, the start, into one item of a batch: a transition of up to n steps
// with its return and the observation to bootstrap from; or a run of steps with a mask. It only
// reads. Rows that an item needs and that are no longer there, or not there yet, end it or make the
// start one that cannot be drawn; a row of another stream or episode is never taken for one.
//
// Thread safety: all methods are const; any number of threads may use a view, each with a Window of
// its own.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "core/random.h"
#include "core/sampler.h"
#include "core/streams.h"
#include "replay_buffer/store_view.h"

namespace replay_buffer {

// Where a batch of items goes.
struct ViewBatch {
  std::size_t rows = 0;
  std::size_t time = 0;  // steps there is room for in each item of a sequence
  std::span<const Output> outputs;
  std::int64_t* ids = nullptr;
  float* weights = nullptr;
};

// Items on their way into a batch: the rows of each, in the order of the stream. Reused from one
// run of items to the next.
struct Window {
  // Rows are numbered in `rows`. Those of a sequence are found as stretches, and are in `rows` when
  // something needs them one by one; until then its rows are numbered from 0 on.
  struct Item {
    bool made = false;  // a start, so far; else nothing below counts
    bool relabelled = false;
    bool terminated = false;
    std::uint32_t first = 0;  // its rows: [first, end)
    std::uint32_t end = 0;
    std::uint32_t start = 0;    // the row that was drawn
    std::uint32_t count = 0;    // steps from the start on
    std::uint32_t after = 0;    // the row after the last of them
    std::uint32_t stretch = 0;  // its stretches: [stretch, stretch_end)
    std::uint32_t stretch_end = 0;
    std::uint32_t skipped = 0;  // steps of theirs that come before its time
    std::uint32_t lead = 0;     // steps of its time that are not there, before those that are
    std::uint32_t steps = 0;    // those that are
    std::uint32_t times = 0;    // its steps in `times`: as many as times_end says
    std::uint32_t times_end = 0;
    std::uint32_t others = 0;  // its rows in `others`
    std::uint32_t others_end = 0;
    std::uint32_t goal = 0;  // among `others`
  };
  // One row of each of many transitions.
  static constexpr std::size_t kLevel = Rows::kGather;
  struct Level {
    const std::byte* records[kLevel];
    std::uint64_t words[kLevel];
    std::uint64_t apart;  // a bit for each that may be in another block than the row before it
  };

  void clear() {
    items.clear();
    rows.clear();
    numbers.clear();
    stretches.clear();
    found = 0;
    times.clear();
    others.clear();
  }
  // One more cell of the array that is made: of a row, or none.
  void list(std::uint64_t slot);

  std::vector<Item> items;
  std::vector<Place> rows;
  std::vector<std::uint32_t> numbers;  // of the rows in their episodes
  std::vector<Stretch> stretches;
  std::size_t found = 0;                  // rows in them
  std::vector<std::int64_t> times;        // for each step of a sequence its row, -1: none
  std::vector<Place> others;              // rows on the way to a goal
  std::vector<Rows::Evenly> listed;       // the cells that an array is made of
  std::vector<const std::byte*> records;  // the same one by one, where they do not lie evenly
  std::vector<Level> levels;              // of transitions that are made together
};

class View {
 public:
  // More steps than this in one item would be a mistake.
  static constexpr std::uint32_t kMostSteps = 1U << 20;

  // The ring must outlive it. Throws kInvalidArgument.
  View(const Ring& ring, const ViewSpec& spec);

  const ViewSpec& spec() const { return spec_; }
  const Streams& streams() const { return streams_; }

  // Finds the rows of the item that starts at a row, in a sequence at most `time` steps (0: what
  // the spec says), and adds it to the window. False when no item starts there. `random` chooses
  // the goal.
  bool resolve(const Place& start, std::size_t time, Random random, Window& window) const;

  // Whether a window has as many rows as the cache next to the processor holds: time to copy them.
  bool ample(const Window& window) const;

  // Copies the items of the window to places of a batch from `at` on. For one that was not made it
  // copies something that means nothing.
  void copy(Window& window, const ViewBatch& batch, std::size_t at) const;

  // Whether all rows of an item were whole while they were read. To be asked after copy() and an
  // acquire fence.
  bool whole(const Window& window, const Window::Item& item) const;

  // The same for many at once, where nothing but few rows from the start on is needed: transitions
  // without stacks and goals. `failed` gets 1 for what could not be made or was not whole.
  bool plain() const { return plain_; }
  // Otherwise so many are made together, at the most.
  static constexpr std::size_t kRun = Streams::kMostApart;
  void make_plain(std::span<const Pick> picks, const ViewBatch& batch, std::size_t at,
                  Window& window, std::uint8_t* failed) const;

  // Whether few rows may be starts.
  bool selective() const {
    return spec_.sequence && (spec_.period > 1 || spec_.whole || !spec_.pad);
  }
  // Whether the number of a row in its episode allows an item to start there: known at a glance.
  bool may_start(std::uint64_t slot) const {
    if (!spec_.sequence) return true;
    const std::uint32_t number = ring_.rows.link(slot).step;
    if (!spec_.pad && !spec_.cross && number < spec_.burn_in) return false;
    return number % spec_.period == 0 && (!spec_.whole || number == 0);
  }
  // Whether an item could not be made because there are too few steps behind its start: then there
  // are too few behind each of them as well.
  bool ran_out(const Window::Item& item) const {
    return spec_.sequence && !spec_.pad && item.count > 0 && item.count < spec_.length;
  }

  // How many items are best made together, by one thread or by one of several.
  std::size_t together(const ViewBatch& batch, bool shared_out) const;
  // Bytes that one item takes in a batch.
  std::size_t item_bytes(const ViewBatch& batch) const;
  // Bring rows into the cache: of an item the row it starts with, and what is beside it for
  // certain; then what items need besides, of those whose rows lie apart all together, of one whose
  // rows lie side by side.
  REPLAY_ALWAYS_INLINE void prefetch(std::uint64_t slot) const {
    ring_.rows.prefetch(slot);
    if (!ring_.layout().has_steps())
      streams_.fetch_beside(slot, 0, std::min<std::size_t>(after_ - 1, 8));
  }
  void fetch(std::span<const std::uint64_t> slots) const;
  void fetch(std::uint64_t slot) const {
    if (may_start(slot) && streams_.side_by_side(slot)) {
      streams_.fetch_beside(slot, before_, after_);
    }
  }

 private:
  bool ended(const Place& row, bool& terminated) const;
  // The same of a transition, by its record.
  bool terminates(const std::byte* record) const { return flag(spec_.terminated, record); }
  bool ends_episode(const std::byte* record) const {
    return terminates(record) || flag(spec_.truncated, record);
  }
  bool flag(int column, const std::byte* record) const {
    if (column < 0) return false;
    const std::size_t offset = ring_.rows.offset_in_record(static_cast<std::size_t>(column));
    return load_shared<std::uint8_t>(record + offset) != 0;
  }
  // Whether a transition went on in another one, which its writer wrote next: what it led to is
  // what that one began with. Where nothing moved, the same observation is no proof.
  bool continues(const std::byte* record, const std::byte* next) const {
    if (spec_.follows.empty()) return true;
    bool moved = false;
    for (const ViewSpec::Follows& pair : spec_.follows) {
      const auto obs = static_cast<std::size_t>(pair.obs);
      const auto next_obs = static_cast<std::size_t>(pair.next_obs);
      if (!ring_.rows.equal(next_obs, record, obs, next)) return false;
      moved = moved || !ring_.rows.equal(next_obs, record, obs, record);
    }
    return moved;
  }
  void check_follows() const;
  bool find_rows(const Place& start, std::size_t time, Random random, Window& window,
                 Window::Item& item) const;
  bool find_transition(const Place& start, Window& window, Window::Item& item) const;
  void walk_back(const Place& start, Window& window, Window::Item& item) const;
  bool has_frames(const Window& window, const Window::Item& item, std::size_t row) const;
  void choose_goal(Random random, Window& window, Window::Item& item) const;
  void push(const Place& row, Window& window) const {
    window.rows.push_back(row);
    if (numbered_) window.numbers.push_back(streams_.link(row).step);
  }
  void list_rows(const Output& output, std::size_t time, Window& window) const;
  void list_frames(bool stacked, std::int64_t row, Window& window, const Window::Item& item) const;
  // The discounted sum of `count` rewards, of which cell(t) is that of step t, as its type.
  template <class T, class CellOf>
  void copy_return(std::size_t count, std::byte* to, const CellOf& cell) const {
    double total = 0;
    for (std::size_t t = 0; t < count && factors_[t] != 0; ++t) {  // nothing times inf is nothing
      total += factors_[t] * static_cast<double>(load_shared<T>(cell(t)));
    }
    const auto result = static_cast<T>(total);
    std::memcpy(to, &result, sizeof(T));
  }
  // Calls f with a number of the reward's type.
  template <class F>
  void with_reward_type(const F& f) const {
    const auto column = static_cast<std::size_t>(spec_.reward);
    ring_.layout().schema[column].dtype == DType::kFloat64 ? f(double{}) : f(float{});
  }
  void copy_returns(const Output& output, const Window& window, std::size_t at) const;
  void copy_numbers(const Output& output, const Window& window, std::size_t time,
                    std::size_t at) const;
  std::size_t cells(const Output& output, std::size_t time) const;

  // In view_sequence.cc.
  bool find_sequence(const Place& start, std::size_t time, Window& window,
                     Window::Item& item) const;
  std::size_t go_back(const Place& start, Window& window, Window::Item& item) const;
  std::size_t without_frames(const Window& window, const Window::Item& item) const;
  Place go_on(const Place& start, std::size_t wanted, Window& window, Window::Item& item) const;
  void list_steps(std::size_t time, Window& window) const;
  void copy_marks(const Output& output, const Window& window, std::size_t time,
                  std::size_t at) const;
  bool needs_rows(const ViewBatch& batch) const;
  void list_stretches(Window& window) const;

  // In view_plain.cc.
  struct Run;
  // How far the next row of the stream is. REQUIRES: rows are steps.
  static std::uint64_t ahead(const std::byte* record) {
    return load_shared<std::uint16_t>(record + sizeof(std::uint64_t) + offsetof(Link, ahead));
  }
  void begin(Run& run, std::span<const Pick> next, std::int64_t* ids) const;
  void put(Run& run, std::size_t t, std::size_t i, const Place& row) const;
  Place place_of(const Run& run, std::size_t t, std::size_t i) const;
  void turn(Run& run, std::size_t t, std::size_t i) const;
  std::uint64_t parted(const Run& run) const;
  void cross(Run& run, std::size_t t, std::uint64_t items) const;
  template <bool steps, bool start, class T>
  void look(Run& run, std::size_t reward) const;
  template <bool steps, bool start, class T>
  void look_at_last(Run& run, std::size_t reward) const;
  template <class T>
  void advance(Run& run, std::size_t reward) const;
  void copy_rows(const Run& run, const std::byte* const* records, Role role,
                 const ViewBatch& batch) const;
  template <class T>
  void copy_returns(const Run& run, const Output& output) const;
  void finish(Run& run, const ViewBatch& batch) const;
  void check(const Run& run, std::uint8_t* failed) const;

  const Ring& ring_;
  Streams streams_;
  ViewSpec spec_;
  std::size_t longest_;  // steps of a transition, at most: there are not more rows
  std::size_t before_;   // rows of an item before the start, and after it, worth fetching
  std::size_t after_;
  bool numbered_;  // the numbers of rows in their episodes are needed
  bool plain_;
  std::size_t returns_ = 0;         // numbers in a reward
  std::vector<std::byte> nothing_;  // the record of a row that is not there
  std::vector<float> discounts_;    // gamma^k for k up to `steps`
  std::vector<double> factors_;     // the same one after the other, for sums
};

}  // namespace replay_buffer
