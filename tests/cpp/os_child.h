// Real child processes and a directory to work in, for the tests of os/.
#pragma once

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <string>
#include <utility>

#include "replay_buffer/error.h"

#if defined(REPLAY_TEST_VALGRIND)
#include <valgrind/valgrind.h>
#endif

namespace replay_buffer::os::testing {

// A forked child that runs `body` and leaves with its result, without any destructor. Killed and
// waited for at the end, if it is still there.
class Child {
 public:
  template <class Body>
  explicit Child(Body&& body) : pid_(::fork()) {
    if (pid_ != 0) return;
#if defined(REPLAY_TEST_VALGRIND)
    // What threads of the parent hold is lost in a child, and it leaves without any destructor.
    VALGRIND_CLO_CHANGE("--leak-check=no");
#endif
    int code = 99;
    try {
      code = std::forward<Body>(body)();
    } catch (const std::exception& error) {
      std::fprintf(stderr, "child: %s\n", error.what());
    }
    std::fflush(stderr);
    ::_exit(code);
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  ~Child() {
    if (pid_ > 0) kill();
  }

  pid_t pid() const { return pid_; }
  void signal(int number) const { ::kill(pid_, number); }

  // Waits for the end. Returns the exit code, or 128 + the signal that ended it.
  int join() {
    int status = 0;
    while (::waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
    }
    pid_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }
  void kill() {
    ::kill(pid_, SIGCONT);
    ::kill(pid_, SIGKILL);
    join();
  }

 private:
  pid_t pid_;
};

// One process tells another that it got somewhere. Made before the fork.
class Signal {
 public:
  Signal() {
    if (::pipe(ends_) != 0) std::abort();
  }
  Signal(const Signal&) = delete;
  Signal& operator=(const Signal&) = delete;
  ~Signal() {
    ::close(ends_[0]);
    ::close(ends_[1]);
  }
  void set() const {
    const char byte = 1;
    if (::write(ends_[1], &byte, 1) != 1) std::abort();
  }
  void await() const {
    char byte;
    while (::read(ends_[0], &byte, 1) < 0 && errno == EINTR) {
    }
  }

 private:
  int ends_[2];
};

// An empty directory, removed at the end with all that is in it.
class Directory {
 public:
  explicit Directory(const std::string& parent = "/tmp") : path_(parent + "/os_test.XXXXXX") {
    if (::mkdtemp(path_.data()) == nullptr) std::abort();
  }
  Directory(const Directory&) = delete;
  Directory& operator=(const Directory&) = delete;
  ~Directory() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  const std::string& path() const { return path_; }
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }
  bool empty() const { return std::filesystem::is_empty(path_); }

 private:
  std::string path_;
};

// The error that `body` throws must have this code and name all of these words.
template <class Body>
void expect_error(ErrorCode code, std::initializer_list<std::string> words, Body&& body) {
  try {
    std::forward<Body>(body)();
    ADD_FAILURE() << "no error was thrown";
  } catch (const Error& error) {
    EXPECT_EQ(static_cast<int>(error.code()), static_cast<int>(code)) << error.what();
    for (const std::string& word : words) {
      EXPECT_NE(std::string(error.what()).find(word), std::string::npos)
          << "\"" << error.what() << "\" does not name " << word;
    }
  }
}

}  // namespace replay_buffer::os::testing
