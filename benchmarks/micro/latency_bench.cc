// p50 and p99 of the typed C++ API: each call between two readings of the clock. What these cost is
// "latency: the clock alone", and part of all the others.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "full_buffer.h"
#include "replay_buffer/buffer.h"

namespace replay_buffer::bench {
namespace {

using Uniform = ReplayBuffer<Vector, std::int64_t>;
using Prioritized = PrioritizedReplayBuffer<Vector, std::int64_t>;

template <typename Buffer>
Buffer& full() {
  static Buffer buffer(config_of(SamplingStrategy::kUniform, kRows));
  const std::vector<float> raws = priorities(buffer.is_full() ? 0 : kRows);
  for (const float raw : raws) buffer.add({.action = 1, .priority = raw});
  return buffer;
}

template <typename Call>
void one_by_one(benchmark::State& state, Call call) {
  using Clock = std::chrono::steady_clock;
  std::vector<double> taken;  // seconds
  for (auto _ : state) {
    const Clock::time_point start = Clock::now();
    call();
    taken.push_back(std::chrono::duration<double>(Clock::now() - start).count());
    state.SetIterationTime(taken.back());
  }
  const auto percentile = [&](double part) {
    const auto at = static_cast<std::ptrdiff_t>(part * static_cast<double>(taken.size() - 1));
    std::nth_element(taken.begin(), taken.begin() + at, taken.end());
    return taken[static_cast<std::size_t>(at)] * 1e9;
  };
  state.counters["p50_ns"] = percentile(0.50);
  state.counters["p99_ns"] = percentile(0.99);
}

void the_clock(benchmark::State& state) {
  one_by_one(state, [] {});
}

template <typename Buffer>
void add(benchmark::State& state, float priority) {
  Buffer& buffer = full<Buffer>();
  const typename Buffer::Row row{.action = 1, .priority = priority};
  one_by_one(state, [&] { benchmark::DoNotOptimize(buffer.add(row)); });
}

template <typename Buffer>
void sample(benchmark::State& state, std::size_t n) {
  Buffer& buffer = full<Buffer>();
  one_by_one(state, [&] { benchmark::DoNotOptimize(buffer.sample(n)); });
}

template <typename Buffer>
void sample_into(benchmark::State& state, std::size_t n) {
  Buffer& buffer = full<Buffer>();
  std::vector<typename Buffer::Row> rows(n);
  std::vector<std::int64_t> ids(n);
  one_by_one(state, [&] { buffer.sample(rows, ids); });
}

void update(benchmark::State& state, std::size_t n) {
  Prioritized& buffer = full<Prioritized>();
  const std::vector<std::int64_t> ids = buffer.sample(256 * n).indices;
  const std::vector<float> raws = priorities(256 * n, 2);
  std::size_t at = 0;
  one_by_one(state, [&] {
    const std::size_t from = at++ % 256 * n;
    buffer.update_priorities({ids.data() + from, n}, {raws.data() + from, n});
  });
}

// Long repeats, so that a hundredth of the calls are many.
template <typename Body, typename... Arguments>
void register_as(const char* name, Body body, Arguments... arguments) {
  benchmark::RegisterBenchmark(name, body, arguments...)
      ->MinTime(0.02)
      ->Repetitions(20)
      ->UseManualTime();
}

[[maybe_unused]] const bool registered = [] {
  register_as("latency: the clock alone", the_clock);
  register_as("latency: add, uniform", add<Uniform>, -1.0F);
  register_as("latency: sample 32, uniform", sample<Uniform>, 32);
  register_as("latency: sample 256, uniform", sample<Uniform>, 256);
  register_as("latency: sample 32 into spans, uniform", sample_into<Uniform>, 32);
  register_as("latency: add, prioritized", add<Prioritized>, 0.5F);
  register_as("latency: sample 32, prioritized", sample<Prioritized>, 32);
  register_as("latency: sample 256, prioritized", sample<Prioritized>, 256);
  register_as("latency: sample 32 into spans, prioritized", sample_into<Prioritized>, 32);
  register_as("latency: update_priorities 32", update, 32);
  return true;
}();

}  // namespace
}  // namespace replay_buffer::bench
