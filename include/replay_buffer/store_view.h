// Views of a store: batches of what is made of rows when they are drawn. Untyped; view.h has the
// typed faces.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace replay_buffer {

class Buffer;
class Store;
class View;

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
  // Whole episodes: from the first step to the end, which is there; those of more than `length`
  // steps, unless that is 0, are none.
  bool whole = false;

  // Hindsight: in a share goal_k / (goal_k + 1) of the items a goal is chosen among the states that
  // were reached in the same episode.
  GoalStrategy goal = GoalStrategy::kNone;
  double goal_k = 0;

  // Columns that have a meaning; -1: there is none.
  int reward = -1;
  int terminated = -1;  // or `done`; where rows are transitions
  int truncated = -1;

  // Where rows are transitions: columns whose values show which row goes on in the next one of its
  // writer. With none of them every row does, unless it ended its episode.
  struct Follows {
    int obs;
    int next_obs;
  };
  std::vector<Follows> follows;
};

// What one array of a batch holds. [t] is one cell for each step of the item, [n] for each of the
// up to n steps of a transition and the row after them; [s] is a cell for each frame of a stack.
enum class Role : std::uint32_t {
  kStart = 0,       // column of the start: [s] where `stacked`
  kNext = 1,        // column of the row after the last step: [s] where `stacked`
  kLast = 2,        // column of the last step
  kReturn = 3,      // discounted sum of the rewards, as the reward's dtype
  kCount = 4,       // int32: steps taken
  kDiscount = 5,    // float32: gamma^k, 0 where terminated
  kRows = 6,        // column of all rows: [n], or [n][s]; zero beyond the last
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

// Thread safety: every method may be called by any number of threads at once.
class StoreView {
 public:
  // The store must outlive it; it may be moved. Throws kInvalidArgument for a spec that makes no
  // sense or does not fit the columns.
  StoreView(const Store& store, const ViewSpec& spec);
  ~StoreView();
  StoreView(StoreView&& other) noexcept;
  StoreView& operator=(StoreView&& other) noexcept;

  // See Store::beta.
  float beta() const;

  // Draws n items. Cells of an output lie one after the other from `to` on; those of a column whose
  // length varies go to Pieces. `weights` may be null, and are 1 where there are no priorities.
  // `time` is how many steps of a sequence there is room for. Throws kNotEnoughRows when no row is
  // a start, kInvalidArgument for no item or 2^31 of them, kOutOfSpace.
  void sample(std::size_t n, std::size_t time, std::span<const Output> outputs, std::size_t* ids,
              float* weights, float beta);

 private:
  Buffer* buffer_;
  std::unique_ptr<View> view_;
};

}  // namespace replay_buffer
