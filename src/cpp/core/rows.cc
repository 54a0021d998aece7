#include "core/rows.h"

#include "segment/checksum.h"

namespace replay_buffer {

std::uint64_t Rows::check(std::size_t slot, std::uint64_t word) const {
  std::uint64_t sum = word;
  if (has_links()) {
    sum = checksum64({base_ + link_.base + slot * link_.stride, sizeof(Link)}, sum);
  }
  for (std::size_t c = 0; c < columns_; ++c) sum = checksum64({cell(c, slot), bytes(c)}, sum);
  return sum;
}

}  // namespace replay_buffer
