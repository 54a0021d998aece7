#include <fcntl.h>
#include <gtest/gtest.h>

#include "os/byte_lock.h"
#include "os_child.h"

namespace replay_buffer::os {
namespace {

using byte_lock::held_by_other;
using byte_lock::try_lock;
using byte_lock::try_lock_shared;
using byte_lock::unlock;
using testing::Child;
using testing::Directory;
using testing::expect_error;
using testing::Signal;

constexpr std::uint64_t kSlot = 1'000'007;

class OsByteLock : public ::testing::Test {
 protected:
  OsByteLock() : file_(File::create_hidden(directory_.path())) {
    file_.allocate(4096);
    file_.link(directory_ / "file");
  }
  File attach(Access access = Access::kReadWrite) const {
    return File::open(directory_ / "file", access);
  }

  Directory directory_{"/dev/shm"};
  File file_;
};

TEST_F(OsByteLock, ExcludesOtherDescriptionsOnThatByteOnly) {
  const File other = attach();
  EXPECT_FALSE(held_by_other(other, kSlot));
  EXPECT_TRUE(try_lock(file_, kSlot));
  EXPECT_TRUE(try_lock(file_, kSlot));
  EXPECT_FALSE(held_by_other(file_, kSlot));
  EXPECT_TRUE(held_by_other(other, kSlot));
  EXPECT_FALSE(try_lock(other, kSlot));
  EXPECT_TRUE(try_lock(other, kSlot + 1));
  EXPECT_TRUE(try_lock(other, kSlot - 1));
  unlock(file_, kSlot);
  unlock(file_, kSlot);
  EXPECT_TRUE(try_lock(other, kSlot));
}

TEST_F(OsByteLock, SharedIsForManyAndExcludesTheExclusiveOne) {
  const File other = attach();
  EXPECT_TRUE(try_lock_shared(file_, kSlot));
  EXPECT_TRUE(try_lock(file_, kSlot)) << "alone it becomes the exclusive one";
  EXPECT_FALSE(try_lock_shared(other, kSlot));
  EXPECT_TRUE(try_lock_shared(file_, kSlot)) << "and back";
  EXPECT_TRUE(try_lock_shared(other, kSlot));
  EXPECT_FALSE(try_lock(file_, kSlot));
  EXPECT_FALSE(try_lock(other, kSlot));
  unlock(file_, kSlot);
  EXPECT_TRUE(try_lock(other, kSlot)) << "who was refused kept the shared one";
}

TEST_F(OsByteLock, AWatcherThatMayOnlyReadCanAsk) {
  const File watcher = attach(Access::kRead);
  EXPECT_FALSE(held_by_other(watcher, kSlot));
  EXPECT_TRUE(try_lock(file_, kSlot));
  EXPECT_TRUE(held_by_other(watcher, kSlot));
  expect_error(ErrorCode::kSystemFailure, {directory_ / "file", std::to_string(kSlot + 5)},
               [&] { try_lock(watcher, kSlot + 5); });
}

TEST_F(OsByteLock, IsIndependentOfTheLockOfTheWholeFile) {
  const File other = attach();
  file_.lock_shared();
  other.lock_shared();
  EXPECT_TRUE(try_lock(file_, 0));
  EXPECT_TRUE(try_lock(other, 1));
  file_.unlock();
  EXPECT_TRUE(held_by_other(other, 0));
}

TEST_F(OsByteLock, LivesThroughStopAndEndsWithKill) {
  const Signal locked;
  Child child([&] {
    const File own = attach();
    if (!try_lock(own, kSlot)) return 1;
    locked.set();
    for (;;) ::pause();
    return 0;
  });
  locked.await();
  EXPECT_TRUE(held_by_other(file_, kSlot));
  child.signal(SIGSTOP);
  ::usleep(20'000);
  EXPECT_TRUE(held_by_other(file_, kSlot));
  child.kill();
  EXPECT_FALSE(held_by_other(file_, kSlot));
}

TEST_F(OsByteLock, AForkedChildKeepsTheLockUntilItClosesTheDescriptor) {
  File own = attach();
  ASSERT_TRUE(try_lock(own, kSlot));
  const Signal go, closed, end;
  Child child([&] {
    go.await();
    // The way of the child: a description of its own, the parent's given up.
    const File mine = own.reopen();
    own = File();
    if (try_lock(mine, kSlot + 1)) closed.set();
    end.await();
    return 0;
  });
  const int number = own.fd();
  own = File();
  EXPECT_LT(::fcntl(number, F_GETFD), 0);
  EXPECT_TRUE(held_by_other(file_, kSlot)) << "the child shares the description";
  go.set();
  closed.await();
  EXPECT_FALSE(held_by_other(file_, kSlot));
  EXPECT_TRUE(held_by_other(file_, kSlot + 1));
  end.set();
  EXPECT_EQ(child.join(), 0);
  EXPECT_FALSE(held_by_other(file_, kSlot + 1));
}

TEST_F(OsByteLock, WorksOnAnonymousMemory) {
#if defined(__linux__)
  const File anonymous = File::anonymous(4096);
  const File again = anonymous.reopen();
  EXPECT_TRUE(try_lock(anonymous, 3));
  EXPECT_TRUE(held_by_other(again, 3));
#endif
}

}  // namespace
}  // namespace replay_buffer::os
