// What each rank must keep for itself to go on exactly, such as the part of its gradients that compression left out.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

namespace gloo_bypass::trainer {

// By name; contiguous tensors, aliases of what the owner uses.
using RankState = std::vector<std::pair<std::string, at::Tensor>>;

}  // namespace gloo_bypass::trainer
