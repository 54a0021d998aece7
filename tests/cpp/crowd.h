// Threads that start together.
#pragma once

#include <atomic>
#include <barrier>
#include <cstddef>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace replay_buffer::testing {

// Runs task(i) for i in [0, n) on n threads, lets them start at once, waits for all of them and
// throws the first exception any of them threw.
inline void crowd(std::size_t n, const std::function<void(std::size_t)>& task) {
  std::barrier start(static_cast<std::ptrdiff_t>(n));
  std::mutex lock;
  std::exception_ptr first;
  std::vector<std::thread> threads;
  threads.reserve(n);
  for (std::size_t i = 0; i < n; ++i) {
    threads.emplace_back([&, i] {
      start.arrive_and_wait();
      try {
        task(i);
      } catch (...) {
        const std::lock_guard guard(lock);
        if (!first) first = std::current_exception();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  if (first) std::rethrow_exception(first);
}

// Where n threads of a crowd wait for each other, by spinning: they go on within nanoseconds.
class Rendezvous {
 public:
  explicit Rendezvous(std::size_t n) : n_(n) {}

  void arrive_and_wait() {
    const std::size_t round = round_.load(std::memory_order_acquire);
    if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == n_) {
      arrived_.store(0, std::memory_order_relaxed);
      round_.store(round + 1, std::memory_order_release);
      return;
    }
    for (int spins = 0; round_.load(std::memory_order_acquire) == round; ++spins) {
      if (spins > 1000) std::this_thread::yield();
    }
  }

 private:
  const std::size_t n_;
  std::atomic<std::size_t> arrived_{0};
  std::atomic<std::size_t> round_{0};
};

// Lets the last `n` parts of a crowd run until the others are done.
class Countdown {
 public:
  explicit Countdown(std::size_t n) : left_(n) {}
  void done() { left_.fetch_sub(1, std::memory_order_release); }
  bool running() const { return left_.load(std::memory_order_acquire) != 0; }

 private:
  std::atomic<std::size_t> left_;
};

// Counts down when it goes, so that an exception does not leave the others running.
class Part {
 public:
  explicit Part(Countdown& countdown) : countdown_(countdown) {}
  ~Part() { countdown_.done(); }
  Part(const Part&) = delete;
  Part& operator=(const Part&) = delete;

 private:
  Countdown& countdown_;
};

}  // namespace replay_buffer::testing
