// Compiled with -O0, whatever the rest of the project is compiled with.
#include "trainer/model/precision/published_loop.h"

#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

namespace gloo_bypass::trainer {
namespace {

template <typename T>
double multiplyAndDivide(int64_t passes) {
  const T three = static_cast<T>(3.0f);
  T value = static_cast<T>(1.0f);
  for (int64_t i = 0; i < passes; ++i) {
    value = value * three;
    value = value / three;
  }
  return static_cast<double>(value);
}

}  // namespace

double publishedLoopSeconds(Precision type) {
  return type == Precision::kFloat32 ? 9.95 : type == Precision::kFloat64 ? 11.06 : 0;
}

double runPublishedLoop(Precision type, int64_t passes) {
  switch (type) {
    case Precision::kFloat64:
      return multiplyAndDivide<double>(passes);
    case Precision::kBFloat16:
      return multiplyAndDivide<c10::BFloat16>(passes);
    case Precision::kFloat16:
      return multiplyAndDivide<c10::Half>(passes);
    case Precision::kFloat32:
      break;
  }
  return multiplyAndDivide<float>(passes);
}

}  // namespace gloo_bypass::trainer
