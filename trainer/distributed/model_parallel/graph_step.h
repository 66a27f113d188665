// A step of autograd's graph between ranks: forward has been computed elsewhere, backward is a function.
#pragma once

#include <functional>

#include <ATen/core/Tensor.h>

namespace gloo_bypass::trainer {

// `output`, which has no graph, as a result of `input`: where a graph is being made, `backward` turns its gradient into
// that of `input`. What `backward` refers to must outlive the graph.
at::Tensor withBackward(const at::Tensor& input, at::Tensor output,
                        std::function<at::Tensor(const at::Tensor& gradient)> backward);

}  // namespace gloo_bypass::trainer
