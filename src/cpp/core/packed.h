// Values on their way into an arena: as the bytes that will lie there.
//
// Made before a row is begun, by the caller's thread and helpers: what takes time is done when
// nobody waits, and how much room a row needs is known.
//
// Thread safety: none.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "segment/layout.h"

namespace replay_buffer {

class Packed {
 public:
  struct Value {
    const std::byte* from;  // null: all zeros, which take no room
    std::uint32_t size;     // as in a Cell
  };

  // Packs n rows given as to Writer::append: the bytes of a value that is stored as it is are not
  // copied. Throws kSchemaMismatch, naming the column, when a row does not fit into an arena.
  void pack(const Layout& layout, std::size_t n, const std::byte* const* columns);

  // Throws the same when row `row` of these does not fit.
  static void check(const Layout& layout, std::size_t row, const std::byte* const* columns);

  // Of a row, for the arena columns in their order.
  const Value* values(std::size_t row) const { return values_.data() + row * columns_; }
  std::uint32_t bytes(std::size_t row) const { return bytes_[row]; }

  // Of all values that were compressed, before and after.
  std::uint64_t bytes_in() const { return bytes_in_; }
  std::uint64_t bytes_kept() const { return bytes_kept_; }

 private:
  void find(const Layout& layout, std::size_t n, const std::byte* const* columns);
  void squeeze(const Layout& layout, std::size_t n);

  std::size_t columns_ = 0;
  std::vector<Value> values_;
  std::vector<std::uint32_t> bytes_;
  std::unique_ptr<std::byte[]> room_;  // for what is compressed, each value at the place it had
  std::size_t room_bytes_ = 0;
  std::vector<std::size_t> places_;  // in room_, of each value
  std::uint64_t bytes_in_ = 0;
  std::uint64_t bytes_kept_ = 0;
};

}  // namespace replay_buffer
