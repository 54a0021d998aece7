// What a row is made of: named, typed columns.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace replay_buffer {

// Stored in segments and sent on the wire: append, never renumber.
enum class DType : std::uint32_t {
  kBool = 1,
  kInt8 = 2,
  kInt16 = 3,
  kInt32 = 4,
  kInt64 = 5,
  kUInt8 = 6,
  kUInt16 = 7,
  kUInt32 = 8,
  kUInt64 = 9,
  kFloat16 = 10,
  kFloat32 = 11,
  kFloat64 = 12,
};

// Bytes of one element, 0 for a value outside the enum.
constexpr std::size_t dtype_bytes(DType dtype) {
  switch (dtype) {
    case DType::kBool:
    case DType::kInt8:
    case DType::kUInt8:
      return 1;
    case DType::kInt16:
    case DType::kUInt16:
    case DType::kFloat16:
      return 2;
    case DType::kInt32:
    case DType::kUInt32:
    case DType::kFloat32:
      return 4;
    case DType::kInt64:
    case DType::kUInt64:
    case DType::kFloat64:
      return 8;
  }
  return 0;
}

inline constexpr std::size_t kMaxDimensions = 8;
inline constexpr std::size_t kMaxNameBytes = 95;
inline constexpr std::size_t kMaxColumns = 256;

// One field of a row. A nested observation is several columns whose names share a path:
// "obs/pixels".
struct Column {
  std::string name;
  DType dtype = DType::kFloat32;
  std::vector<std::uint64_t> shape;  // of one row; empty is a scalar
  std::uint64_t limit = 0;           // integer scalars must lie in [0, limit); 0 is no limit

  std::size_t elements() const {
    std::size_t n = 1;
    for (std::uint64_t d : shape) n *= static_cast<std::size_t>(d);
    return n;
  }
  std::size_t bytes() const { return elements() * dtype_bytes(dtype); }
};

using Schema = std::vector<Column>;

}  // namespace replay_buffer
