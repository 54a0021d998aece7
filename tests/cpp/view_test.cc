// Views of steps: what follows from the numbers in the observations, in rings of every shape.
#include "core/view.h"

#include <gtest/gtest.h>

#include <map>
#include <ostream>
#include <set>

#include "core/verify.h"
#include "stepped.h"

namespace replay_buffer {
namespace {

using testing::Observation;
using testing::step_config;
using testing::step_schema;
using testing::Steps;
using testing::Transitions;

std::size_t varied(std::size_t stream, std::size_t episode) {
  return 1 + (stream * 7 + episode * 3) % 6;
}

ViewSpec n_step(std::uint32_t n) {
  ViewSpec spec;
  spec.steps = n;
  spec.gamma = 0.5;
  spec.reward = 1;
  spec.terminated = 2;
  spec.truncated = 3;
  return spec;
}

// A transition of up to n steps, from what its observations say and the lengths of episodes.
void check_transition(const Transitions& t, std::size_t i, std::uint32_t n) {
  const Observation& from = t.obs[i];
  const Observation& to = t.next[i];
  const auto k = static_cast<std::uint64_t>(t.count[i]);
  ASSERT_TRUE(from.whole() && to.whole());
  ASSERT_EQ(from.stream, to.stream);
  ASSERT_EQ(from.episode(), to.episode());
  ASSERT_EQ(from.step() + k, to.step());
  ASSERT_GE(k, 1u);
  ASSERT_LE(k, n);
  const std::size_t length = varied(from.stream % 1000, from.episode());
  ASSERT_LT(from.step(), length) << "a last observation is no start";
  const bool end = to.step() == length;
  ASSERT_EQ(t.terminated[i] != 0, end);
  double sum = 0;
  double factor = 1;
  for (std::uint64_t s = 0; s < k; ++s, factor *= 0.5) {
    sum += factor * static_cast<double>(from.step() + s + 1);
  }
  ASSERT_FLOAT_EQ(t.reward[i], static_cast<float>(sum));
  ASSERT_FLOAT_EQ(t.discount[i], end ? 0 : static_cast<float>(factor));
}

struct Ring {
  std::uint64_t capacity;
  std::uint64_t block_rows;
  std::size_t streams;
  Autoreset autoreset;
};

void PrintTo(const Ring& ring, std::ostream* out) {
  *out << ring.streams << " streams in " << ring.capacity << " rows, " << ring.block_rows
       << " a block, " << (ring.autoreset == Autoreset::NextStep ? "next step" : "same step");
}

class Rings : public ::testing::TestWithParam<Ring> {};

TEST_P(Rings, EveryStartIsOneTransitionOfItsOwnEpisode) {
  const auto [capacity, block_rows, streams, autoreset] = GetParam();
  for (const SamplingStrategy strategy :
       {SamplingStrategy::Uniform, SamplingStrategy::Prioritized}) {
    Buffer buffer(Segment::create({}, step_config(capacity, block_rows, strategy), step_schema()));
    Steps steps(buffer, 1, streams, autoreset, varied);
    const View view(buffer.ring(), n_step(3));
    for (std::size_t round = 0; round < 3 * capacity / streams; ++round) {
      steps.append();
      const std::vector<Place> starts = buffer.starts(view, 0);
      Transitions made(starts.size());
      std::vector<std::int64_t> ids;
      for (const Place& row : starts) ids.push_back(static_cast<std::int64_t>(row.id()));
      std::vector<std::uint8_t> not_made(starts.size());
      ASSERT_EQ(buffer.make(view, ids, made.batch, not_made.data(), 0), 0u);
      for (std::size_t i = 0; i < starts.size(); ++i) check_transition(made, i, 3);
    }
    ASSERT_TRUE(verify(buffer.ring(), buffer.owners()).empty());
    Transitions drawn(200);
    testing::sample(buffer, view, drawn.batch);
    for (std::size_t i = 0; i < 200; ++i) check_transition(drawn, i, 3);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, Rings,
    ::testing::Values(Ring{40, 1, 1, Autoreset::SameStep}, Ring{40, 8, 1, Autoreset::NextStep},
                      Ring{41, 8, 3, Autoreset::SameStep}, Ring{64, 5, 4, Autoreset::NextStep},
                      Ring{50, 3, 7, Autoreset::SameStep}, Ring{33, 16, 5, Autoreset::SameStep}));

// Rows that have a successor in the buffer are starts, and no others.
TEST(View, AStartNeedsASuccessor) {
  Buffer buffer(Segment::create({}, step_config(100, 8), step_schema()));
  Steps steps(buffer, 1, 2, Autoreset::SameStep,
              [](std::size_t, std::size_t) { return std::size_t{50}; });
  const View view(buffer.ring(), n_step(1));
  EXPECT_TRUE(buffer.starts(view, 0).empty());
  steps.append();
  EXPECT_TRUE(buffer.starts(view, 0).empty());
  Transitions drawn(1);
  EXPECT_THROW(testing::sample(buffer, view, drawn.batch), Error);
  steps.append();
  EXPECT_EQ(buffer.starts(view, 0).size(), 2u);
  steps.writer.end(0);
  steps.append();
  // Stream 0 was cut behind its second step; stream 1 goes on.
  EXPECT_EQ(buffer.starts(view, 0).size(), 3u);
}

TEST(View, AnEpisodeWhoseLastObservationIsMissingIsRefusedBeforeAnythingIsWritten) {
  Buffer buffer(Segment::create({}, step_config(100, 8), step_schema()));
  StepWriter writer(buffer, 2, Autoreset::SameStep, {true, false, false, false}, 1);
  const std::vector<std::byte> zeros(64);
  const std::byte* columns[] = {zeros.data(), zeros.data(), zeros.data(), zeros.data()};
  const std::uint8_t flags[] = {0, 1};
  const std::uint8_t none[] = {0, 0};
  EXPECT_THROW(writer.append({columns, nullptr, none, flags, nullptr, nullptr}), Error);
  EXPECT_EQ(buffer.size(), 0u);
}

TEST(View, WhatIsClearedIsNotWalkedInto) {
  Buffer buffer(Segment::create({}, step_config(64, 8), step_schema()));
  Steps steps(buffer, 1, 3, Autoreset::SameStep, varied);
  const View view(buffer.ring(), n_step(3));
  for (int i = 0; i < 7; ++i) steps.append();
  buffer.clear();
  EXPECT_TRUE(buffer.starts(view, 0).empty());
  for (int i = 0; i < 30; ++i) steps.append();
  const std::size_t n = buffer.starts(view, 0).size();
  ASSERT_GT(n, 20u);
  Transitions drawn(100);
  testing::sample(buffer, view, drawn.batch);
  for (std::size_t i = 0; i < 100; ++i) check_transition(drawn, i, 3);
}

TEST(View, ADamagedWordIsNoStart) {
  Buffer buffer(Segment::create({}, step_config(100, 10), step_schema()));
  Steps steps(buffer, 0, 1, Autoreset::SameStep,
              [](std::size_t, std::size_t) { return std::size_t{30}; });
  for (int i = 0; i < 60; ++i) steps.append();
  const auto damaged = ~std::uint64_t{0};
  for (std::size_t slot = 0; slot < 50; ++slot) buffer.ring().rows.word(slot).store(damaged);
  const View view(buffer.ring(), n_step(3));
  Transitions drawn(300);
  testing::sample(buffer, view, drawn.batch);
  for (const std::int64_t id : drawn.ids) {
    ASSERT_GE(id, 50);
    ASSERT_LT(id, 100);
  }
}

TEST(View, EpisodesAreCounted) {
  Buffer buffer(Segment::create({}, step_config(64, 8), step_schema()));
  Steps steps(buffer, 1, 1, Autoreset::NextStep,
              [](std::size_t, std::size_t) { return std::size_t{4}; });
  for (int i = 0; i < 15; ++i) steps.append();
  const Counters& counters = buffer.ring().counters();
  EXPECT_EQ(counters.episodes.load(), 3u);
  EXPECT_EQ(counters.episode_steps.load(), 12u);
  EXPECT_EQ(std::bit_cast<double>(counters.return_bits.load()), 30.0);
}

}  // namespace
}  // namespace replay_buffer
