// Several writers and learners on one buffer: rows a second of all of them together, which more
// threads than cores must not bring down. The time is that of one run of all threads.
#include <benchmark/benchmark.h>

#include <atomic>
#include <barrier>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "full_buffer.h"

namespace replay_buffer::bench {
namespace {

constexpr std::size_t kBatch = 32;
constexpr auto kRun = std::chrono::milliseconds(30);

// Threads that begin together and stop when told; each part gives the rows of one call.
class Crowd {
 public:
  explicit Crowd(std::size_t n) : start_(static_cast<std::ptrdiff_t>(n) + 1) {}

  template <class Part>
  void join(std::atomic<std::uint64_t>& rows, Part part) {
    threads_.emplace_back([this, &rows, part = std::move(part)]() mutable {
      start_.arrive_and_wait();
      std::uint64_t done = 0;
      while (!stop_.load(std::memory_order_relaxed)) done += part();
      rows.fetch_add(done, std::memory_order_relaxed);
    });
  }

  // Seconds from the start to the stop.
  double run() {
    start_.arrive_and_wait();
    const auto began = std::chrono::steady_clock::now();
    std::this_thread::sleep_for(kRun);
    stop_.store(true, std::memory_order_relaxed);
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - began;
    for (std::thread& thread : threads_) thread.join();
    return took.count();
  }

 private:
  std::barrier<> start_;
  std::atomic<bool> stop_ = false;
  std::vector<std::thread> threads_;
};

void threads(benchmark::State& state, SamplingStrategy strategy, std::size_t writers,
             std::size_t learners) {
  FullBuffer& full = full_vectors(strategy);
  std::atomic<std::uint64_t> added = 0;
  std::atomic<std::uint64_t> sampled = 0;
  for (auto _ : state) {
    Crowd crowd(writers + learners);
    for (std::size_t i = 0; i < writers; ++i) {
      crowd.join(added, [&full, row = Columns(full.schema, 1)] {
        full.buffer.add(1, row.pointers.data(), nullptr, nullptr);
        return 1;
      });
    }
    for (std::size_t i = 0; i < learners; ++i) {
      crowd.join(sampled, [&full, batch = Columns(full.schema, kBatch)]() mutable {
        full.sample(batch);
        return kBatch;
      });
    }
    state.SetIterationTime(crowd.run());
  }
  const auto rate = [](const std::atomic<std::uint64_t>& rows) {
    return benchmark::Counter(static_cast<double>(rows.load()), benchmark::Counter::kIsRate);
  };
  if (writers > 0) state.counters["rows added/s"] = rate(added);
  if (learners > 0) state.counters["rows sampled/s"] = rate(sampled);
}

[[maybe_unused]] const bool registered = [] {
  for (const auto& [kind, strategy] : {std::pair("Uniform", SamplingStrategy::Uniform),
                                       std::pair("Prioritized", SamplingStrategy::Prioritized)}) {
    for (const auto& [writers, learners] : std::vector<std::pair<std::size_t, std::size_t>>{
             {1, 0}, {2, 0}, {4, 0}, {0, 1}, {0, 2}, {0, 4}, {1, 1}, {2, 2}, {4, 4}}) {
      const std::string name = std::string("Threads/") + kind +
                               "/Writers:" + std::to_string(writers) +
                               "/Learners:" + std::to_string(learners);
      benchmark::RegisterBenchmark(name.c_str(), threads, strategy, writers, learners)
          ->Iterations(1)
          ->Repetitions(all_benchmarks() ? 20 : 3)
          ->UseManualTime();
    }
  }
  return true;
}();

}  // namespace
}  // namespace replay_buffer::bench
