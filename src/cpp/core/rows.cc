#include "core/rows.h"

#include "segment/checksum.h"

namespace replay_buffer {

std::uint64_t Rows::check(std::size_t slot, std::uint64_t id) const {
  std::uint64_t sum = id;
  for (std::size_t c = 0; c < columns_; ++c) sum = checksum64({cell(c, slot), bytes(c)}, sum);
  return sum;
}

}  // namespace replay_buffer
