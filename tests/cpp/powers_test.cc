#include "core/powers.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "core/random.h"

namespace replay_buffer {
namespace {

// Both the vector of this processor and the plain one.
template <class Lanes>
class Powers : public ::testing::Test {};
using BothFours = ::testing::Types<Four, PlainFour>;
TYPED_TEST_SUITE(Powers, BothFours, );

// Whatever stands beside it in the same four, and for every number left over at the end.
TYPED_TEST(Powers, AreThoseOfTheLibraryToFourInTenMillion) {
  Random random(7, 0);
  for (int batch = 0; batch < 20'000; ++batch) {
    const auto y = static_cast<float>(random.unit() * 3 - 1.5);
    std::vector<float> x(1 + random.below(11));
    for (float& one : x) one = static_cast<float>(std::exp2(random.unit() * 120 - 60));
    std::vector<float> result = x;
    powers<TypeParam>(result.data(), result.size(), y);
    for (std::size_t i = 0; i < x.size(); ++i) {
      const double wanted = std::pow(static_cast<double>(x[i]), static_cast<double>(y));
      EXPECT_NEAR(result[i] / wanted, 1, 4e-7) << x[i] << "^" << y;
    }
  }
}

TYPED_TEST(Powers, OfOneAreOneAndTheZerothIsOne) {
  std::vector<float> ones(9, 1.0F);
  powers<TypeParam>(ones.data(), ones.size(), -0.4F);
  EXPECT_EQ(ones, std::vector<float>(9, 1.0F));
  std::vector<float> any = {0, 1e-40F, 0.5F, 3e38F, 7};
  powers<TypeParam>(any.data(), any.size(), 0);
  EXPECT_EQ(any, std::vector<float>(5, 1.0F));
}

TYPED_TEST(Powers, AtTheEndsOfTheRangeAreThoseOfTheLibrary) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const std::vector<float> x = {0, 1e-45F, 1e-38F, 1,          3e38F, kInfinity,
                                2, 0.5F,   1,      1.0000001F, 1,     1};
  for (const float y : {-1e9F, -40.0F, -1.0F, -0.4F, 0.6F, 2.0F, 1e9F}) {
    std::vector<float> result = x;
    powers<TypeParam>(result.data(), result.size(), y);
    for (std::size_t i = 0; i < x.size(); ++i) EXPECT_FLOAT_EQ(result[i], std::pow(x[i], y));
  }
}

}  // namespace
}  // namespace replay_buffer
