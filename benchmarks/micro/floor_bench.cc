// What no copy of a batch can go below: as many random records of the same bytes, prefetched and
// then copied, the ids drawn beforehand; and one piece of memory of the same size. Once in ordinary
// pages, as the buffer's are, and once in huge ones where the system has them.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "full_buffer.h"
#include "os/memory.h"

namespace replay_buffer::bench {
namespace {

constexpr std::size_t kLine = 64;
constexpr std::size_t kIds = std::size_t{1} << 20;

struct Shape {
  std::size_t row_bytes;
  std::size_t rows;
  bool huge;
  bool operator==(const Shape&) const = default;
};

struct Records {
  explicit Records(const Shape& s)
      : shape(s),
        memory(os::Mapping::reserve(s.row_bytes * s.rows, s.huge)),
        bytes(memory.data()),
        ids(kIds) {
    std::memset(bytes, 1, s.row_bytes * s.rows);
    std::mt19937_64 random(1);
    for (std::uint32_t& id : ids) id = static_cast<std::uint32_t>(random() % s.rows);
  }

  // The last one asked for is kept.
  static const Records& of(const Shape& shape) {
    static std::unique_ptr<Records> kept;
    if (!kept || kept->shape != shape) {
      kept.reset();
      kept = std::make_unique<Records>(shape);
    }
    return *kept;
  }

  Shape shape;
  os::Mapping memory;
  std::byte* bytes;
  std::vector<std::uint32_t> ids;
};

void gather(benchmark::State& state, const Shape& shape, std::size_t n) {
  const Records& records = Records::of(shape);
  const std::size_t size = shape.row_bytes;
  const std::size_t ahead = std::min(size, 16 * kLine);  // the hardware follows a long copy itself
  std::vector<std::byte> out(n * size);
  std::size_t at = 0;
  for (auto _ : state) {
    const std::uint32_t* ids = records.ids.data() + at;
    for (std::size_t i = 0; i < n; ++i) {
      const std::byte* record = records.bytes + ids[i] * size;
      for (std::size_t line = 0; line < ahead; line += kLine)
        __builtin_prefetch(record + line, 0, 2);
      __builtin_prefetch(record + ahead - 1, 0, 2);
    }
    for (std::size_t i = 0; i < n; ++i) {
      std::memcpy(out.data() + i * size, records.bytes + ids[i] * size, size);
    }
    benchmark::ClobberMemory();
    at = at + 2 * n <= kIds ? at + n : 0;
  }
}

// From a random place, so that it comes from memory and not from a cache.
void copy(benchmark::State& state, const Shape& shape, std::size_t n) {
  const Records& records = Records::of(shape);
  const std::size_t size = n * shape.row_bytes;
  std::vector<std::byte> out(size);
  std::size_t at = 0;
  for (auto _ : state) {
    const std::size_t first = records.ids[at] % (shape.rows - n);
    std::memcpy(out.data(), records.bytes + first * shape.row_bytes, size);
    benchmark::ClobberMemory();
    at = (at + 1) % kIds;
  }
}

void register_kind(const std::string& kind, const Shape& shape, std::vector<std::size_t> batches) {
  const std::string ending = "_" + kind + (shape.huge ? "/HugePages" : "/SmallPages");
  for (const std::size_t n : batches) {
    const std::string what = std::to_string(n) + ending;
    benchmark::RegisterBenchmark(("Floor/Gather/" + what).c_str(), gather, shape, n);
    benchmark::RegisterBenchmark(("Floor/Memcpy/" + what).c_str(), copy, shape, n);
  }
}

std::size_t row_bytes(const Schema& schema) {
  std::size_t bytes = 0;
  for (const Column& column : schema) bytes += column.bytes();
  return (bytes + 7) / 8 * 8;
}

[[maybe_unused]] const bool registered = [] {
  for (const bool huge : {false, true}) {
    register_kind("vectors", {row_bytes(vectors()), kRows, huge}, {32, 256});
    if (all_benchmarks()) register_kind("frames", {row_bytes(frames()), kFrames, huge}, {32});
  }
  return true;
}();

}  // namespace
}  // namespace replay_buffer::bench
