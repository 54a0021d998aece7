// Who a process is, whether it is gone, and whether this process is the child of a fork.
//
// Thread safe.
#pragma once

#include <atomic>
#include <cstdint>

namespace replay_buffer::os {

// Names one process for ever, where a pid alone is used again. May be stored in shared memory.
struct ProcessIdentity {
  std::uint32_t pid = 0;
  std::uint64_t start_time = 0;     // in units of the system; 0 when it cannot be read
  std::uint64_t pid_namespace = 0;  // where pid and start_time have a meaning: a digest of this
                                    // boot of this machine and its pid and time namespace; 0 when
                                    // it cannot be read

  friend bool operator==(const ProcessIdentity&, const ProcessIdentity&) = default;
};

// The calling process. Computed once, and again in the child of a fork.
ProcessIdentity self();

// A number that no other boot of any machine has; 0 when the system does not say.
std::uint64_t boot();

// True when the process is certainly dead: it was of our namespace and no process has its pid now,
// or another process has it, or it is a zombie without a thread left. False when it lives and when
// this cannot be told (another namespace or machine, an identity that is incomplete or nonsense).
// A process that is stopped is not gone.
bool gone(const ProcessIdentity& process);

// Makes fork_generation() count. Called by everything in os/ that depends on it, among them every
// Mapping, so that no buffer exists before it. Costs one load when already done.
void watch_forks();

namespace internal {
extern std::atomic<std::uint64_t> fork_count;
}

// How many forks lie between this process and the one that first called watch_forks(). It differs
// from what it was before exactly when the caller is now in the child of a fork. One load.
// Children made without fork(), as by a bare clone system call, are not seen.
inline std::uint64_t fork_generation() noexcept {
  return internal::fork_count.load(std::memory_order_relaxed);
}

}  // namespace replay_buffer::os
