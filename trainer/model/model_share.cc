#include "trainer/model/model_share.h"

#include <algorithm>
#include <string>

#include <fmt/format.h>

#include "tools/common/error.h"
#include "trainer/config/choices.h"

namespace gloo_bypass::trainer {
namespace {

bool isOneOf(const std::string& name, std::initializer_list<const char*> endings) {
  return std::any_of(endings.begin(), endings.end(), [&](const char* ending) { return name.ends_with(ending); });
}

}  // namespace

ModelShare::ModelShare(ModelParallelism method, int rank, int ranks, const Gpt2Config& config)
    : method_(method), rank_(rank), ranks_(ranks) {
  if (method == ModelParallelism::kTensor && config.heads % ranks != 0) {
    throw UsageError(
        fmt::format("--model-parallel tensor: {} ranks cannot share {} attention heads evenly", ranks, config.heads));
  }
  if (method == ModelParallelism::kGpipe || method == ModelParallelism::k1F1B) {
    if (config.layers < ranks) {
      throw UsageError(fmt::format("--model-parallel {}: {} ranks, but {} blocks: at most one rank a block",
                                   nameOf(kModelParallelisms, method), ranks, config.layers));
    }
    // The first ranks have one more, where they do not divide: the last one has the head to compute.
    const int64_t each = config.layers / ranks, longer = config.layers % ranks;
    firstBlock_ = rank_ * each + std::min(rank_, longer);
    endBlock_ = firstBlock_ + each + (rank_ < longer ? 1 : 0);
  }
}

HeldPiece ModelShare::of(const ParameterShape& parameter) const {
  HeldPiece whole{.sizes = parameter.sizes};
  whole.extent = 1;
  for (const int64_t size : parameter.sizes) {
    whole.extent *= size;
  }
  whole.length = whole.extent;
  if (method_ == ModelParallelism::kNone || ranks_ == 1) {
    return whole;
  }
  return method_ == ModelParallelism::kTensor ? tensorPiece(parameter, std::move(whole))
                                              : stagePiece(parameter, std::move(whole));
}

HeldPiece ModelShare::tensorPiece(const ParameterShape& parameter, HeldPiece piece) const {
  size_t dimension = 0;
  int64_t parts = 1;  // of that dimension, each of which is cut: query, key and value
  if (isOneOf(parameter.name, {"attn.c_attn.weight", "attn.c_attn.bias"})) {
    dimension = parameter.sizes.size() - 1;
    parts = 3;
  } else if (isOneOf(parameter.name, {"mlp.c_fc.weight", "mlp.c_fc.bias"})) {
    dimension = parameter.sizes.size() - 1;
  } else if (!isOneOf(parameter.name, {"c_proj.weight"})) {
    piece.isCopy = rank_ > 0;
    return piece;
  }
  const auto& sizes = parameter.sizes;
  piece.outer = parts;
  for (size_t i = 0; i < dimension; ++i) {
    piece.outer *= sizes[i];
  }
  for (size_t i = dimension + 1; i < sizes.size(); ++i) {
    piece.inner *= sizes[i];
  }
  piece.extent = sizes[dimension] / parts;
  piece.length = piece.extent / ranks_;
  piece.begin = rank_ * piece.length;
  piece.sizes[dimension] = parts * piece.length;
  return piece;
}

HeldPiece ModelShare::stagePiece(const ParameterShape& parameter, HeldPiece piece) const {
  const std::string& name = parameter.name;
  bool isHeld = false;
  if (name.starts_with("h.")) {
    isHeld = hasBlock(std::stoll(name.substr(2)));
  } else if (name == "wte.weight") {
    isHeld = rank_ == 0 || rank_ + 1 == ranks_;
    piece.isCopy = rank_ > 0;
  } else {
    isHeld = name == "wpe.weight" ? rank_ == 0 : rank_ + 1 == ranks_;
  }
  if (!isHeld) {
    piece.sizes = {0};
    piece.length = 0;
  }
  return piece;
}

int64_t ModelShare::elements(const Gpt2Config& config) const {
  int64_t elements = 0;
  for (const auto& parameter : config.parameters()) {
    elements += of(parameter).elements();
  }
  return elements;
}

}  // namespace gloo_bypass::trainer
