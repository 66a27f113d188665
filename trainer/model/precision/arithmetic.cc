#include "trainer/model/precision/arithmetic.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

namespace gloo_bypass::trainer::arithmetic {
namespace {

bool hasSixteenBits(const at::Tensor& x) { return computedIn(x.scalar_type()) != x.scalar_type(); }

at::Tensor widened(const at::Tensor& x) { return hasSixteenBits(x) ? x.to(at::kFloat) : x; }

// operation(x, more...) with sums in fp32, its result in x's type. (N, C) is whatever the operation takes.
template <typename Operation, typename... Tensors>
at::Tensor rounded(const Operation& operation, const at::Tensor& x, const Tensors&... more) {
  return hasSixteenBits(x) ? operation(widened(x), widened(more)...).to(x.scalar_type()) : operation(x, more...);
}

// Whether libtorch multiplies bf16 matrices by the processor's own instructions and sums in fp32, asked of the sum of
// 4096 ones: bf16 counts to 256 only. Without the instructions products are right in newer releases, but slower than in
// fp32.
bool hasBFloat16Products() {
#ifdef __x86_64__
  static const bool has = __builtin_cpu_supports("avx512bf16") && [] {
    const at::NoGradGuard noGrad;
    const auto ones = at::ones({64, 4096}, at::kBFloat16);
    return at::mm(ones, ones.t()).eq(4096).all().item<bool>();
  }();
  return has;
#else
  return false;
#endif
}

// Of the products x y. Small ones go another way in libtorch 1.13 (below 16 x 16 x 16), and are summed in bf16 there.
bool isNative(const at::Tensor& x, const at::Tensor& y) {
  constexpr int64_t kLeastMultiplications = 32 * 32 * 32;
  return x.scalar_type() == at::kBFloat16 && x.size(-2) * x.size(-1) * y.size(-1) >= kLeastMultiplications &&
         hasBFloat16Products();
}

}  // namespace

at::ScalarType scalarTypeOf(Precision precision) {
  switch (precision) {
    case Precision::kFloat64:
      return at::kDouble;
    case Precision::kBFloat16:
      return at::kBFloat16;
    case Precision::kFloat16:
      return at::kHalf;
    case Precision::kFloat32:
      break;
  }
  return at::kFloat;
}

at::ScalarType computedIn(at::ScalarType type) {
  return type == at::kBFloat16 || type == at::kHalf ? at::kFloat : type;
}

at::Tensor addmm(const at::Tensor& bias, const at::Tensor& x, const at::Tensor& weight) {
  const auto operation = [](const auto& b, const auto& a, const auto& w) { return at::addmm(b, a, w); };
  return isNative(x, weight) ? operation(bias, x, weight) : rounded(operation, bias, x, weight);
}

at::Tensor mm(const at::Tensor& x, const at::Tensor& weight) {
  const auto operation = [](const auto& a, const auto& w) { return at::mm(a, w); };
  return isNative(x, weight) ? operation(x, weight) : rounded(operation, x, weight);
}

at::Tensor bmm(const at::Tensor& x, const at::Tensor& y) {
  const auto operation = [](const auto& a, const auto& b) { return at::bmm(a, b); };
  return isNative(x, y) ? operation(x, y) : rounded(operation, x, y);
}

at::Tensor baddbmm(const at::Tensor& sum, const at::Tensor& x, const at::Tensor& y, double factor) {
  const auto operation = [=](const auto& s, const auto& a, const auto& b) { return at::baddbmm(s, a, b, 1, factor); };
  return isNative(x, y) ? operation(sum, x, y) : rounded(operation, sum, x, y);
}

at::Tensor embedding(const at::Tensor& weight, const at::Tensor& ids) {
  return rounded([&](const auto& w) { return at::embedding(w, ids); }, weight);
}

at::Tensor softmax(const at::Tensor& x) {
  return rounded([](const auto& a) { return at::softmax(a, -1); }, x);
}

at::Tensor layerNorm(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias, double epsilon) {
  return rounded(
      [=](const auto& a, const auto& w, const auto& b) { return at::layer_norm(a, {a.size(-1)}, w, b, epsilon); }, x,
      weight, bias);
}

at::Tensor gelu(const at::Tensor& x) {
  return rounded([](const auto& a) { return at::gelu(a, "tanh"); }, x);
}

at::Tensor dropout(const at::Tensor& x, double probability) {
  return rounded([=](const auto& a) { return at::dropout(a, probability, true); }, x);
}

at::Tensor crossEntropy(const at::Tensor& logits, const at::Tensor& targets) {
  return at::cross_entropy_loss(widened(logits), targets);
}

}  // namespace gloo_bypass::trainer::arithmetic
