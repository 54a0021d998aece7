#if defined(__linux__)

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "os/process_query.h"

namespace replay_buffer::os::internal {

namespace {

// Reads the start of a small file as a string. Returns the length, or -1. Allocates nothing.
ssize_t read_text(const char* path, char* text, std::size_t size) {
  const int fd = ::open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return -1;
  ssize_t n;
  do {
    n = ::read(fd, text, size - 1);
  } while (n < 0 && errno == EINTR);
  ::close(fd);
  if (n >= 0) text[n] = '\0';
  return n;
}

struct Stat {
  char state = '?';
  long n_threads = 0;
  std::uint64_t start_time = 0;
};

// Fields 3, 20 and 22 of the stat file of a process's first thread, which are those of the process.
// Not of /proc/PID/stat: qemu-user makes that one up for the process it runs, with another start
// time for each thread. The name in field 2 may hold any character, so fields are counted from the
// last ')'.
bool read_stat(long pid, Stat& stat) {
  char path[64];
  std::snprintf(path, sizeof path, "/proc/%ld/task/%ld/stat", pid, pid);
  char text[1024];
  if (read_text(path, text, sizeof text) <= 0) return false;
  const char* at = std::strrchr(text, ')');
  if (at == nullptr || at[1] != ' ') return false;
  at += 2;
  stat.state = *at;
  for (int field = 3; field < 22; ++field) {
    if (field == 20) stat.n_threads = std::strtol(at, nullptr, 10);
    at = std::strchr(at, ' ');
    if (at == nullptr) return false;
    ++at;
  }
  stat.start_time = std::strtoull(at, nullptr, 10);
  return stat.start_time != 0;
}

std::uint64_t mix(std::uint64_t digest, std::uint64_t value) {
  digest = (digest ^ value) * 0x9e3779b97f4a7c15u;
  return digest ^ (digest >> 32);
}

// The first pid namespace has the same number on every machine and after every boot, and start
// times count from the boot and are shifted by time namespaces: all three go into the digest.
std::uint64_t query_namespace() {
  struct stat pid_namespace;
  if (::stat("/proc/self/ns/pid", &pid_namespace) != 0) return 0;
  std::uint64_t digest = query_boot();
  if (digest == 0) return 0;
  digest = mix(digest, pid_namespace.st_ino);
  struct stat time_namespace;
  if (::stat("/proc/self/ns/time", &time_namespace) == 0) {
    digest = mix(digest, time_namespace.st_ino);
  }
  return digest == 0 ? 1 : digest;
}

// The number of this process in /proc, which another pid namespace may have mounted; 0 when there
// is none.
long own_number() {
  char target[32];
  const ssize_t n = ::readlink("/proc/self", target, sizeof target - 1);
  if (n <= 0) return 0;
  target[n] = '\0';
  return std::strtol(target, nullptr, 10);
}

}  // namespace

std::uint64_t query_boot() {
  char boot[64];
  const ssize_t n = read_text("/proc/sys/kernel/random/boot_id", boot, sizeof boot);
  if (n <= 0) return 0;
  std::uint64_t digest = 1;
  for (ssize_t i = 0; i < n; ++i) digest = mix(digest, static_cast<unsigned char>(boot[i]));
  return digest == 0 ? 1 : digest;
}

ProcessIdentity query_self() {
  ProcessIdentity identity;
  identity.pid = static_cast<std::uint32_t>(::getpid());
  Stat stat;
  if (read_stat(own_number(), stat)) identity.start_time = stat.start_time;
  identity.pid_namespace = query_namespace();
  return identity;
}

bool query_gone(const ProcessIdentity& process) {
  const auto pid = static_cast<pid_t>(process.pid);
  // The kernel's own word; a missing directory in /proc is none, since it may be hidden (hidepid).
  if (::kill(pid, 0) != 0 && errno == ESRCH) return true;
  if (own_number() != ::getpid()) return false;  // the numbers in it are not ours
  Stat stat;
  if (!read_stat(pid, stat)) return ::kill(pid, 0) != 0 && errno == ESRCH;
  if (process.start_time != 0 && stat.start_time != process.start_time) return true;
  // A zombie whose first thread ended before the others still runs.
  return process.start_time != 0 && stat.state == 'Z' && stat.n_threads <= 1;
}

}  // namespace replay_buffer::os::internal

#endif
