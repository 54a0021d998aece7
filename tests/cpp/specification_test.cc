// The C++ API of the specification, word for word, beside the library that has to have it.
#include <gtest/gtest.h>

#include <concepts>
#include <cstddef>
#include <string>
#include <vector>

#include "code_of.h"
#include "replay_buffer/buffer.h"

namespace specification {

using replay_buffer::SamplingStrategy;

// clang-format off
template<typename Observation, typename Action>
struct Transition {
    Observation observation;
    Action action;
    float reward;
    Observation next_observation;
    bool done;
    float priority;  // For prioritized replay
};

// Configuration
struct BufferConfig {
    size_t capacity;
    SamplingStrategy strategy;  // Uniform, Prioritized
    float alpha;  // Priority exponent
    float beta;   // IS weight exponent
    bool enable_compression;
};

// Main interface
template<typename Observation, typename Action>
class ReplayBuffer {
public:
    ReplayBuffer(const BufferConfig& config);
    
    // Add transition
    void add(const Transition<Observation, Action>& transition);
    
    // Sample batch
    std::vector<Transition<Observation, Action>> 
        sample(size_t batch_size);
    
    // Update priorities (for prioritized replay)
    void update_priorities(const std::vector<size_t>& indices, 
                          const std::vector<float>& priorities);
    
    // Query
    size_t size() const;
    size_t capacity() const;
    bool is_full() const;
};
// clang-format on

}  // namespace specification

namespace replay_buffer {
namespace {

using testing::code_of;

using Observation = std::vector<float>;
using Action = int;

template <class Config>
concept Configures = requires {
  Config{size_t{10}, SamplingStrategy::Uniform, 0.6F, 0.4F, false};
  Config{.capacity = size_t{10},
         .strategy = SamplingStrategy::Prioritized,
         .alpha = 0.6F,
         .beta = 0.4F,
         .enable_compression = false};
};

template <class Buffer, class Row, class Config>
concept Replays =
    requires(Buffer& buffer, const Buffer& seen, const Observation& observation,
             const std::vector<size_t>& indices, const std::vector<float>& priorities) {
      requires std::convertible_to<const Config&, Buffer>;
      buffer.add(Row{observation, Action{}, 1.0F, observation, false, 1.0F});
      { buffer.sample(size_t{32}) } -> std::same_as<std::vector<Row>>;
      buffer.update_priorities(indices, priorities);
      buffer.update_priorities({0, 1}, {0.5F, 2.0F});
      { seen.size() } -> std::same_as<size_t>;
      { seen.capacity() } -> std::same_as<size_t>;
      { seen.is_full() } -> std::same_as<bool>;
    };

// What is asked for is what the specification declares.
static_assert(Configures<specification::BufferConfig>);
static_assert(Replays<specification::ReplayBuffer<Observation, Action>,
                      specification::Transition<Observation, Action>, specification::BufferConfig>);

static_assert(Configures<BufferConfig>);
static_assert(
    Replays<ReplayBuffer<Observation, Action>, Transition<Observation, Action>, BufferConfig>);

TEST(Specification, APrioritizedBufferIsMadeFilledDrawnAndUpdated) {
  const BufferConfig config{1000, SamplingStrategy::Prioritized, 1.0F, 0.4F, false};
  ReplayBuffer<Observation, Action> buffer(config);
  for (int i = 0; i < 1500; ++i) {
    EXPECT_EQ(buffer.is_full(), i >= 1000);
    const auto x = static_cast<float>(i);
    buffer.add(Transition<Observation, Action>{{x, x}, i, x, {x + 1, x + 1}, false, 1.0F});
  }
  EXPECT_EQ(buffer.size(), 1000u);
  EXPECT_EQ(buffer.capacity(), 1000u);

  std::vector<size_t> indices = buffer.latest(1000);
  std::vector<float> priorities(1000, 0.0F);
  priorities[7] = 2.5F;  // of transition 507
  buffer.update_priorities(indices, priorities);
  const std::vector<Transition<Observation, Action>> batch = buffer.sample(32);
  ASSERT_EQ(batch.size(), 32u);
  int others = 0;
  for (const auto& transition : batch) others += transition.action != 507;
  EXPECT_LE(others, 1);  // all but what epsilon adds
}

TEST(Specification, IdsAndWeightsOfABatchComeFromTheSameClass) {
  for (const SamplingStrategy strategy :
       {SamplingStrategy::Uniform, SamplingStrategy::Prioritized, SamplingStrategy::Rank}) {
    ReplayBuffer<Observation, Action> buffer({.capacity = 100, .strategy = strategy, .beta = 1});
    for (int i = 0; i < 100; ++i) {
      buffer.add({.observation = {1.0F}, .action = i, .priority = static_cast<float>(1 + i % 4)});
    }
    const auto batch = buffer.sample_batch(400);
    ASSERT_EQ(batch.transitions.size(), 400u);
    ASSERT_EQ(batch.indices.size(), 400u);
    ASSERT_EQ(batch.weights.size(), 400u);
    float least = 1;
    for (std::size_t i = 0; i < 400; ++i) {
      EXPECT_EQ(static_cast<size_t>(batch.transitions[i].action), batch.indices[i]);
      least = std::min(least, batch.weights[i]);
    }
    EXPECT_EQ(least == 1, strategy == SamplingStrategy::Uniform);
    if (strategy == SamplingStrategy::Uniform) continue;
    EXPECT_EQ(buffer.update_priorities(batch.indices, batch.weights), 400u);
  }
}

TEST(Specification, PrioritiesOfAStrategyWithoutThemAreRefusedWithTheStrategiesThatHaveThem) {
  for (const SamplingStrategy strategy :
       {SamplingStrategy::Uniform, SamplingStrategy::WithoutReplacement, SamplingStrategy::Fifo,
        SamplingStrategy::Lifo}) {
    ReplayBuffer<Observation, Action> buffer(BufferConfig{10, strategy});
    buffer.add({.observation = {1, 2, 3}});
    try {
      buffer.update_priorities({0}, {1.0F});
      FAIL() << static_cast<int>(strategy);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
      EXPECT_NE(std::string(error.what()).find("SamplingStrategy::Prioritized"), std::string::npos)
          << error.what();
    }
  }
}

TEST(Specification, CompressionWorksOrIsRefusedWithWhatBringsIt) {
  const BufferConfig config{50, SamplingStrategy::Uniform, 0.6F, 0.4F, true};
  using Buffer = ReplayBuffer<std::vector<unsigned char>, Action>;
  if (code_of([&] { const Buffer buffer(config); }) == ErrorCode{}) {
    Buffer buffer(config);
    for (int i = 0; i < 70; ++i) {
      const std::vector<unsigned char> frame(7056, static_cast<unsigned char>(i));
      buffer.add({frame, i, 1.0F, frame, false});
    }
    for (const auto& transition : buffer.sample(32)) {
      const auto pixel = static_cast<unsigned char>(transition.action);
      EXPECT_EQ(transition.observation, std::vector<unsigned char>(7056, pixel));
    }
    EXPECT_LT(buffer.stats().bytes_kept * 10, buffer.stats().bytes_in);
    return;
  }
  try {
    const Buffer buffer(config);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    EXPECT_NE(std::string(error.what()).find("blosc2"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace replay_buffer
