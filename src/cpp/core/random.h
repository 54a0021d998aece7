// A counter-based generator: the i-th number of the c-th call is a function of (seed, c, i).
//
// Nothing is carried from call to call but the call's number, which lives in the segment; so a run
// can be repeated, saved and restored, and many processes draw from one buffer without a lock.
#pragma once

#include <cstdint>

namespace replay_buffer {

class Random {
 public:
  Random(std::uint64_t seed, std::uint64_t call) : state_(mix(mix(seed) + call * kGolden)) {}

  std::uint64_t next() { return mix(state_ += kGolden); }

  // Uniform in [0, 1), 53 bits.
  double unit() { return static_cast<double>(next() >> 11) * 0x1.0p-53; }

  // Exactly uniform in [0, n). REQUIRES: n > 0.
  std::uint64_t below(std::uint64_t n) {
    unsigned __int128 product = static_cast<unsigned __int128>(next()) * n;
    if (static_cast<std::uint64_t>(product) < n) [[unlikely]] {
      const std::uint64_t unfair = (0 - n) % n;
      while (static_cast<std::uint64_t>(product) < unfair) {
        product = static_cast<unsigned __int128>(next()) * n;
      }
    }
    return static_cast<std::uint64_t>(product >> 64);
  }

 private:
  static constexpr std::uint64_t kGolden = 0x9e3779b97f4a7c15;

  static std::uint64_t mix(std::uint64_t z) {
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
  }

  std::uint64_t state_;
};

}  // namespace replay_buffer
