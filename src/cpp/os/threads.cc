#include "os/threads.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <new>
#include <thread>

#include "os/clock.h"
#include "os/cpu.h"
#include "os/process.h"

namespace replay_buffer::os {

namespace {

constexpr unsigned kMaxWidth = 4;
constexpr std::uint64_t kSpinNs = 20'000;
constexpr std::uint64_t kTasksLeft = 0xffffffffu;

// The helpers of one process. Never destroyed: they may look at it until the process ends.
struct Pool {
  explicit Pool(Pool* parent) : generation(fork_generation()), of_parent(parent) {}

  const std::uint64_t generation;
  Pool* const of_parent;  // the pool this process had before it was forked, dead

  // Whoever set this owns the fields up to `ticket`, except that a helper that took a task reads
  // the job until it has added to `finished`.
  alignas(kCacheLine) std::atomic<bool> busy{false};
  bool started = false;
  unsigned n_helpers = 0;
  Task task = nullptr;
  void* context = nullptr;
  std::uint32_t n_tasks = 0;

  // Number of the job in the upper half, tasks nobody has taken yet in the lower. Who lowers it
  // owns a task, and the job cannot end before that task: so a helper that comes late either takes
  // a task of the job that is there, or sees none.
  alignas(kCacheLine) std::atomic<std::uint64_t> ticket{0};
  // Goes up with every job; helpers sleep on it.
  alignas(kCacheLine) std::atomic<std::uint32_t> posted{0};
  // Tasks of this job that have returned; the caller sleeps on it.
  alignas(kCacheLine) std::atomic<std::uint32_t> finished{0};
};

std::atomic<Pool*> current{nullptr};

Pool* pool_of_this_process() noexcept {
  Pool* pool = current.load(std::memory_order_acquire);
  if (pool != nullptr && pool->generation == fork_generation()) return pool;
  watch_forks();
  Pool* fresh = new (std::nothrow) Pool(pool);
  if (fresh == nullptr) return nullptr;
  // Pairs with the acquire above.
  if (current.compare_exchange_strong(pool, fresh, std::memory_order_acq_rel)) return fresh;
  delete fresh;
  return pool;
}

// Spins until `word` is not `old`, for kSpinNs at most. Returns whether it changed.
bool spin_while(const std::atomic<std::uint32_t>& word, std::uint32_t old) noexcept {
  const std::uint64_t end = monotonic_ns() + kSpinNs;
  do {
    for (int i = 0; i < 32; ++i) {
      if (word.load(std::memory_order_acquire) != old) return true;
      cpu_relax();
    }
  } while (monotonic_ns() < end);
  return false;
}

// Takes and runs tasks until none is left. Returns how many; they are all of one job.
std::uint32_t run_tasks(Pool& pool) noexcept {
  std::uint32_t n_run = 0;
  std::uint64_t ticket = pool.ticket.load(std::memory_order_relaxed);
  while ((ticket & kTasksLeft) != 0) {
    // Pairs with the release in parallel_for(): the job is visible to who takes one of its tasks.
    if (!pool.ticket.compare_exchange_weak(ticket, ticket - 1, std::memory_order_acquire,
                                           std::memory_order_relaxed)) {
      continue;
    }
    pool.task(pool.context, pool.n_tasks - (ticket & kTasksLeft));
    ++n_run;
    ticket = pool.ticket.load(std::memory_order_relaxed);
  }
  return n_run;
}

void name_this_thread() noexcept {
#if defined(__APPLE__)
  pthread_setname_np("replay_buffer");
#else
  pthread_setname_np(pthread_self(), "replay_buffer");
#endif
}

void* helper_main(void* argument) noexcept {
  auto* const pool = static_cast<Pool*>(argument);
  name_this_thread();
  for (;;) {
    // Pairs with the release in parallel_for().
    const std::uint32_t seen = pool->posted.load(std::memory_order_acquire);
    if (const std::uint32_t n_run = run_tasks(*pool); n_run != 0) {
      // Pairs with the acquire in wait_for_finish(). The pool may be at the next job right after.
      pool->finished.fetch_add(n_run, std::memory_order_release);
      pool->finished.notify_one();
    }
    if (!spin_while(pool->posted, seen)) pool->posted.wait(seen, std::memory_order_acquire);
  }
}

void start_helpers(Pool& pool) noexcept {
  pool.started = true;
  // A signal belongs to the threads of the user; faults must stay with who caused them.
  sigset_t blocked, before;
  sigfillset(&blocked);
  for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT}) {
    sigdelset(&blocked, fault);
  }
  pthread_sigmask(SIG_SETMASK, &blocked, &before);
  for (unsigned i = 1; i < parallel_width(); ++i) {
    pthread_t helper;
    // The system may give no more threads; those that run are enough.
    if (pthread_create(&helper, nullptr, helper_main, &pool) != 0) break;
    pthread_detach(helper);
    ++pool.n_helpers;
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

void wait_for_finish(Pool& pool, std::uint32_t n_tasks) noexcept {
  for (;;) {
    // Pairs with the release in helper_main(): what the tasks wrote is visible.
    const std::uint32_t finished = pool.finished.load(std::memory_order_acquire);
    if (finished == n_tasks) return;
    if (!spin_while(pool.finished, finished)) {
      pool.finished.wait(finished, std::memory_order_acquire);
    }
  }
}

void run_alone(std::size_t n_tasks, Task task, void* context) noexcept {
  for (std::size_t i = 0; i < n_tasks; ++i) task(context, i);
}

}  // namespace

unsigned parallel_width() noexcept {
#if defined(__linux__)
  cpu_set_t allowed;
  if (::sched_getaffinity(0, sizeof allowed, &allowed) == 0) {
    return std::clamp<unsigned>(static_cast<unsigned>(CPU_COUNT(&allowed)), 1, kMaxWidth);
  }
#endif
  return std::clamp<unsigned>(std::thread::hardware_concurrency(), 1, kMaxWidth);
}

void parallel_for(std::size_t n_tasks, Task task, void* context) noexcept {
  if (n_tasks < 2 || n_tasks > kTasksLeft) return run_alone(n_tasks, task, context);
  Pool* const pool = pool_of_this_process();
  // Pairs with the release at the end.
  if (pool == nullptr || pool->busy.load(std::memory_order_relaxed) ||
      pool->busy.exchange(true, std::memory_order_acquire)) {
    return run_alone(n_tasks, task, context);
  }
  if (!pool->started) start_helpers(*pool);
  if (pool->n_helpers == 0) {
    pool->busy.store(false, std::memory_order_release);
    return run_alone(n_tasks, task, context);
  }
  const auto n = static_cast<std::uint32_t>(n_tasks);
  pool->task = task;
  pool->context = context;
  pool->n_tasks = n;
  pool->finished.store(0, std::memory_order_relaxed);
  const std::uint64_t job = (pool->ticket.load(std::memory_order_relaxed) >> 32) + 1;
  // Pairs with the acquire in run_tasks().
  pool->ticket.store((job << 32) | n, std::memory_order_release);
  // Pairs with the acquire in helper_main(): who sees the new number sees its ticket.
  pool->posted.fetch_add(1, std::memory_order_release);
  if (n == 2) {
    pool->posted.notify_one();
  } else {
    pool->posted.notify_all();
  }
  const std::uint32_t n_run = run_tasks(*pool);
  pool->finished.fetch_add(n_run, std::memory_order_relaxed);
  wait_for_finish(*pool, n);
  pool->busy.store(false, std::memory_order_release);
}

}  // namespace replay_buffer::os
