// Four for NEON on arm64. What its members do is said at PlainFour.
#pragma once

#include <arm_neon.h>

#include "core/simd_plain.h"

namespace replay_buffer {

struct Four {
  using Whole = int32x4_t;
  using Answers = uint16x4_t;

  float32x4_t v;

  static Four load(const std::atomic<float>* children) {
    return {vld1q_f32(reinterpret_cast<const float*>(children))};
  }
  static Four load(const std::atomic<std::uint64_t>* children) {
    const auto* p = reinterpret_cast<const float*>(children);
    return {vuzp1q_f32(vld1q_f32(p), vld1q_f32(p + 4))};
  }
  static Four load(const float* numbers) { return {vld1q_f32(numbers)}; }
  static Four all(float x) { return {vdupq_n_f32(x)}; }
  void store(float* numbers) const { vst1q_f32(numbers, v); }

  friend Four operator+(Four a, Four b) { return {vaddq_f32(a.v, b.v)}; }
  friend Four operator-(Four a, Four b) { return {vsubq_f32(a.v, b.v)}; }
  friend Four operator*(Four a, Four b) { return {vmulq_f32(a.v, b.v)}; }
  friend Four operator/(Four a, Four b) { return {vdivq_f32(a.v, b.v)}; }

  float sum() const { return vpadds_f32(vadd_f32(vget_low_f32(v), vget_high_f32(v))); }
  Four running_sums() const {
    const float32x4_t zero = vdupq_n_f32(0);
    const float32x4_t two = vaddq_f32(v, vextq_f32(zero, v, 3));
    return {vaddq_f32(two, vextq_f32(zero, two, 2))};
  }
  Four last() const { return {vdupq_laneq_f32(v, 3)}; }

  Answers above(Four limits) const { return vmovn_u32(vcgtq_f32(v, limits.v)); }
  static std::size_t first(const Answers (&answers)[4]) {
    const uint8x16_t bytes = vcombine_u8(vmovn_u16(vcombine_u16(answers[0], answers[1])),
                                         vmovn_u16(vcombine_u16(answers[2], answers[3])));
    // NEON has no mask of bits: what is nearest to one has four bits for each byte.
    const uint8x8_t nibbles = vshrn_n_u16(vreinterpretq_u16_u8(bytes), 4);
    const std::uint64_t mask = vget_lane_u64(vreinterpret_u64_u8(nibbles), 0);
    return static_cast<std::size_t>(std::countr_zero(mask)) / 4;
  }
  bool between(float least, float most) const {
    const uint32x4_t inside =
        vandq_u32(vcleq_f32(v, vdupq_n_f32(most)), vcgeq_f32(v, vdupq_n_f32(least)));
    return vminvq_u32(inside) != 0;
  }

  Parts<Four> split() const {
    const int32x4_t bits = vreinterpretq_s32_f32(v);
    const int32x4_t n = vshrq_n_s32(vsubq_s32(bits, vdupq_n_s32(kRootOfHalf)), kExponentAt);
    return {n, {vreinterpretq_f32_s32(vsubq_s32(bits, vshlq_n_s32(n, kExponentAt)))}};
  }
  static Parts<Four> multiply(double y, const Parts<Four>& x) {
    const auto product = [&](int64x2_t whole, float64x2_t rest) {
      return vmulq_n_f64(vaddq_f64(vcvtq_f64_s64(whole), rest), y);
    };
    const float64x2_t low =
        product(vmovl_s32(vget_low_s32(x.whole)), vcvt_f64_f32(vget_low_f32(x.rest.v)));
    const float64x2_t high = product(vmovl_high_s32(x.whole), vcvt_high_f64_f32(x.rest.v));
    const float64x2_t n_low = vrndnq_f64(low);
    const float64x2_t n_high = vrndnq_f64(high);
    return {
        vcombine_s32(vmovn_s64(vcvtq_s64_f64(n_low)), vmovn_s64(vcvtq_s64_f64(n_high))),
        {vcombine_f32(vcvt_f32_f64(vsubq_f64(low, n_low)), vcvt_f32_f64(vsubq_f64(high, n_high)))}};
  }
  Four scaled(Whole n) const {
    const int32x4_t exponent = vaddq_s32(n, vdupq_n_s32(kExponentOfOne));
    return {vmulq_f32(v, vreinterpretq_f32_s32(vshlq_n_s32(exponent, kExponentAt)))};
  }
};

}  // namespace replay_buffer
