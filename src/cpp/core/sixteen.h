// The two inner loops of the tree, over the 16 children of a node: see simd_plain.h for what
// children are, and why they may change meanwhile.
#pragma once

#include <cstddef>

#include "core/simd.h"

namespace replay_buffer {

// The sum of 16 values, always added in the same order.
template <class Lanes = Four, class Child>
inline float sum16(const Child* children) {
  return ((Lanes::load(children) + Lanes::load(children + 4)) +
          (Lanes::load(children + 8) + Lanes::load(children + 12)))
      .sum();
}

// The first of 16 values at which their running sum exceeds `target`, and the running sum before
// it. 16 when none does. Running sums are rounded, so the value found may be 0: the caller checks.
struct Found {
  std::size_t child;
  float before;
};

template <class Lanes = Four, class Child>
inline Found find16(const Child* children, float target) {
  const Lanes limits = Lanes::all(target);
  typename Lanes::Answers over[4];
  float before[20];
  before[3] = 0;
  Lanes carry = Lanes::all(0);
  for (std::size_t i = 0; i < 4; ++i) {
    const Lanes sums = Lanes::load(children + i * 4).running_sums() + carry;
    sums.store(before + 4 + i * 4);
    over[i] = sums.above(limits);
    carry = sums.last();
  }
  const std::size_t child = Lanes::first(over);
  return {child, before[3 + child]};
}

}  // namespace replay_buffer
