// Activation checkpointing: a part of the forward keeps its input only, and is computed again when backward needs what
// lies between.
//
// Chen et al. 2016, "Training Deep Nets with Sublinear Memory Cost", section 4: with one checkpoint a block, a model of
// L blocks keeps L inputs and one block's activations instead of L blocks' activations, for one forward more. One
// thread.
#pragma once

#include <functional>
#include <vector>

#include <ATen/core/Tensor.h>

namespace gloo_bypass::trainer {

// compute(x), with a graph that holds x alone. `parameters` are the leaf tensors that compute() reads besides x: their
// gradients leave backward as they do without. The random numbers that compute() draws from the CPU generator are drawn
// again, and the generator then goes on where it was. compute() must be the same function of x, and of the parameters'
// values, both times: same bits then. It is called once more for each backward, and lives until the graph is freed.
at::Tensor checkpointed(std::function<at::Tensor(const at::Tensor&)> compute, const at::Tensor& x,
                        const std::vector<at::Tensor>& parameters);

}  // namespace gloo_bypass::trainer
