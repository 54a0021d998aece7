// add, sample and update_priorities of the typed C++ API, and of the core below it, which takes
// many rows a call and fills plain arrays.
#include <benchmark/benchmark.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "full_buffer.h"
#include "replay_buffer/buffer.h"

namespace replay_buffer::bench {
namespace {

constexpr SamplingStrategy kUniform = SamplingStrategy::Uniform;
constexpr SamplingStrategy kPrioritized = SamplingStrategy::Prioritized;
using Typed = ReplayBuffer<Vector, std::int64_t>;

Typed filled(SamplingStrategy strategy) {
  Typed buffer(config_of(strategy, kRows));
  const std::vector<float> raws = priorities(kRows);
  for (std::size_t i = 0; i < kRows; ++i) buffer.add({.action = 1, .priority = raws[i]});
  return buffer;
}

// For the life of the program.
Typed& full_typed(SamplingStrategy strategy) {
  static Typed uniform = filled(kUniform);
  if (strategy == kUniform) return uniform;
  static Typed prioritized = filled(kPrioritized);
  return prioritized;
}

void typed_add(benchmark::State& state, SamplingStrategy strategy, double target_ns) {
  Typed& buffer = full_typed(strategy);
  Typed::Row row{.action = 1, .priority = strategy == kUniform ? -1.0F : 0.5F};
  for (auto _ : state) benchmark::DoNotOptimize(buffer.add(row));
  if (target_ns > 0) state.counters["target_ns"] = target_ns;
}

void typed_sample(benchmark::State& state, std::size_t n, double target_ns) {
  Typed& buffer = full_typed(kUniform);
  for (auto _ : state) benchmark::DoNotOptimize(buffer.sample(n));
  if (target_ns > 0) state.counters["target_ns"] = target_ns;
}

void typed_sample_batch(benchmark::State& state, std::size_t n, double target_ns) {
  Typed& buffer = full_typed(kPrioritized);
  for (auto _ : state) benchmark::DoNotOptimize(buffer.sample_batch(n));
  if (target_ns > 0) state.counters["target_ns"] = target_ns;
}

void typed_sample_into(benchmark::State& state, std::size_t n, double target_ns) {
  Typed& buffer = full_typed(kUniform);
  std::vector<Typed::Row> rows(n);
  std::vector<std::size_t> ids(n);
  for (auto _ : state) {
    buffer.sample(rows, ids);
    benchmark::ClobberMemory();
  }
  if (target_ns > 0) state.counters["target_ns"] = target_ns;
}

void typed_sample_weighted_into(benchmark::State& state, std::size_t n) {
  Typed& buffer = full_typed(kPrioritized);
  std::vector<Typed::Row> rows(n);
  std::vector<std::size_t> ids(n);
  std::vector<float> weights(n);
  for (auto _ : state) {
    buffer.sample(rows, ids, weights);
    benchmark::ClobberMemory();
  }
}

void typed_update(benchmark::State& state, std::size_t n) {
  constexpr std::size_t kBatches = 256;
  Typed& buffer = full_typed(kPrioritized);
  const std::vector<std::size_t> ids = buffer.sample_batch(kBatches * n).indices;
  const std::vector<float> raws = priorities(kBatches * n + n, 2);
  std::size_t at = 0;
  for (auto _ : state) {
    const std::span<const std::size_t> some(ids.data() + at % kBatches * n, n);
    buffer.update_priorities(some, {raws.data() + at % (kBatches - 5) * n, n});
    ++at;
  }
}

void core_add(benchmark::State& state, SamplingStrategy strategy, std::size_t n) {
  FullBuffer& full = full_vectors(strategy);
  Columns rows(full.schema, n);
  for (auto _ : state) full.buffer.add(n, rows.pointers.data(), nullptr, rows.ids.data());
}

void core_sample(benchmark::State& state, SamplingStrategy strategy, std::size_t n) {
  FullBuffer& full = full_vectors(strategy);
  Columns batch(full.schema, n);
  for (auto _ : state) full.sample(batch);
}

void core_sample_frames(benchmark::State& state, std::size_t n) {
  static FullBuffer full(kUniform, frames(), kFrames);
  Columns batch(full.schema, n);
  for (auto _ : state) full.sample(batch);
}

void register_typed() {
  using benchmark::RegisterBenchmark;
  const std::string uniform = "ReplayBuffer/Uniform/";
  const std::string prioritized = "ReplayBuffer/Prioritized/";
  const auto add = [](const std::string& name, auto... what) {
    RegisterBenchmark(name.c_str(), what...);
  };
  add(uniform + "Add", typed_add, kUniform, 100);
  add(prioritized + "Add", typed_add, kPrioritized, 0);
  add(uniform + "Sample/32", typed_sample, 32, 1000);
  add(uniform + "Sample/256", typed_sample, 256, 0);
  add(uniform + "SampleInto/32", typed_sample_into, 32, 1000);
  add(uniform + "SampleInto/256", typed_sample_into, 256, 0);
  add(prioritized + "SampleBatch/32", typed_sample_batch, 32, 10'000);
  add(prioritized + "SampleBatch/256", typed_sample_batch, 256, 0);
  add(prioritized + "SampleInto/32", typed_sample_weighted_into, 32);
  add(prioritized + "UpdatePriorities/32", typed_update, 32);
}

void register_core() {
  using benchmark::RegisterBenchmark;
  for (const auto& [kind, strategy] :
       {std::pair("Uniform", kUniform), std::pair("Prioritized", kPrioritized)}) {
    for (const std::size_t n : {1, 64}) {
      const std::string name = std::string("Core/") + kind + "/Add/" + std::to_string(n);
      RegisterBenchmark(name.c_str(), core_add, strategy, n);
    }
    for (const std::size_t n : {32, 256}) {
      const std::string name = std::string("Core/") + kind + "/Sample/" + std::to_string(n);
      RegisterBenchmark(name.c_str(), core_sample, strategy, n);
    }
  }
  if (!all_benchmarks()) return;
  RegisterBenchmark("Core/Uniform/Sample/32_frames", core_sample_frames, 32)->UseRealTime();
}

[[maybe_unused]] const bool registered = (register_typed(), register_core(), true);

}  // namespace
}  // namespace replay_buffer::bench
