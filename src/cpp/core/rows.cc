#include "core/rows.h"

#include <span>

#include "segment/checksum.h"

namespace replay_buffer {
namespace {

constexpr std::size_t kLongCell = 64;

}  // namespace

std::uint64_t Rows::check(std::size_t slot, std::uint64_t word) const {
  std::uint64_t sum = word;
  if (has_links()) {
    sum = checksum64({base_ + link_.base + slot * link_.stride, sizeof(Link)}, sum);
  }
  for (std::size_t c = 0; c < columns_; ++c) {
    const std::span<const std::byte> content(cell(c, slot), bytes(c));
    sum = bytes(c) < kLongCell ? checksum64(content, sum) : long_checksum64(content, sum);
  }
  return sum;
}

}  // namespace replay_buffer
