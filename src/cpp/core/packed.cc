#include "core/packed.h"

#include <algorithm>
#include <span>
#include <string>

#include "core/codec.h"
#include "os/threads.h"
#include "replay_buffer/error.h"

namespace replay_buffer {
namespace {

constexpr std::size_t kParallelBytes =
    64 * 1024;  // more than this is compressed by several threads
constexpr std::size_t kTaskBytes = 16 * 1024;
constexpr std::size_t kKeptRoom = std::size_t{1} << 20;  // for the next call

[[noreturn]] void too_large(const Layout& layout, std::size_t column, std::size_t bytes) {
  throw Error(ErrorCode::kSchemaMismatch,
              "column '" + layout.schema[column].name + "': a value of " + std::to_string(bytes) +
                  " bytes brings its row over the limit of " +
                  std::to_string(layout.settings.arena_bytes) +
                  " bytes; nothing was added. A larger expected= raises the limit");
}

// The value of one row, as it was given; none where the column was not.
std::span<const std::byte> given_value(const ColumnPlace& place, const std::byte* given,
                                       std::size_t row) {
  if (given == nullptr) return {};
  if (!place.variable()) return {given + row * place.bytes, place.bytes};
  const auto* ragged = reinterpret_cast<const Ragged*>(given);
  const auto begin = static_cast<std::size_t>(ragged->offsets[row]);
  const auto end = static_cast<std::size_t>(ragged->offsets[row + 1]);
  return {static_cast<const std::byte*>(ragged->values) + begin * place.item,
          (end - begin) * place.item};
}

}  // namespace

void Packed::pack(const Layout& layout, std::size_t n, const std::byte* const* columns) {
  columns_ = layout.arena_columns.size();
  bytes_in_ = bytes_kept_ = 0;
  find(layout, n, columns);
  squeeze(layout, n);
  bytes_.resize(n);
  for (std::size_t row = 0; row < n; ++row) {
    bytes_[row] = 0;
    for (std::size_t k = 0; k < columns_; ++k) {
      bytes_[row] += values_[row * columns_ + k].size & ~Cell::kCompressed;
    }
  }
}

void Packed::check(const Layout& layout, std::size_t row, const std::byte* const* columns) {
  std::size_t sum = 0;
  for (const std::uint32_t column : layout.arena_columns) {
    const std::size_t bytes = given_value(layout.places[column], columns[column], row).size();
    if (bytes > layout.settings.arena_bytes - sum) too_large(layout, column, bytes);
    sum += bytes;
  }
}

// Where the values are, and whether each row would fit as it is.
void Packed::find(const Layout& layout, std::size_t n, const std::byte* const* columns) {
  values_.resize(n * columns_);
  for (std::size_t row = 0; row < n; ++row) {
    check(layout, row, columns);
    for (std::size_t k = 0; k < columns_; ++k) {
      const std::size_t column = layout.arena_columns[k];
      const auto value = given_value(layout.places[column], columns[column], row);
      values_[row * columns_ + k] = {value.data(), static_cast<std::uint32_t>(value.size())};
    }
  }
}

void Packed::squeeze(const Layout& layout, std::size_t n) {
  const auto codec_of = [&](std::size_t i) {
    return layout.places[layout.arena_columns[i % columns_]].codec;
  };
  std::size_t sum = 0;
  places_.resize(values_.size());
  for (std::size_t i = 0; i < values_.size(); ++i) {
    places_[i] = sum;
    if (codec_of(i) != Codec::kNone) sum += values_[i].size;
  }
  if (sum == 0) return;
  if (room_bytes_ < sum || room_bytes_ > std::max(sum, kKeptRoom)) {
    room_ = std::make_unique_for_overwrite<std::byte[]>(sum);
    room_bytes_ = sum;
  }
  const auto squeeze_row = [&](std::size_t row) {
    for (std::size_t i = row * columns_; i < (row + 1) * columns_; ++i) {
      Value& value = values_[i];
      if (codec_of(i) == Codec::kNone || value.size == 0) continue;
      const std::size_t width = layout.places[layout.arena_columns[i % columns_]].width;
      std::byte* to = room_.get() + places_[i];
      const std::size_t taken = compress(codec_of(i), width, {value.from, value.size}, to);
      if (taken == 0) continue;
      value = {to, static_cast<std::uint32_t>(taken) | Cell::kCompressed};
    }
  };
  if (sum < kParallelBytes) {
    for (std::size_t row = 0; row < n; ++row) squeeze_row(row);
  } else {
    const std::size_t per_task = std::max<std::size_t>(1, kTaskBytes * n / sum);
    os::parallel_for((n + per_task - 1) / per_task, [&](std::size_t task) noexcept {
      const std::size_t end = std::min(n, (task + 1) * per_task);
      for (std::size_t row = task * per_task; row < end; ++row) squeeze_row(row);
    });
  }
  bytes_in_ = sum;
  for (std::size_t i = 0; i < values_.size(); ++i) {
    if (codec_of(i) != Codec::kNone) bytes_kept_ += values_[i].size & ~Cell::kCompressed;
  }
}

}  // namespace replay_buffer
