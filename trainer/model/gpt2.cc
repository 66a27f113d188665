#include "trainer/model/gpt2.h"

#include <cmath>
#include <limits>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include "tools/common/error.h"
#include "trainer/model/activation_checkpointing.h"
#include "trainer/model/precision/arithmetic.h"
#include "transport/base/flat_map.h"

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

}  // namespace

// Mixed, so that neighbouring inputs share nothing.
uint64_t dropoutSeed(uint64_t seed, int rank, int64_t microBatch) {
  const uint64_t place = static_cast<uint64_t>(microBatch) * 65536 + static_cast<uint64_t>(rank) + 1;
  return mixBits(seed + 0x9E3779B97F4A7C15u * place);
}

Gpt2::Gpt2(const Gpt2Config& config, at::ScalarType type, const ModelShare& share) : config_(config) {
  for (auto& parameter : config.parameters()) {
    named_.emplace_back(parameter.name,
                        at::zeros(share.of(parameter).sizes, at::TensorOptions().dtype(type)).set_requires_grad(true));
    wholeSizes_.push_back(std::move(parameter.sizes));
  }
  auto next = named_.begin();
  const auto take = [&next] { return (next++)->second; };
  tokenEmbedding_ = take();
  positionEmbedding_ = take();
  for (int64_t i = 0; i < config.layers; ++i) {  // braces: from left to right
    blocks_.push_back({take(), take(), take(), take(), take(), take(), take(), take(), take(), take(), take(), take()});
  }
  finalNormWeight_ = take();
  finalNormBias_ = take();
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
  const int64_t length = mask.size(0), width = config_.hidden / config_.heads;
  const int64_t heads = block.attentionBias.numel() / (3 * width);  // here: all of them, unless ranks share the block
  const auto joint = arithmetic::addmm(block.attentionBias, entering(x), block.attentionWeight);  // (BT, 3C)
  const auto mix = [mask, batch, length, heads, width, dropout](const at::Tensor& projected) {
    const auto all = projected.view({batch, length, 3, heads, width}).permute({2, 0, 3, 1, 4});  // (3, B, H, T, C/H)
    const auto split = [&](int64_t i) { return all.select(0, i).reshape({batch * heads, length, width}); };
    const auto query = split(0), key = split(1), value = split(2);  // (BH, T, C/H)
    auto weights = arithmetic::baddbmm(mask.expand({batch * heads, length, length}), query, key.transpose(1, 2),
                                       1 / std::sqrt(static_cast<double>(width)));
    weights = maybeDropout(arithmetic::softmax(weights), dropout);
    return arithmetic::bmm(weights, value)
        .view({batch, heads, length, width})
        .transpose(1, 2)
        .reshape({batch * length, heads * width});
  };
  return leaving(checkpointAttention_ ? checkpointed(mix, joint, {}) : mix(joint), block.projectionWeight,
                 block.projectionBias);
}

at::Tensor Gpt2::entering(const at::Tensor& x) const { return blockSplit_ != nullptr ? blockSplit_->enter(x) : x; }

at::Tensor Gpt2::leaving(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) const {
  return blockSplit_ != nullptr ? blockSplit_->leave(arithmetic::mm(x, weight)) + bias
                                : arithmetic::addmm(bias, x, weight);
}

at::Tensor Gpt2::loss(const at::Tensor& ids, const at::Tensor& targets, double dropout) const {
  const int64_t batch = ids.size(0), length = ids.size(1);
  const auto mask = causalMask(length, tokenEmbedding_.options().requires_grad(false));
  if (partRunner_ != nullptr) {
    partRunner_->beginForward(batch * length);
  }
  auto x = run(ForwardPart::kEmbedding, 0, {}, [&](const at::Tensor&) {
    const auto sum = arithmetic::embedding(tokenEmbedding_, ids) + positionEmbedding_.slice(0, 0, length);  // (B, T, C)
    return maybeDropout(sum, dropout).view({batch * length, config_.hidden});
  });
  for (size_t i = 0; i < blocks_.size(); ++i) {
    x = run(ForwardPart::kBlock, 1 + i, x,
            [&](const at::Tensor& input) { return blockForward(blocks_[i], input, mask, batch, dropout); });
  }
  return run(ForwardPart::kHead, 0, x, [&](const at::Tensor& input) {
    const auto logits =
        arithmetic::mm(layerNorm(input, finalNormWeight_, finalNormBias_), tokenEmbedding_.t());  // (BT, V)
    return arithmetic::crossEntropy(logits, targets.reshape({batch * length}));
  });
}

at::Tensor Gpt2::blockForward(const Gpt2Block& block, const at::Tensor& x, const at::Tensor& mask, int64_t batch,
                              double dropout) const {
  const auto compute = [this, &block, mask, batch, dropout](const at::Tensor& input) {
    const auto attended =
        input +
        maybeDropout(attention(block, layerNorm(input, block.ln1Weight, block.ln1Bias), mask, batch, dropout), dropout);
    const auto inner = arithmetic::gelu(arithmetic::addmm(
        block.expandBias, entering(layerNorm(attended, block.ln2Weight, block.ln2Bias)), block.expandWeight));
    return attended + maybeDropout(leaving(inner, block.contractWeight, block.contractBias), dropout);
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

double Gpt2::trainingFlops(int64_t tokens, int64_t seqLength) const {
  const double perToken = 6.0 * static_cast<double>(parameterCount()) +
                          12.0 * static_cast<double>(config_.layers * config_.hidden * seqLength);
  return perToken * static_cast<double>(tokens);
}

}  // namespace gloo_bypass::trainer
