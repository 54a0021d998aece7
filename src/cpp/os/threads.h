// A few helper threads that share out the work of one call.
//
// Helpers are started by the first call that has more than one task, stay, sleep when idle, block
// all signals that are not faults, and end with the process without being waited for. They start
// anew in the child of a fork. There are min(processors allowed to this process, 4) - 1 of them,
// or fewer when the system gives no more.
#pragma once

#include <atomic>
#include <cstddef>
#include <new>
#include <type_traits>

namespace replay_buffer::os {

// How many threads work on one call, the caller included. Starts nothing.
unsigned parallel_width() noexcept;

// Calls task(context, i) once for every i in [0, n_tasks), on the caller and the helpers, in no
// certain order, and returns when all have returned: what they wrote is then visible to the caller.
// Allocates nothing except at the first call. While another thread is in here (or when called from
// within a task) the caller does all the work itself; it never waits for another call's tasks.
// Worth it for calls of more than some 20 µs in all: waking a helper that sleeps costs a few.
// REQUIRES: task does not fork.
using Task = void (*)(void* context, std::size_t index) noexcept;
void parallel_for(std::size_t n_tasks, Task task, void* context) noexcept;

// The same for anything callable as function(index). It must not throw: that ends the program.
template <class Function>
void parallel_for(std::size_t n_tasks, Function&& function) noexcept {
  using Plain = std::remove_reference_t<Function>;
  parallel_for(
      n_tasks,
      [](void* context, std::size_t index) noexcept { (*static_cast<Plain*>(context))(index); },
      const_cast<void*>(static_cast<const void*>(&function)));
}

// The same for one that may throw bad_alloc, and nothing else: the caller gets it when all have
// returned.
template <class Function>
void parallel_try(std::size_t n_tasks, Function&& function) {
  std::atomic<bool> scarce{false};
  parallel_for(n_tasks, [&](std::size_t index) noexcept {
    try {
      function(index);
    } catch (const std::bad_alloc&) {
      scarce.store(true, std::memory_order_relaxed);
    }
  });
  if (scarce.load(std::memory_order_relaxed)) throw std::bad_alloc();
}

}  // namespace replay_buffer::os
