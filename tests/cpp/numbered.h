// Rows of which every byte follows from one number, so that a torn or misplaced row is noticed.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

#include "core/buffer.h"
#include "replay_buffer/error.h"
#include "replay_buffer/schema.h"
#include "segment/segment.h"

namespace replay_buffer::testing {

// A record of 8 + 8 + 20 + 3 + 1 bytes: every element width, and a length that is no multiple of 8.
inline Schema small_schema() {
  return {{"number", DType::kUInt64, {}},
          {"obs", DType::kFloat32, {5}},
          {"pixels", DType::kUInt8, {3}},
          {"done", DType::kBool, {}}};
}

// A small record, and a column that gets an array of its own.
inline Schema large_schema(std::uint64_t bytes) {
  return {{"number", DType::kUInt64, {}}, {"frame", DType::kUInt8, {bytes}}};
}

// A record of 129 bytes, whose row words are kept apart: in front of it they would cost 15.
inline Schema apart_schema() {
  return {{"number", DType::kUInt32, {2}}, {"pixels", DType::kUInt8, {121}}};
}

// n rows in columns, as the buffer takes and gives them. Column 0 is the number.
class NumberedRows {
 public:
  NumberedRows(const Schema& schema, std::size_t n) {
    for (const Column& column : schema) {
      bytes_.push_back(column.bytes());
      columns_.emplace_back(column.bytes() * n);
    }
    for (std::vector<std::byte>& column : columns_) pointers_.push_back(column.data());
  }

  const std::byte* const* in() const { return pointers_.data(); }
  std::byte* const* out() const { return pointers_.data(); }

  void fill(std::size_t at, std::uint64_t number) {
    for (std::size_t c = 0; c < columns_.size(); ++c) {
      std::byte* cell = columns_[c].data() + at * bytes_[c];
      for (std::size_t i = 0; i < bytes_[c]; i += sizeof(number)) {
        const std::uint64_t word = pattern(number, c, i);
        std::memcpy(cell + i, &word, std::min(sizeof(word), bytes_[c] - i));
      }
    }
  }

  std::uint64_t number(std::size_t at) const {
    std::uint64_t word = 0;
    std::memcpy(&word, columns_[0].data() + at * bytes_[0], sizeof(word));
    return word;
  }

  // Whether every byte of the row follows from its number.
  bool whole(std::size_t at) const {
    const std::uint64_t n = number(at);
    for (std::size_t c = 1; c < columns_.size(); ++c) {
      const std::byte* cell = columns_[c].data() + at * bytes_[c];
      for (std::size_t i = 0; i < bytes_[c]; i += sizeof(n)) {
        const std::uint64_t word = pattern(n, c, i);
        if (std::memcmp(cell + i, &word, std::min(sizeof(word), bytes_[c] - i)) != 0) return false;
      }
    }
    return true;
  }

  bool whole(std::size_t at, std::uint64_t expected) const {
    return number(at) == expected && whole(at);
  }

 private:
  static std::uint64_t pattern(std::uint64_t number, std::size_t column, std::size_t at) {
    return column == 0 ? number : (number + column) * 0x9e3779b97f4a7c15 + at;
  }

  std::vector<std::size_t> bytes_;
  std::vector<std::vector<std::byte>> columns_;
  std::vector<std::byte*> pointers_;
};

inline BufferConfig config_of(std::uint64_t capacity,
                              SamplingStrategy strategy = SamplingStrategy::kUniform,
                              std::uint64_t block_rows = 0) {
  BufferConfig config;
  config.capacity = capacity;
  config.strategy = strategy;
  config.block_rows = block_rows;
  return config;
}

// A buffer of numbered rows for tests of one thread: add() numbers rows 0, 1, 2...
struct NumberedBuffer {
  struct Drawn {
    std::vector<std::int64_t> ids;
    std::vector<float> weights;
    NumberedRows rows;
  };

  explicit NumberedBuffer(const BufferConfig& config, Schema s = small_schema())
      : schema(std::move(s)), buffer(Segment::create({}, config, schema)) {}

  // Adds n rows in one call and returns their ids.
  std::vector<std::int64_t> add(std::size_t n = 1, const float* raws = nullptr) {
    NumberedRows rows(schema, n);
    for (std::size_t i = 0; i < n; ++i) rows.fill(i, numbers++);
    std::vector<std::int64_t> ids(n);
    buffer.add(n, rows.in(), raws, ids.data());
    return ids;
  }
  std::vector<std::int64_t> add(const std::vector<float>& raws) {
    return add(raws.size(), raws.data());
  }

  Drawn sample(std::size_t n, float beta = 0.4F) {
    Drawn drawn{std::vector<std::int64_t>(n), std::vector<float>(n), NumberedRows(schema, n)};
    buffer.sample({n, drawn.rows.out(), drawn.ids.data(), drawn.weights.data()}, beta);
    return drawn;
  }
  std::vector<std::int64_t> ids(std::size_t n) { return sample(n).ids; }

  std::vector<std::int64_t> latest(std::size_t n) const {
    std::vector<std::int64_t> ids(n);
    ids.resize(buffer.latest(n, ids.data()));
    return ids;
  }

  UpdateResult update(const std::vector<std::int64_t>& which,
                      const std::vector<float>& raws) const {
    return buffer.ring().priorities->update(which, raws);
  }

  // How often each slot comes in `batches` batches of `n` rows.
  std::vector<std::uint64_t> counts(std::size_t batches, std::size_t n) {
    std::vector<std::uint64_t> seen(buffer.capacity());
    for (std::size_t i = 0; i < batches; ++i) {
      for (const std::int64_t id : ids(n)) ++seen[static_cast<std::size_t>(id) % seen.size()];
    }
    return seen;
  }

  Schema schema;
  Buffer buffer;
  std::uint64_t numbers = 0;
};

// The numbers first, first + 1, ... of n rows.
inline std::vector<std::int64_t> count_from(std::int64_t first, std::size_t n) {
  std::vector<std::int64_t> ids(n);
  for (std::size_t i = 0; i < n; ++i) ids[i] = first + static_cast<std::int64_t>(i);
  return ids;
}

// The code of the Error that `call` throws; 0 when it throws none.
template <class Call>
ErrorCode code_of(Call&& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.code();
  }
  return ErrorCode{};
}

}  // namespace replay_buffer::testing
