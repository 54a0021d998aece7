#include <gtest/gtest.h>
#include <pthread.h>

#include "os/process.h"
#if defined(__linux__)
#include <sched.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#endif

#include <new>

#include "os/memory.h"
#include "os_child.h"

namespace replay_buffer::os {
namespace {

using testing::Child;
using testing::Signal;

// A child that leaves its identity in shared memory and then does nothing.
class Sleeper {
 public:
  template <class Before>
  explicit Sleeper(Before&& before)
      : file_(File::anonymous(4096)),
        mapping_(Mapping::map(file_, 4096, Access::kReadWrite)),
        child_([&] {
          before();
          *reinterpret_cast<ProcessIdentity*>(mapping_.data()) = self();
          ready_.set();
          for (;;) ::pause();
          return 0;
        }) {
    ready_.await();
  }
  Sleeper() : Sleeper([] {}) {}

  ProcessIdentity identity() const {
    return *reinterpret_cast<const ProcessIdentity*>(mapping_.data());
  }
  Child& child() { return child_; }

 private:
  File file_;
  Mapping mapping_;
  Signal ready_;
  Child child_;
};

TEST(OsProcess, IdentityIsCompleteAndStable) {
  const ProcessIdentity me = self();
  EXPECT_EQ(me.pid, static_cast<std::uint32_t>(::getpid()));
  EXPECT_NE(me.start_time, 0u);
  EXPECT_NE(me.pid_namespace, 0u);
  EXPECT_EQ(me, self());
  EXPECT_FALSE(gone(me));
}

TEST(OsProcess, AForkedChildIsAnotherProcess) {
  const ProcessIdentity parent = self();
  Child child([&] {
    const ProcessIdentity me = self();
    if (me.pid != static_cast<std::uint32_t>(::getpid()) || me.pid == parent.pid) return 1;
    if (me.pid_namespace != parent.pid_namespace || me.start_time < parent.start_time) return 2;
    return gone(parent) ? 3 : 0;
  });
  EXPECT_EQ(child.join(), 0);
}

TEST(OsProcess, GenerationCountsForksInTheChildOnly) {
  watch_forks();
  const std::uint64_t before = fork_generation();
  Child child([&] {
    if (fork_generation() == before) return 1;
    const std::uint64_t mine = fork_generation();
    Child grandchild([&] { return fork_generation() > mine ? 0 : 1; });
    return grandchild.join() + (fork_generation() == mine ? 0 : 2);
  });
  EXPECT_EQ(child.join(), 0);
  EXPECT_EQ(fork_generation(), before);
}

TEST(OsProcess, StoppedIsNotGoneAndKilledIs) {
  Sleeper sleeper;
  const ProcessIdentity process = sleeper.identity();
  EXPECT_FALSE(gone(process));
  sleeper.child().signal(SIGSTOP);
  EXPECT_FALSE(gone(process));
  sleeper.child().kill();
  EXPECT_TRUE(gone(process));
}

TEST(OsProcess, AZombieIsGone) {
  Sleeper sleeper;
  sleeper.child().signal(SIGKILL);
  for (int i = 0; i < 1000 && !gone(sleeper.identity()); ++i) ::usleep(1000);
  EXPECT_TRUE(gone(sleeper.identity())) << "before anybody has waited for it";
}

TEST(OsProcess, ANewProcessWithTheSamePidDoesNotHideTheDeath) {
  ProcessIdentity older = self();
  older.start_time -= 1;
  EXPECT_TRUE(gone(older));
}

TEST(OsProcess, WhatCannotBeToldIsNotGone) {
  Sleeper sleeper;
  const ProcessIdentity process = sleeper.identity();
  sleeper.child().kill();
  ASSERT_TRUE(gone(process));
  ProcessIdentity elsewhere = process;
  elsewhere.pid_namespace += 1;
  EXPECT_FALSE(gone(elsewhere));
  elsewhere.pid_namespace = 0;
  EXPECT_FALSE(gone(elsewhere));
  for (const std::uint32_t pid : {0u, 0x80000000u, 0xffffffffu}) {
    EXPECT_FALSE(gone({pid, process.start_time, process.pid_namespace})) << pid;
  }
  ProcessIdentity without_start = self();
  without_start.start_time = 0;
  EXPECT_FALSE(gone(without_start));
}

#if defined(__linux__)
TEST(OsProcess, AnyNameOfAProcessIsParsed) {
  Sleeper sleeper([] { ::prctl(PR_SET_NAME, "a) Z 1 (b) 2"); });
  EXPECT_GE(sleeper.identity().start_time, self().start_time);
  EXPECT_FALSE(gone(sleeper.identity()));
}

TEST(OsProcess, AProcessWhoseFirstThreadEndedIsNotGone) {
  Sleeper sleeper([] {
    pthread_t thread;
    ::pthread_create(
        &thread, nullptr,
        [](void*) -> void* {
          for (;;) ::pause();
        },
        nullptr);
    // Ends the first thread alone; pthread_exit would unwind the handlers of this test.
    ::signal(SIGUSR1, [](int) { ::syscall(SYS_exit, 0); });
  });
  sleeper.child().signal(SIGUSR1);
  for (int i = 0; i < 50; ++i) {
    ::usleep(1000);
    ASSERT_FALSE(gone(sleeper.identity()));
  }
  sleeper.child().kill();
  EXPECT_TRUE(gone(sleeper.identity()));
}

// In a new pid namespace, with /proc still that of the old one: the first process of it has a
// number that means another process to us, and the other way round.
TEST(OsProcess, NamespacesDoNotMistakeEachOthersPids) {
  Sleeper outside;
  Child maker([&] {
    const ProcessIdentity before = self();
    if (::unshare(CLONE_NEWPID) != 0) return 77;
    Child first([&] {
      const ProcessIdentity me = self();
      if (me.pid != 1 || me.pid_namespace == before.pid_namespace) return 1;
      if (gone(before) || gone(outside.identity()) || gone(me)) return 2;
      Sleeper inside;
      const ProcessIdentity sibling = inside.identity();
      if (sibling.pid_namespace != me.pid_namespace) return 3;
      if (gone(sibling)) return 4;
      inside.child().kill();
      return gone(sibling) ? 0 : 5;
    });
    return first.join();
  });
  const int code = maker.join();
  if (code == 77) GTEST_SKIP() << "this user may not make a pid namespace";
  EXPECT_EQ(code, 0);
}
#endif

}  // namespace
}  // namespace replay_buffer::os
