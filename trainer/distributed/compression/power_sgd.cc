#include "trainer/distributed/compression/power_sgd.h"

#include <algorithm>

#include <ATen/ATen.h>

#include "trainer/distributed/compression/random_draw.h"

namespace gloo_bypass::trainer {
namespace {

constexpr int64_t kLeastGain = 2;  // PyTorch's min_compression_rate

// Of a parameter as a matrix (n, m).
struct MatrixShape {
  int64_t n = 0, m = 1;

  explicit MatrixShape(at::IntArrayRef sizes) : n(sizes.empty() ? 1 : sizes[0]) {
    for (std::size_t i = 1; i < sizes.size(); ++i) m *= sizes[i];
  }
  // 0: one-dimensional, or too small to gain.
  int64_t rankFor(int64_t wanted) const {
    const int64_t rank = std::min({n, m, wanted});
    return (n + m) * rank * kLeastGain < n * m ? rank : 0;
  }
};

void orthogonalise(at::Tensor& matrix) { matrix.copy_(std::get<0>(at::linalg_qr(matrix))); }

}  // namespace

int64_t powerSgdBytes(at::IntArrayRef sizes, int64_t rank, int64_t gradientBytes, int64_t workBytes) {
  const MatrixShape matrix(sizes);
  const int64_t used = matrix.rankFor(rank);
  return used > 0 ? (matrix.n + matrix.m) * used * workBytes : matrix.n * matrix.m * gradientBytes;
}

PowerSgd::PowerSgd(int64_t rank, ErrorFeedback feedback,
                   const std::vector<std::pair<std::string, at::Tensor>>& parameters, uint64_t seed)
    : feedback_(std::move(feedback)) {
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const auto& [name, parameter] = parameters[i];
    names_.push_back(name);
    q_.emplace_back();
    if (const int64_t r = MatrixShape(parameter.sizes()).rankFor(rank); r > 0) {
      q_[i] = at::randn({parameter.numel() / parameter.size(0), r},
                        generatorAt({.seed = seed, .step = 0, .rank = -1, .parameter = i}),
                        at::TensorOptions().dtype(workType(parameter)));
    }
  }
}

RankState PowerSgd::state() const {
  auto state = feedback_.state();
  for (std::size_t i = 0; i < q_.size(); ++i) {
    if (q_[i].defined()) state.emplace_back("q." + names_[i], q_[i]);
  }
  return state;
}

void PowerSgd::reduce(std::span<const GradientPart> parts, int64_t /*step*/, Wire& wire) {
  std::vector<const GradientPart*> plain;
  std::vector<Matrix> matrices;
  for (const auto& part : parts) {
    if (!q_[part.parameter].defined()) {
      plain.push_back(&part);
      continue;
    }
    const auto values = feedback_.owed(part.parameter, part.gradient.reshape({-1}));
    matrices.push_back({&part, values.view({part.gradient.size(0), -1}), {}});
  }
  if (!plain.empty()) reducePlain(plain, wire);
  if (!matrices.empty()) reduceMatrices(matrices, wire);
}

// One all-reduce of all of them.
void PowerSgd::reducePlain(const std::vector<const GradientPart*>& parts, Wire& wire) const {
  std::vector<at::Tensor> flat;
  for (const auto* part : parts) flat.push_back(part->gradient.reshape({-1}));
  auto sum = at::cat(flat);
  wire.sum(sum);
  sum.div_(wire.worldSize());
  int64_t begin = 0;
  for (const auto* part : parts) {
    part->gradient.copy_(sum.narrow(0, begin, part->gradient.numel()).view(part->gradient.sizes()));
    begin += part->gradient.numel();
  }
}

// Algorithm 1: P = M Q, summed over ranks and orthogonalised; Q = M^T P, averaged; M ~ P Q^T.
void PowerSgd::reduceMatrices(std::vector<Matrix>& matrices, Wire& wire) {
  int64_t pSize = 0, qSize = 0;
  for (const auto& matrix : matrices) {
    const auto& q = q_[matrix.part->parameter];
    pSize += matrix.values.size(0) * q.size(1);
    qSize += q.numel();
  }
  auto ps = at::empty({pSize}, matrices[0].values.options()), qs = at::empty({qSize}, ps.options());
  int64_t begin = 0;
  for (auto& matrix : matrices) {
    auto& q = q_[matrix.part->parameter];
    orthogonalise(q);
    matrix.p = ps.narrow(0, begin, matrix.values.size(0) * q.size(1)).view({matrix.values.size(0), q.size(1)});
    begin += matrix.p.numel();
    at::matmul_out(matrix.p, matrix.values, q);
  }
  wire.sum(ps);
  begin = 0;
  for (auto& matrix : matrices) {
    const auto& q = q_[matrix.part->parameter];
    orthogonalise(matrix.p);
    auto view = qs.narrow(0, begin, q.numel()).view(q.sizes());
    begin += q.numel();
    at::matmul_out(view, matrix.values.t(), matrix.p);
  }
  wire.sum(qs);
  wire.finished();
  qs.div_(wire.worldSize());
  begin = 0;
  for (auto& matrix : matrices) {
    auto& q = q_[matrix.part->parameter];
    q.copy_(qs.narrow(0, begin, q.numel()).view(q.sizes()));
    begin += q.numel();
    const InPlace approximation(matrix.part->gradient);
    auto view = approximation.values().view(matrix.values.sizes());
    at::matmul_out(view, matrix.p, q.t());
    if (feedback_.enabled()) matrix.values.sub_(view);
  }
}

}  // namespace gloo_bypass::trainer
