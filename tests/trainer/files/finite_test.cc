#include "trainer/files/finite.h"

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

namespace gloo_bypass::trainer {
namespace {

template <typename T>
std::string firstIn(const char* dtype, const std::vector<T>& values) {
  return firstNotFinite(dtype, std::as_bytes(std::span(values)));
}

template <typename T>
void expectFound(const char* dtype, T nan, T infinity, T minusInfinity, T largest) {
  std::vector<T> values(5000, largest);  // several blocks and a part of one
  EXPECT_EQ(firstIn(dtype, values), "") << dtype;
  for (const size_t at : {size_t{4999}, size_t{4096}, size_t{1023}, size_t{0}}) {
    values[at] = nan;
    EXPECT_EQ(firstIn(dtype, values), "nan at element " + std::to_string(at)) << dtype;
    values[at] = infinity;
    EXPECT_EQ(firstIn(dtype, values), "inf at element " + std::to_string(at)) << dtype;
    values[at] = minusInfinity;
    EXPECT_EQ(firstIn(dtype, values), "-inf at element " + std::to_string(at)) << dtype;
  }
}

template <typename T>
void expectFoundIn(const char* dtype) {
  using Limits = std::numeric_limits<T>;
  expectFound<T>(dtype, Limits::quiet_NaN(), Limits::infinity(), -Limits::infinity(), Limits::max());
  EXPECT_EQ(firstIn(dtype, std::vector<T>{Limits::lowest(), Limits::denorm_min(), -0.0, Limits::signaling_NaN()}),
            "nan at element 3");
  EXPECT_EQ(firstIn(dtype, std::vector<T>{1, -Limits::quiet_NaN()}), "nan at element 1");
}

TEST(FirstNotFinite, EachFloatingType_IsFoundWithItsPlace) {
  expectFoundIn<float>("F32");
  expectFoundIn<double>("F64");
  expectFound<uint16_t>("F16", 0x7e00, 0x7c00, 0xfc00, 0x7bff);
  expectFound<uint16_t>("BF16", 0x7fc0, 0x7f80, 0xff80, 0x7f7f);
}

TEST(FirstNotFinite, OtherTypesAndNothing_AreFinite) {
  EXPECT_EQ(firstIn("I64", std::vector<int64_t>{-1, 0x7ff0'0000'0000'0000}), "");
  EXPECT_EQ(firstIn("F32", std::vector<float>{}), "");
}

TEST(FirstNotFinite, UnalignedBytes_AreReadAllTheSame) {
  std::vector<std::byte> bytes(1 + 4 * sizeof(float));
  const float bad = std::nanf("");
  std::memcpy(bytes.data() + 1 + 2 * sizeof bad, &bad, sizeof bad);
  EXPECT_EQ(firstNotFinite("F32", std::span(bytes).subspan(1)), "nan at element 2");
}

}  // namespace
}  // namespace gloo_bypass::trainer
