// The sum tree from a thousand leaves to a hundred million: drawing one leaf and 32 at a time, and
// the same for updates. Each single draw waits for the one before it.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "core/tree.h"
#include "full_buffer.h"
#include "os/memory.h"
#include "segment/tree_shape.h"

namespace replay_buffer::bench {
namespace {

constexpr std::size_t kBatch = 32;
constexpr std::size_t kDrawn = kBatch * 2048;

// Leaves of random values, and numbers drawn beforehand. The last one asked for is kept.
struct FullTree {
  explicit FullTree(std::size_t n)
      : values(os::Mapping::reserve(TreeShape(n).size(0) * sizeof(float))),
        sums(os::Mapping::reserve(TreeShape(n).inner_nodes() * sizeof(std::uint64_t))),
        tree(reinterpret_cast<std::atomic<float>*>(values.data()),
             reinterpret_cast<std::atomic<std::uint64_t>*>(sums.data()), nullptr, n),
        targets(kDrawn),
        leaves(kDrawn) {
    std::mt19937_64 random(n);
    std::uniform_real_distribution<float> value(0.01F, 1.0F);
    for (std::size_t i = 0; i < n; ++i) tree.store(i, value(random));
    tree.refresh_all();
    std::uniform_real_distribution<double> target(0, tree.total() * 0.999999);
    for (double& t : targets) t = target(random);
    for (std::uint64_t& leaf : leaves) leaf = random() % n;
  }

  static FullTree& of(std::size_t n) {
    static std::unique_ptr<FullTree> kept;
    if (!kept || kept->tree.count() != n) {
      kept.reset();
      kept = std::make_unique<FullTree>(n);
    }
    return *kept;
  }

  os::Mapping values;
  os::Mapping sums;
  Tree tree;
  std::vector<double> targets;
  std::vector<std::uint64_t> leaves;
};

void find_one(benchmark::State& state, std::size_t n) {
  const FullTree& full = FullTree::of(n);
  std::size_t at = 0;
  for (auto _ : state) {
    double target = full.targets[at];
    std::uint64_t found = 0;
    full.tree.find({&target, 1}, &found);
    at = (at + 1 + (found >> 63)) % kDrawn;  // found < 2^63, which the processor does not know
  }
}

void find_batch(benchmark::State& state, std::size_t n) {
  const FullTree& full = FullTree::of(n);
  std::vector<double> sorted = full.targets;
  for (auto first = sorted.begin(); first != sorted.end(); first += kBatch) {
    std::sort(first, first + kBatch);
  }
  std::size_t at = 0;
  double targets[kBatch];
  std::uint64_t found[kBatch];
  for (auto _ : state) {
    std::copy_n(sorted.data() + at, kBatch, targets);
    full.tree.find(targets, found);
    benchmark::DoNotOptimize(found);
    at = (at + kBatch) % kDrawn;
  }
}

void update(benchmark::State& state, std::size_t n, std::size_t batch) {
  const FullTree& full = FullTree::of(n);
  std::size_t at = 0;
  float value = 0.5F;
  for (auto _ : state) {
    const std::span<const std::uint64_t> leaves(full.leaves.data() + at, batch);
    for (const std::uint64_t leaf : leaves) full.tree.prefetch(leaf);
    for (const std::uint64_t leaf : leaves) full.tree.store(leaf, value);
    full.tree.refresh_many(leaves);
    at = (at + batch) % kDrawn;
    value = value < 1.0F ? value + 0.001F : 0.01F;
  }
}

[[maybe_unused]] const bool registered = [] {
  const std::size_t most = all_benchmarks() ? 100'000'000 : 1'000'000;
  for (std::size_t n = 1000; n <= most; n *= 10) {
    const std::string of = "/Leaves:" + std::to_string(n);
    benchmark::RegisterBenchmark(("SumTree/Find/1" + of).c_str(), find_one, n);
    benchmark::RegisterBenchmark(("SumTree/Find/32" + of).c_str(), find_batch, n);
    benchmark::RegisterBenchmark(("SumTree/Update/1" + of).c_str(), update, n, 1);
    benchmark::RegisterBenchmark(("SumTree/Update/32" + of).c_str(), update, n, kBatch);
  }
  return true;
}();

}  // namespace
}  // namespace replay_buffer::bench
