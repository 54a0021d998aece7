#include "os/process.h"

#include <pthread.h>

#include "os/process_query.h"

namespace replay_buffer::os {

namespace internal {
std::atomic<std::uint64_t> fork_count{0};
}

namespace {

std::atomic<bool> watching{false};

extern "C" void replay_buffer_after_fork_in_child() {
  internal::fork_count.fetch_add(1, std::memory_order_relaxed);
}

// What self() found out, and 1 + the generation it was found out in. Threads that meet here store
// the same values, so no lock is needed that a fork could leave taken.
struct Cache {
  std::atomic<std::uint32_t> pid{0};
  std::atomic<std::uint64_t> start_time{0};
  std::atomic<std::uint64_t> pid_namespace{0};
  std::atomic<std::uint64_t> valid{0};
};
Cache cache;

}  // namespace

void watch_forks() {
  if (watching.load(std::memory_order_acquire)) return;
  // Two threads may both register: the count then goes up by two at a fork, which serves as well.
  // A once-flag would not do, since a fork in the middle of it would block the child for ever.
  pthread_atfork(nullptr, nullptr, replay_buffer_after_fork_in_child);
  watching.store(true, std::memory_order_release);
}

ProcessIdentity self() {
  watch_forks();
  const std::uint64_t valid = fork_generation() + 1;
  // Pairs with the release below.
  if (cache.valid.load(std::memory_order_acquire) != valid) {
    const ProcessIdentity found = internal::query_self();
    cache.pid.store(found.pid, std::memory_order_relaxed);
    cache.start_time.store(found.start_time, std::memory_order_relaxed);
    cache.pid_namespace.store(found.pid_namespace, std::memory_order_relaxed);
    cache.valid.store(valid, std::memory_order_release);
    return found;
  }
  return {cache.pid.load(std::memory_order_relaxed),
          cache.start_time.load(std::memory_order_relaxed),
          cache.pid_namespace.load(std::memory_order_relaxed)};
}

std::uint64_t boot() { return internal::query_boot(); }

bool gone(const ProcessIdentity& process) {
  if (process.pid == 0 || process.pid > 0x7fffffffu) return false;
  if (process.pid_namespace == 0 || process.pid_namespace != self().pid_namespace) return false;
  return internal::query_gone(process);
}

}  // namespace replay_buffer::os
