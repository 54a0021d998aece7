#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <mutex>
#include <numeric>
#include <thread>
#include <vector>

#include "os/clock.h"
#include "os/cpu.h"
#include "os/process.h"
#include "os/thread_lock.h"
#include "os/threads.h"
#include "os_child.h"

// Children here start threads after a fork in the middle of others, which is what they test.
extern "C" const char* __tsan_default_options() { return "die_after_fork=0:atexit_sleep_ms=0"; }

namespace replay_buffer::os {
namespace {

using testing::Child;
using testing::Signal;

// Runs one call and tells whether every task ran exactly once.
bool runs_each_once(std::size_t n_tasks) {
  std::vector<std::uint32_t> counts(n_tasks, 0);
  parallel_for(n_tasks, [&](std::size_t i) { counts[i] += 1; });
  return std::all_of(counts.begin(), counts.end(), [](std::uint32_t n) { return n == 1; });
}

TEST(OsParallelFor, RunsEveryTaskOnceAndItsResultIsVisible) {
  for (const std::size_t n : {0, 1, 2, 3, 7, 64, 1000}) EXPECT_TRUE(runs_each_once(n)) << n;
  for (int round = 0; round < 20'000; ++round) ASSERT_TRUE(runs_each_once(2 + round % 7));
}

TEST(OsParallelFor, HelpersThatSleptTakePartAgain) {
  for (int round = 0; round < 50; ++round) {
    ::usleep(500);
    ASSERT_TRUE(runs_each_once(16));
  }
}

TEST(OsParallelFor, SeveralThreadsTakePart) {
  if (parallel_width() < 2) GTEST_SKIP() << "this process has one processor";
  std::atomic<int> n_inside{0};
  std::atomic<bool> met{false};
  const std::uint64_t end = monotonic_ns() + 10'000'000'000u;
  while (!met.load() && monotonic_ns() < end) {
    parallel_for(2, [&](std::size_t) {
      n_inside.fetch_add(1);
      const std::uint64_t patience = monotonic_ns() + 50'000'000;
      while (n_inside.load() < 2 && !met.load() && monotonic_ns() < patience) cpu_relax();
      if (n_inside.load() == 2) met.store(true);
      n_inside.fetch_sub(1);
    });
  }
  EXPECT_TRUE(met.load());
}

TEST(OsParallelFor, CallsFromManyThreadsAndFromWithinTasksDoNotWaitForEachOther) {
  std::atomic<int> n_bad{0};
  std::vector<std::thread> threads;
  threads.reserve(4);
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int round = 0; round < 500; ++round) {
        std::vector<std::uint32_t> counts(6 * 5, 0);
        parallel_for(6, [&](std::size_t i) {
          parallel_for(5, [&](std::size_t j) { counts[i * 5 + j] += 1; });
        });
        if (std::accumulate(counts.begin(), counts.end(), 0u) != 30) n_bad.fetch_add(1);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(n_bad.load(), 0);
}

#if defined(__linux__)
std::ptrdiff_t count_threads() {
  return std::distance(std::filesystem::directory_iterator("/proc/self/task"), {});
}

TEST(OsParallelFor, StartsNoThreadBeforeItIsUsed) {
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "ThreadSanitizer starts a thread of its own in the child";
#endif
  Child child([] {
    const std::ptrdiff_t before = count_threads();
    parallel_width();
    parallel_for(1, [](std::size_t) {});
    if (count_threads() != before) return 1;
    parallel_for(2, [](std::size_t) {});
    if (count_threads() != before + parallel_width() - 1) return 2;
    for (int i = 0; i < 100; ++i) parallel_for(8, [](std::size_t) {});
    return count_threads() == before + parallel_width() - 1 ? 0 : 3;
  });
  EXPECT_EQ(child.join(), 0);
}

TEST(OsParallelFor, HelpersLeaveSignalsToTheProgram) {
  Child child([] {
    static std::atomic<pid_t> handled_by{0};
    ::signal(SIGUSR1, [](int) { handled_by.store(::gettid()); });
    parallel_for(8, [](std::size_t) {});
    sigset_t usr1;
    ::sigemptyset(&usr1);
    ::sigaddset(&usr1, SIGUSR1);
    ::pthread_sigmask(SIG_BLOCK, &usr1, nullptr);
    ::kill(::getpid(), SIGUSR1);
    ::usleep(20'000);
    if (handled_by.load() != 0) return 1;
    ::pthread_sigmask(SIG_UNBLOCK, &usr1, nullptr);
    return handled_by.load() == ::getpid() ? 0 : 2;
  });
  EXPECT_EQ(child.join(), 0);
}
#endif

TEST(OsParallelFor, WorksInAChildForkedInTheMiddleOfACall) {
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "ThreadSanitizer takes new threads of the child for those of the parent";
#endif
  std::atomic<bool> stop{false};
  std::thread busy([&] {
    while (!stop.load()) runs_each_once(32);
  });
  for (int round = 0; round < 30; ++round) {
    Child child([] {
      for (int i = 0; i < 20; ++i) {
        if (!runs_each_once(9)) return 1;
      }
      Child grandchild([] { return runs_each_once(9) ? 0 : 1; });
      return grandchild.join();
    });
    EXPECT_EQ(child.join(), 0);
  }
  stop.store(true);
  busy.join();
}

TEST(OsParallelFor, LeavingTheProgramNeitherHangsNorCrashes) {
  for (int round = 0; round < 8; ++round) {
    Child child([&] {
      parallel_for(8, [](std::size_t) {});
      if (round % 2 == 1) {
        std::thread([] {
          for (;;) parallel_for(8, [](std::size_t) {});
        }).detach();
      }
      if (round % 3 == 0) ::usleep(1000);
      // With all destructors, other than at the end of a Child.
      std::exit(0);
      return 1;
    });
    EXPECT_EQ(child.join(), 0);
  }
}

TEST(OsSpinLock, ProtectsACounter) {
  watch_forks();
  SpinLock lock;
  std::uint64_t counter = 0;
  std::vector<std::thread> threads;
  threads.reserve(4);
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 50'000; ++i) {
        const std::lock_guard guard(lock);
        ++counter;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(counter, 200'000u);
}

TEST(OsSpinLock, TryLockRefusesWhileHeld) {
  SpinLock lock;
  EXPECT_TRUE(lock.try_lock());
  EXPECT_FALSE(lock.try_lock());
  lock.unlock();
  EXPECT_TRUE(lock.try_lock());
  lock.unlock();
}

TEST(OsSpinLock, AChildTakesTheLockOfAThreadThatForkLeftBehind) {
  watch_forks();
  SpinLock lock;
  const Signal locked, release;
  std::thread holder([&] {
    lock.lock();
    locked.set();
    release.await();
    lock.unlock();
  });
  locked.await();
  Child child([&] {
    lock.lock();
    if (lock.try_lock()) return 1;
    lock.unlock();
    if (!lock.try_lock()) return 2;
    lock.unlock();
    return 0;
  });
  EXPECT_EQ(child.join(), 0);
  EXPECT_FALSE(lock.try_lock()) << "the parent's thread still holds it";
  release.set();
  holder.join();
  EXPECT_TRUE(lock.try_lock());
  lock.unlock();
}

}  // namespace
}  // namespace replay_buffer::os
