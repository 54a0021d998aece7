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

// How the values of a column are compressed. Stored in segments: append, never renumber.
enum class Codec : std::uint16_t { kNone = 0, kLz4 = 1, kZstd = 2 };

inline constexpr std::size_t kMaxDimensions = 8;
inline constexpr std::size_t kMaxNameBytes = 95;
inline constexpr std::size_t kMaxColumns = 256;

// One field of a row. A nested observation is several columns whose names share a path:
// "obs/pixels". Where the first dimension is 0, rows have values of any length: token sequences,
// point sets.
struct Column {
  std::string name;
  DType dtype = DType::kFloat32;
  std::vector<std::uint64_t> shape;  // of one row; empty is a scalar
  std::uint64_t limit = 0;           // integer scalars must lie in [0, limit); 0 is no limit
  Codec codec = Codec::kNone;
  // What memory is planned by: how many times smaller the codec makes a value, and the mean length
  // of values of any length (0: 64).
  double ratio = 1;
  std::uint32_t expected = 0;
  bool padded = false;  // batches of Python: one array as long as the longest value, and a mask

  bool variable() const { return !shape.empty() && shape[0] == 0; }
  std::size_t elements() const { return product(0); }
  // Of one row; 0 where its length varies.
  std::size_t bytes() const { return elements() * dtype_bytes(dtype); }
  // Of one item of a value whose length varies.
  std::size_t item_bytes() const { return product(1) * dtype_bytes(dtype); }

 private:
  std::size_t product(std::size_t from) const {
    std::size_t n = 1;
    for (std::size_t i = from; i < shape.size(); ++i) n *= static_cast<std::size_t>(shape[i]);
    return n;
  }
};

using Schema = std::vector<Column>;

// Values of a column whose length varies, for some rows: row i has the items [offsets[i],
// offsets[i + 1]) of `values`. Stands in the place of the column's bytes wherever rows are given.
struct Ragged {
  const void* values = nullptr;
  const std::int64_t* offsets = nullptr;
};

// Where such values go, one for each row that is read. Stands in the place of the column's memory
// wherever rows are read.
class Pieces {
 public:
  // Memory for the value of a row, which has `bytes` bytes; what was there before is gone. Called
  // by any number of threads, each for rows of its own; for one row perhaps more than once.
  virtual std::byte* room(std::size_t row, std::size_t bytes) = 0;

 protected:
  Pieces() = default;
  Pieces(const Pieces&) = default;
  Pieces& operator=(const Pieces&) = default;
  ~Pieces() = default;
};

}  // namespace replay_buffer
