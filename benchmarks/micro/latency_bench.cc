// p50 and p99 of the typed C++ API: each call between two readings of the clock. What these cost is
// "Latency/Clock", and part of all the others.
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

using Full = ReplayBuffer<Vector, std::int64_t>;
constexpr SamplingStrategy kUniform = SamplingStrategy::Uniform;
constexpr SamplingStrategy kPrioritized = SamplingStrategy::Prioritized;

template <SamplingStrategy kStrategy>
Full& full() {
  static Full buffer(config_of(kStrategy, kRows));
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

template <SamplingStrategy kStrategy>
void add(benchmark::State& state, float priority) {
  Full& buffer = full<kStrategy>();
  const Full::Row row{.action = 1, .priority = priority};
  one_by_one(state, [&] { benchmark::DoNotOptimize(buffer.add(row)); });
}

void sample(benchmark::State& state, std::size_t n) {
  Full& buffer = full<kUniform>();
  one_by_one(state, [&] { benchmark::DoNotOptimize(buffer.sample(n)); });
}

void sample_batch(benchmark::State& state, std::size_t n) {
  Full& buffer = full<kPrioritized>();
  one_by_one(state, [&] { benchmark::DoNotOptimize(buffer.sample_batch(n)); });
}

template <SamplingStrategy kStrategy>
void sample_into(benchmark::State& state, std::size_t n) {
  Full& buffer = full<kStrategy>();
  std::vector<Full::Row> rows(n);
  std::vector<std::size_t> ids(n);
  one_by_one(state, [&] { buffer.sample(rows, ids); });
}

void update(benchmark::State& state, std::size_t n) {
  Full& buffer = full<kPrioritized>();
  const std::vector<std::size_t> ids = buffer.sample_batch(256 * n).indices;
  const std::vector<float> raws = priorities(256 * n, 2);
  std::size_t at = 0;
  one_by_one(state, [&] {
    const std::size_t from = at++ % 256 * n;
    const std::span<const std::size_t> some(ids.data() + from, n);
    buffer.update_priorities(some, {raws.data() + from, n});
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
  if (!all_benchmarks()) return false;
  register_as("Latency/Clock", the_clock);
  register_as("Latency/Uniform/Add", add<kUniform>, -1.0F);
  register_as("Latency/Uniform/Sample/32", sample, 32);
  register_as("Latency/Uniform/Sample/256", sample, 256);
  register_as("Latency/Uniform/SampleInto/32", sample_into<kUniform>, 32);
  register_as("Latency/Prioritized/Add", add<kPrioritized>, 0.5F);
  register_as("Latency/Prioritized/SampleBatch/32", sample_batch, 32);
  register_as("Latency/Prioritized/SampleBatch/256", sample_batch, 256);
  register_as("Latency/Prioritized/SampleInto/32", sample_into<kPrioritized>, 32);
  register_as("Latency/Prioritized/UpdatePriorities/32", update, 32);
  return true;
}();

}  // namespace
}  // namespace replay_buffer::bench
