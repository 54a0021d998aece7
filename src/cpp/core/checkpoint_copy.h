// Copying a block while others write to it: every row whole, and with its own priority.
//
// Thread safety: none; a BlockCopier is for one thread. The ring may be in use by anybody.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "core/checkpoint_format.h"
#include "core/ring.h"
#include "segment/owners.h"

namespace replay_buffer::checkpoint {

class BlockCopier {
 public:
  // The ring must outlive it.
  explicit BlockCopier(const Ring& ring);

  const Shape& shape() const { return shape_; }
  const Owners& owners() const { return owners_; }

  // Looks at the row words and priorities of a block. True when its rows are those of `last`, an
  // entry of an earlier checkpoint; words(), raws() and live() are then of one moment.
  bool unchanged(std::size_t block, const BlockEntry& last);

  // Copies the rows, chunk by chunk: room(bytes) gives memory for one, done(bytes) says it is full.
  // What was copied is in words(), raws() and live(). Returns kind, rows and digest.
  using Room = std::function<std::byte*(std::size_t bytes)>;
  using Done = std::function<void(std::size_t bytes)>;
  BlockEntry copy(std::size_t block, const Room& room, const Done& done);

  // What the block says of itself. Called after its rows were copied: no row is of a later lap.
  void describe(std::size_t block, BlockEntry& entry) const;

  const std::vector<std::uint64_t>& words() const { return words_; }
  const std::vector<float>& raws() const { return raws_; }
  std::uint64_t live() const { return live_; }

 private:
  std::uint64_t lap_of(std::uint64_t word) const {
    return row_id(word) / ring_.rows.capacity() + 1;
  }
  std::size_t written_rows(std::size_t block) const;
  void count_live();
  void load_words(std::size_t first, std::size_t n);
  bool same_words(std::size_t first, std::size_t n) const;
  bool weighed(std::size_t slot, std::uint64_t word, float& raw) const;
  bool being_overwritten(std::size_t slot, std::uint64_t word) const;
  void copy_chunk(std::size_t slot, std::size_t n, std::size_t at, std::byte* to);
  void copy_whole(std::size_t block, std::size_t n, const Room& room, const Done& done);
  bool settle_priority(std::size_t slot, std::uint64_t word, float& raw) const;
  void copy_row(std::size_t slot, std::size_t row, std::size_t rows, std::size_t at, std::byte* to);
  void copy_sections(std::size_t slot, std::size_t row, std::size_t n, std::size_t rows,
                     std::byte* to) const;

  const Ring& ring_;
  Owners owners_;
  Shape shape_;
  std::vector<std::uint64_t> words_;
  std::vector<float> raws_;
  std::vector<std::byte> rows_;  // of a block with an arena
  std::vector<std::byte> arena_;
  std::uint64_t live_ = 0;
};

}  // namespace replay_buffer::checkpoint
