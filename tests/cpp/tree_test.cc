#include "core/tree.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <memory>
#include <vector>

#include "chi_square.h"
#include "core/random.h"
#include "core/sixteen.h"
#include "crowd.h"
#include "os/memory.h"
#include "sanitized.h"

namespace replay_buffer {
namespace {

using testing::agrees;
using testing::crowd;
using testing::rounds;

// A tree in memory of its own, and its exact sum.
class TestTree {
 public:
  explicit TestTree(std::size_t count, bool lows = true)
      : shape(count),
        leaves_(os::Mapping::reserve(shape.size(0) * sizeof(float))),
        sums_(os::Mapping::reserve(shape.inner_nodes() * sizeof(std::uint64_t))),
        lows_(os::Mapping::reserve(shape.inner_nodes() * sizeof(std::uint64_t))),
        sums(reinterpret_cast<std::atomic<std::uint64_t>*>(sums_.data())),
        tree(reinterpret_cast<std::atomic<float>*>(leaves_.data()), sums,
             lows ? reinterpret_cast<std::atomic<std::uint64_t>*>(lows_.data()) : nullptr, count) {}

  void set(std::size_t i, float value) const {
    tree.store(i, value);
    tree.refresh_range(i, 1);
  }
  void set(const std::vector<float>& values) const {
    for (std::size_t i = 0; i < values.size(); ++i) tree.store(i, values[i]);
    tree.refresh_all();
  }

  double exact() const {
    double sum = 0;
    for (std::size_t i = 0; i < tree.count(); ++i) sum += static_cast<double>(tree.leaf(i));
    return sum;
  }

  std::uint64_t find(double target) const {
    std::uint64_t found = 0;
    tree.find({&target, 1}, &found);
    return found;
  }

  // Every inner node is the sum of its children as they are now, to the last bit.
  bool consistent() const {
    for (std::size_t level = 1; level < shape.levels(); ++level) {
      const std::atomic<std::uint64_t>* nodes = sums + (shape.start(level) - shape.size(0));
      for (std::size_t i = 0; i < shape.size(level); ++i) {
        if (i * kFanout >= shape.size(level - 1)) break;  // padding
        const float sum =
            level == 1
                ? sum16(reinterpret_cast<const std::atomic<float>*>(leaves_.data()) + i * kFanout)
                : sum16(sums + (shape.start(level - 1) - shape.size(0)) + i * kFanout);
        if (value_of(nodes[i]) != sum) return false;
      }
    }
    return true;
  }

  TreeShape shape;

 private:
  os::Mapping leaves_;
  os::Mapping sums_;
  os::Mapping lows_;

 public:
  std::atomic<std::uint64_t>* sums;
  Tree tree;
};

const std::vector<std::size_t> kSizes = {1,   2,   15,  16,   17,   31,    255,
                                         256, 257, 300, 4095, 4097, 70'000};

TEST(Tree, TheRootIsTheSumOfTheLeaves) {
  for (std::size_t count : kSizes) {
    const TestTree t(count);
    Random random(1, count);
    for (int i = 0; i < 2000; ++i) {
      t.set(random.below(count), static_cast<float>(random.unit()));
      if (i % 100 == 0) {
        ASSERT_NEAR(t.tree.total(), t.exact(), 1e-6 * t.exact()) << count;
      }
    }
    ASSERT_TRUE(t.consistent()) << count;
  }
}

TEST(Tree, SumsOfWholeNumbersAreExact) {
  for (std::size_t count : kSizes) {
    const TestTree t(count);
    double sum = 0;
    for (std::size_t i = 0; i < count; ++i) {
      t.tree.store(i, static_cast<float>(i % 7));
      sum += static_cast<double>(i % 7);
    }
    t.tree.refresh_all();
    EXPECT_EQ(t.tree.total(), sum) << count;
  }
}

TEST(Tree, EveryWayToRefreshGivesTheSameSums) {
  for (std::size_t count : kSizes) {
    const TestTree each(count);
    const TestTree range(count);
    const TestTree many(count);
    Random random(2, count);
    for (int round = 0; round < 20; ++round) {
      const std::size_t first = random.below(count);
      const std::size_t n = random.below(count - first) + 1;
      std::vector<std::uint64_t> leaves;
      for (std::size_t i = first; i < first + n; ++i) {
        const auto value = static_cast<float>(random.unit());
        for (const TestTree* t : {&each, &range, &many}) t->tree.store(i, value);
        leaves.push_back(i);
        if (n < 300) each.tree.refresh_range(i, 1);
      }
      if (n >= 300) each.tree.refresh_all();
      std::reverse(leaves.begin(), leaves.end());
      range.tree.refresh_range(first, n);
      many.tree.refresh_many(leaves);
      ASSERT_EQ(each.tree.total(), range.tree.total());
      ASSERT_EQ(each.tree.total(), many.tree.total());
      ASSERT_EQ(each.tree.lowest(), range.tree.lowest());
      ASSERT_EQ(each.tree.lowest(), many.tree.lowest());
    }
    ASSERT_TRUE(each.consistent() && range.consistent() && many.consistent());
  }
}

TEST(Tree, RefreshingAllChangesNothingThatIsUpToDate) {
  const TestTree t(5000);
  Random random(3, 0);
  for (int i = 0; i < 3000; ++i) t.set(random.below(5000), static_cast<float>(random.unit()));
  const double before = t.tree.total();
  const float low = t.tree.lowest();
  for (int i = 0; i < 3; ++i) {
    t.tree.refresh_all();
    EXPECT_EQ(t.tree.total(), before);
    EXPECT_EQ(t.tree.lowest(), low);
  }
  t.tree.refresh_range(10, 0);
  t.tree.refresh_many({});
  EXPECT_EQ(t.tree.total(), before);
}

// Else a refresh that read the children before could come after one that read them later.
TEST(Tree, ARefreshIsANewVersionAlsoWhenTheSumIsTheSame) {
  const TestTree t(5000);  // 313 nodes over the leaves, then the crown
  t.set(std::vector<float>(5000, 1));
  std::vector<std::uint64_t> before;
  for (std::size_t i = 0; i < t.shape.inner_nodes(); ++i) before.push_back(t.sums[i].load());
  t.tree.refresh_all();
  for (std::size_t i : {0, 5, 312, 320, 339}) EXPECT_NE(t.sums[i].load(), before[i]) << i;
}

TEST(Tree, RefreshingAllMendsWhatWasLeftHalfDone) {
  const TestTree t(1000);
  t.set(std::vector<float>(1000, 1));
  for (std::size_t i = 0; i < 1000; i += 3) t.tree.store(i, 5);  // and no refresh: as after a crash
  EXPECT_FALSE(t.consistent());
  t.tree.refresh_all();
  EXPECT_TRUE(t.consistent());
  EXPECT_EQ(t.tree.total(), 666 + 334 * 5.0);
}

// Whole numbers: every sum is exact, so the answer must be the very leaf of a linear scan.
TEST(Tree, FindsWhatALinearScanFinds) {
  for (std::size_t count : kSizes) {
    const TestTree t(count);
    Random random(4, count);
    for (std::size_t i = 0; i < count; ++i) {
      t.tree.store(i, random.below(3) == 0 ? 0 : static_cast<float>(random.below(9)));
    }
    t.tree.store(count / 2, 1);  // something positive
    t.tree.refresh_all();
    std::vector<double> upto;
    double sum = 0;
    for (std::size_t i = 0; i < count; ++i)
      upto.push_back(sum += static_cast<double>(t.tree.leaf(i)));
    const auto expect_found = [&](double target) {
      const auto scan = std::upper_bound(upto.begin(), upto.end(), target) - upto.begin();
      ASSERT_EQ(t.find(target), static_cast<std::uint64_t>(scan)) << target << " of " << sum;
    };
    for (int i = 0; i < 3000; ++i) {
      const double whole = static_cast<double>(random.below(static_cast<std::uint64_t>(sum)));
      expect_found(whole);  // the edge between two leaves belongs to the second
      expect_found(whole + 0.5);
    }
    expect_found(0);
    expect_found(sum - 0.5);
  }
}

// Any values: the leaf found is one whose part of the total holds the target, up to the rounding of
// the sums on the way.
TEST(Tree, FindsWithinRoundingForValuesOfAnySize) {
  for (std::size_t count : {std::size_t{20}, std::size_t{300}, std::size_t{5000}}) {
    for (double spread : {1.0, 10.0, 60.0}) {
      const TestTree t(count);
      Random random(5, count);
      for (std::size_t i = 0; i < count; ++i) {
        t.tree.store(i, static_cast<float>(std::exp((random.unit() - 0.5) * spread)));
      }
      t.tree.refresh_all();
      std::vector<double> upto = {0};
      for (std::size_t i = 0; i < count; ++i) {
        upto.push_back(upto.back() + static_cast<double>(t.tree.leaf(i)));
      }
      const double slack = upto.back() * 4e-6;
      for (int i = 0; i < 3000; ++i) {
        const double target = random.unit() * t.tree.total();
        const std::uint64_t leaf = t.find(target);
        ASSERT_LT(leaf, count);
        ASSERT_GE(target, upto[leaf] - slack);
        ASSERT_LE(target, upto[leaf + 1] + slack);
      }
    }
  }
}

// Sparse trees of tiny and huge values, targets inside, at the edges and past the end.
TEST(Tree, NeverFindsALeafOfZero) {
  Random random(6, 0);
  const float values[] = {1e-38F, 1e-30F, 1e-7F, 1, 3, 1e7F, 1e20F, 0x1.0p87F};
  for (int round = 0; round < 300; ++round) {
    const std::size_t count = 1 + random.below(600);
    const TestTree t(count);
    const std::size_t positive = 1 + random.below(5);
    for (std::size_t i = 0; i < positive; ++i) {
      t.tree.store(random.below(count), values[random.below(std::size(values))]);
    }
    t.tree.refresh_all();
    const double total = t.tree.total();
    std::vector<double> targets = {0, total, total * 2, std::nextafter(total, 0.0), 1e-45, -1.0};
    for (int i = 0; i < 50; ++i) targets.push_back(random.unit() * total);
    for (double target : targets) {
      const std::uint64_t leaf = t.find(target);
      ASSERT_LT(leaf, count) << target << " of " << total;
      ASSERT_GT(t.tree.leaf(leaf), 0) << target << " of " << total;
    }
  }
}

TEST(Tree, FindsTheFirstAndTheLastLeafAtTheEnds) {
  for (std::size_t count : kSizes) {
    const TestTree t(count);
    t.set(std::vector<float>(count, 0.1F));
    EXPECT_EQ(t.find(0), 0u);
    EXPECT_EQ(t.find(t.tree.total()), count - 1) << "clamped to the last positive leaf";
    EXPECT_EQ(t.find(std::nextafter(t.tree.total(), 0.0)), count - 1);
  }
}

TEST(Tree, AnEmptyTreeHasNothingToFind) {
  for (std::size_t count : kSizes) {
    const TestTree t(count);
    EXPECT_EQ(t.tree.total(), 0);
    EXPECT_EQ(t.tree.lowest(), 0);
    EXPECT_EQ(t.find(0), Tree::kNone);
    t.set(count - 1, 2);
    EXPECT_EQ(t.find(1), count - 1);
    t.set(count - 1, 0);
    EXPECT_EQ(t.find(0), Tree::kNone);
  }
}

// Many targets, which rise, are placed in another way than one; whole numbers make both exact.
TEST(Tree, ManyTargetsAreFoundAsOneByOne) {
  for (std::size_t count : kSizes) {
    const TestTree t(count);
    Random random(7, count);
    for (std::size_t i = 0; i < count; ++i) t.tree.store(i, static_cast<float>(random.below(3)));
    t.tree.store(random.below(count), 4);
    t.tree.refresh_all();
    for (std::size_t n : {1, 2, 3, 10, 100, 1000}) {
      std::vector<double> targets(n);
      for (double& target : targets) target = random.unit() * t.tree.total();
      targets[0] = 0;
      std::sort(targets.begin(), targets.end());
      std::vector<std::uint64_t> expected;
      for (double target : targets) expected.push_back(t.find(target));
      std::vector<std::uint64_t> found(n);
      t.tree.find(targets, found.data());
      ASSERT_EQ(found, expected) << n << " targets in " << count << " leaves";
    }
  }
}

TEST(Tree, ManyTargetsNeverFindALeafOfZero) {
  Random random(13, 0);
  for (int round = 0; round < 300; ++round) {
    const std::size_t count = 1 + random.below(600);
    const TestTree t(count);
    for (int i = 0; i < 4; ++i) {
      t.tree.store(random.below(count), static_cast<float>(std::exp(80 * (random.unit() - 0.5))));
    }
    t.tree.refresh_all();
    std::vector<double> targets(1 + random.below(200));
    for (double& target : targets) target = random.unit() * t.tree.total();
    targets.back() = t.tree.total();
    std::sort(targets.begin(), targets.end());
    std::vector<std::uint64_t> found(targets.size());
    t.tree.find(targets, found.data());
    for (std::uint64_t leaf : found) {
      ASSERT_LT(leaf, count);
      ASSERT_GT(t.tree.leaf(leaf), 0);
    }
  }
}

TEST(Tree, DrawsInProportion) {
  const std::size_t count = 200;
  const TestTree t(count);
  Random random(8, 0);
  std::vector<double> weights(count);
  for (std::size_t i = 0; i < count; ++i) {
    const float value = i % 10 == 0 ? 0 : static_cast<float>(std::pow(random.unit(), 4) * 100);
    t.tree.store(i, value);
    weights[i] = static_cast<double>(value);
  }
  t.tree.refresh_all();
  std::vector<std::uint64_t> counts(count);
  for (std::size_t i = 0; i < 400'000; ++i) ++counts[t.find(random.unit() * t.tree.total())];
  EXPECT_TRUE(agrees(counts, weights));
}

TEST(Tree, KnowsTheLeastPositiveLeaf) {
  for (std::size_t count : {std::size_t{1}, std::size_t{16}, std::size_t{17}, std::size_t{400}}) {
    const TestTree t(count);
    Random random(9, count);
    for (int i = 0; i < 1000; ++i) {
      t.set(random.below(count), random.below(3) == 0 ? 0 : static_cast<float>(random.unit()));
      float least = 0;
      for (std::size_t leaf = 0; leaf < count; ++leaf) {
        const float value = t.tree.leaf(leaf);
        if (value > 0 && (least == 0 || value < least)) least = value;
      }
      ASSERT_EQ(t.tree.lowest(), least);
    }
  }
}

// The last refresh of a node to succeed has seen every leaf: without any repair at the end, the
// sums are those of the leaves that are there, to the last bit, and the root is their exact sum to
// rounding. No drift, however many updates there were.
void expect_lossless(std::size_t count, std::size_t threads, std::size_t updates,
                     std::size_t batch) {
  const TestTree t(count);
  crowd(threads, [&](std::size_t me) {
    Random random(11, me);
    std::vector<std::uint64_t> leaves(batch);
    for (std::size_t i = 0; i < updates / threads; i += batch) {
      for (std::uint64_t& leaf : leaves) {
        leaf = random.below(count);
        const float value =
            random.below(8) == 0
                ? 0
                : static_cast<float>(std::ldexp(random.unit(), static_cast<int>(random.below(20))));
        t.tree.store(leaf, value);
      }
      if (batch == 1) {
        t.tree.refresh_range(leaves[0], 1);
      } else {
        t.tree.refresh_many(leaves);
      }
    }
  });
  EXPECT_TRUE(t.consistent());
  EXPECT_NEAR(t.tree.total(), t.exact(), 1e-6 * t.exact());
  const double total = t.tree.total();
  const float low = t.tree.lowest();
  t.tree.refresh_all();
  EXPECT_EQ(t.tree.total(), total);
  EXPECT_EQ(t.tree.lowest(), low);
}

TEST(Tree, TenMillionUpdatesFromFourThreadsLeaveTheExactSum) {
  expect_lossless(100'000, 4, rounds(10'000'000), 64);
}
TEST(Tree, UpdatesOfFewLeavesFromManyThreadsLoseNothing) {
  expect_lossless(20, 4, rounds(1'000'000), 1);
}
TEST(Tree, UpdatesOneByOneLoseNothing) { expect_lossless(5000, 4, rounds(1'000'000), 1); }

// Two threads at the same moment, and a look at the sums after each: a loss is not covered up by
// the updates that follow. `pick(me, random)` is the leaf a thread changes.
template <class Pick>
void expect_lossless_at_once(Pick&& pick) {
  const TestTree t(40);
  testing::Rendezvous rendezvous(2);
  std::atomic<std::size_t> lost{0};
  crowd(2, [&](std::size_t me) {
    Random random(14, me);
    for (std::size_t round = 0; round < rounds(200'000); ++round) {
      rendezvous.arrive_and_wait();
      for (int i = 0; i < 2; ++i) t.set(pick(me, random), static_cast<float>(random.below(3)));
      rendezvous.arrive_and_wait();
      if (me == 0 && !t.consistent()) lost.fetch_add(1);
    }
  });
  EXPECT_EQ(lost.load(), 0u);
}

TEST(Tree, SimultaneousUpdatesOfOneGroupAreAllSummed) {
  expect_lossless_at_once([](std::size_t me, Random& r) { return 2 * r.below(8) + me; });
}
TEST(Tree, SimultaneousUpdatesOfTwoGroupsAreAllSummed) {
  expect_lossless_at_once([](std::size_t me, Random&) { return 20 * me; });
}
TEST(Tree, SimultaneousUpdatesOfOneLeafLeaveItsSum) {
  expect_lossless_at_once([](std::size_t, Random&) { return std::size_t{7}; });
}

TEST(Tree, FindsOnlyLeavesThatHadAValueWhileOthersChange) {
  constexpr std::size_t kCount = 1000;
  const TestTree t(kCount);
  // Odd leaves never have a value; even ones come and go.
  for (std::size_t i = 0; i < kCount; i += 2) t.tree.store(i, 1);
  t.tree.refresh_all();
  std::atomic<std::size_t> wrong{0};
  testing::Countdown writing(2);
  crowd(4, [&](std::size_t me) {
    Random random(12, me);
    if (me < 2) {
      const testing::Part part(writing);
      for (std::size_t i = 0; i < rounds(300'000); ++i) {
        t.set(random.below(kCount / 2) * 2,
              random.below(2) == 0 ? 0 : static_cast<float>(random.unit()));
      }
      return;
    }
    while (writing.running()) {
      const std::uint64_t leaf = t.find(random.unit() * t.tree.total());
      if (leaf != Tree::kNone && (leaf >= kCount || leaf % 2 != 0)) wrong.fetch_add(1);
    }
  });
  EXPECT_EQ(wrong.load(), 0u);
}

}  // namespace
}  // namespace replay_buffer
