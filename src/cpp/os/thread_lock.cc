#include "os/thread_lock.h"

#include <chrono>
#include <thread>

#include "os/cpu.h"
#include "os/let_go.h"

namespace replay_buffer::os {

namespace {
constexpr unsigned kSpins = 64;
constexpr unsigned kYields = 1024;
}  // namespace

void SpinLock::lock_contended() noexcept {
  for (unsigned round = 0;; ++round) {
    // Reading first keeps the line shared between those who wait.
    if (word_.load(std::memory_order_relaxed) != fork_generation() + 1 && try_lock()) return;
    if (round < kSpins) {
      cpu_relax();
      if (round + 1 == kSpins) let_go();
    } else if (round < kSpins + kYields) {
      std::this_thread::yield();
    } else {
      // A holder of lower priority would never run if all others only yielded.
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
  }
}

}  // namespace replay_buffer::os
