#include <gtest/gtest.h>
#include <pthread.h>

#include <new>
#include <thread>

#include "os/clock.h"
#include "os/futex.h"
#include "os/memory.h"
#include "os_child.h"

namespace replay_buffer::os {
namespace {

using futex::Result;
using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::Child;
using testing::Directory;
using testing::Signal;

using Word = std::atomic<std::uint32_t>;

class OsFutex : public ::testing::Test {
 protected:
  OsFutex()
      : file_(File::create_hidden(directory_.path())),
        mapping_((file_.allocate(4096), Mapping::map(file_, 4096, Access::kReadWrite))),
        word_(*new (mapping_.data() + 64) Word(0)) {}

  Directory directory_{"/dev/shm"};
  File file_;
  Mapping mapping_;
  Word& word_;
};

// Wakes until the waiter has gone to sleep and come back, as nobody can tell that it sleeps.
void change_and_wake(Word& word, const Signal& about_to_wait) {
  about_to_wait.await();
  ::usleep(20'000);
  word.store(1);
  futex::wake_all(word);
}

TEST_F(OsFutex, WakesAnotherProcess) {
  const Signal ready;
  Child child([&] {
    ready.set();
    return static_cast<int>(futex::wait(word_, 0, seconds(20)));
  });
  change_and_wake(word_, ready);
  EXPECT_EQ(child.join(), static_cast<int>(Result::kWoken));
}

TEST_F(OsFutex, WakesAWaiterAtAnotherAddressThatMayOnlyRead) {
  const Signal ready;
  Child child([&] {
    const Mapping mine = Mapping::map(file_.reopen(Access::kRead), 4096, Access::kRead);
    const auto& word = *reinterpret_cast<const Word*>(mine.data() + 64);
    const std::uint64_t start = monotonic_ns();
    ready.set();
    const Result result = futex::wait(word, 0, seconds(20));
    // Sooner than the 20 ms before the wake would mean that the kernel refused to sleep.
    if (monotonic_ns() - start < 15'000'000) return 50;
    return static_cast<int>(result);
  });
  change_and_wake(word_, ready);
  EXPECT_EQ(child.join(), static_cast<int>(Result::kWoken));
}

TEST_F(OsFutex, AReaderCanWake) {
  const Signal ready;
  Child child([&] {
    ready.set();
    return static_cast<int>(futex::wait(word_, 0, seconds(20)));
  });
  const Mapping mine = Mapping::map(file_.reopen(Access::kRead), 4096, Access::kRead);
  ready.await();
  ::usleep(20'000);
  word_.store(1);
  futex::wake_all(*reinterpret_cast<const Word*>(mine.data() + 64));
  EXPECT_EQ(child.join(), static_cast<int>(Result::kWoken));
}

TEST_F(OsFutex, TimesOutNoSoonerThanAsked) {
  const std::uint64_t start = monotonic_ns();
  EXPECT_EQ(futex::wait(word_, 0, milliseconds(30)), Result::kTimeout);
  EXPECT_GE(monotonic_ns() - start, 29'000'000u);
  EXPECT_EQ(futex::wait(word_, 0, milliseconds(0)), Result::kTimeout);
  EXPECT_EQ(futex::wait(word_, 0, milliseconds(-5)), Result::kTimeout);
}

TEST_F(OsFutex, DoesNotSleepOnAWordThatHasChanged) {
  EXPECT_EQ(futex::wait(word_, 7, seconds(20)), Result::kWoken);
  EXPECT_EQ(futex::wait(word_, 7, seconds(0)), Result::kWoken);
}

TEST_F(OsFutex, ASignalInterrupts) {
  struct sigaction action{}, before{};
  action.sa_handler = [](int) {};
  ASSERT_EQ(::sigaction(SIGUSR1, &action, &before), 0);
  std::atomic<bool> done{false};
  const pthread_t waiter = ::pthread_self();
  std::thread nagger([&] {
    while (!done.load()) {
      ::usleep(5'000);
      ::pthread_kill(waiter, SIGUSR1);
    }
  });
  EXPECT_EQ(futex::wait(word_, 0, seconds(20)), Result::kInterrupted);
  done.store(true);
  nagger.join();
  ::sigaction(SIGUSR1, &before, nullptr);
}

TEST_F(OsFutex, NoWakeIsLostBetweenProcesses) {
  constexpr std::uint32_t kRounds = 20'000;
  Word& turn = word_;
  Child child([&] {
    for (std::uint32_t i = 0; i < kRounds; ++i) {
      while (turn.load() != 2 * i + 1) {
        if (futex::wait(turn, 2 * i, seconds(10)) == Result::kTimeout) return 1;
      }
      turn.store(2 * i + 2);
      futex::wake_all(turn);
    }
    return 0;
  });
  for (std::uint32_t i = 0; i < kRounds; ++i) {
    turn.store(2 * i + 1);
    futex::wake_all(turn);
    while (turn.load() != 2 * i + 2) {
      ASSERT_NE(futex::wait(turn, 2 * i + 1, seconds(10)), Result::kTimeout) << i;
    }
  }
  EXPECT_EQ(child.join(), 0);
}

TEST(OsClock, GoesForward) {
  const std::uint64_t start = monotonic_ns();
  EXPECT_LE(start, monotonic_ns());
  EXPECT_GT(wall_ns(), 1'600'000'000'000'000'000u);
}

}  // namespace
}  // namespace replay_buffer::os
