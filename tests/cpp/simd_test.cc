// The tree's inner loops and the vectors they run on: that of this processor and the plain one.
#include "core/simd.h"

#include <gtest/gtest.h>

#include <atomic>
#include <bit>
#include <cmath>
#include <type_traits>
#include <vector>

#include "core/random.h"
#include "core/sixteen.h"
#include "segment/tree_shape.h"

namespace replay_buffer {
namespace {

#if (defined(__x86_64__) || defined(__aarch64__)) && !defined(__SANITIZE_THREAD__)
static_assert(!std::is_same_v<Four, PlainFour>, "x86-64 and arm64 have vectors");
#endif

// A node's children as leaves and as words, with any version in the upper half.
struct Node {
  alignas(64) std::atomic<float> leaves[kFanout];
  alignas(64) std::atomic<std::uint64_t> words[kFanout];

  void set(std::size_t i, float value, Random& random) {
    leaves[i].store(value);
    words[i].store((random.next() << 32) | std::bit_cast<std::uint32_t>(value));
  }
};

template <class Lanes>
class Simd : public ::testing::Test {
 protected:
  template <class Child>
  static void expect_scan(const Child (&children)[kFanout], const std::vector<double>& values) {
    double sum = 0;
    for (std::size_t i = 0; i < kFanout; ++i) {
      for (double target : {sum, sum + values[i] / 2}) {
        if (values[i] == 0) continue;
        const Found found = find16<Lanes>(children, static_cast<float>(target));
        ASSERT_EQ(found.child, i);
        ASSERT_EQ(static_cast<double>(found.before), sum);
      }
      sum += values[i];
    }
    ASSERT_EQ(static_cast<double>(sum16<Lanes>(children)), sum);
    const Found past = find16<Lanes>(children, static_cast<float>(sum));
    ASSERT_EQ(past.child, kFanout);
    ASSERT_EQ(static_cast<double>(past.before), sum);
  }
};
using BothFours = ::testing::Types<Four, PlainFour>;
TYPED_TEST_SUITE(Simd, BothFours, );

// Of whole numbers, whose sums are exact.
TYPED_TEST(Simd, InnerLoopsScanLeavesAndWords) {
  Node node;
  Random random(10, 0);
  for (int round = 0; round < 2000; ++round) {
    std::vector<double> values(kFanout);
    for (std::size_t i = 0; i < kFanout; ++i) {
      const auto value = static_cast<float>(random.below(3) * random.below(1000));
      values[i] = static_cast<double>(value);
      node.set(i, value, random);
    }
    this->expect_scan(node.leaves, values);
    this->expect_scan(node.words, values);
  }
}

template <class Child>
void expect_same_bits(const Child (&children)[kFanout], float target) {
  EXPECT_EQ(sum16<Four>(children), sum16<PlainFour>(children));
  const Found here = find16<Four>(children, target);
  const Found plain = find16<PlainFour>(children, target);
  EXPECT_EQ(here.child, plain.child) << target;
  EXPECT_EQ(here.before, plain.before) << target;
}

// So the same seed and content draw the same rows on every processor, however sums are rounded.
TEST(SimdOfThisProcessor, RoundsInnerLoopsLikeThePlainOne) {
  Node node;
  Random random(11, 0);
  for (int round = 0; round < 20'000; ++round) {
    const double spread = static_cast<double>(1 + random.below(60));
    for (std::size_t i = 0; i < kFanout; ++i) {
      const bool none = random.below(5) == 0;
      const double value = none ? 0 : std::exp2((random.unit() - 0.5) * spread);
      node.set(i, static_cast<float>(value), random);
    }
    const float total = sum16<PlainFour>(node.leaves);
    for (const double part : {0.0, random.unit(), random.unit(), 1.0, 2.0}) {
      const auto target = static_cast<float>(part * static_cast<double>(total));
      expect_same_bits(node.leaves, target);
      expect_same_bits(node.words, target);
    }
  }
}

TEST(SimdOfThisProcessor, FindsNothingAmongZerosAndNumbersThatAreNone) {
  Node node;
  Random random(12, 0);
  for (const float value : {0.0F, std::nanf("")}) {
    for (std::size_t i = 0; i < kFanout; ++i) node.set(i, value, random);
    EXPECT_EQ(find16<Four>(node.leaves, 0).child, kFanout);
    EXPECT_EQ(find16<PlainFour>(node.leaves, 0).child, kFanout);
  }
}

}  // namespace
}  // namespace replay_buffer
