// The typed face of the buffer for C++ programs.
//
//   using Buffer = replay_buffer::ReplayBuffer<std::array<float, 8>, std::int64_t>;
//   Buffer buffer({.capacity = 1'000'000, .strategy = SamplingStrategy::Prioritized});
//   buffer.add({obs, action, reward, next_obs, done});
//   Buffer::Batch batch = buffer.sample_batch(32);
//   buffer.update_priorities(batch.indices, priorities);
//
// Thread safety: every method may be called by any number of threads at once. Failures are thrown
// as replay_buffer::Error (error.h).
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "replay_buffer/batch.h"
#include "replay_buffer/config.h"
#include "replay_buffer/error.h"
#include "replay_buffer/row_buffer.h"
#include "replay_buffer/schema.h"
#include "replay_buffer/store.h"
#include "replay_buffer/transition.h"
#include "replay_buffer/view.h"

namespace replay_buffer {

// A ring of transitions, drawn as the config says.
template <typename Observation, typename Action>
class ReplayBuffer : public RowBuffer {
 public:
  using Row = Transition<Observation, Action>;

  struct Batch {
    std::vector<Row> transitions;
    std::vector<std::size_t> indices;  // row ids, for update_priorities
    std::vector<float> weights;        // importance weights; 1 where there are no priorities
  };

  // In the memory of this process; shared.h has those that processes share. Throws
  // kInvalidArgument.
  ReplayBuffer(const BufferConfig& config) : ReplayBuffer(Store(transitions(config), schema())) {}

  // Adds a transition, over the oldest one when the buffer is full. Returns its row id: ids are
  // given once and never again. Waits where the rate limiter says so, as sample() does.
  std::size_t add(const Row& row) {
    const detail::Given<Observation> observation(row.observation);
    const detail::Given<Action> action(row.action);
    const detail::Given<Observation> next_observation(row.next_observation);
    const void* columns[] = {observation.at(), action.at(), &row.reward, next_observation.at(),
                             &row.done};
    return store_.add(columns, weighted_ && !(row.priority < 0) ? &row.priority : nullptr);
  }

  // Draws a batch. Throws kNotEnoughRows when the buffer is empty, kInvalidArgument for no row or
  // 2^31 of them, kOutOfSpace.
  std::vector<Row> sample(std::size_t batch_size) {
    detail::check_batch_size(batch_size);
    std::size_t few[256];
    if (batch_size <= std::size(few)) [[likely]]
      return drawn(batch_size, few, nullptr, 0);
    std::vector<std::size_t> more;
    detail::make_room(more, batch_size);
    return drawn(batch_size, more.data(), nullptr, 0);
  }

  // The same with row ids and importance weights, by default with the config's beta.
  Batch sample_batch(std::size_t batch_size) { return sample_batch(batch_size, store_.beta()); }
  Batch sample_batch(std::size_t batch_size, float beta) {
    detail::check_batch_size(batch_size);
    Batch batch;
    detail::make_room(batch.indices, batch_size);
    detail::make_room(batch.weights, batch_size, 1, 1.0F);
    batch.transitions = drawn(batch_size, batch.indices.data(), batch.weights.data(), beta);
    return batch;
  }

  // Draws as many rows as `rows` has room for. Allocates nothing but memory for values of any
  // length. Throws kInvalidArgument when there is no room or the lengths differ.
  void sample(std::span<Row> rows, std::span<std::size_t> ids) { draw(rows, ids, nullptr, 0); }
  void sample(std::span<Row> rows, std::span<std::size_t> ids, std::span<float> weights) {
    sample(rows, ids, weights, store_.beta());
  }
  void sample(std::span<Row> rows, std::span<std::size_t> ids, std::span<float> weights,
              float beta) {
    if (weights.size() != rows.size()) {
      throw Error(ErrorCode::kInvalidArgument, "a batch has a weight for each row");
    }
    if (!weighted_) std::fill(weights.begin(), weights.end(), 1.0F);
    draw(rows, ids, weights.data(), beta);
  }

  // Rows by id. Throws kRowGone when one of them is gone.
  std::vector<Row> get(std::span<const std::size_t> ids) const {
    std::vector<Row> rows;
    detail::make_room(rows, ids.size());
    if (!rows.empty() && copy(rows, ids) > 0) {
      throw Error(ErrorCode::kRowGone, "a row was overwritten, cleared or never written");
    }
    return rows;
  }

  // Calls reader(observation, action, reward, next_observation, done) with references into the
  // ring: no copy is made, except of values of any length. Returns false when the row was gone or
  // was overwritten meanwhile; what the reader saw is then worthless.
  template <typename Reader>
  bool visit(std::size_t id, Reader&& reader) const {
    if constexpr (!kVaries) {
      const void* at[5];
      if (!store_.begin_read(id, at)) return false;
      // Rows of a few odd sizes lie askew, and are copied after all.
      if (detail::aligned<Observation>(at[0]) && detail::aligned<Action>(at[1]) &&
          detail::aligned<float>(at[2]) && detail::aligned<Observation>(at[3])) {
        reader(*static_cast<const Observation*>(at[0]), *static_cast<const Action*>(at[1]),
               *static_cast<const float*>(at[2]), *static_cast<const Observation*>(at[3]),
               *static_cast<const bool*>(at[4]));
        return store_.end_read(id);
      }
    }
    Row copied;
    if (copy({&copied, 1}, {&id, 1}) > 0) return false;
    const Row& row = copied;
    reader(row.observation, row.action, row.reward, row.next_observation, row.done);
    return store_.end_read(id);
  }

  // The elements of a stored observation, as visit() gives them. For arrays of numbers.
  template <typename Reader>
  bool visit_observation(std::size_t id, Reader&& reader) const {
    return visit(id, [&](const Observation& observation, const auto&...) {
      reader(std::span(observation.data(), observation.size()));
    });
  }

  // Batches of transitions of several steps; see view.h. The buffer must outlive it; it may be
  // moved. Throws kInvalidArgument.
  NStepView<Observation, Action> view(const NStep& n_step) const {
    ViewSpec spec = detail::spec_of(n_step);
    spec.reward = kReward;
    spec.terminated = kDone;
    if (n_step.n > 1 && !n_step.one_stream) spec.follows = {{kObservation, kNextObservation}};
    return {store_, spec, {Role::kLast, kNextObservation}};
  }

  // A new buffer, in the memory of this process, from a checkpoint: rows, ids, priorities, counters
  // and the generator go on where they were. Throws kNotFound, kCorrupt, kIncompatible, and
  // kSchemaMismatch when the rows are of other types.
  static ReplayBuffer restore(const std::string& path) {
    return ReplayBuffer(Store::restore(path, "heap:", schema(), Storage::Transitions, false));
  }

 protected:
  static constexpr bool kVaries = detail::kVaries<Observation> || detail::kVaries<Action>;

  explicit ReplayBuffer(Store store)
      : RowBuffer(std::move(store)), weighted_(weighted(store_.config())) {}

  static const BufferConfig& transitions(const BufferConfig& config) {
    if (config.storage == Storage::Transitions) return config;
    throw Error(ErrorCode::kInvalidArgument,
                "a ReplayBuffer holds transitions; a StepBuffer (steps.h) holds steps");
  }

  // The columns, in their order.
  enum { kObservation, kAction, kReward, kNextObservation, kDone };
  static Schema schema() {
    return {detail::column_of<Observation>("obs"), detail::column_of<Action>("action"),
            detail::column_of<float>("reward"), detail::column_of<Observation>("next_obs"),
            detail::column_of<bool>("done")};
  }

 private:
  // Calls f with where the columns of these rows are.
  template <typename F>
  static auto with_columns(std::span<Row> rows, const F& f) {
    Row* first = rows.data();
    detail::Taken<Observation> observations(&first->observation, sizeof(Row));
    detail::Taken<Action> actions(&first->action, sizeof(Row));
    detail::Taken<Observation> next_observations(&first->next_observation, sizeof(Row));
    void* const columns[] = {observations.at(), actions.at(), &first->reward,
                             next_observations.at(), &first->done};
    return f(columns);
  }

  void draw(std::span<Row> rows, std::span<std::size_t> ids, float* weights, float beta) {
    if (rows.empty() || ids.size() != rows.size()) {
      throw Error(ErrorCode::kInvalidArgument, "a batch has at least one row, and an id for each");
    }
    with_columns(rows, [&](void* const* columns) {
      store_.sample(rows.size(), columns, sizeof(Row), ids.data(), weighted_ ? weights : nullptr,
                    beta);
    });
    if (weighted_) store_.priorities(ids, &rows[0].priority, sizeof(Row));
  }

  std::size_t copy(std::span<Row> rows, std::span<const std::size_t> ids) const {
    const std::size_t gone = with_columns(
        rows, [&](void* const* columns) { return store_.get(ids, columns, sizeof(Row)); });
    if (weighted_ && gone == 0) store_.priorities(ids, &rows[0].priority, sizeof(Row));
    return gone;
  }

  // A batch in a vector of its own. A small one is drawn on the stack and copied, which is faster
  // than to give every member a value that is then overwritten.
  std::vector<Row> drawn(std::size_t n, std::size_t* ids, float* weights, float beta) {
    constexpr std::size_t kFew = 16 * 1024 / sizeof(Row);
    if constexpr (kFew > 0 && std::is_trivially_copyable_v<Row>) {
      if (n > 0 && n <= kFew) {
        alignas(Row) std::byte memory[kFew * sizeof(Row)];
        Row* rows = reinterpret_cast<Row*>(memory);
        for (std::size_t i = 0; i < n; ++i) rows[i].priority = -1;
        draw({rows, n}, {ids, n}, weights, beta);
        return {rows, rows + n};
      }
    }
    std::vector<Row> rows;
    detail::make_room(rows, n);
    draw(rows, {ids, n}, weights, beta);
    return rows;
  }

  bool weighted_;
};

}  // namespace replay_buffer
