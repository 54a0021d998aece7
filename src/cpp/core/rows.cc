#include "core/rows.h"

#include <algorithm>
#include <span>
#include <vector>

#include "core/codec.h"
#include "segment/checksum.h"

namespace replay_buffer {
namespace {

constexpr std::size_t kLongCell = 64;

// A codec reads its input more than once, so that it gets a copy that nobody changes.
std::span<const std::byte> private_copy(const std::byte* from, std::size_t bytes) {
  static thread_local std::vector<std::byte> memory;
  if (memory.size() < bytes) memory.resize(bytes);
  copy_shared(memory.data(), from, bytes);
  return {memory.data(), bytes};
}

std::uint64_t check_bytes(std::span<const std::byte> content, std::uint64_t sum) {
  return content.size() < kLongCell ? checksum64(content, sum) : long_checksum64(content, sum);
}

}  // namespace

std::uint64_t Rows::check(std::size_t slot, std::uint64_t word) const {
  std::uint64_t sum = word;
  if (has_links()) {
    sum = checksum64({base_ + link_.base + slot * link_.stride, sizeof(Link)}, sum);
  }
  for (std::size_t c = 0; c < columns_; ++c) {
    if (!places_[c].in_arena) {
      sum = check_bytes({cell(c, slot), bytes(c)}, sum);
      continue;
    }
    const Cell found = arena_cell(c, slot);
    sum = checksum64({cell(c, slot), sizeof(Cell)}, sum);
    sum = check_bytes({arena_of(slot) + found.offset, found.bytes()}, sum);
  }
  return sum;
}

bool Rows::equal_apart(std::size_t column, std::size_t slot, std::size_t other_column,
                       std::size_t other) const {
  if (!places_[column].in_arena) {
    return equal_shared(cell(column, slot), cell(other_column, other), places_[column].bytes);
  }
  const Cell a = arena_cell(column, slot);
  const Cell b = arena_cell(other_column, other);
  return a.size == b.size &&
         equal_shared(arena_of(slot) + a.offset, arena_of(other) + b.offset, a.bytes());
}

std::pair<std::uint32_t, std::uint32_t> Rows::extent(std::size_t slot) const {
  const Cell first = arena_cell(arena_columns_.front(), slot);
  const Cell last = arena_cell(arena_columns_.back(), slot);
  return {first.offset, std::max(first.offset, last.offset + last.bytes())};
}

void Rows::write_varied(std::size_t slot, const std::byte* const* columns, std::size_t at,
                        const ArenaRoom& room) const {
  for (std::size_t c = 0; c < columns_; ++c) {
    if (!places_[c].in_arena) write_cell(c, slot, columns, at);
  }
  std::byte* arena = arena_of(slot);
  std::uint32_t offset = room.offset;
  for (std::size_t k = 0; k < arena_columns_.size(); ++k) {
    const Packed::Value& value = room.values[k];
    const Cell cell{offset, value.size};
    if (cell.bytes() != 0) copy_shared(arena + offset, value.from, cell.bytes());
    REPLAY_CRASH_POINT("row.arena");
    copy_shared(this->cell(arena_columns_[k], slot), &cell, sizeof(cell));
    REPLAY_CRASH_POINT("row.placed");
    offset += cell.bytes();
  }
}

// What cannot be unpacked, because the row is being overwritten or the segment is damaged, becomes
// zero.
void Rows::unpack_cell(std::size_t column, std::size_t slot, std::byte* to) const {
  const std::size_t wanted = places_[column].bytes;
  const Cell found = arena_cell(column, slot);
  const std::byte* from = arena_of(slot) + found.offset;
  bool whole = false;
  if (found.compressed()) {
    whole = decompress(private_copy(from, found.bytes()), {to, wanted});
  } else if (found.bytes() == wanted) {
    copy_shared(to, from, wanted);
    whole = true;
  }
  if (!whole) std::memset(to, 0, wanted);
}

std::span<const std::byte> Rows::piece(const Cell& cell, std::size_t column,
                                       std::size_t slot) const {
  const std::size_t bytes = cell.compressed() ? 0 : cell.bytes();
  return {arena_of(slot) + cell.offset, bytes - bytes % places_[column].item};
}

std::span<const std::byte> Rows::piece(std::size_t column, std::size_t slot) const {
  return piece(arena_cell(column, slot), column, slot);
}

void Rows::unpack_piece(std::size_t column, std::size_t slot, Pieces& pieces,
                        std::size_t at) const {
  const Cell found = arena_cell(column, slot);
  const std::byte* from = arena_of(slot) + found.offset;
  if (!found.compressed()) {
    const std::span<const std::byte> bytes = piece(found, column, slot);
    std::byte* const to = pieces.room(at, bytes.size());
    if (!bytes.empty()) copy_shared(to, bytes.data(), bytes.size());
    return;
  }
  const std::span<const std::byte> compressed = private_copy(from, found.bytes());
  const std::size_t bytes = decompressed_bytes(compressed);
  const bool possible = bytes <= arena_bytes_ && bytes % places_[column].item == 0;
  if (!possible || bytes == 0 || !decompress(compressed, {pieces.room(at, bytes), bytes})) {
    pieces.room(at, 0);
  }
}

void Rows::gather_arena(const Lines& rows, std::size_t column, std::byte* to, std::size_t at,
                        std::size_t step) const {
  for (std::size_t i = 0; i < rows.n_; ++i) os::prefetch_read(cell(column, slot_of(rows, i)));
  for (std::size_t i = 0; i < rows.n_; ++i) {
    if (places_[column].variable()) {
      unpack_piece(column, slot_of(rows, i), *reinterpret_cast<Pieces*>(to), at + i);
    } else {
      const std::size_t unit = step != 0 ? step : places_[column].bytes;
      unpack_cell(column, slot_of(rows, i), to + (at + i) * unit);
    }
  }
}

void Rows::gather_unpacked(std::size_t column, std::span<const Evenly> rows, std::byte* array,
                           std::size_t at) const {
  const std::size_t bytes = places_[column].bytes;
  const bool variable = places_[column].variable();
  for (const Evenly& some : rows) {
    for (std::uint64_t i = 0; i < some.n; ++i, ++at) {
      const bool none = some.slot == Evenly::kNone;
      const std::size_t slot = some.slot + i * some.distance;
      if (variable) {
        auto& pieces = *reinterpret_cast<Pieces*>(array);
        none ? void(pieces.room(at, 0)) : unpack_piece(column, slot, pieces, at);
      } else if (none) {
        std::memset(array + at * bytes, 0, bytes);
      } else {
        unpack_cell(column, slot, array + at * bytes);
      }
    }
  }
}

}  // namespace replay_buffer
