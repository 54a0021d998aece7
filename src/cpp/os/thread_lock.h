// A lock for the threads of one process, for sections of well under a microsecond.
//
// It survives fork: when a child was forked while another thread of the parent held the lock, that
// thread does not exist in the child, and the child takes the lock over. What the lock protects may
// then be half changed; whoever cares remembers fork_generation() next to it and compares.
//
// Never put it in shared memory.
#pragma once

#include <atomic>
#include <cstdint>

#include "os/process.h"

namespace replay_buffer::os {

// Usable with std::lock_guard. Not recursive, not fair.
// REQUIRES: watch_forks() was called before the first fork; the holder does not fork.
class SpinLock {
 public:
  constexpr SpinLock() noexcept = default;
  SpinLock(const SpinLock&) = delete;
  SpinLock& operator=(const SpinLock&) = delete;

  // Spins, then yields, then sleeps in short slices until the lock is free.
  void lock() noexcept {
    if (!try_lock()) lock_contended();
  }

  bool try_lock() noexcept {
    const std::uint64_t mine = fork_generation() + 1;
    std::uint64_t seen = 0;
    // Pairs with the release in unlock().
    if (word_.compare_exchange_strong(seen, mine, std::memory_order_acquire,
                                      std::memory_order_relaxed)) {
      return true;
    }
    // Another generation than ours: the holder stayed behind in an ancestor.
    return seen != mine && word_.compare_exchange_strong(seen, mine, std::memory_order_acquire,
                                                         std::memory_order_relaxed);
  }

  // REQUIRES: the caller holds the lock.
  void unlock() noexcept { word_.store(0, std::memory_order_release); }

 private:
  void lock_contended() noexcept;

  // 0 when free, else 1 + the fork generation of the process whose thread holds it.
  std::atomic<std::uint64_t> word_{0};
};

}  // namespace replay_buffer::os
