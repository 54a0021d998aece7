// Walks the ring from the newest row to the oldest.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/ring.h"

namespace replay_buffer {

// Blocks newest first, and in each the rows newest first: with one writer the exact order of
// writing, with several to within their open blocks. Sees rows committed when it gets to them.
class Recent {
 public:
  explicit Recent(const Ring& ring);

  // Gives the next older committed row; false at the end.
  bool next(std::size_t& slot, std::uint32_t& lap);

 private:
  bool enter_block();

  const Ring& ring_;
  std::uint64_t sequence_;  // of the block being walked, + 1
  std::uint64_t oldest_;
  std::size_t rows_left_ = 0;
};

}  // namespace replay_buffer
