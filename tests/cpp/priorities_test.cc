#include "core/priorities.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "core/random.h"
#include "core/writer.h"
#include "crowd.h"
#include "numbered.h"
#include "sanitized.h"

namespace replay_buffer {
namespace {

using testing::code_of;
using testing::config_of;
using testing::count_from;
using testing::Countdown;
using testing::crowd;
using testing::NumberedBuffer;
using testing::NumberedRows;
using testing::Part;
using testing::rounds;
using testing::small_schema;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

BufferConfig prioritized(std::uint64_t capacity, float alpha = 0.6F, float epsilon = 1e-3F) {
  BufferConfig config = config_of(capacity, SamplingStrategy::Prioritized);
  config.alpha = alpha;
  config.epsilon = epsilon;
  return config;
}

const Priorities& priorities_of(const NumberedBuffer& b) { return *b.buffer.ring().priorities; }

// Every leaf is (raw + epsilon)^alpha of the raw value that is there, and the root is their sum.
void expect_consistent(const Priorities& p, std::size_t capacity, float epsilon) {
  double sum = 0;
  for (std::size_t slot = 0; slot < capacity; ++slot) {
    const PriorityWord word = p.of(slot);
    const bool there = word.lap != 0 && word.lap != Priorities::kGone;
    const float expected = there ? std::pow(word.raw + epsilon, p.alpha()) : 0;
    ASSERT_EQ(p.tree().leaf(slot), expected) << slot;
    sum += static_cast<double>(expected);
  }
  ASSERT_NEAR(p.tree().total(), sum, 1e-6 * sum);
}

TEST(Priorities, ALeafIsTheRawValuePlusEpsilonToThePowerOfAlpha) {
  for (float alpha : {0.0F, 0.3F, 1.0F, 2.5F}) {
    NumberedBuffer b(prioritized(10, alpha));
    b.add({0, 1, 0.5F, 100, 1e-6F});
    expect_consistent(priorities_of(b), 10, 1e-3F);
    b.update(count_from(0, 3), {7, 0, 0.1F});
    expect_consistent(priorities_of(b), 10, 1e-3F);
    EXPECT_EQ(priorities_of(b).raw_of(0), 7);
  }
}

TEST(Priorities, NewRowsGetTheLargestRawValueSoFar) {
  NumberedBuffer b(prioritized(3));
  b.add();
  EXPECT_EQ(priorities_of(b).raw_of(0), 1) << "at first 1";
  b.update({0}, {0.25F});
  EXPECT_EQ(priorities_of(b).max_raw(), 1) << "the largest so far, not the largest now";
  b.update({0}, {2.75F});
  b.add();
  EXPECT_EQ(priorities_of(b).raw_of(1), 2.75F) << "not rounded, not transformed";
  b.add(std::vector<float>{9});
  b.add();
  EXPECT_EQ(priorities_of(b).raw_of(3), 9);
  EXPECT_EQ(priorities_of(b).max_raw(), 9);
}

TEST(Priorities, AStaleUpdateDoesNotRaiseTheMaximum) {
  NumberedBuffer b(prioritized(2));
  b.add(3);
  EXPECT_EQ(b.update({0}, {50}).stale, 1u);
  EXPECT_EQ(priorities_of(b).max_raw(), 1);
}

TEST(Priorities, LateUpdatesHitNothing) {
  NumberedBuffer b(prioritized(4));
  b.add(6);  // rows 4 and 5 took the slots of 0 and 1
  const UpdateResult result = b.update({0, 1, 2, 4}, {10, 20, 30, 40});
  EXPECT_EQ(result.applied, 2u);
  EXPECT_EQ(result.stale, 2u);
  EXPECT_EQ(priorities_of(b).raw_of(4), 40);
  EXPECT_EQ(priorities_of(b).raw_of(5), 1);
  EXPECT_EQ(priorities_of(b).raw_of(2), 30);
  EXPECT_TRUE(std::isnan(priorities_of(b).raw_of(0)));
  EXPECT_EQ(b.buffer.ring().counters().updates_applied.load(), 2u);
  EXPECT_EQ(b.buffer.ring().counters().updates_stale.load(), 2u);
  expect_consistent(priorities_of(b), 4, 1e-3F);
}

TEST(Priorities, OfOneIdGivenTwiceTheLastCounts) {
  NumberedBuffer b(prioritized(4));
  b.add(2);
  EXPECT_EQ(b.update({1, 1, 1}, {5, 6, 7}).applied, 3u);
  EXPECT_EQ(priorities_of(b).raw_of(1), 7);
}

TEST(Priorities, AnUpdateIsRefusedWholeBeforeAnyWrite) {
  NumberedBuffer b(prioritized(8));
  b.add(4);
  const double before = priorities_of(b).tree().total();
  const auto refused = [&](std::vector<std::int64_t> ids, std::vector<float> raws) {
    const ErrorCode code = code_of([&] { b.update(ids, raws); });
    EXPECT_EQ(priorities_of(b).tree().total(), before);
    EXPECT_EQ(priorities_of(b).raw_of(0), 1);
    EXPECT_EQ(priorities_of(b).max_raw(), 1);
    return code;
  };
  const ErrorCode kInvalid = ErrorCode::kInvalidArgument;
  for (float bad : {kNan, kInfinity, -kInfinity, -1.0F, -1e-30F})
    EXPECT_EQ(refused({0, 1}, {9, bad}), kInvalid);
  EXPECT_EQ(refused({0, 1}, {9}), kInvalid);
  EXPECT_EQ(refused({0}, {9, 9}), kInvalid);
  for (std::int64_t unknown :
       {std::int64_t{-1}, std::int64_t{4}, std::int64_t{8}, std::int64_t{1} << 40,
        std::numeric_limits<std::int64_t>::max(), std::numeric_limits<std::int64_t>::min()}) {
    EXPECT_EQ(refused({0, unknown}, {9, 9}), kInvalid) << unknown;
  }
  EXPECT_EQ(refused({}, {}), ErrorCode{});
}

TEST(Priorities, IdsOfClearedRowsAreStaleAndFutureOnesAreUnknown) {
  NumberedBuffer b(prioritized(8));
  b.add(8);
  b.buffer.clear();
  EXPECT_EQ(b.update({0, 7}, {5, 5}).stale, 2u);
  EXPECT_TRUE(std::isnan(priorities_of(b).raw_of(3)));
  const std::int64_t last_lap = (std::int64_t{1} << 32) - 2;
  for (std::int64_t unknown :
       {std::int64_t{8}, std::int64_t{1000}, last_lap * 8, last_lap * 8 + 3}) {
    EXPECT_EQ(code_of([&] { b.update({unknown}, {5}); }), ErrorCode::kInvalidArgument) << unknown;
    EXPECT_TRUE(std::isnan(priorities_of(b).raw_of(unknown))) << unknown;
  }
  EXPECT_EQ(priorities_of(b).tree().total(), 0);
  b.add();
  EXPECT_EQ(b.update({8}, {5}).applied, 1u);
}

TEST(Priorities, AlphaIsReappliedExactlyFromZeroToo) {
  NumberedBuffer b(prioritized(100, 0.6F));
  Random random(1, 0);
  std::vector<float> raws(100);
  for (float& raw : raws) raw = static_cast<float>(random.unit() * 10);
  b.add(raws);
  NumberedBuffer fresh(prioritized(100, 1.5F));
  fresh.add(raws);
  for (float alpha : {1.0F, 0.0F, 0.25F, 0.0F, 1.5F}) {
    priorities_of(b).set_alpha(alpha);
    EXPECT_EQ(priorities_of(b).alpha(), alpha);
    expect_consistent(priorities_of(b), 100, 1e-3F);
  }
  for (std::size_t i = 0; i < 100; ++i) {
    EXPECT_EQ(priorities_of(b).tree().leaf(i), priorities_of(fresh).tree().leaf(i));
  }
  for (float bad : {kNan, kInfinity, -0.1F}) {
    EXPECT_EQ(code_of([&] { priorities_of(b).set_alpha(bad); }), ErrorCode::kInvalidArgument);
    EXPECT_EQ(priorities_of(b).alpha(), 1.5F);
  }
}

TEST(Priorities, ChangingAlphaGivesGoneRowsNothing) {
  NumberedBuffer b(prioritized(10));
  b.add(5);
  b.buffer.clear();
  b.add(1);
  priorities_of(b).set_alpha(0);
  EXPECT_EQ(priorities_of(b).tree().total(), 1);
}

// The extremes of float neither vanish nor poison the sum.
TEST(Priorities, TinyAndHugeValuesStayPositiveAndFinite) {
  for (float alpha : {0.5F, 1.0F, 3.0F}) {
    NumberedBuffer b(prioritized(6, alpha, 0));
    b.add({0, std::numeric_limits<float>::denorm_min(), 1e-38F, 1, 1e38F,
           std::numeric_limits<float>::max()});
    const Tree& tree = priorities_of(b).tree();
    EXPECT_EQ(tree.leaf(0), 0) << "only what is 0 has no weight";
    for (std::size_t slot = 1; slot < 6; ++slot) {
      EXPECT_GT(tree.leaf(slot), 0);
      EXPECT_GE(tree.leaf(slot), tree.leaf(slot - 1));
    }
    EXPECT_TRUE(std::isfinite(tree.total()));
  }
}

// -------------------------------------------------------------------------------------------
// threads

struct TestPriorities {
  explicit TestPriorities(std::uint64_t capacity, std::uint64_t block_rows = 0)
      : ring([&] {
          BufferConfig config = prioritized(capacity);
          config.block_rows = block_rows;
          config.weights = WeightScale::GlobalMax;
          return Segment::create({}, config, small_schema());
        }()) {}

  const Priorities& operator*() const { return *ring.priorities; }
  const Priorities* operator->() const { return &*ring.priorities; }

  // Adds n rows of equal raw priority and returns the id of the first.
  std::int64_t append(Writer& writer, std::size_t n, float raw) const {
    const NumberedRows rows(small_schema(), n);
    const std::vector<float> raws(n, raw);
    std::vector<std::int64_t> ids(n);
    writer.append(n, rows.in(), raws.data(), ids.data());
    return ids[0];
  }

  Ring ring;
};

TEST(Priorities, UpdatesOfTheSameRowsFromManyThreadsAgreeInTheEnd) {
  const TestPriorities t(50);
  Writer writer(t.ring, {});
  t.append(writer, 50, 1);
  crowd(4, [&](std::size_t me) {
    Random random(2, me);
    std::vector<std::int64_t> ids(20);
    std::vector<float> raws(20);
    for (std::size_t i = 0; i < rounds(40'000); ++i) {
      for (std::int64_t& id : ids) id = static_cast<std::int64_t>(random.below(50));
      for (float& raw : raws)
        raw = static_cast<float>(random.below(5)) + static_cast<float>(me) / 10;
      t->update(ids, raws);
    }
  });
  expect_consistent(*t, 50, 1e-3F);
}

TEST(Priorities, AlphaChangesWhileOthersAddAndUpdate) {
  const TestPriorities t(64, 4);
  Countdown working(3);
  Writer writer(t.ring, {});
  const std::int64_t first = t.append(writer, 64, 1);
  std::atomic<std::int64_t> newest{first + 63};
  crowd(4, [&](std::size_t me) {
    Random random(3, me);
    if (me == 0) {
      const Part part(working);
      for (std::size_t i = 0; i < rounds(100'000); ++i) {
        const std::size_t n = 1 + random.below(3);
        const std::int64_t id = t.append(writer, n, static_cast<float>(random.unit()));
        newest.store(id + static_cast<std::int64_t>(n) - 1);
      }
    } else if (me < 3) {
      const Part part(working);
      for (std::size_t i = 0; i < rounds(100'000); ++i) {
        std::int64_t ids[8];
        float raws[8];
        for (std::size_t k = 0; k < 8; ++k) {
          ids[k] = newest.load() - static_cast<std::int64_t>(random.below(60));
          raws[k] = static_cast<float>(random.unit());
        }
        t->update(ids, raws);
      }
    } else {
      for (int i = 0; working.running(); ++i) t->set_alpha(static_cast<float>(i % 3) / 2);
    }
  });
  expect_consistent(*t, 64, 1e-3F);
}

TEST(Priorities, OfTwoChangesOfAlphaOneWinsEverywhere) {
  const TestPriorities t(2000);
  Writer writer(t.ring, {});
  t.append(writer, 2000, 3);
  for (std::size_t i = 0; i < rounds(500); ++i) {
    crowd(2, [&](std::size_t me) { t->set_alpha(me == 0 ? 0.5F : 0.75F); });
    ASSERT_NO_FATAL_FAILURE(expect_consistent(*t, 2000, 1e-3F));
  }
}

// A change of alpha and an update or a new row at the same moment, and a look at the leaves after
// each.
TEST(Priorities, AChangeOfAlphaAtTheSameMomentMissesNoLeaf) {
  const TestPriorities t(3, 1);
  Writer writer(t.ring, {});
  std::int64_t newest = t.append(writer, 3, 1) + 2;
  testing::Rendezvous rendezvous(2);
  bool inconsistent = false;  // of the first thread
  crowd(2, [&](std::size_t me) {
    for (std::size_t round = 0; round < rounds(100'000); ++round) {
      rendezvous.arrive_and_wait();
      const auto value = static_cast<float>(2 + round % 5);
      if (me == 0) {
        t->set_alpha(static_cast<float>(round % 3) / 2);
      } else if (round % 2 == 0) {
        newest = t.append(writer, 1, value);
      } else {
        t->update({&newest, 1}, {&value, 1});
      }
      rendezvous.arrive_and_wait();
      if (me == 0 && !inconsistent) {
        expect_consistent(*t, 3, 1e-3F);
        inconsistent = ::testing::Test::HasFatalFailure();
      }
    }
  });
}

// Rows of odd ids have priority 1, rows of even ids 2. Late updates carry what fits the row they
// were meant for; one that hit the row that took its slot would break the pattern (the capacity is
// odd).
TEST(Priorities, ALateUpdateNeverReachesTheRowThatTookTheSlot) {
  constexpr std::size_t kCapacity = 5;
  const TestPriorities t(kCapacity, 1);
  Countdown writing(1);
  std::atomic<std::int64_t> newest{-1};
  const auto fits = [](std::int64_t id) { return id % 2 == 0 ? 2.0F : 1.0F; };
  crowd(4, [&](std::size_t me) {
    if (me == 0) {
      const Part part(writing);
      Writer writer(t.ring, {});
      for (std::int64_t id = 0; id < static_cast<std::int64_t>(rounds(400'000)); ++id) {
        ASSERT_EQ(t.append(writer, 1, fits(id)), id);
        newest.store(id);
      }
      return;
    }
    Random random(4, me);
    while (writing.running()) {
      const std::int64_t id =
          newest.load() - static_cast<std::int64_t>(random.below(2 * kCapacity));
      if (id < 0) continue;
      const float raw = fits(id);
      t->update({&id, 1}, {&raw, 1});
    }
  });
  for (std::int64_t id = newest.load(); id > newest.load() - static_cast<std::int64_t>(kCapacity);
       --id) {
    EXPECT_EQ(t->raw_of(id), fits(id));
  }
  expect_consistent(*t, kCapacity, 1e-3F);
}

// A row that can be seen can be updated: its id is never taken for one that was not given out.
TEST(Priorities, ARowThatIsVisibleIsNeverUnknown) {
  NumberedBuffer b(prioritized(4096));
  Countdown writing(1);
  std::atomic<std::size_t> refused{0};
  crowd(3, [&](std::size_t me) {
    if (me == 0) {
      const Part part(writing);
      for (std::size_t i = 0; i < rounds(4000); ++i) b.add(200);
      return;
    }
    while (writing.running()) {
      const std::vector<std::int64_t> ids = b.latest(4);
      try {
        b.update(ids, std::vector<float>(ids.size(), 1));
      } catch (const Error&) {
        refused.fetch_add(1);
      }
    }
  });
  EXPECT_EQ(refused.load(), 0u);
  expect_consistent(priorities_of(b), 4096, 1e-3F);
}

}  // namespace
}  // namespace replay_buffer
