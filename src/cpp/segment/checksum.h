// Checksums that guard the fixed part of a segment against accidents, not against malice.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "segment/layout.h"

namespace replay_buffer {

std::uint64_t checksum64(std::span<const std::byte> bytes, std::uint64_t seed = 0);
// Another one for long runs: four words at a time, as fast as memory is read.
std::uint64_t long_checksum64(std::span<const std::byte> bytes, std::uint64_t seed = 0);

// Of the header up to its counters, with the checksum field as 0, and of its columns.
std::uint64_t header_checksum(const Header& header, const ColumnEntry* columns);

}  // namespace replay_buffer
