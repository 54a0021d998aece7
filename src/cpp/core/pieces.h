// Pieces in memory of their own.
//
// How long values are is known when they are read, by several threads and in any order; so each row
// has some room of its own, and one that needs more gets more.
//
// Thread safety: room() may be called by any number of threads, each for rows of its own.
#pragma once

#include <cstddef>
#include <cstring>
#include <memory>
#include <vector>

#include "replay_buffer/schema.h"

namespace replay_buffer {

class OwnPieces final : public Pieces {
 public:
  // `bytes` is what most rows will need.
  OwnPieces(std::size_t rows, std::size_t bytes)
      : bytes_(bytes),
        few_(std::make_unique_for_overwrite<std::byte[]>(rows * bytes)),
        sizes_(rows),
        more_(rows) {}

  std::size_t rows() const { return sizes_.size(); }
  std::size_t size(std::size_t row) const { return sizes_[row]; }

  std::byte* room(std::size_t row, std::size_t size) override {
    sizes_[row] = size;
    if (size <= bytes_) return few_.get() + row * bytes_;
    more_[row].resize(size);
    return more_[row].data();
  }
  const std::byte* data(std::size_t row) const {
    return sizes_[row] <= bytes_ ? few_.get() + row * bytes_ : more_[row].data();
  }
  void copy(std::size_t row, std::byte* to) const {
    if (sizes_[row] != 0) std::memcpy(to, data(row), sizes_[row]);
  }

 private:
  std::size_t bytes_;
  std::unique_ptr<std::byte[]> few_;
  std::vector<std::size_t> sizes_;
  std::vector<std::vector<std::byte>> more_;
};

}  // namespace replay_buffer
