// Steps and views through the public headers.
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cmath>
#include <set>
#include <string>
#include <vector>

#include "code_of.h"
#include "crowd.h"
#include "os_child.h"
#include "replay_buffer/shared.h"
#include "replay_buffer/steps.h"
#include "sanitized.h"

namespace replay_buffer {
namespace {

using os::testing::Child;
using os::testing::Directory;
using testing::code_of;
using testing::Countdown;
using testing::crowd;
using testing::Part;
using testing::rounds;

constexpr int kEpisode = 7;  // steps, of which the last one terminates or truncates in turn

// An observation that says its time; times go on over episodes, whose last observation has the
// number of the next one's first, and its sign.
template <class Observation>
Observation observe(int time, bool last = false) {
  const auto x = static_cast<typename Observation::value_type>(last ? -time : time);
  if constexpr (std::is_same_v<Observation, std::vector<float>>) {
    return Observation(static_cast<std::size_t>(time % 5 + 1), x);
  } else {
    Observation observation;
    observation.fill(x);
    return observation;
  }
}

struct Ends {
  bool terminated;
  bool truncated;
};
Ends ends(int time) {
  const bool end = time % kEpisode == kEpisode - 1;
  const bool truncates = time / kEpisode % 2 == 1;
  return {end && !truncates, end && truncates};
}

template <class Buffer>
void write(Buffer& buffer, int from, int to) {
  using Observation = decltype(typename Buffer::Row{}.observation);
  auto writer = buffer.writer();
  for (int t = from; t < to; ++t) {
    const Observation last = observe<Observation>(t + 1, true);
    const auto [terminated, truncated] = ends(t);
    writer.append({observe<Observation>(t), t, static_cast<float>(t), terminated, truncated,
                   terminated || truncated ? &last : nullptr});
  }
}

// What n steps from the one at `time` are, by hand.
template <class Batch>
void expect_n_steps(const Batch& batch, std::size_t i, int n, double gamma, int written) {
  using Observation = typename decltype(batch.observations)::value_type;
  const int time = batch.actions[i];
  EXPECT_EQ(batch.observations[i], observe<Observation>(time));
  double sum = 0;
  int k = 0;
  Ends end{};
  while (k < n && time + k < written && !end.terminated && !end.truncated) {
    sum += std::pow(gamma, k) * (time + k);
    end = ends(time + k++);
  }
  EXPECT_EQ(batch.steps[i], k);
  EXPECT_FLOAT_EQ(batch.returns[i], static_cast<float>(sum));
  EXPECT_FLOAT_EQ(batch.discounts[i], end.terminated ? 0 : static_cast<float>(std::pow(gamma, k)));
  EXPECT_EQ(batch.next_observations[i],
            observe<Observation>(time + k, end.terminated || end.truncated));
}

template <class Observation>
class StepBuffers : public ::testing::Test {};
using Observations =
    ::testing::Types<std::array<float, 6>, std::vector<float>, std::array<std::uint8_t, 2000>>;
TYPED_TEST_SUITE(StepBuffers, Observations);

TYPED_TEST(StepBuffers, GiveTransitionsOfNSteps) {
  for (const SamplingStrategy strategy :
       {SamplingStrategy::Uniform, SamplingStrategy::Prioritized, SamplingStrategy::Rank}) {
    StepBuffer<TypeParam, int> buffer({.capacity = 200, .strategy = strategy});
    write(buffer, 0, 100);
    auto view = buffer.view(NStep{.n = 3, .gamma = 0.5});
    const auto batch = view.sample(64);
    std::set<std::size_t> starts;
    for (std::size_t i = 0; i < 64; ++i) {
      // The last step of all has no successor: its writer was closed.
      ASSERT_LT(batch.actions[i], 99);
      expect_n_steps(batch, i, 3, 0.5, 99);
      starts.insert(batch.indices[i]);
    }
    EXPECT_GT(starts.size(), 20u);
    if (strategy == SamplingStrategy::Uniform) {
      EXPECT_EQ(batch.weights, std::vector<float>(64, 1));
      EXPECT_EQ(code_of([&] { buffer.update_priorities(batch.indices, batch.weights); }),
                ErrorCode::kInvalidArgument);
      continue;
    }
    EXPECT_EQ(buffer.update_priorities(batch.indices, std::vector<float>(64, 2.0F)), 64u);
  }
}

TYPED_TEST(StepBuffers, GiveSequences) {
  StepBuffer<TypeParam, int> buffer({.capacity = 300});
  write(buffer, 0, 100);
  const auto batch = buffer.view(Sequence{.length = 4, .burn_in = 2}).sample(50);
  ASSERT_EQ(batch.time, 6u);
  ASSERT_EQ(batch.observations.size(), 300u);
  for (std::size_t i = 0; i < 50; ++i) {
    const int start = batch.actions[i * 6 + 2];
    for (int t = 0; t < 6; ++t) {
      const std::size_t at = i * 6 + static_cast<std::size_t>(t);
      const int time = start + t - 2;
      const bool there = time >= 0 && time < 100 && time / kEpisode == start / kEpisode;
      ASSERT_EQ(batch.mask[at], there) << start << " " << t;
      if (!there) continue;
      EXPECT_EQ(batch.observations[at], observe<TypeParam>(time));
      EXPECT_EQ(batch.rewards[at], static_cast<float>(time));
      EXPECT_EQ(batch.is_first[at], time % kEpisode == 0);
      EXPECT_EQ(batch.terminated[at], ends(time).terminated);
      EXPECT_EQ(batch.truncated[at], ends(time).truncated);
    }
  }
}

TYPED_TEST(StepBuffers, AreSharedAndRestored) {
  using Buffer = StepBuffer<TypeParam, int>;
  const Directory directory;
  for (const std::string& location :
       {"shm:test.steps." + std::to_string(::getpid()), "file:" + directory / "buffer"}) {
    const Buffer buffer = Buffer::create(location, {.capacity = 200});
    Child child([&] {
      Buffer other = Buffer::open(location);
      write(other, 0, 50);
      return 0;
    });
    ASSERT_EQ(child.join(), 0);
    const Buffer reader = Buffer::open(location, true);
    const auto batch = reader.view(NStep{.n = 2}).sample(32);
    for (std::size_t i = 0; i < 32; ++i) expect_n_steps(batch, i, 2, 0.99, 49);
    const std::string path = directory / location.substr(0, 3);
    EXPECT_EQ(buffer.checkpoint(path).rows, buffer.size());
    const Buffer restored = Buffer::restore(path);
    const auto again = restored.view(NStep{.n = 2}).sample(32);
    for (std::size_t i = 0; i < 32; ++i) expect_n_steps(again, i, 2, 0.99, 49);
    // What is stored in another way is not opened.
    using Transitions = SharedCircularBuffer<TypeParam, int>;
    EXPECT_EQ(code_of([&] { Transitions::open(location); }), ErrorCode::kSchemaMismatch);
    EXPECT_EQ(code_of([&] { Transitions::restore(path, "heap:"); }), ErrorCode::kSchemaMismatch);
    Buffer::unlink(location);
  }
}

TEST(StepBuffer, StacksFramesWithinTheirEpisode) {
  using Frame = std::array<std::uint8_t, 2000>;
  const BufferConfig config{.capacity = 200, .enable_compression = true};
  StepBuffer<Frame, int> buffer({.capacity = 200});
  if (code_of([&] { buffer = config; }) != ErrorCode{}) {
    buffer = BufferConfig{.capacity = 200};  // built without blosc2
  }
  write(buffer, 0, 60);
  const auto batch = buffer.view(NStep{.n = 2, .stack = 3}).sample(32);
  ASSERT_EQ(batch.observations.size(), 96u);
  for (std::size_t i = 0; i < 32; ++i) {
    const int time = batch.actions[i];
    for (int back = 0; back < 3; ++back) {
      const int frame = std::max(time - back, time / kEpisode * kEpisode);
      EXPECT_EQ(batch.observations[i * 3 + static_cast<std::size_t>(2 - back)],
                observe<Frame>(frame));
    }
  }
}

TEST(StepBuffer, ManyStreamsAreWrittenAtOnce) {
  using Observation = std::vector<float>;
  StepBuffer<Observation, int> buffer({.capacity = 500});
  constexpr std::size_t kStreams = 5;
  auto writer = buffer.writer(kStreams);
  for (int t = 0; t < 40; ++t) {
    std::vector<Step<Observation, int>> steps(kStreams);
    const Observation last{-1};
    for (std::size_t s = 0; s < kStreams; ++s) {
      const int number = static_cast<int>(s) * 1000 + t;
      steps[s] = {Observation(s + 1, static_cast<float>(number)), number, 1.0F,
                  s == 2 && t % 10 == 9};
      if (steps[s].terminated) steps[s].final_observation = &last;
    }
    EXPECT_EQ(writer.append(steps).size(), kStreams);
  }
  EXPECT_EQ(buffer.size(), 40 * kStreams + 4);  // four last observations
  EXPECT_EQ(buffer.stats().episodes, 4u);
  EXPECT_EQ(buffer.stats().return_sum, 40);
  const auto batch = buffer.view(NStep{.n = 1}).sample(100);
  for (std::size_t i = 0; i < 100; ++i) {
    const int number = batch.actions[i];
    const auto stream = static_cast<std::size_t>(number / 1000);
    EXPECT_EQ(batch.observations[i], Observation(stream + 1, static_cast<float>(number)));
    if (batch.discounts[i] == 0) {
      EXPECT_EQ(batch.next_observations[i], Observation{-1});
    } else {
      EXPECT_EQ(batch.next_observations[i],
                Observation(stream + 1, static_cast<float>(number + 1)));
    }
  }
}

TEST(StepBuffer, TheLastObservationMayComeWithTheNextCall) {
  StepBuffer<float, int> buffer({.capacity = 100});
  auto writer = buffer.writer(1, Autoreset::NextStep);
  for (int t = 0; t < 12; ++t) {
    writer.append({.observation = static_cast<float>(t), .action = t, .terminated = t % 4 == 2});
  }
  const auto batch = buffer.view(NStep{.n = 4, .gamma = 1}).sample(60);
  for (std::size_t i = 0; i < 60; ++i) {
    const int time = batch.actions[i];
    EXPECT_NE(time % 4, 3) << "that was a last observation";
    EXPECT_EQ(batch.steps[i], 3 - time % 4);
    EXPECT_EQ(batch.next_observations[i], static_cast<float>(time / 4 * 4 + 3));
  }
}

TEST(StepBuffer, RefusesWhatCannotBe) {
  StepBuffer<float, int> buffer({.capacity = 100});
  EXPECT_EQ(code_of([&] { buffer.writer(0); }), ErrorCode::kInvalidArgument);
  auto writer = buffer.writer(2);
  std::vector<Step<float, int>> steps(2);
  EXPECT_EQ(code_of([&] { writer.append({steps.data(), 1}); }), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code_of([&] { writer.append(steps[0]); }), ErrorCode::kInvalidArgument);
  steps[1].truncated = true;
  EXPECT_EQ(code_of([&] { writer.append(steps); }), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code_of([&] { writer.end(2); }), ErrorCode::kInvalidArgument);
  EXPECT_EQ(buffer.size(), 0u);
  EXPECT_EQ(code_of([&] { buffer.view(NStep{}).sample(1); }), ErrorCode::kNotEnoughRows);
  EXPECT_EQ(code_of([&] { buffer.view(NStep{.n = 0}); }), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code_of([&] { buffer.view(Sequence{.length = 0}); }), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code_of([&] { buffer.view(NStep{}).sample(0); }), ErrorCode::kInvalidArgument);
  using Transitions = ReplayBuffer<float, int>;
  EXPECT_EQ(code_of([] { Transitions({.capacity = 9, .storage = Storage::Steps}); }),
            ErrorCode::kInvalidArgument);
  EXPECT_EQ(code_of([] { Transitions({.capacity = 9}).view(NStep{.stack = 2}); }),
            ErrorCode::kInvalidArgument);
  const Store store({.capacity = 9, .storage = Storage::Steps}, {{"obs", DType::kFloat32, {}}});
  EXPECT_EQ(code_of([&] { const_cast<Store&>(store).add(nullptr, nullptr); }),
            ErrorCode::kInvalidArgument);
}

TEST(StepBuffer, RefusesAnAutoresetThatIsNone) {
  StepBuffer<float, int> buffer({.capacity = 100});
  for (const std::uint32_t other : {2u, 9u, ~0u}) {
    EXPECT_EQ(code_of([&] { buffer.writer(1, static_cast<Autoreset>(other)); }),
              ErrorCode::kInvalidArgument);
  }
  EXPECT_EQ(buffer.writer(1, Autoreset::NextStep).streams(), 1u);
}

TEST(StepBuffer, RefusesOneStreamBecauseStepsKnowTheirStreams) {
  StepBuffer<float, int> buffer({.capacity = 100});
  EXPECT_EQ(code_of([&] { buffer.view(NStep{.n = 2, .one_stream = true}); }),
            ErrorCode::kInvalidArgument);
}

TEST(StepBuffer, RefusesBatchesOf2To31ItemsAndMore) {
  StepBuffer<float, int> buffer({.capacity = 100});
  auto n_steps = buffer.view(NStep{.n = 2});
  auto sequences = buffer.view(Sequence{.length = 3});
  for (const std::size_t n : {std::size_t{1} << 31, std::size_t{1} << 60, ~std::size_t{0}}) {
    EXPECT_EQ(code_of([&] { n_steps.sample(n); }), ErrorCode::kInvalidArgument) << n;
    EXPECT_EQ(code_of([&] { sequences.sample(n); }), ErrorCode::kInvalidArgument) << n;
    EXPECT_EQ(code_of([&] { sequences.sample(n, 0.5F); }), ErrorCode::kInvalidArgument) << n;
  }
}

TEST(StepBuffer, ABatchBeyondAllAddressesIsOutOfSpace) {
  StepBuffer<std::array<float, 1 << 22>, int> buffer({.capacity = 2});
  auto sequences = buffer.view(Sequence{.length = 1 << 20, .stack = 1024});  // of 2^54 bytes
  EXPECT_EQ(code_of([&] { sequences.sample(1 << 12); }), ErrorCode::kOutOfSpace);
}

TEST(StepBuffer, MovesFromUnderItsWritersAndViews) {
  StepBuffer<float, int> buffer({.capacity = 100});
  auto writer = buffer.writer();
  auto view = buffer.view(NStep{});
  const StepBuffer<float, int> moved = std::move(buffer);
  for (int t = 0; t < 5; ++t) writer.append({.observation = static_cast<float>(t), .action = t});
  EXPECT_EQ(moved.size(), 5u);
  EXPECT_EQ(view.sample(3).actions.size(), 3u);
}

TEST(StepBuffer, ALearnerSeesWholeItemsWhileWritersWrite) {
  StepBuffer<std::vector<float>, int> buffer(
      {.capacity = 300, .strategy = SamplingStrategy::Prioritized});
  write(buffer, 0, 50);
  Countdown writing(2);
  crowd(3, [&](std::size_t me) {
    if (me < 2) {
      const Part part(writing);
      write(buffer, 0, static_cast<int>(rounds(10'000)));
      return;
    }
    auto view = buffer.view(NStep{.n = 2, .gamma = 1});
    while (writing.running()) {
      const auto batch = view.sample(32);
      for (std::size_t i = 0; i < 32; ++i) {
        const int time = batch.actions[i];
        ASSERT_EQ(batch.observations[i], observe<std::vector<float>>(time));
        const bool last = batch.next_observations[i][0] < 0;
        ASSERT_EQ(batch.next_observations[i],
                  observe<std::vector<float>>(time + batch.steps[i], last));
      }
      buffer.update_priorities(batch.indices, batch.weights);
    }
  });
}

// -------------------------------------------------------------------------------- of transitions

TEST(NStepOfTransitions, GoOnWhereTheNextObservationIs) {
  using Observation = std::vector<float>;
  ReplayBuffer<Observation, int> buffer({.capacity = 100});
  for (int t = 0; t < 50; ++t) {
    buffer.add({observe<Observation>(t), t, static_cast<float>(t), observe<Observation>(t + 1),
                t % kEpisode == kEpisode - 1});
  }
  buffer.add({{1000}, 1000, 1, {1001}, false});  // of another environment
  const auto batch = buffer.view(NStep{.n = 3, .gamma = 0.5}).sample(100);
  for (std::size_t i = 0; i < 100; ++i) {
    const int time = batch.actions[i];
    if (time == 1000) {
      EXPECT_EQ(batch.steps[i], 1);
      continue;
    }
    const int k = std::min({3, kEpisode - time % kEpisode, 50 - time});
    EXPECT_EQ(batch.steps[i], k);
    EXPECT_EQ(batch.next_observations[i], observe<Observation>(time + k));
    const bool done = time % kEpisode + k == kEpisode;
    EXPECT_FLOAT_EQ(batch.discounts[i], done ? 0 : static_cast<float>(std::pow(0.5, k)));
  }
}

TEST(NStepOfTransitions, OfOneStreamNothingIsCompared) {
  ReplayBuffer<float, int> buffer({.capacity = 10, .strategy = SamplingStrategy::Prioritized});
  for (int t = 0; t < 10; ++t) buffer.add({0, t, 1, 0, false});
  const auto compared = buffer.view(NStep{.n = 2}).sample(20);
  const auto batch = buffer.view(NStep{.n = 2, .one_stream = true}).sample(20);
  EXPECT_EQ(compared.steps, std::vector<std::int32_t>(20, 1)) << "where nothing moved";
  for (std::size_t i = 0; i < 20; ++i) EXPECT_EQ(batch.steps[i], batch.actions[i] == 9 ? 1 : 2);
  EXPECT_EQ(buffer.update_priorities(batch.indices, batch.weights), 20u);
}

}  // namespace
}  // namespace replay_buffer
