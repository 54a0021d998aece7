// Which benchmarks run, the rows that they use, and full buffers of them.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <random>
#include <string_view>
#include <vector>

#include "core/buffer.h"
#include "replay_buffer/config.h"
#include "replay_buffer/schema.h"
#include "segment/segment.h"

namespace replay_buffer::bench {

inline constexpr std::size_t kRows = 1'000'000;
inline constexpr std::size_t kFrames = 10'000;
using Vector = std::array<float, 8>;
using Frame = std::array<std::array<std::array<std::uint8_t, 4>, 84>, 84>;

// Whether those that take gigabytes or minutes run too, as `make bench` has it.
inline bool all_benchmarks() {
  const char* which = std::getenv("REPLAY_BENCHMARKS");
  return which != nullptr && std::string_view(which) == "all";
}

inline BufferConfig config_of(SamplingStrategy strategy, std::size_t rows) {
  BufferConfig config;
  config.capacity = rows;
  config.strategy = strategy;
  return config;
}

// Transitions whose observations are of `dtype` and `shape`.
inline Schema transitions(DType dtype, const std::vector<std::uint64_t>& shape) {
  return {{"obs", dtype, shape},
          {"action", DType::kInt64, {}},
          {"reward", DType::kFloat32, {}},
          {"next_obs", dtype, shape},
          {"done", DType::kBool, {}}};
}
inline Schema vectors() { return transitions(DType::kFloat32, {8}); }
inline Schema frames() { return transitions(DType::kUInt8, {84, 84, 4}); }

// n positive priorities, most of them small, as TD errors are.
inline std::vector<float> priorities(std::size_t n, std::uint64_t seed = 1) {
  std::mt19937_64 random(seed);
  std::exponential_distribution<float> draw;
  std::vector<float> drawn(n);
  for (float& priority : drawn) priority = draw(random) + 0.01F;
  return drawn;
}

// Room for n rows in columns, to add from or to sample into.
struct Columns {
  Columns(const Schema& schema, std::size_t n) : ids(n), weights(n) {
    for (const Column& column : schema) memory.emplace_back(column.bytes() * n, std::byte{1});
    for (std::vector<std::byte>& column : memory) pointers.push_back(column.data());
  }
  Columns(Columns&& other) = default;  // a copy would point at the columns of the original

  std::vector<std::vector<std::byte>> memory;
  std::vector<std::byte*> pointers;
  std::vector<std::int64_t> ids;
  std::vector<float> weights;
};

// A buffer of the core, full; with random priorities where there are any.
struct FullBuffer {
  FullBuffer(SamplingStrategy strategy, const Schema& columns, std::size_t rows)
      : schema(columns), buffer(Segment::create({}, config_of(strategy, rows), columns)) {
    const std::size_t chunk = std::min<std::size_t>(rows, 1000);
    const Columns some(schema, chunk);
    const std::vector<float> raws = priorities(rows);
    for (std::size_t at = 0; at < rows; at += chunk) {
      buffer.add(std::min(chunk, rows - at), some.pointers.data(),
                 buffer.ring().priorities ? raws.data() + at : nullptr, nullptr);
    }
  }

  void sample(Columns& batch) {
    float* weights = buffer.ring().priorities ? batch.weights.data() : nullptr;
    buffer.sample({batch.ids.size(), batch.pointers.data(), batch.ids.data(), weights}, 0.4F);
  }

  Schema schema;
  Buffer buffer;
};

// One million vectors, for the life of the program.
inline FullBuffer& full_vectors(SamplingStrategy strategy) {
  static FullBuffer uniform(SamplingStrategy::Uniform, vectors(), kRows);
  if (strategy == SamplingStrategy::Uniform) return uniform;
  static FullBuffer prioritized(SamplingStrategy::Prioritized, vectors(), kRows);
  return prioritized;
}

}  // namespace replay_buffer::bench
