// Clipping where each rank holds a part of the gradients.
#pragma once

#include <vector>

#include <ATen/core/Tensor.h>

#include "trainer/distributed/communicator.h"

namespace gloo_bypass::trainer {

// As torch::nn::utils::clip_grad_norm_, over all ranks: scales `gradients` so that their common norm is at most maxNorm
// and returns the norm before. `counted` are those that no other rank counts; squares are added in fp64. By all ranks
// together.
double clipTogether(Communicator& communicator, const std::vector<at::Tensor>& gradients,
                    const std::vector<at::Tensor>& counted, double maxNorm);

}  // namespace gloo_bypass::trainer
