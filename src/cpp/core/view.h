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

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/random.h"
#include "core/streams.h"

namespace replay_buffer {

enum class GoalStrategy : std::uint32_t { kNone = 0, kFuture = 1, kFinal = 2, kEpisode = 3 };

struct ViewSpec {
  std::uint32_t stack = 1;  // frames in an observation, padded with the first of the episode
  bool sequence = false;

  // Transitions: up to `steps` of them, until the episode ends or nothing more is written.
  std::uint32_t steps = 1;
  double gamma = 1;

  // Sequences: `length` steps from the start on, and `burn_in` before it. What is not there is
  // padding, or without `pad` makes the start invalid. Starts are the steps whose number in their
  // episode is a multiple of `period`. Without `cross` a sequence ends with its episode.
  std::uint32_t length = 0;
  std::uint32_t burn_in = 0;
  std::uint32_t period = 1;
  bool pad = true;
  bool cross = false;
  // Whole episodes: from the first step to the end, which is there; `length` does not count.
  bool whole = false;

  // Hindsight: in a share goal_k / (goal_k + 1) of the items a goal is chosen among the states that
  // were reached in the same episode.
  GoalStrategy goal = GoalStrategy::kNone;
  double goal_k = 0;

  // Columns that have a meaning; -1: there is none.
  int reward = -1;
  int terminated = -1;  // or `done`; where rows are transitions
  int truncated = -1;
};

// What one array of a batch holds. [t] is one cell for each step of the item, [n] for each of the
// up to n steps of a transition; [s] is a cell for each frame of a stack.
enum class Role : std::uint32_t {
  kStart = 0,       // column of the start: [s] where `stacked`
  kNext = 1,        // column of the row after the last step: [s] where `stacked`
  kLast = 2,        // column of the last step
  kReturn = 3,      // discounted sum of the rewards, as the reward's dtype
  kCount = 4,       // int32: steps taken
  kDiscount = 5,    // float32: gamma^k, 0 where terminated
  kPath = 6,        // column of the rows after each step: [n]; zero beyond the last
  kGoal = 7,        // column of the row chosen as the goal, else of the row after the last step
  kRelabelled = 8,  // uint8: a goal was chosen
  kStep = 9,        // column of each step: [t], or [t][s]; zero where there is none
  kStepNext = 10,   // column of the row after each step: [t], or [t][s]
  kMask = 11,       // uint8 [t]: there is a step
  kFirst = 12,      // uint8 [t]: it is the first of its episode
  kNextMask = 13,   // uint8 [t]: there is a row after the step
  kIds = 14,        // int64 [t]: row ids, -1 where there is none
  kLength = 15,     // int32: steps of the item from the start on
};

struct Output {
  Role role;
  int column;     // -1 where the role has none
  bool stacked;   // a cell for each frame of the stack
  std::byte* to;  // place of the first item
};

// Where a batch of items goes.
struct ViewBatch {
  std::size_t rows = 0;
  std::size_t time = 0;  // steps there is room for in each item of a sequence
  std::span<const Output> outputs;
  std::int64_t* ids = nullptr;
  float* weights = nullptr;
};

// The rows of one item, in the order of the stream. Reused from item to item.
struct Window {
  std::vector<Place> rows;
  std::vector<std::uint32_t> numbers;  // of these rows in their episodes
  std::vector<Place> others;           // rows on the way to the goal
  std::vector<std::int32_t> times;     // sequences: for each step of the item its row, -1: none
  std::size_t start = 0;               // the row that was drawn
  std::size_t count = 0;               // steps from the start on
  std::size_t after = 0;               // the row after the last of them
  std::size_t goal = 0;                // among `others`; or none
  bool relabelled = false;
  bool terminated = false;
};

class View {
 public:
  // The ring must outlive it. Throws kInvalidArgument.
  View(const Ring& ring, const ViewSpec& spec);

  const ViewSpec& spec() const { return spec_; }
  const Streams& streams() const { return streams_; }

  // Finds the rows of the item that starts at a row, in a sequence at most `time` steps (0: what
  // the spec says). False when no item starts there. `random` chooses the goal.
  bool resolve(const Place& start, std::size_t time, Random random, Window& window) const;

  // Copies the item to place `at` of a batch.
  void copy(const Window& window, const ViewBatch& batch, std::size_t at) const;

  // Whether all rows of the item were whole while they were read. To be asked after copy().
  bool whole(const Window& window) const;

  // Bytes that one item takes in a batch.
  std::size_t item_bytes(const ViewBatch& batch) const;
  // Brings rows into the cache that the item at a slot, itself in the cache, will need.
  void prefetch(std::uint64_t slot) const { streams_.prefetch_next(slot, ahead_); }

 private:
  bool ended(const Place& row, bool& terminated) const;
  bool resolve_transition(const Place& start, Window& window) const;
  bool resolve_sequence(const Place& start, std::size_t time, Window& window) const;
  void walk_back(const Place& start, std::size_t wanted, bool cross, Window& window) const;
  std::size_t walk_on(std::size_t wanted, Window& window) const;
  bool has_frames(const Window& window, std::size_t row) const;
  void choose_goal(Random random, Window& window) const;
  void push(const Place& row, Window& window) const {
    window.rows.push_back(row);
    if (numbered_) window.numbers.push_back(streams_.link(row).step);
  }
  void copy_cell(const Output& output, std::byte* to, const Place& row) const;
  std::byte* copy_frames(const Output& output, std::byte* to, const Window& window,
                         std::size_t row) const;
  void copy_return(const Output& output, const Window& window, std::size_t at) const;
  void copy_path(const Output& output, const Window& window, std::size_t at) const;
  void copy_steps(const Output& output, const ViewBatch& batch, const Window& window,
                  std::size_t at, std::size_t further) const;
  std::size_t cells(const Output& output) const { return output.stacked ? spec_.stack : 1; }
  static bool has_next(const Window& window, std::int32_t row);

  const Ring& ring_;
  Streams streams_;
  ViewSpec spec_;
  std::size_t ahead_;  // rows worth fetching before they are needed
  bool numbered_;      // the numbers of rows in their episodes are needed
};

}  // namespace replay_buffer
