#include "trainer/gpt2.h"

#include <cmath>
#include <limits>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include "programs/error.h"
#include "trainer/activation_checkpointing.h"
#include "trainer/precision/arithmetic.h"

namespace gloo_bypass::trainer {
namespace {

constexpr double kNormEpsilon = 1e-5;
constexpr double kInitialDeviation = 0.02;

at::Tensor layerNorm(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
  return arithmetic::layerNorm(x, weight, bias, kNormEpsilon);
}

at::Tensor maybeDropout(const at::Tensor& x, double probability) {
  return probability > 0 ? arithmetic::dropout(x, probability) : x;
}

// -inf above the diagonal: a token sees itself and what came before.
at::Tensor causalMask(int64_t length, const at::TensorOptions& options) {
  return at::full({length, length}, -std::numeric_limits<double>::infinity(), options).triu_(1);
}

} // namespace

at::Tensor Gpt2::add(std::string name, at::IntArrayRef shape, at::ScalarType type) {
  auto tensor = at::zeros(shape, at::TensorOptions().dtype(type));
  tensor.set_requires_grad(true);
  named_.emplace_back(std::move(name), tensor);
  return tensor;
}

Gpt2::Gpt2(const Gpt2Config& config, at::ScalarType type) : config_(config) {
  const int64_t c = config.hidden;
  tokenEmbedding_ = add("wte.weight", {config.vocabulary, c}, type);
  positionEmbedding_ = add("wpe.weight", {config.positions, c}, type);
  for (int64_t i = 0; i < config.layers; ++i) {
    const std::string prefix = fmt::format("h.{}.", i);
    Gpt2Block block;
    block.ln1Weight = add(prefix + "ln_1.weight", {c}, type);
    block.ln1Bias = add(prefix + "ln_1.bias", {c}, type);
    block.attentionWeight = add(prefix + "attn.c_attn.weight", {c, 3 * c}, type);
    block.attentionBias = add(prefix + "attn.c_attn.bias", {3 * c}, type);
    block.projectionWeight = add(prefix + "attn.c_proj.weight", {c, c}, type);
    block.projectionBias = add(prefix + "attn.c_proj.bias", {c}, type);
    block.ln2Weight = add(prefix + "ln_2.weight", {c}, type);
    block.ln2Bias = add(prefix + "ln_2.bias", {c}, type);
    block.expandWeight = add(prefix + "mlp.c_fc.weight", {c, 4 * c}, type);
    block.expandBias = add(prefix + "mlp.c_fc.bias", {4 * c}, type);
    block.contractWeight = add(prefix + "mlp.c_proj.weight", {4 * c, c}, type);
    block.contractBias = add(prefix + "mlp.c_proj.bias", {c}, type);
    blocks_.push_back(std::move(block));
  }
  finalNormWeight_ = add("ln_f.weight", {c}, type);
  finalNormBias_ = add("ln_f.bias", {c}, type);
}

void Gpt2::initialize(uint64_t seed) {
  const at::NoGradGuard noGrad;
  at::manual_seed(seed);
  const double residual = kInitialDeviation / std::sqrt(2.0 * static_cast<double>(config_.layers));
  for (auto& [name, tensor] : named_) {
    if (name.find("ln_") != std::string::npos) {
      tensor.fill_(name.ends_with(".weight") ? 1 : 0);
    } else if (name.ends_with(".bias")) {
      tensor.zero_();
    } else {
      tensor.normal_(0, name.ends_with("c_proj.weight") ? residual : kInitialDeviation);
    }
  }
}

at::Tensor Gpt2::attention(const Gpt2Block& block, const at::Tensor& x, const at::Tensor& mask, int64_t batch,
    double dropout) const {
  const int64_t length = mask.size(0), c = config_.hidden, heads = config_.heads, width = c / heads;
  const auto joint = arithmetic::addmm(block.attentionBias, x, block.attentionWeight) // (BT, 3C)
                         .view({batch, length, 3, heads, width})
                         .permute({2, 0, 3, 1, 4}); // (3, B, H, T, C/H)
  const auto split = [&](int64_t i) { return joint.select(0, i).reshape({batch * heads, length, width}); };
  const auto query = split(0), key = split(1), value = split(2); // (BH, T, C/H)
  auto weights = arithmetic::baddbmm(mask.expand({batch * heads, length, length}), query, key.transpose(1, 2),
      1 / std::sqrt(static_cast<double>(width)));
  weights = maybeDropout(arithmetic::softmax(weights), dropout);
  const auto mixed = arithmetic::bmm(weights, value)
                         .view({batch, heads, length, width})
                         .transpose(1, 2)
                         .reshape({batch * length, c});
  return arithmetic::addmm(block.projectionBias, mixed, block.projectionWeight);
}

at::Tensor Gpt2::loss(const at::Tensor& ids, const at::Tensor& targets, double dropout) const {
  const int64_t batch = ids.size(0), length = ids.size(1);
  const auto mask = causalMask(length, tokenEmbedding_.options().requires_grad(false));
  auto x = run(ForwardPart::kEmbedding, 0, {}, [&](const at::Tensor&) {
    const auto sum = arithmetic::embedding(tokenEmbedding_, ids) + positionEmbedding_.slice(0, 0, length); // (B, T, C)
    return maybeDropout(sum, dropout).view({batch * length, config_.hidden});
  });
  for (size_t i = 0; i < blocks_.size(); ++i) {
    x = run(ForwardPart::kBlock, 1 + i, x, [&](const at::Tensor& input) {
      return blockForward(blocks_[i], input, mask, batch, dropout);
    });
  }
  return run(ForwardPart::kHead, 0, x, [&](const at::Tensor& input) {
    const auto logits = arithmetic::mm(layerNorm(input, finalNormWeight_, finalNormBias_), tokenEmbedding_.t()); // (BT, V)
    return arithmetic::crossEntropy(logits, targets.reshape({batch * length}));
  });
}

at::Tensor Gpt2::blockForward(const Gpt2Block& block, const at::Tensor& x, const at::Tensor& mask, int64_t batch,
    double dropout) const {
  const auto compute = [this, &block, mask, batch, dropout](const at::Tensor& input) {
    const auto attended = input +
        maybeDropout(attention(block, layerNorm(input, block.ln1Weight, block.ln1Bias), mask, batch, dropout), dropout);
    const auto inner = arithmetic::gelu(
        arithmetic::addmm(block.expandBias, layerNorm(attended, block.ln2Weight, block.ln2Bias), block.expandWeight));
    return attended + maybeDropout(arithmetic::addmm(block.contractBias, inner, block.contractWeight), dropout);
  };
  return checkpointActivations_ ? checkpointed(compute, x, block.parameters()) : compute(x);
}

std::vector<std::vector<size_t>> Gpt2::units() const {
  std::vector<std::vector<size_t>> units(1 + blocks_.size());
  for (size_t i = 0; i < named_.size(); ++i) {
    const std::string& name = named_[i].first;
    units[name.starts_with("h.") ? 1 + std::stoul(name.substr(2)) : 0].push_back(i);
  }
  return units;
}

std::vector<at::Tensor> Gpt2::parameters() const {
  std::vector<at::Tensor> parameters;
  for (const auto& [name, tensor] : named_) {
    parameters.push_back(tensor);
  }
  return parameters;
}

int64_t Gpt2::parameterCount() const {
  int64_t count = 0;
  for (const auto& [name, tensor] : named_) {
    count += tensor.numel();
  }
  return count;
}

double Gpt2::trainingFlops(int64_t tokens, int64_t seqLength) const {
  const double perToken = 6.0 * static_cast<double>(parameterCount()) +
      12.0 * static_cast<double>(config_.layers * config_.hidden * seqLength);
  return perToken * static_cast<double>(tokens);
}

} // namespace gloo_bypass::trainer
