// Views while writers overwrite what they read: never a torn row, never another stream's.
#include <gtest/gtest.h>

#include <ostream>

#include "core/view.h"
#include "crowd.h"
#include "sanitized.h"
#include "stepped.h"

namespace replay_buffer {
namespace {

using testing::Countdown;
using testing::crowd;
using testing::Observation;
using testing::Part;
using testing::rounds;
using testing::step_config;
using testing::step_schema;
using testing::Steps;

std::size_t varied(std::size_t stream, std::size_t episode) {
  return 1 + (stream + episode * 5) % 9;
}

// Steps of a sequence follow one another; padding is zero.
void check_sequence(const Observation* steps, const std::uint8_t* mask, const std::uint8_t* first,
                    std::size_t time) {
  const Observation* last = nullptr;
  for (std::size_t t = 0; t < time; ++t) {
    if (mask[t] == 0) {
      ASSERT_EQ(steps[t].check, 0u);
      last = nullptr;
      continue;
    }
    ASSERT_TRUE(steps[t].whole());
    ASSERT_EQ(first[t] != 0, steps[t].step() == 0);
    if (last != nullptr) {
      ASSERT_EQ(steps[t].stream, last->stream);
      ASSERT_EQ(steps[t].episode(), last->episode());
      ASSERT_EQ(steps[t].step(), last->step() + 1);
    }
    last = &steps[t];
  }
}

TEST(ViewThreads, SequencesOfARingThatIsOverwritten) {
  constexpr std::size_t kBatch = 16;
  constexpr std::size_t kTime = 9;
  Buffer buffer(
      Segment::create({}, step_config(300, 16, SamplingStrategy::Prioritized), step_schema()));
  ViewSpec spec;
  spec.sequence = true;
  spec.length = 6;
  spec.burn_in = 3;
  spec.stack = 3;
  const View view(buffer.ring(), spec);
  Countdown writing(2);
  crowd(4, [&](std::size_t me) {
    if (me < 2) {
      const Part part(writing);
      Steps steps(buffer, me, 1 + me * 3, me == 0 ? Autoreset::SameStep : Autoreset::NextStep,
                  varied);
      for (std::size_t i = 0; i < rounds(20'000); ++i) steps.append();
      return;
    }
    std::vector<Observation> obs(kBatch * kTime);
    std::vector<Observation> frames(kBatch * kTime * 3);
    std::vector<std::uint8_t> mask(kBatch * kTime);
    std::vector<std::uint8_t> first(kBatch * kTime);
    std::vector<std::int64_t> ids(kBatch);
    const auto bytes = [](auto& values) { return reinterpret_cast<std::byte*>(values.data()); };
    const Output outputs[] = {{Role::kStep, 0, false, bytes(obs)},
                              {Role::kStep, 0, true, bytes(frames)},
                              {Role::kMask, -1, false, bytes(mask)},
                              {Role::kFirst, -1, false, bytes(first)}};
    ViewBatch batch;
    batch.rows = kBatch;
    batch.time = kTime;
    batch.outputs = outputs;
    batch.ids = ids.data();
    while (writing.running()) {
      try {
        testing::sample(buffer, view, batch);
      } catch (const Error&) {
        continue;  // nothing there yet
      }
      for (std::size_t i = 0; i < kBatch; ++i) {
        check_sequence(&obs[i * kTime], &mask[i * kTime], &first[i * kTime], kTime);
        for (std::size_t t = 0; t < kTime; ++t) {
          const Observation& now = obs[i * kTime + t];
          if (mask[i * kTime + t] == 0) continue;
          for (std::size_t f = 0; f < 3; ++f) {
            const Observation& frame = frames[(i * kTime + t) * 3 + f];
            ASSERT_TRUE(frame.whole());
            ASSERT_EQ(frame.episode(), now.episode());
            ASSERT_EQ(frame.stream, now.stream);
            ASSERT_EQ(frame.step(), now.step() - std::min<std::uint64_t>(now.step(), 2 - f));
          }
        }
      }
    }
  });
}

struct Small {
  std::uint64_t capacity;
  std::uint64_t block_rows;
  std::uint32_t steps;
};

void PrintTo(const Small& ring, std::ostream* out) {
  *out << ring.steps << " steps in " << ring.capacity << " rows, " << ring.block_rows << " a block";
}

class SmallRings : public ::testing::TestWithParam<Small> {};
INSTANTIATE_TEST_SUITE_P(ViewThreads, SmallRings,
                         ::testing::Values(Small{200, 8, 9}, Small{60, 4, 3}, Small{60, 4, 4},
                                           Small{40, 8, 2}));

TEST_P(SmallRings, StepsOfARingThatIsOverwritten) {
  constexpr std::size_t kBatch = 300;  // more than are looked at together
  const auto [capacity, block_rows, most] = GetParam();
  Buffer buffer(Segment::create({}, step_config(capacity, block_rows), step_schema()));
  ViewSpec spec;
  spec.steps = most;
  spec.reward = 1;
  const View view(buffer.ring(), spec);
  Countdown writing(2);
  crowd(4, [&](std::size_t me) {
    if (me < 2) {
      const Part part(writing);
      Steps steps(buffer, me, 2 + me, Autoreset::SameStep, varied);
      for (std::size_t i = 0; i < rounds(200'000); ++i) {
        steps.append();
        if (i % 1000 == 999) steps.writer.close();
      }
      return;
    }
    testing::Transitions drawn(kBatch);
    while (writing.running()) {
      try {
        testing::sample(buffer, view, drawn.batch);
      } catch (const Error&) {
        continue;
      }
      for (std::size_t i = 0; i < kBatch; ++i) {
        const auto k = static_cast<std::uint64_t>(drawn.count[i]);
        ASSERT_TRUE(drawn.obs[i].whole() && drawn.next[i].whole());
        ASSERT_EQ(drawn.obs[i].stream, drawn.next[i].stream);
        ASSERT_EQ(drawn.obs[i].episode(), drawn.next[i].episode());
        ASSERT_EQ(drawn.obs[i].step() + k, drawn.next[i].step());
        const std::uint64_t first = drawn.obs[i].step() + 1;
        ASSERT_EQ(drawn.reward[i], static_cast<float>(k * first + k * (k - 1) / 2));
      }
    }
  });
}

// One thread adds rows of three numbers and a flag that says no; two draw transitions of a view,
// and check(start, reward, count) each.
template <class NumbersOf, class Check>
void draw_at_the_cursor(const ViewSpec& spec, const NumbersOf& numbers_of, const Check& check) {
  constexpr std::size_t kBatch = 64;
  const Schema schema = {{"id", DType::kUInt64, {}},
                         {"reward", DType::kFloat64, {}},
                         {"done", DType::kBool, {}},
                         {"obs", DType::kUInt64, {}},
                         {"next_obs", DType::kUInt64, {}}};
  BufferConfig config;
  config.capacity = 24;
  config.block_rows = 8;
  Buffer buffer(Segment::create({}, config, schema));
  const View view(buffer.ring(), spec);
  Countdown writing(1);
  crowd(3, [&](std::size_t me) {
    if (me == 0) {
      const Part part(writing);
      const std::uint8_t done = 0;
      for (std::uint64_t id = 0; id < rounds(5'000'000); ++id) {
        const auto [reward, obs, next_obs] = numbers_of(id);
        const auto bytes = [](const auto& v) { return reinterpret_cast<const std::byte*>(&v); };
        const std::byte* columns[] = {bytes(id), bytes(reward), bytes(done), bytes(obs),
                                      bytes(next_obs)};
        buffer.add(1, columns, nullptr, nullptr);
      }
      return;
    }
    std::vector<std::uint64_t> id(kBatch);
    std::vector<double> reward(kBatch);
    std::vector<std::int32_t> count(kBatch);
    std::vector<std::int64_t> ids(kBatch);
    const auto bytes = [](auto& values) { return reinterpret_cast<std::byte*>(values.data()); };
    const Output outputs[] = {{Role::kStart, 0, false, bytes(id)},
                              {Role::kReturn, 1, false, bytes(reward)},
                              {Role::kCount, -1, false, bytes(count)}};
    ViewBatch batch;
    batch.rows = kBatch;
    batch.outputs = outputs;
    batch.ids = ids.data();
    while (writing.running()) {
      try {
        testing::sample(buffer, view, batch);
      } catch (const Error&) {
        continue;
      }
      for (std::size_t i = 0; i < kBatch; ++i) {
        check(id[i], reward[i], static_cast<std::uint64_t>(count[i]));
      }
    }
  });
}

struct Numbers {
  double reward;
  std::uint64_t obs;
  std::uint64_t next_obs;
};

ViewSpec three_steps() {
  ViewSpec spec;
  spec.steps = 3;
  spec.reward = 1;
  spec.terminated = 2;
  return spec;
}

// The newest rows of a small ring are those that are just being written: a row that is committed
// between two looks at it must not leave what was there before in a sum.
TEST(ViewThreads, ReturnsAtTheCursor) {
  const auto numbers = [](std::uint64_t id) {
    return Numbers{static_cast<double>(id * 37 % 101), 0, 0};
  };
  draw_at_the_cursor(three_steps(), numbers, [&](std::uint64_t id, double reward, auto count) {
    double sum = 0;
    for (std::uint64_t k = 0; k < count; ++k) sum += numbers(id + k).reward;
    ASSERT_EQ(reward, sum) << "of " << count << " steps from " << id;
  });
}

// Nor may it be taken for the one that follows because what was there before would have followed.
TEST(ViewThreads, TransitionsAtTheCursorGoOnWhereTheyFollow) {
  const auto numbers = [](std::uint64_t id) {
    // Two laps on is what there was one lap before.
    const auto obs = [](std::uint64_t at) { return at % 2 + 2 * (at / 24 % 3); };
    const std::uint64_t next = id % 3 == 0 ? obs(id + 1 + 48) : obs(id + 1);
    return Numbers{static_cast<double>(id * 37 % 101), obs(id), next};
  };
  const auto follows = [&](std::uint64_t id) {
    const Numbers from = numbers(id);
    return from.next_obs == numbers(id + 1).obs && from.next_obs != from.obs;
  };
  ViewSpec spec = three_steps();
  spec.follows = {{3, 4}};
  std::atomic<std::uint64_t> long_ones = 0;
  draw_at_the_cursor(spec, numbers, [&](std::uint64_t id, double reward, auto count) {
    double sum = 0;
    for (std::uint64_t k = 0; k < count; ++k) {
      sum += numbers(id + k).reward;
      ASSERT_TRUE(k + 1 == count || follows(id + k)) << k << " of " << count << " from " << id;
    }
    ASSERT_EQ(reward, sum);
    if (count == 3) long_ones.fetch_add(1, std::memory_order_relaxed);
  });
  EXPECT_GT(long_ones.load(), 0U);
}

}  // namespace
}  // namespace replay_buffer
