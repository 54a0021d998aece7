#include "os/free_memory.h"

#include <algorithm>
#include <fstream>
#include <string>

namespace replay_buffer::os {

namespace {

constexpr std::uint64_t kUnknown = UINT64_MAX;

// The number after `key` in a file of lines "key number".
std::uint64_t value_of(const std::string& path, const std::string& key) {
  std::ifstream file(path);
  std::string word, rest;
  std::uint64_t value;
  while (file >> word) {
    if (word == key && file >> value) return value;
    std::getline(file, rest);
  }
  return kUnknown;
}

// The number that is the whole of a file.
std::uint64_t number_in(const std::string& path) {
  std::ifstream file(path);
  std::uint64_t value;
  return file >> value ? value : kUnknown;
}

std::uint64_t free_on_machine() {
  const std::uint64_t available = value_of("/proc/meminfo", "MemAvailable:");
  if (available == kUnknown) return kUnknown;
  const std::uint64_t swap = value_of("/proc/meminfo", "SwapFree:");
  return (available + (swap == kUnknown ? 0 : swap)) * 1024;
}

// What one control group (version 2) still allows. Its cache of files counts as used but is given
// up for the asking, except for shared memory, which is counted among it.
std::uint64_t free_in_group(const std::string& group) {
  const std::uint64_t limit = number_in(group + "/memory.max");
  const std::uint64_t used = number_in(group + "/memory.current");
  if (limit == kUnknown || used == kUnknown) return kUnknown;
  const std::uint64_t file = value_of(group + "/memory.stat", "file");
  const std::uint64_t shared = value_of(group + "/memory.stat", "shmem");
  const std::uint64_t cache =
      file == kUnknown || shared == kUnknown ? 0 : file - std::min(file, shared);
  const std::uint64_t fixed = used - std::min(used, cache);
  return limit - std::min(limit, fixed);
}

// The tightest of our group and all above it.
std::uint64_t free_in_groups() {
  std::ifstream groups("/proc/self/cgroup");
  std::string line;
  while (std::getline(groups, line)) {
    if (line.rfind("0::/", 0) != 0) continue;
    std::string group = line.substr(3);
    std::uint64_t free = kUnknown;
    for (;;) {
      free = std::min(free, free_in_group("/sys/fs/cgroup" + group));
      if (group.empty()) return free;
      group.resize(group.rfind('/'));
    }
  }
  return kUnknown;
}

}  // namespace

std::uint64_t free_memory() { return std::min(free_on_machine(), free_in_groups()); }

}  // namespace replay_buffer::os
