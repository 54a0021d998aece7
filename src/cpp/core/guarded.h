// State that the threads of one process share under a lock.
//
// A child forked while another thread was changing the state begins with a fresh one: what it
// inherited may be half changed and is left as it is, memory included.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>

#include "os/process.h"
#include "os/thread_lock.h"

namespace replay_buffer {

template <class State>
class Guarded {
 public:
  // Calls function(state) with the lock held and returns what it returns.
  template <class Function>
  auto with(Function&& function) {
    const std::lock_guard guard(lock_);
    if (generation_ != os::fork_generation()) {
      (void)state_.release();
      state_ = std::make_unique<State>();
      generation_ = os::fork_generation();
    }
    return std::forward<Function>(function)(*state_);
  }

 private:
  os::SpinLock lock_;  // protects what follows
  std::unique_ptr<State> state_ = std::make_unique<State>();
  std::uint64_t generation_ = os::fork_generation();
};

}  // namespace replay_buffer
