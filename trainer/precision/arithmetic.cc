#include "trainer/precision/arithmetic.h"

#include <ATen/ATen.h>

namespace gloo_bypass::trainer::arithmetic {
namespace {

bool hasSixteenBits(const at::Tensor& x) { return x.scalar_type() == at::kBFloat16 || x.scalar_type() == at::kHalf; }

at::Tensor widened(const at::Tensor& x) { return hasSixteenBits(x) ? x.to(at::kFloat) : x; }

// operation(x, more...) with sums in fp32, its result in x's type. (N, C) is whatever the operation takes.
template <typename Operation, typename... Tensors>
at::Tensor rounded(const Operation& operation, const at::Tensor& x, const Tensors&... more) {
  return hasSixteenBits(x) ? operation(widened(x), widened(more)...).to(x.scalar_type()) : operation(x, more...);
}

} // namespace

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

at::Tensor addmm(const at::Tensor& bias, const at::Tensor& x, const at::Tensor& weight) {
  return rounded([](const auto& b, const auto& a, const auto& w) { return at::addmm(b, a, w); }, bias, x, weight);
}

at::Tensor mm(const at::Tensor& x, const at::Tensor& weight) {
  return rounded([](const auto& a, const auto& w) { return at::mm(a, w); }, x, weight);
}

at::Tensor bmm(const at::Tensor& x, const at::Tensor& y) {
  return rounded([](const auto& a, const auto& b) { return at::bmm(a, b); }, x, y);
}

at::Tensor baddbmm(const at::Tensor& sum, const at::Tensor& x, const at::Tensor& y, double factor) {
  return rounded([=](const auto& s, const auto& a, const auto& b) { return at::baddbmm(s, a, b, 1, factor); }, sum, x, y);
}

at::Tensor embedding(const at::Tensor& weight, const at::Tensor& ids) {
  return rounded([&](const auto& w) { return at::embedding(w, ids); }, weight);
}

at::Tensor softmax(const at::Tensor& x) {
  return rounded([](const auto& a) { return at::softmax(a, -1); }, x);
}

at::Tensor layerNorm(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias, double epsilon) {
  return rounded(
      [=](const auto& a, const auto& w, const auto& b) { return at::layer_norm(a, {a.size(-1)}, w, b, epsilon); }, x, weight, bias);
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

} // namespace gloo_bypass::trainer::arithmetic
