#include "core/limiter.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "core/buffer.h"
#include "crowd.h"
#include "numbered.h"
#include "os/clock.h"
#include "os/process.h"
#include "os_child.h"
#include "sanitized.h"

namespace replay_buffer {
namespace {

using os::testing::Child;
using os::testing::expect_error;
using os::testing::Signal;
using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::code_of;
using testing::config_of;
using testing::Countdown;
using testing::crowd;
using testing::NumberedBuffer;
using testing::NumberedRows;
using testing::Part;
using testing::rounds;
using testing::small_schema;

BufferConfig limited(std::uint64_t min_size, double samples_per_insert, double tolerance,
                     std::uint64_t capacity = 1000) {
  BufferConfig config = config_of(capacity);
  config.min_size = min_size;
  config.samples_per_insert = samples_per_insert;
  config.tolerance = tolerance;
  return config;
}

// Adds and draws under the limit, one call at a time.
struct LimitedBuffer : NumberedBuffer {
  using NumberedBuffer::NumberedBuffer;

  bool try_add(std::size_t n = 1) {
    if (!buffer.limiter().try_take(Want::kAdd, n)) return false;
    Share share(buffer.limiter(), Want::kAdd, n);
    add(n);
    share.keep();
    return true;
  }
  bool try_draw(std::size_t n) {
    if (!buffer.limiter().try_take(Want::kDraw, n)) return false;
    Share share(buffer.limiter(), Want::kDraw, n);
    sample(n);
    share.keep();
    return true;
  }
  double balance() const { return buffer.limiter().balance(); }
};

// A shared buffer of one process; others open it by fork or by its file.
std::unique_ptr<Buffer> shared_buffer(const BufferConfig& config) {
  os::watch_forks();
  return std::make_unique<Buffer>(Segment::create(Location::parse("shm:"), config, small_schema()));
}

void add_one(Buffer& buffer, std::uint64_t number = 0) {
  NumberedRows rows(small_schema(), 1);
  rows.fill(0, number);
  Share share = buffer.take_share(Want::kAdd, 1);
  buffer.add(1, rows.in(), nullptr, nullptr);
  share.keep();
}

void draw(Buffer& buffer, std::size_t n) {
  NumberedRows rows(small_schema(), n);
  std::vector<std::int64_t> ids(n);
  Share share = buffer.take_share(Want::kDraw, n);
  buffer.sample({n, rows.out(), ids.data(), nullptr}, 0);
  share.keep();
}

TEST(Limiter, IsInactiveUnlessConfigured) {
  EXPECT_FALSE(NumberedBuffer(config_of(10)).buffer.limiter().active());
  EXPECT_TRUE(NumberedBuffer(limited(1, 0, 0)).buffer.limiter().active());
  EXPECT_TRUE(NumberedBuffer(limited(0, 1, 1)).buffer.limiter().active());
}

TEST(Limiter, DrawsAreRefusedUntilMinSizeRowsAreThere) {
  LimitedBuffer b(limited(5, 0, 0));
  for (int i = 0; i < 4; ++i) ASSERT_TRUE(b.try_add());
  EXPECT_FALSE(b.try_draw(1));
  ASSERT_TRUE(b.try_add());
  EXPECT_TRUE(b.try_draw(100));
  for (int i = 0; i < 5000; ++i) ASSERT_TRUE(b.try_add());  // no ratio: adds never wait
  EXPECT_TRUE(b.try_draw(100));
}

TEST(Limiter, AClearedBufferHasToFillAgain) {
  LimitedBuffer b(limited(5, 1, 3));
  while (b.try_add()) {
  }
  EXPECT_EQ(b.buffer.size(), 8u);
  ASSERT_TRUE(b.try_draw(2));
  b.buffer.clear();
  EXPECT_EQ(b.balance(), 0);
  EXPECT_FALSE(b.try_draw(1));
  for (int i = 0; i < 8; ++i) ASSERT_TRUE(b.try_add()) << i;  // as the first time
  EXPECT_FALSE(b.try_add());
  EXPECT_TRUE(b.try_draw(2));
}

// The inequality of limiter.h, tried at every point of a walk against plain arithmetic.
TEST(Limiter, HoldsTheBandExactly) {
  for (const double ratio : {0.25, 1.0, 4.0, 7.5}) {
    LimitedBuffer b(limited(10, ratio, 20));
    double balance = 0;
    Random random(7, static_cast<std::uint64_t>(ratio * 4));
    for (int step = 0; step < 3000; ++step) {
      const std::size_t n = 1 + random.below(3);
      if (random.below(2) == 0) {
        const double next = balance + static_cast<double>(n) * ratio;
        const bool allowed = b.buffer.size() < 10 || next <= 10 * ratio + 20;
        ASSERT_EQ(b.try_add(n), allowed) << "ratio " << ratio << " step " << step;
        if (allowed) balance = next;
      } else {
        const double next = balance - static_cast<double>(n);
        const bool allowed = b.buffer.size() >= 10 && next >= 10 * ratio - 20;
        ASSERT_EQ(b.try_draw(n), allowed) << "ratio " << ratio << " step " << step;
        if (allowed) balance = next;
      }
      ASSERT_EQ(b.balance(), balance);
    }
  }
}

TEST(Limiter, ADrawThatFailsGivesItsShareBack) {
  BufferConfig config = limited(2, 1, 10);
  config.strategy = SamplingStrategy::Fifo;
  LimitedBuffer b(config);
  ASSERT_TRUE(b.try_add(2));
  EXPECT_EQ(code_of([&] { b.try_draw(5); }), ErrorCode::kNotEnoughRows);
  EXPECT_EQ(b.balance(), 2);
  EXPECT_TRUE(b.try_draw(2));
  EXPECT_EQ(b.balance(), 0);
}

TEST(Limiter, WhatCouldWaitForEverIsRefused) {
  LimitedBuffer b(limited(2, 4, 10));
  ASSERT_TRUE(b.try_add(50));  // filling up to min_size is never refused
  expect_error(ErrorCode::kInvalidArgument, {"add_batch of 5 rows", "for ever", "10.5"},
               [&] { b.try_add(5); });
  EXPECT_FALSE(b.try_add(4));
  expect_error(ErrorCode::kInvalidArgument, {"sample(17)", "tolerance of at least 10.5"},
               [&] { b.try_draw(17); });
  EXPECT_TRUE(b.try_draw(16));
}

TEST(Limiter, SettingsThatLeaveNoRoomAreRefused) {
  const auto refused = [](const BufferConfig& config) {
    return code_of([&] { NumberedBuffer b(config); }) == ErrorCode::kInvalidArgument;
  };
  EXPECT_TRUE(refused(limited(0, 1, 0)));
  EXPECT_TRUE(refused(limited(0, 4, 2.4)));
  EXPECT_FALSE(refused(limited(0, 4, 2.5)));
  EXPECT_TRUE(refused(limited(0, 0.0001, 10)));
  EXPECT_TRUE(refused(limited(0, -1, 10)));
  EXPECT_TRUE(refused(limited(0, 1e7, 1e9)));
  EXPECT_TRUE(refused(limited(0, std::nan(""), 10)));
  EXPECT_TRUE(refused(limited(0, 1, std::nan(""))));
  EXPECT_TRUE(refused(limited(1001, 0, 0)));
}

TEST(Limiter, NonsenseInTheSegmentDoesNotOverflow) {
  LimitedBuffer b(limited(2, 4, 10));
  std::atomic<std::int64_t>& balance = b.buffer.ring().counters().balance;
  for (const std::int64_t nonsense : {INT64_MIN, INT64_MAX}) {
    balance.store(nonsense);
    (void)b.buffer.limiter().try_take(Want::kAdd, std::size_t{1} << 50);
    balance.store(nonsense);
    (void)b.buffer.limiter().try_take(Want::kAdd, 1);
    balance.store(nonsense);
    (void)b.buffer.limiter().try_take(Want::kDraw, 1);
    balance.store(nonsense);
    b.buffer.limiter().give_back(Want::kDraw, std::size_t{1} << 60, 0);
    EXPECT_FALSE(b.buffer.wait_for(Want::kAdd, 1).complaint(1).empty());
  }
}

TEST(Limiter, AFreshBalanceLetsBothSidesGoOn) {
  LimitedBuffer b(limited(10, 2, 8));
  while (b.try_add()) {
  }
  while (b.try_draw(1)) {
  }
  EXPECT_EQ(b.balance(), 12);
  const Settings& settings = b.buffer.layout().settings;
  b.buffer.ring().counters().balance.store(fresh_balance(settings, b.buffer.size()));
  EXPECT_EQ(b.balance(), 20);
  EXPECT_TRUE(b.try_draw(4));
  EXPECT_TRUE(b.try_add());
  EXPECT_EQ(fresh_balance(settings, 3), 6 * kBalanceUnit);      // three of ten rows are there
  EXPECT_EQ(fresh_balance(settings, 30, 7), 7 * kBalanceUnit);  // of a queue
  EXPECT_EQ(fresh_balance(settings, 3, 9), 6 * kBalanceUnit);
}

TEST(Limiter, AComplaintSaysWhatIsMissingAndWhoWaits) {
  LimitedBuffer b(limited(10, 4, 30));
  b.try_add(3);
  {
    const Wait wait = b.buffer.wait_for(Want::kDraw, 8);
    EXPECT_EQ(wait.complaint(5),
              "sample(8) waited 5.0 s: 3 of 10 rows are there (min_size); nobody else waits");
  }
  while (b.try_add()) {
  }
  EXPECT_EQ(b.buffer.size(), 17u);
  const Wait adding = b.buffer.wait_for(Want::kAdd, 2);
  EXPECT_EQ(adding.complaint(0),
            "add_batch of 2 rows would have to wait: 0 rows were drawn for 17 added "
            "(samples_per_insert=4, tolerance=30), 6 more must be drawn first; nobody else waits");
  while (b.try_draw(8)) {
  }
  const Wait drawing = b.buffer.wait_for(Want::kDraw, 8);
  const std::string said = drawing.complaint(1.25);
  EXPECT_NE(said.find("56 rows were drawn for 17 added"), std::string::npos) << said;
  EXPECT_NE(said.find("2 more must be added first"), std::string::npos) << said;
  EXPECT_NE(said.find("another thread waits to add"), std::string::npos) << said;
}

TEST(Limiter, TheOwnerTableSaysWhoWaits) {
  LimitedBuffer b(limited(10, 4, 30));
  const auto waits = [&] {
    const auto found = waiting_owners(b.buffer.ring(), b.buffer.owners());
    return found.empty() ? 0U : found.front()->waits.load();
  };
  EXPECT_EQ(waits(), 0u);
  {
    const Wait one = b.buffer.wait_for(Want::kDraw, 1);
    EXPECT_EQ(waits(), 1u);
    {
      const Wait two = b.buffer.wait_for(Want::kDraw, 1);
      const Wait three = b.buffer.wait_for(Want::kAdd, 1);
      EXPECT_EQ(waits(), 3u);
    }
    EXPECT_EQ(waits(), 1u);
  }
  EXPECT_EQ(waits(), 0u);
}

// Threads add and draw as fast as they are let, and look at the balance all the time.
TEST(LimiterThreads, KeepTheBalanceInTheBandAtEveryMoment) {
  constexpr double kRatio = 4;
  constexpr double kTolerance = 40;
  const std::size_t adds = rounds(20'000);
  LimitedBuffer b(limited(50, kRatio, kTolerance));
  for (int i = 0; i < 50; ++i) b.try_add();
  Countdown working(4);
  std::atomic<bool> outside{false};
  crowd(5, [&](std::size_t who) {
    if (who == 4) {
      while (working.running()) {
        const double balance = b.balance();
        if (balance < 200 - kTolerance || balance > 200 + kTolerance) outside = true;
      }
      return;
    }
    const Part part(working);
    if (who < 2) {
      for (std::size_t i = 0; i < adds; ++i) add_one(b.buffer, i);
    } else {
      for (std::size_t i = 0; i < adds / 4; ++i) draw(b.buffer, 16);
    }
  });
  EXPECT_FALSE(outside);
  EXPECT_EQ(b.balance(), 200 + 2.0 * static_cast<double>(adds) * kRatio -
                             2.0 * 16 * static_cast<double>(adds / 4));
}

// Each side lets the other take one step: a wake-up lost would cost a whole slice of sleep.
TEST(LimiterProcesses, AQueueForgivesRowsOfTheDeadAndNoneThatAreBeingAdded) {
  BufferConfig config = limited(5, 1, 5.5);
  config.strategy = SamplingStrategy::Fifo;
  const std::unique_ptr<Buffer> buffer = shared_buffer(config);
  for (int i = 0; i < 5; ++i) add_one(*buffer);
  {
    NumberedRows rows(small_schema(), 5);
    std::int64_t ids[5];
    Share share = buffer->take_share(Want::kDraw, 5);
    buffer->sample({5, rows.out(), ids, nullptr}, 0);
    share.keep();
  }
  {
    const Share slow = buffer->take_share(Want::kAdd, 10);
    Wait other = buffer->wait_for(Want::kAdd, 1);
    for (int i = 0; i < 3; ++i) EXPECT_FALSE(other.sleep(Limiter::kSlice));
    EXPECT_EQ(buffer->limiter().balance(), 10);
  }
  EXPECT_EQ(buffer->limiter().balance(), 0);
  Child child([&] {
    const auto* const kept = new Share(buffer->take_share(Want::kAdd, 10));  // dies with it
    return kept->taken() ? 0 : 1;
  });
  EXPECT_EQ(child.join(), 0);
  EXPECT_EQ(buffer->limiter().balance(), 10);
  Wait next = buffer->wait_for(Want::kAdd, 1);
  while (!next.sleep(Limiter::kSlice)) {
  }
  EXPECT_EQ(buffer->limiter().balance(), 1);
}

TEST(LimiterThreads, NoWakeUpIsLost) {
  const std::size_t turns = rounds(20'000);
  LimitedBuffer b(limited(1, 1, 1));
  b.try_add();
  const std::uint64_t start = os::monotonic_ns();
  crowd(4, [&](std::size_t who) {
    for (std::size_t i = 0; i < turns; ++i) {
      if (who < 2) {
        add_one(b.buffer, i);
      } else {
        draw(b.buffer, 1);
      }
    }
  });
  const double took = static_cast<double>(os::monotonic_ns() - start) * 1e-9;
  // Lost ones would cost 0.1 s each; the rest is a switch between threads per turn.
  EXPECT_LT(took, 30.0 + static_cast<double>(turns) * 200e-6);
  EXPECT_EQ(b.balance(), 1);
}

TEST(LimiterThreads, ASleeperIsWokenAtOnceByRowsDrawsAndClear) {
  const auto woken_by = [](LimitedBuffer& b, Want want, auto&& change) {
    std::atomic<bool> ready{false};
    std::chrono::nanoseconds took{0};
    std::thread sleeper([&] {
      ready = true;
      const auto start = std::chrono::steady_clock::now();
      {
        const Share share = b.buffer.take_share(want, 1);
      }
      took = std::chrono::steady_clock::now() - start;
    });
    while (!ready) std::this_thread::yield();
    std::this_thread::sleep_for(milliseconds(10));
    change();
    sleeper.join();
    return took;
  };
  // The best of several: the machine may be busy.
  const auto best = [&](auto&& once) {
    std::chrono::nanoseconds least = seconds(100);
    for (int i = 0; i < 5; ++i) least = std::min(least, once());
    return least;
  };
  EXPECT_LT(best([&] {
              LimitedBuffer b(limited(1, 0, 0));
              return woken_by(b, Want::kDraw, [&] { b.try_add(); });
            }),
            milliseconds(80));
  EXPECT_LT(best([&] {
              LimitedBuffer b(limited(1, 1, 1));
              b.try_add(2);
              return woken_by(b, Want::kAdd, [&] { b.try_draw(1); });
            }),
            milliseconds(80));
  EXPECT_LT(best([&] {
              LimitedBuffer b(limited(2, 1, 1));
              b.try_add(3);
              return woken_by(b, Want::kAdd, [&] { b.buffer.clear(); });
            }),
            milliseconds(80));
}

TEST(LimiterProcesses, HoldTheBandBetweenThem) {
  const std::size_t adds = rounds(5'000);
  const auto buffer = shared_buffer(limited(10, 2, 20));
  for (int i = 0; i < 10; ++i) add_one(*buffer);
  const auto actor = [&] {
    for (std::size_t i = 0; i < adds; ++i) add_one(*buffer, i);
    return 0;
  };
  const auto learner = [&] {
    for (std::size_t i = 0; i < adds / 4; ++i) draw(*buffer, 8);
    return 0;
  };
  Child a(actor), b(actor), c(learner), d(learner);
  bool outside = false;
  const std::uint64_t end = os::monotonic_ns() + 200'000'000;
  while (os::monotonic_ns() < end) {
    const double balance = buffer->limiter().balance();
    outside = outside || balance < 0 || balance > 40;
  }
  EXPECT_FALSE(outside);
  EXPECT_EQ(a.join() + b.join() + c.join() + d.join(), 0);
  EXPECT_EQ(buffer->limiter().balance(),
            20 + 4.0 * static_cast<double>(adds) - 16.0 * static_cast<double>(adds / 4));
}

TEST(LimiterProcesses, AWaiterThatIsKilledHoldsNobodyUp) {
  const auto buffer = shared_buffer(limited(2, 1, 2));
  const Signal waits;
  Child learner([&] {
    const Wait wait = buffer->wait_for(Want::kDraw, 1);
    waits.set();
    for (;;) (void)buffer->limiter().active(), ::pause();
    return 0;
  });
  Child sleeper([&] {
    draw(*buffer, 1);
    return 0;
  });
  waits.await();
  while (waiting_owners(buffer->ring(), buffer->owners()).size() < 2) ::usleep(1000);
  learner.kill();
  sleeper.kill();
  EXPECT_TRUE(waiting_owners(buffer->ring(), buffer->owners()).empty());
  for (int i = 0; i < 4; ++i) add_one(*buffer);
  draw(*buffer, 2);
  for (int i = 0; i < 2; ++i) add_one(*buffer);
  // What the dead ones raised was lowered by the first that found it.
  EXPECT_EQ(buffer->ring().counters().waiting.load(), 0u);
}

TEST(LimiterProcesses, AReaderWaitsForMinSizeAndWritesNothing) {
  const auto buffer = shared_buffer(limited(3, 1, 2));
  const Location where = buffer->ring().segment->location();
  Buffer reader(Segment::adopt(buffer->ring().segment->file()->reopen(os::Access::kRead), where,
                               os::Access::kRead));
  EXPECT_FALSE(reader.limiter().try_take(Want::kDraw, 1));
  {
    Wait wait = reader.wait_for(Want::kDraw, 1);
    EXPECT_FALSE(wait.sleep(milliseconds(10)));
    EXPECT_NE(wait.complaint(1).find("0 of 3 rows"), std::string::npos);
  }
  EXPECT_TRUE(waiting_owners(buffer->ring(), buffer->owners()).empty());
  for (int i = 0; i < 5; ++i) add_one(*buffer);
  const double before = buffer->limiter().balance();
  for (int i = 0; i < 20; ++i) draw(reader, 50);
  EXPECT_EQ(buffer->limiter().balance(), before);
  EXPECT_TRUE(reader.limiter().try_take(Want::kAdd, 1));  // the buffer says that it is not to write
}

}  // namespace
}  // namespace replay_buffer
