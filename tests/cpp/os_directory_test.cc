#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/time.h>

#include <cstdlib>
#include <fstream>

#include "os/directory.h"
#include "os/file.h"
#include "os_child.h"

namespace replay_buffer::os {
namespace {

using testing::Directory;
using testing::expect_error;

constexpr const char* kVariable = "REPLAY_BUFFER_SHM_DIR";

class OsDirectory : public ::testing::Test {
 protected:
  OsDirectory() {
    if (const char* value = std::getenv(kVariable)) before_ = value;
    ::setenv(kVariable, directory_.path().c_str(), 1);
  }
  ~OsDirectory() override {
    if (before_.empty()) {
      ::unsetenv(kVariable);
    } else {
      ::setenv(kVariable, before_.c_str(), 1);
    }
  }
  void touch(const std::string& name) const { std::ofstream(directory_ / name) << "x"; }
  void make_old(const std::string& name) const {
    const timeval times[2] = {{1, 0}, {1, 0}};
    ASSERT_EQ(::utimes((directory_ / name).c_str(), times), 0);
  }

  Directory directory_;
  std::string before_;
};

TEST_F(OsDirectory, TheVariableChoosesTheDirectory) {
  EXPECT_EQ(shared_memory_dir(), directory_.path());
  EXPECT_EQ(shared_memory_path("atari"), directory_ / "replay_buffer.atari");
  ::setenv(kVariable, "relative", 1);
  expect_error(ErrorCode::kInvalidArgument, {kVariable, "relative"}, [] { shared_memory_dir(); });
  ::setenv(kVariable, (directory_ / "none").c_str(), 1);
  expect_error(ErrorCode::kNotFound, {kVariable, directory_ / "none"}, [] { shared_memory_dir(); });
#if defined(__linux__)
  ::setenv(kVariable, "", 1);
  EXPECT_EQ(shared_memory_dir(), "/dev/shm");
  ::unsetenv(kVariable);
  EXPECT_EQ(shared_memory_dir(), "/dev/shm");
#endif
}

TEST_F(OsDirectory, NamesThatAreNotPlainAreRefused) {
  for (const std::string& name :
       {std::string(), std::string(201, 'a'), std::string("a/b"), std::string("../x"),
        std::string("a b"), std::string("a\0b", 3), std::string("\xc3\xa4"), std::string("a\n")}) {
    expect_error(ErrorCode::kInvalidArgument, {"1 to 200"}, [&] { shared_memory_path(name); });
  }
  EXPECT_EQ(shared_memory_path(std::string(200, 'a')).size(),
            directory_.path().size() + 1 + 14 + 200);
  EXPECT_EQ(shared_memory_path("A-z_0.9"), directory_ / "replay_buffer.A-z_0.9");
  EXPECT_EQ(shared_memory_path(".."), directory_ / "replay_buffer...");
}

TEST_F(OsDirectory, ListsSegmentsAndNothingElse) {
  EXPECT_TRUE(list_shared_memory().empty());
  for (const char* name : {"replay_buffer.b", "replay_buffer.a.1", "replay_buffer.", "other",
                           ".replay_buffer.0123", "replay_buffer.bad name"}) {
    touch(name);
  }
  ASSERT_EQ(::mkdir((directory_ / "replay_buffer.dir").c_str(), 0700), 0);
  EXPECT_EQ(list_shared_memory(), (std::vector<std::string>{"a.1", "b"}));
}

TEST_F(OsDirectory, SegmentsAndArraysAreNotTakenForEachOther) {
  touch("replay_buffer.a");
  touch("replay_buffer_array.b");
  touch("replay_buffer.array.c");
  EXPECT_EQ(list_shared_memory(), (std::vector<std::string>{"a", "array.c"}));
  EXPECT_EQ(list_shared_arrays(), (std::vector<std::string>{"b"}));
  EXPECT_EQ(shared_array_path("b"), directory_ / "replay_buffer_array.b");
}

TEST_F(OsDirectory, OnlyAbandonedHiddenFilesAreRemoved) {
  const File held = File::create_with_hidden_name(directory_.path());
  held.lock_shared();
  touch(".replay_buffer.young");
  touch(".replay_buffer.old");
  touch(".other");
  make_old(".replay_buffer.old");
  make_old(".other");
  for (const auto& entry : std::filesystem::directory_iterator(directory_.path())) {
    const std::string name = entry.path().filename();
    if (name != ".replay_buffer.young") make_old(name);
  }
  EXPECT_EQ(remove_abandoned(directory_.path()), 1);
  EXPECT_FALSE(std::filesystem::exists(directory_ / ".replay_buffer.old"));
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(directory_.path()), {}), 3);
  expect_error(ErrorCode::kNotFound, {directory_ / "none"},
               [&] { remove_abandoned(directory_ / "none"); });
}

}  // namespace
}  // namespace replay_buffer::os
