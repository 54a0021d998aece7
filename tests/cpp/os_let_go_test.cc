#include <gtest/gtest.h>

#include <atomic>
#include <mutex>
#include <thread>

#include "os/clock.h"
#include "os/let_go.h"
#include "os/thread_lock.h"

namespace replay_buffer::os {
namespace {

class OsLetGo : public ::testing::Test, public Holding {
 protected:
  OsLetGo() { holding = this; }
  ~OsLetGo() override { holding = nullptr; }

  void let_go() noexcept override { ++times_; }

  std::atomic<int> times_{0};
};

TEST_F(OsLetGo, WhoWaitsForALockOfAnotherThreadLetsGo) {
  SpinLock lock;
  std::atomic<bool> held{false};
  std::thread other([&] {
    const std::lock_guard guard(lock);
    held = true;
    const std::uint64_t end = monotonic_ns() + 30'000'000'000;
    while (times_ == 0 && monotonic_ns() < end) std::this_thread::yield();
  });
  while (!held) std::this_thread::yield();
  lock.lock();
  EXPECT_EQ(times_, 1);
  lock.unlock();
  other.join();
}

TEST_F(OsLetGo, WhoGetsALockAtOnceKeepsWhatItHolds) {
  SpinLock lock;
  const std::lock_guard guard(lock);
  EXPECT_EQ(times_, 0);
}

TEST_F(OsLetGo, AThreadLetsGoOfItsOwnOnly) {
  std::thread([] { os::let_go(); }).join();
  EXPECT_EQ(times_, 0);
  os::let_go();
  EXPECT_EQ(times_, 1);
}

TEST_F(OsLetGo, TensOfMegabytesAreLongAndSevenAreNot) {
  EXPECT_FALSE(is_long(std::size_t{7} << 20));
  EXPECT_TRUE(is_long(std::size_t{64} << 20));
}

}  // namespace
}  // namespace replay_buffer::os
