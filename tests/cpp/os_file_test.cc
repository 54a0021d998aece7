#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/time.h>

#include "os/file.h"
#if defined(__linux__)
#include <sched.h>
#endif

#include <cstring>
#include <fstream>
#include <vector>

#include "os/directory.h"
#include "os_child.h"

namespace replay_buffer::os {
namespace {

using testing::Child;
using testing::Directory;
using testing::expect_error;
using testing::Signal;

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;

File make(const std::string& directory, const std::string& path, unsigned mode = 0600) {
  File file = File::create_hidden(directory, mode);
  file.allocate(4096);
  file.link(path);
  return file;
}

std::uint64_t allocated_bytes(const File& file) {
  struct stat status;
  EXPECT_EQ(::fstat(file.fd(), &status), 0);
  return static_cast<std::uint64_t>(status.st_blocks) * 512;
}

TEST(OsFile, HiddenFileAppearsAtLinkWholeAndWithItsMode) {
  const Directory directory;
  const mode_t before = ::umask(0077);
  File file = File::create_hidden(directory.path(), 0640);
  ::umask(before);
#if defined(__linux__)
  EXPECT_TRUE(directory.empty());
#endif
  EXPECT_FALSE(file.linked());
  file.allocate(8192);
  file.write_at(100, "abc", 3);
  file.link(directory / "file");
  EXPECT_TRUE(file.linked());
  EXPECT_EQ(file.name(), directory / "file");
  struct stat status;
  ASSERT_EQ(::stat((directory / "file").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 07777, 0640u);
  const File opened = File::open(directory / "file", Access::kRead);
  EXPECT_EQ(opened.identity(), file.identity());
  EXPECT_EQ(opened.size(), 8192u);
  char text[3];
  opened.read_at(100, text, 3);
  EXPECT_EQ(std::memcmp(text, "abc", 3), 0);
}

TEST(OsFile, AKilledMakerLeavesNothing) {
  const Directory directory("/dev/shm");
  const Signal made;
  Child child([&] {
    File file = File::create_hidden(directory.path());
    file.allocate(kMiB);
    made.set();
    for (;;) ::pause();
    return 0;
  });
  made.await();
  child.kill();
  EXPECT_TRUE(directory.empty());
}

TEST(OsFile, LinkNeverReplaces) {
  const Directory directory;
  const File first = make(directory.path(), directory / "file");
  File second = File::create_hidden(directory.path());
  expect_error(ErrorCode::kAlreadyExists, {directory / "file"},
               [&] { second.link(directory / "file"); });
  EXPECT_EQ(File::open(directory / "file", Access::kRead).identity(), first.identity());
  second.link(directory / "other");
}

TEST(OsFile, OfManyWhoLinkAtOnceOneWins) {
  const Directory directory;
  const Signal start;
  std::vector<std::unique_ptr<Child>> children;
  children.reserve(8);
  for (int i = 0; i < 8; ++i) {
    children.push_back(std::make_unique<Child>([&] {
      File file = File::create_hidden(directory.path());
      start.await();
      try {
        file.link(directory / "file");
        return 1;
      } catch (const Error& error) {
        return error.code() == ErrorCode::kAlreadyExists ? 0 : 50;
      }
    }));
  }
  for (int i = 0; i < 8; ++i) start.set();
  int n_won = 0;
  for (auto& child : children) n_won += child->join();
  EXPECT_EQ(n_won, 1);
}

TEST(OsFile, HiddenNamesServeWhereThereAreNoUnnamedFiles) {
  const Directory directory;
  {
    const File dropped = File::create_with_hidden_name(directory.path());
    EXPECT_FALSE(directory.empty());
    EXPECT_FALSE(dropped.linked());
    // A forked child that ends must not take the file away from its maker.
    Child child([&] {
      const_cast<File&>(dropped) = File();
      return 0;
    });
    EXPECT_EQ(child.join(), 0);
    EXPECT_FALSE(directory.empty());
  }
  EXPECT_TRUE(directory.empty());
  File file = File::create_with_hidden_name(directory.path(), 0600);
  file.link(directory / "file");
  EXPECT_TRUE(file.linked());
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(directory.path()), {}), 1);
  File second = File::create_with_hidden_name(directory.path());
  expect_error(ErrorCode::kAlreadyExists, {directory / "file"},
               [&] { second.link(directory / "file"); });
}

TEST(OsFile, OpenTellsAbsentFromForbiddenFromNotAFile) {
  const Directory directory;
  for (const Access access : {Access::kRead, Access::kReadWrite}) {
    expect_error(ErrorCode::kNotFound, {directory / "none"},
                 [&] { File::open(directory / "none", access); });
    expect_error(ErrorCode::kInvalidArgument, {directory.path()},
                 [&] { File::open(directory.path(), access); });
  }
  ASSERT_EQ(::mkfifo((directory / "pipe").c_str(), 0600), 0);
  expect_error(ErrorCode::kInvalidArgument, {directory / "pipe", "regular"},
               [&] { File::open(directory / "pipe", Access::kRead); });
}

TEST(OsFile, AnotherUserCannotOpen) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can become another user";
  const Directory directory;
  ASSERT_EQ(::chmod(directory.path().c_str(), 0755), 0);
  make(directory.path(), directory / "file");
  const File anonymous = File::anonymous(4096);
  Child child([&] {
    if (::setgid(65534) != 0 || ::setuid(65534) != 0) return 98;
    for (const Access access : {Access::kRead, Access::kReadWrite}) {
      try {
        File::open(directory / "file", access);
        return 1;
      } catch (const Error& error) {
        if (error.code() != ErrorCode::kPermissionDenied) return 2;
      }
    }
    try {
      anonymous.reopen();
      return 3;
    } catch (const Error& error) {
      return error.code() == ErrorCode::kPermissionDenied ? 0 : 4;
    }
  });
  EXPECT_EQ(child.join(), 0);
}

TEST(OsFile, AllocateGivesStorageToEveryByteAndKeepsContent) {
  for (const char* parent : {"/dev/shm", "/tmp"}) {
    const Directory directory(parent);
    File file = File::create_hidden(directory.path());
    file.allocate(kMiB);
    EXPECT_EQ(file.size(), kMiB);
    EXPECT_GE(allocated_bytes(file), kMiB);
    file.write_at(0, "abc", 3);
    file.allocate(3 * kMiB + 5);
    EXPECT_EQ(file.size(), 3 * kMiB + 5);
    EXPECT_GE(allocated_bytes(file), 3 * kMiB + 5);
    file.allocate(10);
    EXPECT_EQ(file.size(), 3 * kMiB + 5);
    char text[4];
    file.read_at(0, text, 4);
    EXPECT_EQ(std::memcmp(text, "abc", 4), 0);
  }
}

TEST(OsFile, AllocateGoesOnUnderConstantSignals) {
  // In a child: the last signal may come after the timer was taken back.
  Child child([] {
    struct sigaction action{};
    action.sa_handler = [](int) {};
    const itimerval often{{0, 1000}, {0, 1000}};
    if (::sigaction(SIGALRM, &action, nullptr) != 0) return 77;
    if (::setitimer(ITIMER_REAL, &often, nullptr) != 0) return 77;
    return allocated_bytes(File::anonymous(256 * kMiB)) >= 256 * kMiB ? 0 : 1;
  });
  EXPECT_EQ(child.join(), 0);
}

TEST(OsFile, AnAllocationThatFailsHalfwayLeavesTheFileAsItWas) {
  const Directory directory("/dev/shm");
  Child child([&] {
    File file = File::create_hidden(directory.path());
    file.allocate(4096);
    ::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{100 * kMiB, 100 * kMiB};
    if (::setrlimit(RLIMIT_FSIZE, &limit) != 0) return 77;
    try {
      file.allocate(150 * kMiB);
      return 1;
    } catch (const Error& error) {
      if (error.code() != ErrorCode::kOutOfSpace) return 2;
      if (std::string(error.what()).find(std::to_string(150 * kMiB)) == std::string::npos) return 3;
    }
    return file.size() == 4096 && allocated_bytes(file) == 4096 ? 0 : 4;
  });
  EXPECT_EQ(child.join(), 0);
}

TEST(OsFile, MoreThanTheMemoryOfTheMachineIsAnErrorAndKillsNobody) {
  const std::uint64_t bytes = std::uint64_t{1} << 50;
  expect_error(ErrorCode::kOutOfSpace, {std::to_string(bytes), "free"},
               [&] { File::anonymous(bytes); });
}

#if defined(__linux__)
TEST(OsFile, AFullFileSystemIsAnErrorThatNamesAskedAndFree) {
  const Directory directory;
  Child child([&] {
    // A mount of our own, which ends with this process.
    if (::unshare(CLONE_NEWNS) != 0 ||
        ::mount("none", "/", "none", MS_REC | MS_PRIVATE, nullptr) != 0 ||
        ::mount("tmpfs", directory.path().c_str(), "tmpfs", 0, "size=1m") != 0) {
      return 77;
    }
    File file = File::create_hidden(directory.path());
    file.allocate(4096);
    try {
      file.allocate(2 * kMiB);
      return 1;
    } catch (const Error& error) {
      std::fprintf(stderr, "%s\n", error.what());
      if (error.code() != ErrorCode::kOutOfSpace) return 2;
      const std::string what = error.what();
      if (what.find("2097152") == std::string::npos) return 3;
      if (what.find("1044480 are free") == std::string::npos) return 4;
    }
    if (file.size() != 4096 || allocated_bytes(file) != 4096) return 5;
    file.allocate(kMiB);
    try {
      File::create_hidden(directory.path()).write_at(0, "x", 1);
      return 6;
    } catch (const Error& error) {
      if (error.code() != ErrorCode::kOutOfSpace) return 7;
    }
    return 0;
  });
  const int code = child.join();
  if (code == 77) GTEST_SKIP() << "this user may not mount a small tmpfs";
  EXPECT_EQ(code, 0);
}
#endif

TEST(OsFile, ReadingPastTheEndIsAnError) {
  const Directory directory;
  File file = make(directory.path(), directory / "file");
  std::vector<char> data(5000);
  expect_error(ErrorCode::kCorrupt, {"5000", "4096", directory / "file"},
               [&] { file.read_at(0, data.data(), data.size()); });
  file.truncate(10);
  EXPECT_EQ(file.size(), 10u);
  expect_error(ErrorCode::kCorrupt, {}, [&] { file.read_at(10, data.data(), 1); });
}

TEST(OsFile, WritingThroughAReadOnlyFileIsAnError) {
  const Directory directory;
  make(directory.path(), directory / "file");
  const File file = File::open(directory / "file", Access::kRead);
  EXPECT_THROW(file.write_at(0, "x", 1), Error);
}

TEST(OsFile, RenameOverReplacesAndRemoveRemoves) {
  const Directory directory;
  const File old_file = make(directory.path(), directory / "file");
  const File new_file = make(directory.path(), directory / "new");
  new_file.sync();
  File::rename_over(directory / "new", directory / "file");
  EXPECT_EQ(File::open(directory / "file", Access::kRead).identity(), new_file.identity());
  EXPECT_FALSE(old_file.linked());
  File::remove(directory / "file");
  EXPECT_FALSE(new_file.linked());
  expect_error(ErrorCode::kNotFound, {directory / "file"},
               [&] { File::remove(directory / "file"); });
  expect_error(ErrorCode::kNotFound, {directory / "file"},
               [&] { File::rename_over(directory / "file", directory / "new"); });
}

TEST(OsFile, AReceivedDescriptorIsOwnedAndKnown) {
  const Directory directory;
  const File file = make(directory.path(), directory / "file");
  const int fd = ::open((directory / "file").c_str(), O_RDONLY);
  {
    const File received = File::from_fd(fd);
    EXPECT_EQ(received.identity(), file.identity());
    EXPECT_EQ(received.access(), Access::kRead);
    EXPECT_NE(::fcntl(received.fd(), F_GETFD) & FD_CLOEXEC, 0);
  }
  EXPECT_LT(::fcntl(fd, F_GETFD), 0);
  EXPECT_THROW(File::from_fd(fd), Error);
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  expect_error(ErrorCode::kInvalidArgument, {"regular"}, [&] { File::from_fd(ends[0]); });
  EXPECT_LT(::fcntl(ends[0], F_GETFD), 0);
  ::close(ends[1]);
}

TEST(OsFile, StandardStreamNumbersAreNotUsed) {
  Child child([] {
    ::close(0);
    const File file = File::anonymous(4096);
    return file.fd() > 2 ? 0 : 1;
  });
  EXPECT_EQ(child.join(), 0);
}

TEST(OsFile, ADescriptorClosedBehindOurBackIsNoticedAndNotClosedTwice) {
  const Directory directory;
  File file = make(directory.path(), directory / "file");
  EXPECT_TRUE(file.intact());
  const int number = file.fd();
  ::close(number);
  EXPECT_FALSE(file.intact());
  EXPECT_EQ(file.reopen().identity(), file.identity());
  const int stranger = ::open("/dev/null", O_RDONLY);
  ASSERT_EQ(stranger, number);
  EXPECT_FALSE(file.intact());
  File::remove(directory / "file");
  expect_error(ErrorCode::kClosed, {directory / "file"}, [&] { file.reopen(); });
  file = File();
  EXPECT_GE(::fcntl(stranger, F_GETFD), 0);
  ::close(stranger);
}

TEST(OsFile, ReopenGivesLocksOfItsOwn) {
  const Directory directory;
  const File named = make(directory.path(), directory / "file");
  std::vector<const File*> files{&named};
#if defined(__linux__)
  const File anonymous = File::anonymous(4096);
  const File hidden = File::create_hidden(directory.path());
  files.push_back(&anonymous);
  files.push_back(&hidden);
#endif
  for (const File* file : files) {
    const File again = file->reopen();
    EXPECT_EQ(again.identity(), file->identity());
    ASSERT_TRUE(file->try_lock_exclusive());
    EXPECT_FALSE(again.try_lock_shared());
    file->unlock();
    EXPECT_TRUE(again.try_lock_shared());
    EXPECT_FALSE(file->try_lock_exclusive());
    EXPECT_EQ(file->reopen(Access::kRead).access(), Access::kRead);
  }
}

TEST(OsFile, SharedLocksKeepTheExclusiveOneAway) {
  const Directory directory;
  const File first = make(directory.path(), directory / "file");
  const File second = File::open(directory / "file", Access::kRead);
  const File remover = File::open(directory / "file", Access::kReadWrite);
  first.lock_shared();
  second.lock_shared();
  EXPECT_FALSE(remover.try_lock_exclusive());
  first.unlock();
  EXPECT_FALSE(remover.try_lock_exclusive());
  second.unlock();
  EXPECT_TRUE(remover.try_lock_exclusive());
  expect_error(ErrorCode::kTimeout, {directory / "file"},
               [&] { first.lock_shared(std::chrono::milliseconds(5)); });
}

TEST(OsFile, AKilledAttacherNoLongerHoldsItsLock) {
  const Directory directory;
  const File file = make(directory.path(), directory / "file");
  const Signal locked;
  Child child([&] {
    const File attached = File::open(directory / "file", Access::kReadWrite);
    attached.lock_shared();
    locked.set();
    for (;;) ::pause();
    return 0;
  });
  locked.await();
  EXPECT_FALSE(file.try_lock_exclusive());
  child.signal(SIGSTOP);
  EXPECT_FALSE(file.try_lock_exclusive());
  child.kill();
  EXPECT_TRUE(file.try_lock_exclusive());
}

}  // namespace
}  // namespace replay_buffer::os
