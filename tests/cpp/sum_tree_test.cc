#include "replay_buffer/sum_tree.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "code_of.h"
#include "crowd.h"
#include "sanitized.h"

namespace replay_buffer {
namespace {

using testing::code_of;

TEST(SumTree, FindsTheLeafOfATarget) {
  SumTree tree(5);
  EXPECT_EQ(tree.leaves(), 5u);
  EXPECT_EQ(tree.total(), 0);
  EXPECT_EQ(tree.find(0), 5u) << "nothing is positive";
  tree.set(1, 2);
  tree.set(std::vector<std::size_t>{3, 4}, std::vector<float>{1, 4});
  EXPECT_EQ(tree.total(), 7);
  EXPECT_EQ(tree.get(3), 1);
  const std::size_t expected[] = {1, 1, 3, 4, 4, 4, 4};
  for (std::size_t i = 0; i < 7; ++i)
    EXPECT_EQ(tree.find(static_cast<double>(i)), expected[i]) << i;
  EXPECT_EQ(tree.find(7), 4u) << "past the end is the last positive leaf";
  tree.set(4, 0);
  EXPECT_EQ(tree.find(2.5), 3u);
}

TEST(SumTree, RefusesBadValuesBeforeAnyWrite) {
  EXPECT_EQ(code_of([] { SumTree(0); }), ErrorCode::kInvalidArgument);
  SumTree tree(3);
  tree.set(0, 1);
  const auto refused = [&](std::vector<std::size_t> leaves, std::vector<float> values) {
    const ErrorCode code = code_of([&] { tree.set(leaves, values); });
    EXPECT_EQ(tree.total(), 1);
    return code == ErrorCode::kInvalidArgument;
  };
  EXPECT_TRUE(refused({0, 3}, {5, 5}));
  EXPECT_TRUE(refused({0, 1}, {5, -1}));
  EXPECT_TRUE(refused({0, 1}, {5, std::numeric_limits<float>::quiet_NaN()}));
  EXPECT_TRUE(refused({0, 1}, {5, std::numeric_limits<float>::infinity()}));
  EXPECT_TRUE(refused({0, 1}, {5}));
  EXPECT_EQ(code_of([&] { tree.get(3); }), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code_of([&] { tree.set(3, 1); }), ErrorCode::kInvalidArgument);
}

TEST(SumTree, CanBeMoved) {
  SumTree a(3);
  a.set(2, 4);
  SumTree b(std::move(a));
  EXPECT_EQ(b.total(), 4);
  b = SumTree(7);
  EXPECT_EQ(b.leaves(), 7u);
}

TEST(SumTree, ThreadsLoseNothing) {
  constexpr std::size_t kLeaves = 1000;
  SumTree tree(kLeaves);
  testing::crowd(4, [&](std::size_t me) {
    for (std::size_t i = 0; i < testing::rounds(200'000); ++i) {
      tree.set((i * 7 + me) % kLeaves, static_cast<float>(i % 100));
    }
  });
  double sum = 0;
  for (std::size_t i = 0; i < kLeaves; ++i) sum += static_cast<double>(tree.get(i));
  EXPECT_EQ(tree.total(), sum) << "whole numbers add up exactly";
}

}  // namespace
}  // namespace replay_buffer
