// The typed face of the buffer for C++ programs.
//
//   using Buffer = replay_buffer::ReplayBuffer<std::array<float, 8>, std::int64_t>;
//   Buffer buffer({.capacity = 1'000'000});
//   buffer.add({obs, action, reward, next_obs, done});
//   std::vector<Buffer::Row> batch = buffer.sample(32);
//
// Thread safety: every method may be called by any number of threads at once. Failures are thrown
// as replay_buffer::Error (error.h).
#pragma once

#include <array>
#include <cmath>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include "replay_buffer/config.h"
#include "replay_buffer/error.h"
#include "replay_buffer/schema.h"
#include "replay_buffer/store.h"

namespace replay_buffer {

// What a row holds. Observations and actions are numbers, std::arrays of them (nested too), or any
// trivially copyable struct.
template <typename Observation, typename Action>
struct Transition {
  Observation observation{};
  Action action{};
  float reward = 0;
  Observation next_observation{};
  bool done = false;
  // Raw priority. Given to add(): below 0 means "the largest so far". In a batch: the row's own,
  // NaN when the row was overwritten meanwhile.
  float priority = -1;
};

namespace detail {

// How a type is stored: a number as itself, an array as its elements, a struct as whole words of
// its alignment, so that it can be read in place.
template <typename T>
struct ElementOf {
  static constexpr bool kNumber = std::is_arithmetic_v<T>;
  static_assert(alignof(T) <= 8, "rows are aligned to 8 bytes");
  static constexpr std::size_t kWidth = kNumber ? sizeof(T) : alignof(T);

  static constexpr DType dtype() {
    if constexpr (std::is_same_v<T, bool>) {
      return DType::kBool;
    } else if constexpr (std::is_floating_point_v<T>) {
      return kWidth == 4 ? DType::kFloat32 : DType::kFloat64;
    } else {
      constexpr DType kSigned[] = {DType::kInt8, DType::kInt16, DType::kInt32, DType::kInt64};
      constexpr DType kUnsigned[] = {DType::kUInt8, DType::kUInt16, DType::kUInt32, DType::kUInt64};
      constexpr std::size_t kLog = kWidth == 1 ? 0 : kWidth == 2 ? 1 : kWidth == 4 ? 2 : 3;
      return std::is_signed_v<T> ? kSigned[kLog] : kUnsigned[kLog];
    }
  }
  static void shape(std::vector<std::uint64_t>& dims) {
    if constexpr (!kNumber) dims.push_back(sizeof(T) / kWidth);
  }
};

template <typename T, std::size_t N>
struct ElementOf<std::array<T, N>> {
  static constexpr DType dtype() { return ElementOf<T>::dtype(); }
  static void shape(std::vector<std::uint64_t>& dims) {
    dims.push_back(N);
    ElementOf<T>::shape(dims);
  }
};

template <typename T>
Column column_of(const char* name) {
  static_assert(std::is_trivially_copyable_v<T>, "rows are copied as bytes");
  Column column{name, ElementOf<T>::dtype(), {}, 0};
  ElementOf<T>::shape(column.shape);
  return column;
}

// A value where it is stored, or the copy of one that is not aligned there.
template <typename T>
const T& in_place(const void* at, T& copy) {
  if (reinterpret_cast<std::uintptr_t>(at) % alignof(T) == 0) return *static_cast<const T*>(at);
  std::memcpy(&copy, at, sizeof(T));
  return copy;
}

}  // namespace detail

// A ring of transitions, drawn as the config says.
template <typename Observation, typename Action>
class ReplayBuffer {
 public:
  using Row = Transition<Observation, Action>;

  explicit ReplayBuffer(const BufferConfig& config) : store_(config, schema()), config_(config) {}

  // Adds a transition, over the oldest one when the buffer is full. Returns its row id.
  std::int64_t add(const Row& row) {
    const void* columns[] = {&row.observation, &row.action, &row.reward, &row.next_observation,
                             &row.done};
    return store_.add(columns, weighted() && !(row.priority < 0) ? &row.priority : nullptr);
  }

  // Draws a batch.
  std::vector<Row> sample(std::size_t batch_size) {
    std::int64_t few[256];
    std::vector<std::int64_t> more(batch_size > std::size(few) ? batch_size : 0);
    return drawn(batch_size, more.empty() ? few : more.data(), nullptr, 0);
  }

  // Draws as many rows as `rows` has room for, and their ids. Allocates nothing. Throws
  // kInvalidArgument when there is no room or the lengths differ.
  void sample(std::span<Row> rows, std::span<std::int64_t> ids) { draw(rows, ids, nullptr, 0); }

  // Calls reader(observation, action, reward, next_observation, done) with references into the
  // ring: no copy is made. Returns false when the row was gone or was overwritten meanwhile; what
  // the reader saw is then worthless.
  template <typename Reader>
  bool visit(std::int64_t id, Reader&& reader) const {
    const void* at[5];
    if (!store_.begin_read(id, at)) return false;
    // Rows of a few odd sizes lie askew, and are copied after all.
    Row copy;
    reader(detail::in_place(at[0], copy.observation), detail::in_place(at[1], copy.action),
           detail::in_place(at[2], copy.reward), detail::in_place(at[3], copy.next_observation),
           detail::in_place(at[4], copy.done));
    return store_.end_read(id);
  }

  // The elements of a stored observation, in place, as visit() gives them. For arrays of numbers.
  template <typename Reader>
  bool visit_observation(std::int64_t id, Reader&& reader) const {
    return visit(id, [&](const Observation& observation, const auto&...) {
      reader(std::span(observation.data(), observation.size()));
    });
  }

  // Ids of the newest n rows, oldest first.
  std::vector<std::int64_t> latest(std::size_t n) const {
    std::vector<std::int64_t> ids(n < capacity() ? n : capacity());
    ids.resize(store_.latest(ids.size(), ids.data()));
    return ids;
  }

  std::size_t size() const { return store_.size(); }
  std::size_t capacity() const { return store_.capacity(); }
  bool is_full() const { return size() == capacity(); }
  void clear() { store_.clear(); }
  BufferConfig config() const {
    BufferConfig now = config_;
    now.alpha = store_.config().alpha;  // the one option that can change
    return now;
  }

 protected:
  explicit ReplayBuffer(Store store) : store_(std::move(store)), config_(store_.config()) {}

  bool weighted() const {
    return config_.strategy == SamplingStrategy::Prioritized ||
           config_.strategy == SamplingStrategy::Rank;
  }

  void draw(std::span<Row> rows, std::span<std::int64_t> ids, float* weights, float beta) {
    if (rows.empty() || ids.size() != rows.size()) {
      throw Error(ErrorCode::kInvalidArgument, "a batch has at least one row, and an id for each");
    }
    Row* first = rows.data();
    void* columns[] = {&first->observation, &first->action, &first->reward,
                       &first->next_observation, &first->done};
    store_.sample(rows.size(), columns, sizeof(Row), ids.data(), weights, beta);
    if (weighted()) store_.priorities(ids, &first->priority, sizeof(Row));
  }

  // A batch in a vector of its own. A small one is drawn on the stack and copied, which is faster
  // than to give every member a value that is then overwritten.
  std::vector<Row> drawn(std::size_t n, std::int64_t* ids, float* weights, float beta) {
    constexpr std::size_t kFew = 16 * 1024 / sizeof(Row);
    if constexpr (kFew > 0) {
      if (n > 0 && n <= kFew) {
        alignas(Row) std::byte memory[kFew * sizeof(Row)];
        Row* rows = reinterpret_cast<Row*>(memory);
        for (std::size_t i = 0; i < n; ++i) rows[i].priority = -1;
        draw({rows, n}, {ids, n}, weights, beta);
        return {rows, rows + n};
      }
    }
    std::vector<Row> rows(n);
    draw(rows, {ids, n}, weights, beta);
    return rows;
  }

  static Schema schema() {
    return {detail::column_of<Observation>("obs"), detail::column_of<Action>("action"),
            detail::column_of<float>("reward"), detail::column_of<Observation>("next_obs"),
            detail::column_of<bool>("done")};
  }

  Store store_;

 private:
  BufferConfig config_;
};

template <typename Observation, typename Action>
struct PrioritizedBatch {
  std::vector<Transition<Observation, Action>> transitions;
  std::vector<std::int64_t> indices;  // row ids, for update_priorities
  std::vector<float> weights;         // importance weights
};

// A ring of transitions drawn by priority. The config's strategy may be kPrioritized or kRank; any
// other becomes kPrioritized.
template <typename Observation, typename Action>
class PrioritizedReplayBuffer : public ReplayBuffer<Observation, Action> {
  using Base = ReplayBuffer<Observation, Action>;

 public:
  using typename Base::Row;

  explicit PrioritizedReplayBuffer(const BufferConfig& config) : Base(prioritized(config)) {}

  PrioritizedBatch<Observation, Action> sample(std::size_t batch_size) {
    return sample(batch_size, this->store_.beta());
  }
  PrioritizedBatch<Observation, Action> sample(std::size_t batch_size, float beta) {
    PrioritizedBatch<Observation, Action> batch;
    batch.indices.resize(batch_size);
    batch.weights.resize(batch_size);
    batch.transitions = this->drawn(batch_size, batch.indices.data(), batch.weights.data(), beta);
    return batch;
  }

  // Draws as many rows as `rows` has room for, their ids and their weights. Allocates nothing.
  // Throws kInvalidArgument when there is no room or the lengths differ.
  using Base::sample;  // the same without weights
  void sample(std::span<Row> rows, std::span<std::int64_t> ids, std::span<float> weights) {
    sample(rows, ids, weights, this->store_.beta());
  }
  void sample(std::span<Row> rows, std::span<std::int64_t> ids, std::span<float> weights,
              float beta) {
    if (weights.size() != rows.size()) {
      throw Error(ErrorCode::kInvalidArgument, "a batch has a weight for each row");
    }
    this->draw(rows, ids, weights.data(), beta);
  }

  // Sets raw priorities. All or nothing: throws kInvalidArgument, before any write, when a value is
  // NaN, infinite or negative, an id was never given to a row, or the lengths differ. Rows that
  // are gone are skipped. Returns how many were updated.
  std::size_t update_priorities(std::span<const std::int64_t> indices,
                                std::span<const float> priorities) {
    return this->store_.update_priorities(indices, priorities);
  }

 protected:
  explicit PrioritizedReplayBuffer(Store store) : Base(std::move(store)) {}

  static BufferConfig prioritized(BufferConfig config) {
    if (config.strategy != SamplingStrategy::Rank) config.strategy = SamplingStrategy::Prioritized;
    return config;
  }
};

}  // namespace replay_buffer
