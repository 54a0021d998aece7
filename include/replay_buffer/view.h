// What batches can be made of when they are drawn: transitions of several steps, sequences.
//
//   auto view = buffer.view(NStep{.n = 3, .gamma = 0.99});
//   auto batch = view.sample(32);
//   target[i] = batch.returns[i] + batch.discounts[i] * value(batch.next_observations[i]);
//
// Thread safety: every method may be called by any number of threads at once. Failures are thrown
// as replay_buffer::Error.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>
#include <vector>

#include "replay_buffer/batch.h"
#include "replay_buffer/store.h"
#include "replay_buffer/store_view.h"
#include "replay_buffer/transition.h"

namespace replay_buffer {

// Transitions of up to `n` steps: shorter where the episode ends, or nothing more is written yet.
struct NStep {
  std::uint32_t n = 1;
  double gamma = 0.99;
  // Of steps: frames in an observation, the oldest first, padded with the first of the episode.
  std::uint32_t stack = 1;
  // Of transitions: nothing is compared; all that a handle adds are transitions of one environment,
  // in their order. Else one goes on in the next that its handle added if its next observation is
  // the one there, and not its own.
  bool one_stream = false;
};

template <typename Observation, typename Action>
struct NStepBatch {
  std::vector<Observation> observations;       // of the first steps; `stack` frames of each
  std::vector<Action> actions;                 // of the first steps
  std::vector<float> returns;                  // discounted sums of the rewards of all steps
  std::vector<Observation> next_observations;  // after the last steps; `stack` frames of each
  std::vector<float> discounts;                // gamma^steps; 0 where the episode terminated
  std::vector<std::int32_t> steps;             // how many they are
  std::vector<std::size_t> indices;            // row ids of the first steps
  std::vector<float> weights;                  // importance weights; 1 without priorities
};

// Runs of burn_in + length steps of an episode. Where one is missing, because the episode began
// later or ended, or the step is overwritten or not written yet, there are zeros, and mask is 0.
struct Sequence {
  std::uint32_t length = 1;
  std::uint32_t burn_in = 0;
  std::uint32_t period = 1;  // starts are steps whose number in their episode is a multiple of it
  bool pad = true;           // or only starts that have all steps are drawn
  bool cross_episodes = false;  // they go on into the stream's next episode
  std::uint32_t stack = 1;      // frames in an observation
};

// Step t of sequence i is at [i * time + t].
template <typename Observation, typename Action>
struct SequenceBatch {
  std::size_t time = 0;                   // burn_in + length
  std::vector<Observation> observations;  // `stack` frames of each
  std::vector<Action> actions;
  std::vector<float> rewards;
  std::vector<std::uint8_t> terminated;
  std::vector<std::uint8_t> truncated;
  std::vector<std::uint8_t> mask;
  std::vector<std::uint8_t> is_first;  // of its episode
  std::vector<std::size_t> indices;    // row ids of the steps behind the burn-in
  std::vector<float> weights;
};

namespace detail {

inline ViewSpec spec_of(const NStep& n_step) {
  ViewSpec spec;
  spec.steps = n_step.n;
  spec.gamma = n_step.gamma;
  spec.stack = n_step.stack;
  return spec;
}

inline ViewSpec spec_of(const Sequence& sequence) {
  ViewSpec spec;
  spec.sequence = true;
  spec.length = sequence.length;
  spec.burn_in = sequence.burn_in;
  spec.period = sequence.period;
  spec.pad = sequence.pad;
  spec.cross = sequence.cross_episodes;
  spec.stack = sequence.stack;
  return spec;
}

// An array of a batch, as the core fills it.
template <typename T>
class Filled {
  static_assert(!std::is_same_v<T, bool>, "std::vector<bool> holds no bools");

 public:
  Filled(std::vector<T>& values, std::size_t n, std::size_t each = 1)
      : taken_(resized(values, n, each), sizeof(T)) {}
  Output as(Role role, int column = -1, bool stacked = false) {
    return {role, column, stacked, static_cast<std::byte*>(taken_.at())};
  }

 private:
  static T* resized(std::vector<T>& values, std::size_t n, std::size_t each) {
    make_room(values, n, each);
    return values.data();
  }

  Taken<T> taken_;
};

}  // namespace detail

template <typename Observation, typename Action>
class NStepView {
 public:
  using Batch = NStepBatch<Observation, Action>;
  // Where the observation after the last step is stored.
  struct Next {
    Role role;
    int column;
  };

  NStepView(const Store& store, const ViewSpec& spec, Next next)
      : view_(store, spec), stack_(spec.stack), reward_(spec.reward), next_(next) {}

  // Draws a batch, with weights of the config's beta. Throws kNotEnoughRows, kInvalidArgument for
  // no item or 2^31 of them, kOutOfSpace.
  Batch sample(std::size_t n) { return sample(n, view_.beta()); }
  Batch sample(std::size_t n, float beta) {
    detail::check_batch_size(n);
    Batch batch;
    detail::make_room(batch.indices, n);
    detail::make_room(batch.weights, n);
    detail::Filled observations(batch.observations, n, stack_);
    detail::Filled actions(batch.actions, n);
    detail::Filled returns(batch.returns, n);
    detail::Filled next_observations(batch.next_observations, n, stack_);
    detail::Filled discounts(batch.discounts, n);
    detail::Filled steps(batch.steps, n);
    const bool stacked = stack_ > 1;
    const Output outputs[] = {observations.as(Role::kStart, 0, stacked),
                              actions.as(Role::kStart, 1),
                              returns.as(Role::kReturn, reward_),
                              next_observations.as(next_.role, next_.column, stacked),
                              discounts.as(Role::kDiscount),
                              steps.as(Role::kCount)};
    view_.sample(n, 0, outputs, batch.indices.data(), batch.weights.data(), beta);
    return batch;
  }

 private:
  StoreView view_;
  std::size_t stack_;
  int reward_;
  Next next_;
};

template <typename Observation, typename Action>
class SequenceView {
 public:
  using Batch = SequenceBatch<Observation, Action>;

  SequenceView(const Store& store, const ViewSpec& spec)
      : view_(store, spec), time_(spec.burn_in + spec.length), stack_(spec.stack) {}

  Batch sample(std::size_t n) { return sample(n, view_.beta()); }
  Batch sample(std::size_t n, float beta) {
    detail::check_batch_size(n);
    Batch batch;
    batch.time = time_;
    detail::make_room(batch.indices, n);
    detail::make_room(batch.weights, n);
    detail::Filled observations(batch.observations, n, time_ * stack_);
    detail::Filled actions(batch.actions, n, time_);
    detail::Filled rewards(batch.rewards, n, time_);
    detail::Filled terminated(batch.terminated, n, time_);
    detail::Filled truncated(batch.truncated, n, time_);
    detail::Filled mask(batch.mask, n, time_);
    detail::Filled is_first(batch.is_first, n, time_);
    const Output outputs[] = {observations.as(Role::kStep, 0, stack_ > 1),
                              actions.as(Role::kStep, 1),
                              rewards.as(Role::kStep, 2),
                              terminated.as(Role::kStep, 3),
                              truncated.as(Role::kStep, 4),
                              mask.as(Role::kMask),
                              is_first.as(Role::kFirst)};
    view_.sample(n, time_, outputs, batch.indices.data(), batch.weights.data(), beta);
    return batch;
  }

 private:
  StoreView view_;
  std::size_t time_;
  std::size_t stack_;
};

}  // namespace replay_buffer
