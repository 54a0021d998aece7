// Importance weights: (N P(i))^-beta, in the three scales, against the closed form.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "core/random.h"
#include "numbered.h"

namespace replay_buffer {
namespace {

using testing::config_of;
using testing::NumberedBuffer;

constexpr float kAlpha = 0.6F;
constexpr float kEpsilon = 1e-2F;

BufferConfig weighted(std::uint64_t capacity, WeightScale scale,
                      SamplingStrategy strategy = SamplingStrategy::Prioritized, bool cer = false) {
  BufferConfig config = config_of(capacity, strategy);
  config.alpha = kAlpha;
  config.epsilon = kEpsilon;
  config.weights = scale;
  config.cer = cer;
  return config;
}

std::vector<float> random_raws(std::size_t n) {
  Random random(1, 0);
  std::vector<float> raws(n);
  for (float& raw : raws) raw = static_cast<float>(std::exp(6 * random.unit()));
  return raws;
}

// P(i) of every row, by slot.
std::vector<double> probabilities(const std::vector<float>& raws, SamplingStrategy strategy) {
  std::vector<double> masses;
  for (float raw : raws) {
    double mass = static_cast<double>(raw) + static_cast<double>(kEpsilon);
    if (strategy == SamplingStrategy::Rank) {
      mass = 1 / static_cast<double>(
                     1 + std::count_if(raws.begin(), raws.end(), [&](float r) { return r > raw; }));
    }
    masses.push_back(std::pow(mass, static_cast<double>(kAlpha)));
  }
  double sum = 0;
  for (double mass : masses) sum += mass;
  for (double& mass : masses) mass /= sum;
  return masses;
}

void expect_closed_form(NumberedBuffer& b, const std::vector<float>& raws, WeightScale scale,
                        SamplingStrategy strategy, float beta) {
  std::vector<double> p = probabilities(raws, strategy);
  const auto n = static_cast<double>(raws.size());
  constexpr std::size_t kBatch = 40;
  // With the newest row, the last, in every batch: the share that a row has of the batch.
  const bool cer = b.buffer.ring().settings().cer != 0;
  for (double& share : p) share *= cer ? (kBatch - 1.0) / kBatch : 1;
  const double least = *std::min_element(p.begin(), p.end());
  if (cer) p.back() += 1.0 / kBatch;
  const auto weight = [&](double probability) {
    return std::pow(n * probability, -static_cast<double>(beta));
  };
  const auto drawn = b.sample(kBatch, beta);
  double unit = 1;
  if (scale == WeightScale::GlobalMax) unit = weight(least);
  if (scale == WeightScale::BatchMax) {
    unit = 0;
    for (std::int64_t id : drawn.ids)
      unit = std::max(unit, weight(p[static_cast<std::size_t>(id) % p.size()]));
  }
  for (std::size_t i = 0; i < drawn.ids.size(); ++i) {
    const double expected = weight(p[static_cast<std::size_t>(drawn.ids[i]) % p.size()]) / unit;
    ASSERT_NEAR(static_cast<double>(drawn.weights[i]), expected, 2e-6 * expected)
        << "beta " << beta;
    if (scale != WeightScale::None) {
      ASSERT_LE(drawn.weights[i], 1);
    }
  }
}

TEST(Weights, HaveTheClosedFormInEveryScale) {
  const std::vector<float> raws = random_raws(100);
  for (SamplingStrategy strategy : {SamplingStrategy::Prioritized, SamplingStrategy::Rank}) {
    for (WeightScale scale : {WeightScale::BatchMax, WeightScale::GlobalMax, WeightScale::None}) {
      NumberedBuffer b(weighted(100, scale, strategy));
      b.add(raws);
      for (float beta : {0.0F, 0.4F, 1.0F, 1.7F})
        expect_closed_form(b, raws, scale, strategy, beta);
    }
  }
}

TEST(Weights, CountTheRowsThatAreThereNotTheCapacity) {
  const std::vector<float> raws = random_raws(30);
  for (WeightScale scale : {WeightScale::GlobalMax, WeightScale::None}) {
    NumberedBuffer b(weighted(1000, scale));
    b.add(raws);
    expect_closed_form(b, raws, scale, SamplingStrategy::Prioritized, 0.7F);
  }
}

// The minimum recovers when the row that had it goes, and never counts rows that are gone.
TEST(Weights, TheGlobalMaximumFollowsUpdatesOverwritingAndClear) {
  NumberedBuffer b(weighted(4, WeightScale::GlobalMax));
  const auto check = [&](const std::vector<float>& raws) {
    expect_closed_form(b, raws, WeightScale::GlobalMax, SamplingStrategy::Prioritized, 0.5F);
  };
  b.add({1e-4F, 2, 3, 4});
  check({1e-4F, 2, 3, 4});
  b.update({0}, {9});
  check({9, 2, 3, 4});
  b.update({1}, {1e-5F});
  check({9, 1e-5F, 3, 4});
  b.add({5, 6});
  check({5, 6, 3, 4});
  b.buffer.clear();
  b.add({7, 8});
  expect_closed_form(b, {7, 8}, WeightScale::GlobalMax, SamplingStrategy::Prioritized, 0.5F);
}

TEST(Weights, AreOneForStrategiesWithoutPriorities) {
  for (SamplingStrategy strategy : {SamplingStrategy::Uniform, SamplingStrategy::WithoutReplacement,
                                    SamplingStrategy::Fifo, SamplingStrategy::Lifo}) {
    for (WeightScale scale : {WeightScale::BatchMax, WeightScale::GlobalMax, WeightScale::None}) {
      NumberedBuffer b(weighted(1000, scale, strategy));
      b.add(900);
      for (float weight : b.sample(8, 0.9F).weights) ASSERT_EQ(weight, 1);
      for (float weight : b.sample(500, 0.9F).weights) ASSERT_EQ(weight, 1);
    }
  }
}

TEST(Weights, TheNewestRowIsInEveryBatchWithTheWeightOfItsShare) {
  const std::vector<float> raws = random_raws(50);
  for (SamplingStrategy strategy :
       {SamplingStrategy::Prioritized, SamplingStrategy::Rank, SamplingStrategy::Uniform}) {
    for (WeightScale scale : {WeightScale::BatchMax, WeightScale::GlobalMax, WeightScale::None}) {
      NumberedBuffer b(weighted(50, scale, strategy, true));
      for (std::size_t i = 0; i < 50; ++i) {
        b.add(1, &raws[i]);
        ASSERT_EQ(b.ids(3).front(), static_cast<std::int64_t>(i));
      }
      for (int i = 0; i < 10 && strategy != SamplingStrategy::Uniform; ++i) {
        expect_closed_form(b, raws, scale, strategy, 0.8F);
      }
    }
  }
}

TEST(Weights, ANewestRowOfPriorityZeroHasAFiniteWeight) {
  BufferConfig config = weighted(10, WeightScale::BatchMax, SamplingStrategy::Prioritized, true);
  config.epsilon = 0;
  NumberedBuffer b(config);
  b.add({1, 2, 3, 0});
  const auto drawn = b.sample(5, 0.5F);
  EXPECT_EQ(drawn.ids[0], 3);
  for (float weight : drawn.weights) {
    EXPECT_TRUE(std::isfinite(weight));
    EXPECT_GT(weight, 0);
  }
}

}  // namespace
}  // namespace replay_buffer
