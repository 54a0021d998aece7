// Buffers of steps: each observation is stored once, and batches are made of the steps when they
// are drawn.
//
//   StepBuffer<Observation, int> buffer({.capacity = 1'000'000});
//   auto writer = buffer.writer();
//   writer.append({.observation = obs, .action = action, .reward = reward});
//   auto batch = buffer.view(NStep{.n = 3}).sample(32);
//
// Thread safety: every method may be called by any number of threads at once. Failures are thrown
// as replay_buffer::Error.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "replay_buffer/config.h"
#include "replay_buffer/error.h"
#include "replay_buffer/row_buffer.h"
#include "replay_buffer/store.h"
#include "replay_buffer/store_writer.h"
#include "replay_buffer/transition.h"
#include "replay_buffer/view.h"

namespace replay_buffer {

// The observation an action was chosen on, the action, and what followed.
template <typename Observation, typename Action>
struct Step {
  Observation observation{};
  Action action{};
  float reward = 0;
  bool terminated = false;
  bool truncated = false;
  // Where a flag is set and the writer is Autoreset::SameStep: what the episode ended with.
  const Observation* final_observation = nullptr;
};

template <typename Observation, typename Action>
class StepBuffer : public RowBuffer {
 public:
  using Row = Step<Observation, Action>;

  // Writes the steps of one or several environments, which are streams. Closes itself.
  class Writer {
   public:
    // Writes one step of each stream. Returns their row ids. Waits where the rate limiter says so.
    // Throws kInvalidArgument, with nothing written, when there are not as many as streams, or an
    // episode ended whose last observation is missing.
    std::vector<std::size_t> append(std::span<const Row> steps) {
      const std::size_t n = steps.size();
      check(steps);
      const detail::GivenMany<Observation> observations(
          n, [&](std::size_t i) -> const Observation& { return steps[i].observation; });
      const detail::GivenMany<Action> actions(
          n, [&](std::size_t i) -> const Action& { return steps[i].action; });
      const detail::GivenMany<float> rewards(
          n, [&](std::size_t i) -> const float& { return steps[i].reward; });
      const detail::GivenMany<bool> terminated(
          n, [&](std::size_t i) -> const bool& { return steps[i].terminated; });
      const detail::GivenMany<bool> truncated(
          n, [&](std::size_t i) -> const bool& { return steps[i].truncated; });
      // Those of streams that go on are ignored.
      const detail::GivenMany<Observation> finals(n, [&](std::size_t i) -> const Observation& {
        return steps[i].final_observation != nullptr ? *steps[i].final_observation
                                                     : steps[i].observation;
      });
      const std::byte* columns[] = {observations.at(), actions.at(), rewards.at(), terminated.at(),
                                    truncated.at()};
      const std::byte* last[] = {finals.at(), nullptr, nullptr, nullptr, nullptr};
      std::vector<std::int64_t> ids(n);
      StepBatch batch;
      batch.columns = columns;
      batch.finals = last;
      batch.terminated = reinterpret_cast<const std::uint8_t*>(terminated.at());
      batch.truncated = reinterpret_cast<const std::uint8_t*>(truncated.at());
      batch.ids = ids.data();
      writer_.append(batch);
      return {ids.begin(), ids.end()};
    }
    // The same of a writer of one stream.
    std::size_t append(const Row& step) { return append({&step, 1})[0]; }

    std::size_t streams() const { return writer_.streams(); }
    // Cuts the episode of a stream, as when its environment is abandoned. Throws kInvalidArgument.
    void end(std::size_t stream = 0) { writer_.end(stream); }
    // Cuts all episodes and gives back the memory that was taken ahead. The writer can go on.
    void close() { writer_.close(); }

   private:
    friend class StepBuffer;
    Writer(Store& store, std::size_t streams, Autoreset autoreset)
        : writer_(store, streams, autoreset, {true}, kReward), autoreset_(autoreset) {}

    void check(std::span<const Row> steps) const {
      if (steps.size() != writer_.streams()) {
        throw Error(ErrorCode::kInvalidArgument,
                    "a writer of " + std::to_string(writer_.streams()) + " streams was given " +
                        std::to_string(steps.size()) + " steps");
      }
      for (std::size_t i = 0; i < steps.size() && autoreset_ == Autoreset::SameStep; ++i) {
        if (!(steps[i].terminated || steps[i].truncated)) continue;
        if (steps[i].final_observation != nullptr) continue;
        throw Error(ErrorCode::kInvalidArgument,
                    "the episode of stream " + std::to_string(i) +
                        " ended and final_observation is missing; nothing was written");
      }
    }

    StoreWriter writer_;
    Autoreset autoreset_;
  };

  // In the memory of this process.
  StepBuffer(const BufferConfig& config) : StepBuffer(Store(steps(config), schema())) {}
  // At a location, where other processes can open it; see shared.h.
  static StepBuffer create(const std::string& location, const BufferConfig& config,
                           bool overwrite = false) {
    return StepBuffer(Store::create(location, steps(config), schema(), overwrite));
  }
  static StepBuffer open_or_create(const std::string& location, const BufferConfig& config) {
    return StepBuffer(Store::open_or_create(location, steps(config), schema()));
  }
  static StepBuffer open(const std::string& location, bool readonly = false) {
    return StepBuffer(Store::open(location, schema(), Storage::Steps, readonly));
  }
  // From a checkpoint; see ReplayBuffer::restore.
  static StepBuffer restore(const std::string& path,
                            const std::string& location = "heap:", bool overwrite = false) {
    return StepBuffer(Store::restore(path, location, schema(), Storage::Steps, overwrite));
  }
  static void unlink(const std::string& location) { Store::unlink(location); }

  // The buffer must outlive writers and views; it may be moved. Throws kInvalidArgument.
  Writer writer(std::size_t streams = 1, Autoreset autoreset = Autoreset::SameStep) {
    return {store_, streams, autoreset};
  }
  NStepView<Observation, Action> view(const NStep& n_step) const {
    if (n_step.one_stream) {
      throw Error(ErrorCode::kInvalidArgument,
                  "one_stream is for transitions: steps know their streams");
    }
    ViewSpec spec = detail::spec_of(n_step);
    spec.reward = kReward;
    spec.terminated = kTerminated;
    spec.truncated = kTruncated;
    return {store_, spec, {Role::kNext, kObservation}};
  }
  SequenceView<Observation, Action> view(const Sequence& sequence) const {
    ViewSpec spec = detail::spec_of(sequence);
    spec.terminated = kTerminated;
    spec.truncated = kTruncated;
    return {store_, spec};
  }

 private:
  explicit StepBuffer(Store store) : RowBuffer(std::move(store)) {}

  static BufferConfig steps(BufferConfig config) {
    config.storage = Storage::Steps;
    return config;
  }

  // The columns, in their order.
  enum { kObservation, kAction, kReward, kTerminated, kTruncated };
  static Schema schema() {
    return {detail::column_of<Observation>("obs"), detail::column_of<Action>("action"),
            detail::column_of<float>("reward"), detail::column_of<bool>("terminated"),
            detail::column_of<bool>("truncated")};
  }
};

}  // namespace replay_buffer
