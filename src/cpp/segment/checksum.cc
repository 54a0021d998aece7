#include "segment/checksum.h"

#include <cstring>

namespace replay_buffer {
namespace {

constexpr std::uint64_t kPrime = 0x9e3779b97f4a7c15;

std::uint64_t mix(std::uint64_t h, std::uint64_t word) {
  h = (h ^ word) * kPrime;
  return h ^ (h >> 29);
}

}  // namespace

std::uint64_t checksum64(std::span<const std::byte> bytes, std::uint64_t seed) {
  std::uint64_t h = mix(seed, bytes.size());
  while (!bytes.empty()) {
    std::uint64_t word = 0;
    const std::size_t n = bytes.size() < sizeof(word) ? bytes.size() : sizeof(word);
    std::memcpy(&word, bytes.data(), n);
    h = mix(h, word);
    bytes = bytes.subspan(n);
  }
  return mix(h, kPrime);
}

std::uint64_t long_checksum64(std::span<const std::byte> bytes, std::uint64_t seed) {
  constexpr std::size_t kLanes = 4;
  std::uint64_t lanes[kLanes] = {seed, seed + kPrime, seed + 2 * kPrime, seed + 3 * kPrime};
  const std::size_t whole = bytes.size() / sizeof(lanes) * sizeof(lanes);
  for (std::size_t at = 0; at < whole; at += sizeof(lanes)) {
    std::uint64_t words[kLanes];
    std::memcpy(words, bytes.data() + at, sizeof(words));
    for (std::size_t i = 0; i < kLanes; ++i) lanes[i] = mix(lanes[i], words[i]);
  }
  const auto* folded = reinterpret_cast<const std::byte*>(lanes);
  return checksum64(bytes.subspan(whole), checksum64({folded, sizeof(lanes)}, bytes.size()));
}

std::uint64_t header_checksum(const Header& header, const ColumnEntry* columns) {
  std::byte fixed[offsetof(Header, counters)];
  std::memcpy(fixed, static_cast<const void*>(&header), sizeof(fixed));
  std::memset(fixed + offsetof(Header, checksum), 0, sizeof(header.checksum));
  const std::uint64_t h = checksum64(fixed);
  return checksum64({reinterpret_cast<const std::byte*>(columns),
                     header.settings.column_count * sizeof(ColumnEntry)},
                    h);
}

}  // namespace replay_buffer
