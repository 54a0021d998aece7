// Rows of which every byte follows from one number, so that a torn or misplaced row is noticed.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "code_of.h"
#include "core/buffer.h"
#include "core/codec.h"
#include "core/pieces.h"
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

// Whether this build can compress.
inline bool have_codecs() {
  try {
    check_codecs({{"x", DType::kUInt8, {}, 0, Codec::kLz4}});
  } catch (const Error&) {
    return false;
  }
  return true;
}

// Values of any length, and values that are compressed where this build can: all that varies in
// size. With LZ4: how small Zstd makes a value depends a little on those before it.
inline Schema varied_schema() {
  const bool can = have_codecs();
  return {{"number", DType::kUInt64, {}},
          {"tokens", DType::kUInt16, {0}, 0, Codec::kNone, 1, 30},
          {"frame", DType::kUInt8, {300}, 0, can ? Codec::kLz4 : Codec::kNone},
          {"points", DType::kFloat32, {0, 2}, 0, can ? Codec::kLz4 : Codec::kNone, 1, 20},
          {"done", DType::kBool, {}}};
}

// n rows in columns, as the buffer takes and gives them. Column 0 is the number.
class NumberedRows {
 public:
  NumberedRows(const Schema& schema, std::size_t n) : schema_(schema), rows_(n) {
    for (const Column& column : schema) {
      bytes_.push_back(column.bytes());
      columns_.emplace_back(column.bytes() * n);
      offsets_.emplace_back(column.variable() ? n + 1 : 0);
      pieces_.push_back(column.variable() ? std::make_unique<OwnPieces>(n, 64) : nullptr);
      values_.emplace_back(column.variable() ? n : 0);
      joined_.emplace_back();
      ragged_.emplace_back();
    }
    for (std::size_t c = 0; c < schema.size(); ++c) {
      const bool variable = pieces_[c] != nullptr;
      in_.push_back(variable ? reinterpret_cast<std::byte*>(&ragged_[c]) : columns_[c].data());
      out_.push_back(variable ? reinterpret_cast<std::byte*>(static_cast<Pieces*>(pieces_[c].get()))
                              : columns_[c].data());
    }
  }
  NumberedRows(NumberedRows&&) = default;

  // Values of any length are put one after the other here.
  const std::byte* const* in() const {
    for (std::size_t c = 0; c < bytes_.size(); ++c) {
      if (!pieces_[c]) continue;
      joined_[c].clear();
      for (std::size_t at = 0; at < rows_; ++at) {
        joined_[c].insert(joined_[c].end(), values_[c][at].begin(), values_[c][at].end());
        offsets_[c][at + 1] =
            static_cast<std::int64_t>(joined_[c].size() / schema_[c].item_bytes());
      }
      ragged_[c] = {joined_[c].data(), offsets_[c].data()};
    }
    return in_.data();
  }
  std::byte* const* out() const { return out_.data(); }

  void fill(std::size_t at, std::uint64_t number) {
    for (std::size_t c = 0; c < columns_.size(); ++c) {
      const std::vector<std::byte> bytes = value(number, c);
      if (pieces_[c]) {
        values_[c][at] = bytes;
      } else {
        std::copy(bytes.begin(), bytes.end(),
                  columns_[c].begin() + static_cast<std::ptrdiff_t>(at * bytes_[c]));
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
    for (std::size_t c = 1; c < columns_.size(); ++c) {
      const std::vector<std::byte> wanted = value(number(at), c);
      if (pieces_[c] && pieces_[c]->size(at) != wanted.size()) return false;
      const std::byte* found =
          pieces_[c] ? pieces_[c]->data(at) : columns_[c].data() + at * bytes_[c];
      if (!std::equal(wanted.begin(), wanted.end(), found)) return false;
    }
    return true;
  }

  bool whole(std::size_t at, std::uint64_t expected) const {
    return number(at) == expected && whole(at);
  }

 private:
  // The bytes of a value: for a codec with long runs, but for each fourth row, which does not
  // compress; of any length with no items now and then, and many.
  std::vector<std::byte> value(std::uint64_t number, std::size_t c) const {
    std::size_t n = bytes_[c];
    if (pieces_[c]) {
      const std::uint64_t scale = number % 5 == 0 ? 4 : 1;
      const std::size_t items = (number + c) % 7 == 0 ? 0 : (number * 31 + c) % 24 * scale;
      n = items * schema_[c].item_bytes();
    }
    const bool runs = schema_[c].codec != Codec::kNone && number % 4 != 3;
    std::vector<std::byte> bytes(n);
    for (std::size_t i = 0; i < n; i += sizeof(number)) {
      const std::uint64_t word = pattern(number, c, runs ? i / 128 * 128 : i);
      std::memcpy(bytes.data() + i, &word, std::min(sizeof(word), n - i));
    }
    return bytes;
  }

  static std::uint64_t pattern(std::uint64_t number, std::size_t column, std::size_t at) {
    return column == 0 ? number : (number + column) * 0x9e3779b97f4a7c15 + at;
  }

  Schema schema_;
  std::size_t rows_;
  std::vector<std::size_t> bytes_;
  std::vector<std::vector<std::byte>> columns_;
  // Of columns of any length.
  std::vector<std::vector<std::vector<std::byte>>> values_;
  mutable std::vector<std::vector<std::byte>> joined_;
  mutable std::vector<std::vector<std::int64_t>> offsets_;
  mutable std::vector<Ragged> ragged_;
  std::vector<std::unique_ptr<OwnPieces>> pieces_;
  std::vector<std::byte*> in_;
  std::vector<std::byte*> out_;
};

inline BufferConfig config_of(std::uint64_t capacity,
                              SamplingStrategy strategy = SamplingStrategy::Uniform,
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

}  // namespace replay_buffer::testing
