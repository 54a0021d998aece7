// PlainFour: four floats without vectors of the processor. It says what each member of a Four does,
// and is what the others are tested against.
#pragma once

#include <array>
#include <atomic>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>

namespace replay_buffer {

// The children of a node of the tree are floats (leaves) or words {float value, uint32 version}
// (inner nodes), and other threads may store them at any time: the callers redo or reject what
// raced. PlainFour loads them as atomics. The vectors load 16 aligned bytes, which processors with
// AVX or Armv8.4 (an Apple M1) read as one; no other x86-64 or arm64 is known to tear a word of
// them.
inline float value_of(const std::atomic<float>& leaf) {
  return leaf.load(std::memory_order_relaxed);
}
inline float value_of(const std::atomic<std::uint64_t>& node) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(node.load(std::memory_order_relaxed)));
}

// Numbers as a whole part and the rest of each.
template <class Four>
struct Parts {
  typename Four::Whole whole;
  Four rest;
};

// Where the exponent stands in the bits of a float, that of 1, and the bits of the root of 1/2.
inline constexpr int kExponentAt = 23;
inline constexpr std::int32_t kExponentOfOne = 127;
inline constexpr std::int32_t kRootOfHalf = 0x3f3504f3;

struct PlainFour {
  using Whole = std::array<std::int32_t, 4>;
  using Answers = std::array<bool, 4>;

  std::array<float, 4> lane;

  // The values of four children. REQUIRES: 16-byte aligned.
  template <class Child>
  static PlainFour load(const std::atomic<Child>* children) {
    return each([&](std::size_t i) { return value_of(children[i]); });
  }
  static PlainFour load(const float* numbers) {
    return each([&](std::size_t i) { return numbers[i]; });
  }
  static PlainFour all(float x) { return {{x, x, x, x}}; }
  void store(float* numbers) const {
    for (std::size_t i = 0; i < 4; ++i) numbers[i] = lane[i];
  }

  friend PlainFour operator+(const PlainFour& a, const PlainFour& b) {
    return each([&](std::size_t i) { return a.lane[i] + b.lane[i]; });
  }
  friend PlainFour operator-(const PlainFour& a, const PlainFour& b) {
    return each([&](std::size_t i) { return a.lane[i] - b.lane[i]; });
  }
  friend PlainFour operator*(const PlainFour& a, const PlainFour& b) {
    return each([&](std::size_t i) { return a.lane[i] * b.lane[i]; });
  }
  friend PlainFour operator/(const PlainFour& a, const PlainFour& b) {
    return each([&](std::size_t i) { return a.lane[i] / b.lane[i]; });
  }

  float sum() const { return (lane[0] + lane[2]) + (lane[1] + lane[3]); }
  // The sum of each number and those before it.
  PlainFour running_sums() const {
    const float two = lane[0] + lane[1];
    return {{lane[0], two, lane[0] + (lane[1] + lane[2]), two + (lane[2] + lane[3])}};
  }
  // The last number, four times.
  PlainFour last() const { return all(lane[3]); }

  // Which numbers are above the limits; and which of 16 answers is the first yes: 16 when none is.
  Answers above(const PlainFour& limits) const {
    Answers answers;
    for (std::size_t i = 0; i < 4; ++i) answers[i] = lane[i] > limits.lane[i];
    return answers;
  }
  static std::size_t first(const Answers (&answers)[4]) {
    std::size_t i = 0;
    while (i < 16 && !answers[i / 4][i % 4]) ++i;
    return i;
  }
  // Whether all four are.
  bool between(float least, float most) const {
    bool all = true;
    for (const float x : lane) all = all && x >= least && x <= most;
    return all;
  }

  // The numbers are 2^whole * rest, with rests between the roots of 1/2 and 2. REQUIRES: positive
  // normal numbers.
  Parts<PlainFour> split() const {
    Parts<PlainFour> parts;
    for (std::size_t i = 0; i < 4; ++i) {
      const auto bits = std::bit_cast<std::int32_t>(lane[i]);
      parts.whole[i] = (bits - kRootOfHalf) >> kExponentAt;
      parts.rest.lane[i] = std::bit_cast<float>(bits - (parts.whole[i] << kExponentAt));
    }
    return parts;
  }
  // y (whole + rest), computed in double precision, with rests between -1/2 and 1/2.
  static Parts<PlainFour> multiply(double y, const Parts<PlainFour>& x) {
    Parts<PlainFour> parts;
    for (std::size_t i = 0; i < 4; ++i) {
      const double product = (x.whole[i] + static_cast<double>(x.rest.lane[i])) * y;
      const double nearest = std::nearbyint(product);
      parts.whole[i] = static_cast<std::int32_t>(nearest);
      parts.rest.lane[i] = static_cast<float>(product - nearest);
    }
    return parts;
  }
  // The numbers times 2^n. REQUIRES: 2^n is a normal number.
  PlainFour scaled(const Whole& n) const {
    return each([&](std::size_t i) {
      return lane[i] * std::bit_cast<float>((n[i] + kExponentOfOne) << kExponentAt);
    });
  }

 private:
  template <class Lane>
  static PlainFour each(const Lane& lane) {
    return {{lane(0), lane(1), lane(2), lane(3)}};
  }
};

}  // namespace replay_buffer
