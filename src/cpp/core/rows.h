// Rows: writing one so that nobody sees it half done, reading one so that it is whole.
//
// The row word is a seqlock. Writer: WRITING, release fence, copy, COMMITTED with release. Reader:
// load with acquire, copy, acquire fence, load again, accept if nothing changed. A reader never
// waits for a writer. REQUIRES: one writer at a time for a slot (the owner of its block).
//
// A value whose size varies lies in the arena of its block (see Cell in layout.h). Its row says
// where: what is said is believed as far as the arena goes.
#pragma once

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <span>
#include <utility>
#include <vector>

#include "core/packed.h"
#include "core/shared_bytes.h"
#include "os/cpu.h"
#include "os/crash_point.h"
#include "segment/segment.h"

namespace replay_buffer {

// What a row is in its stream: the flags of its word, and where its neighbours are.
struct Mark {
  std::uint64_t flags = 0;
  Link link{};
};

// What a row has of its block's arena: values as they will lie there, one after the other from
// `offset` on. REQUIRES: they fit, and no committed row has any of these bytes.
struct ArenaRoom {
  const Packed::Value* values = nullptr;
  std::uint32_t offset = 0;
};

// One cell of a column for each of n rows, `step` bytes apart in the output. The size is known to
// the compiler for the sizes that scalars and small vectors have.
template <std::size_t kBytes>
void copy_cells(std::byte* to, std::size_t step, const std::byte* const* from, std::size_t offset,
                std::size_t n, std::size_t bytes) {
  REPLAY_UNROLL
  for (std::size_t i = 0; i < n; ++i, to += step) {
    copy_shared(to, from[i] + offset, kBytes != 0 ? kBytes : bytes);
  }
}

class Rows {
 public:
  explicit Rows(const Segment& segment)
      : base_(segment.base()),
        words_(segment.words()),
        word_stride_(segment.layout().word_stride),
        records_(segment.records()),
        stride_(segment.layout().record_stride),
        stride_bits_(std::has_single_bit(stride_) ? std::countr_zero(stride_) : 0),
        reach_(most_lines(stride_) * kLine),
        capacity_(segment.layout().settings.capacity),
        checks_(segment.layout().durable() ? segment.checks() : nullptr),
        link_(segment.layout().link),
        places_(segment.layout().places.data()),
        columns_(segment.layout().places.size()),
        arenas_(base_ + segment.layout().arenas_at),
        arena_bytes_(segment.layout().settings.arena_bytes),
        block_rows_(segment.layout().settings.block_rows),
        arena_columns_(segment.layout().arena_columns) {
    apart_ = words_ != records_;
    for (std::size_t i = 0; i < columns_; ++i) apart_ |= places_[i].stride != stride_;
  }

  std::size_t capacity() const { return capacity_; }
  std::size_t columns() const { return columns_; }
  // Of a value; 0 where its length varies.
  std::size_t bytes(std::size_t column) const { return places_[column].bytes; }
  const ColumnPlace& place(std::size_t column) const { return places_[column]; }
  bool has_arenas() const { return arena_bytes_ != 0; }
  std::size_t arena_bytes() const { return arena_bytes_; }

  std::atomic<std::uint64_t>& word(std::size_t slot) const {
    return *reinterpret_cast<std::atomic<std::uint64_t>*>(words_ + slot * word_stride_);
  }

  // A row's record. It begins with the row's word and, where there are links, the link, unless
  // words lie apart from records.
  const std::byte* record(std::size_t slot) const { return records_ + slot * stride_; }
  std::size_t slot_of(const std::byte* record) const {
    const auto bytes = static_cast<std::size_t>(record - records_);
    return stride_bits_ != 0 ? bytes >> stride_bits_ : bytes / stride_;
  }
  std::size_t record_stride() const { return stride_; }
  bool words_in_records() const { return words_ == records_; }
  bool in_record(std::size_t column) const {
    return !places_[column].own_array && !places_[column].in_arena;
  }
  // REQUIRES: a column that has no array of its own.
  std::size_t offset_in_record(std::size_t column) const {
    return places_[column].base - static_cast<std::size_t>(records_ - base_);
  }

  // Where the value is, or its Cell.
  std::byte* cell(std::size_t column, std::size_t slot) const {
    return base_ + places_[column].base + slot * places_[column].stride;
  }

  // Copies one value of fixed length out, wherever it lies. To be believed only if the row's word
  // is the same afterwards, as all that is read.
  void copy_cell(std::size_t column, std::size_t slot, std::byte* to) const {
    if (places_[column].in_arena) [[unlikely]] {
      unpack_cell(column, slot, to);
    } else {
      copy_shared(to, cell(column, slot), places_[column].bytes);
    }
  }

  // Whether the values of two rows, by their records, are the same bytes in two columns of one
  // type; of compressed values as they are packed.
  bool equal(std::size_t column, const std::byte* record, std::size_t other_column,
             const std::byte* other) const {
    if (!in_record(column) || !in_record(other_column)) [[unlikely]]
      return equal_apart(column, slot_of(record), other_column, slot_of(other));
    return equal_shared(record + offset_in_record(column), other + offset_in_record(other_column),
                        places_[column].bytes);
  }

  // The bytes of a value whose length varies and that is not compressed: whole items, none for one
  // that makes no sense. They lie in the arena, whatever a damaged segment says.
  std::span<const std::byte> piece(std::size_t column, std::size_t slot) const;

  // The part [first, second) of its block's arena that a row has. REQUIRES: has_arenas().
  std::pair<std::uint32_t, std::uint32_t> extent(std::size_t slot) const;

  REPLAY_ALWAYS_INLINE void prefetch(std::size_t slot) const {
    prefetch_record(record(slot));
    if (apart_) prefetch_apart(slot);
  }
  // Whether a row has more than the line it begins with.
  bool scattered() const { return apart_ || stride_ > kLine; }
  // The most cache lines that one of many records lies on, which lie one after the other from the
  // start of a page on: each begins at a multiple of what its stride and a line have in common.
  static constexpr std::size_t most_lines(std::size_t stride) {
    const std::size_t latest_start = kLine - std::gcd(stride, kLine);
    return std::max<std::size_t>(1, (latest_start + stride + kLine - 1) / kLine);
  }
  // All lines that a record can lie on, wherever on its first one it begins.
  REPLAY_ALWAYS_INLINE void prefetch_record(const std::byte* record) const {
    os::prefetch_read(record);
    for (std::size_t at = 2 * kLine; at < reach_; at += kLine)
      os::prefetch_read(record + at - kLine);
    if (reach_ > kLine) os::prefetch_read(record + stride_ - 1);
  }

  // All rows in [slot, end).
  REPLAY_ALWAYS_INLINE void prefetch(std::size_t slot, std::size_t end) const {
    const std::byte* const last = record(end);
    for (const std::byte* line = record(slot); line < last; line += kLine) os::prefetch_read(line);
    os::prefetch_read(last - 1);
    for (; slot < end && apart_; ++slot) prefetch_apart(slot);
  }

  // What rows say of themselves, for loops: a copy that nothing written can change.
  struct Heads {
    const std::byte* words;
    std::size_t word_stride;
    const std::byte* links;
    std::size_t link_stride;

    std::uint64_t word(std::size_t slot, std::memory_order order) const {
      return word_at(words + slot * word_stride, order);
    }
    Link link(std::size_t slot) const {
      Link link;
      copy_shared(&link, links + slot * link_stride, sizeof(link));
      return link;
    }

    // Rows from a slot on, each `distance` slots after the one before (or before it), where the
    // first has this word and the others those of ordinary steps: how many are there, up to `most`,
    // until one has the row that is next elsewhere, as its link says.
    template <std::uint16_t Link::* kNext>
    std::uint64_t even(std::uint64_t slot, std::int64_t distance, std::uint64_t word,
                       std::uint64_t most) const {
      const auto length = static_cast<std::uint16_t>(distance < 0 ? -distance : distance);
      const auto step = row_word(static_cast<std::uint64_t>(distance), RowState::kEmpty);
      const std::byte* word_of = words + slot * word_stride;
      const std::byte* link_of = links + slot * link_stride;
      const std::int64_t to_word = distance * static_cast<std::int64_t>(word_stride);
      const std::int64_t to_link = distance * static_cast<std::int64_t>(link_stride);
      for (std::uint64_t n = 0; n < most; ++n) {
        if (word_at(word_of, std::memory_order_acquire) != word) return n;
        Link link;
        copy_shared(&link, link_of, sizeof(link));
        if (link.*kNext != length) return n + 1;
        word += step;
        word_of += to_word;
        link_of += to_link;
      }
      return most;
    }
  };
  Heads heads() const { return {words_, word_stride_, base_ + link_.base, link_.stride}; }

  bool has_links() const { return link_.bytes != 0; }
  // REQUIRES: has_links(). To be believed only if the row's word is the same afterwards.
  Link link(std::size_t slot) const {
    Link link;
    copy_shared(&link, base_ + link_.base + slot * link_.stride, sizeof(link));
    return link;
  }

  // Writes and publishes one row: row `at` of the input columns; a null column becomes zero, or a
  // value of no length. Returns the word before.
  std::uint64_t write(std::size_t slot, std::uint64_t id, const std::byte* const* columns,
                      std::size_t at, const Mark& mark = {}, const ArenaRoom& room = {}) const {
    std::atomic<std::uint64_t>& w = word(slot);
    const std::uint64_t before = w.load(std::memory_order_relaxed);
    w.store(row_word(id, RowState::kWriting), std::memory_order_relaxed);
    std::atomic_thread_fence(std::memory_order_release);  // pairs with the fence in read()
    REPLAY_CRASH_POINT("row.writing");
    if (has_links()) {
      copy_shared(base_ + link_.base + slot * link_.stride, &mark.link, sizeof(Link));
    }
    if (!has_arenas()) [[likely]] {
      for (std::size_t c = 0; c < columns_; ++c) write_cell(c, slot, columns, at);
    } else {
      write_varied(slot, columns, at, room);
    }
    const std::uint64_t word = row_word(id, RowState::kCommitted, mark.flags);
    if (checks_ != nullptr) checks_[slot].store(check(slot, word), std::memory_order_relaxed);
    REPLAY_CRASH_POINT("row.copied");
    w.store(word, std::memory_order_release);
    return before;
  }

  // The checksum that belongs to the row with this word, from its bytes.
  std::uint64_t check(std::size_t slot, std::uint64_t word) const;
  // Whether the row's bytes are those its checksum was made of. REQUIRES: a durable segment, and
  // nobody writes.
  bool sound(std::size_t slot, std::uint64_t word) const {
    return checks_[slot].load(std::memory_order_relaxed) == check(slot, word);
  }

  // Copies the row at `slot` to place `at` of the output columns, `step` bytes apart (0: bytes(c));
  // a null column is left out, one whose length varies is a Pieces. Returns false when the row is
  // not `expected` (a word read before) from start to end.
  bool read(std::size_t slot, std::uint64_t expected, std::byte* const* columns, std::size_t at,
            std::size_t step = 0) const {
    for (std::size_t c = 0; c < columns_; ++c) {
      const std::size_t n = places_[c].bytes;
      if (columns[c] == nullptr) continue;
      if (places_[c].variable()) [[unlikely]] {
        unpack_piece(c, slot, *reinterpret_cast<Pieces*>(columns[c]), at);
      } else {
        copy_cell(c, slot, columns[c] + at * (step != 0 ? step : n));
      }
    }
    std::atomic_thread_fence(std::memory_order_acquire);  // pairs with the fence in write()
    return word(slot).load(std::memory_order_relaxed) == expected;
  }

  // Rows whose cells are copied column by column, and where they lie for columns of one stride:
  // most columns share the record's.
  static constexpr std::size_t kGather = 64;
  class Lines {
   public:
    // By their slots or by their records, which must outlive it. REQUIRES: n <= kGather.
    Lines(const std::uint64_t* slots, std::size_t n) : slots_(slots), n_(n) {}
    Lines(const std::byte* const* records, std::size_t n) : records_(records), n_(n) {}

   private:
    friend class Rows;
    const std::uint64_t* slots_ = nullptr;
    const std::byte* const* records_ = nullptr;
    std::size_t n_;
    std::size_t stride_ = 0;
    const std::byte* from_[kGather];
  };

  // Copies cells of rows to places of an array from `at` on, `step` bytes apart (0: bytes(column)),
  // or of a Pieces, without looking at the rows' words: the caller checks them before and after.
  void gather(Lines& rows, std::size_t column, std::byte* array, std::size_t at,
              std::size_t step = 0) const {
    const ColumnPlace& place = places_[column];
    const std::size_t n = rows.n_;
    if (place.in_arena) [[unlikely]]
      return gather_arena(rows, column, array, at, step);
    std::size_t offset = place.base;
    const std::byte* const* from = rows.from_;
    if (rows.records_ != nullptr && !place.own_array) {
      from = rows.records_;
      offset = offset_in_record(column);
    } else if (rows.stride_ != place.stride) {
      find(rows, place.stride);
    }
    const std::size_t unit = step != 0 ? step : place.bytes;
    copy_column(array + at * unit, unit, from, offset, n, place.bytes);
  }

  // The same of any number of records, of a column that lies in them: in_record().
  void gather_records(std::size_t column, std::span<const std::byte* const> records,
                      std::byte* array, std::size_t at) const {
    const std::size_t bytes = places_[column].bytes;
    copy_column(array + at * bytes, bytes, records.data(), offset_in_record(column), records.size(),
                bytes);
  }

  // The same for all columns that are not null.
  void gather(const std::uint64_t* slots, std::size_t n, std::byte* const* columns, std::size_t at,
              std::size_t step) const {
    Lines rows(slots, n);
    for (std::size_t c = 0; c < columns_; ++c) {
      if (columns[c] != nullptr) gather(rows, c, columns[c], at, step);
    }
  }

  // n rows from `slot` on, each `distance` after the one before; slot kNone: n times none.
  struct Evenly {
    static constexpr std::uint64_t kNone = ~std::uint64_t{0};

    std::uint64_t slot;
    std::uint64_t distance;
    std::uint64_t n;
  };

  // Copies their cells of one column to places of an array from `at` on (or of a Pieces, where
  // their length varies); none is zeros. Does not look at words either.
  void gather_column(std::size_t column, std::span<const Evenly> rows, std::byte* array,
                     std::size_t at) const {
    std::byte* to = array + at * places_[column].bytes;
    if (places_[column].in_arena) [[unlikely]]
      return gather_unpacked(column, rows, array, at);
    switch (places_[column].bytes) {
      case 1:
        return gather_cells<1>(column, rows, to);
      case 4:
        return gather_cells<4>(column, rows, to);
      case 8:
        return gather_cells<8>(column, rows, to);
      case 16:
        return gather_cells<16>(column, rows, to);
      case 32:
        return gather_cells<32>(column, rows, to);
      default:
        return gather_cells<0>(column, rows, to);
    }
  }

 private:
  static void copy_column(std::byte* to, std::size_t step, const std::byte* const* from,
                          std::size_t offset, std::size_t n, std::size_t bytes) {
    switch (bytes) {
      case 1:
        return copy_cells<1>(to, step, from, offset, n, 1);
      case 4:
        return copy_cells<4>(to, step, from, offset, n, 4);
      case 8:
        return copy_cells<8>(to, step, from, offset, n, 8);
      case 16:
        return copy_cells<16>(to, step, from, offset, n, 16);
      case 32:
        return copy_cells<32>(to, step, from, offset, n, 32);
      default:
        return copy_cells<0>(to, step, from, offset, n, bytes);
    }
  }
  template <std::size_t kBytes>
  void gather_cells(std::size_t column, std::span<const Evenly> rows, std::byte* to) const {
    // Copies, because what is written to bytes could be these for all the compiler knows.
    const std::size_t bytes = kBytes != 0 ? kBytes : places_[column].bytes;
    const auto stride = static_cast<std::int64_t>(places_[column].stride);
    const std::byte* const cells = base_ + places_[column].base;
    for (const Evenly& some : rows) {
      const std::size_t n = some.n;
      if (some.slot == Evenly::kNone) [[unlikely]] {
        std::memset(to, 0, n * bytes);
        to += n * bytes;
        continue;
      }
      const std::byte* from = cells + static_cast<std::int64_t>(some.slot) * stride;
      const std::int64_t step = static_cast<std::int64_t>(some.distance) * stride;
      REPLAY_UNROLL
      for (std::size_t i = 0; i < n; ++i, to += bytes, from += step) {
        copy_shared(to, from, bytes);
      }
    }
  }
  void gather_unpacked(std::size_t column, std::span<const Evenly> rows, std::byte* array,
                       std::size_t at) const;
  std::byte* arena_of(std::size_t slot) const {
    return arenas_ + slot / block_rows_ * arena_bytes_;
  }
  // What a row says of a value's place, as far as its arena goes.
  Cell arena_cell(std::size_t column, std::size_t slot) const {
    Cell cell;
    copy_shared(&cell, this->cell(column, slot), sizeof(cell));
    if (cell.offset > arena_bytes_ || cell.bytes() > arena_bytes_ - cell.offset) return {0, 0};
    return cell;
  }
  std::span<const std::byte> piece(const Cell& cell, std::size_t column, std::size_t slot) const;
  REPLAY_ALWAYS_INLINE void write_cell(std::size_t c, std::size_t slot,
                                       const std::byte* const* columns, std::size_t at) const {
    const std::size_t n = places_[c].bytes;
    if (columns[c] != nullptr) [[likely]] {
      copy_shared(cell(c, slot), columns[c] + at * n, n);
    } else {
      clear_shared(cell(c, slot), n);
    }
    REPLAY_CRASH_POINT("row.cell");
  }
  void write_varied(std::size_t slot, const std::byte* const* columns, std::size_t at,
                    const ArenaRoom& room) const;
  bool equal_apart(std::size_t column, std::size_t slot, std::size_t other_column,
                   std::size_t other) const;
  void unpack_cell(std::size_t column, std::size_t slot, std::byte* to) const;
  void unpack_piece(std::size_t column, std::size_t slot, Pieces& pieces, std::size_t at) const;
  void gather_arena(const Lines& rows, std::size_t column, std::byte* to, std::size_t at,
                    std::size_t step) const;
  std::size_t slot_of(const Lines& rows, std::size_t i) const {
    return rows.slots_ != nullptr ? rows.slots_[i] : slot_of(rows.records_[i]);
  }
  void find(Lines& rows, std::size_t stride) const {
    rows.stride_ = stride;
    const std::byte* const base = base_;
    for (std::size_t i = 0, n = rows.n_; i < n; ++i) {
      rows.from_[i] = base + slot_of(rows, i) * stride;
    }
  }

  REPLAY_ALWAYS_INLINE void prefetch_apart(std::size_t slot) const {
    os::prefetch_read(&word(slot));
    for (std::size_t c = 0; c < columns_; ++c) {
      if (places_[c].stride != stride_) os::prefetch_read(cell(c, slot));
    }
  }

  std::byte* base_;
  std::byte* words_;
  std::size_t word_stride_;
  std::byte* records_;
  std::size_t stride_;
  int stride_bits_;    // of a power of two; else 0
  std::size_t reach_;  // of a record: the bytes of all lines that it can lie on
  std::size_t capacity_;
  std::atomic<std::uint64_t>* checks_;  // null unless durable
  ColumnPlace link_;
  const ColumnPlace* places_;
  std::size_t columns_;
  std::byte* arenas_;
  std::size_t arena_bytes_;  // 0: there are none
  std::size_t block_rows_;
  std::span<const std::uint32_t> arena_columns_;
  bool apart_ = false;  // something of a row lies outside its record
};

}  // namespace replay_buffer
