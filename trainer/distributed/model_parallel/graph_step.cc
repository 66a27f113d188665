#include "trainer/distributed/model_parallel/graph_step.h"

#include <memory>
#include <utility>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>

namespace gloo_bypass::trainer {
namespace {

using Backward = std::function<at::Tensor(const at::Tensor&)>;

// torch::autograd::Function's way to it makes GCC 14 warn of array bounds in std::vector<bool>.
class GraphStep final : public torch::autograd::Node {
 public:
  explicit GraphStep(Backward backward) : backward_(std::move(backward)) {}

 private:
  torch::autograd::variable_list apply(torch::autograd::variable_list&& gradients) override {
    return torch::autograd::variable_list(1, backward_(gradients[0]));
  }

  const Backward backward_;
};

}  // namespace

at::Tensor withBackward(const at::Tensor& input, at::Tensor output, Backward backward) {
  if (at::GradMode::is_enabled() && input.requires_grad()) {
    const std::shared_ptr<GraphStep> step(new GraphStep(std::move(backward)), torch::autograd::deleteNode);
    step->set_next_edges(torch::autograd::collect_next_edges(input));
    torch::autograd::set_history(output, step);
  }
  return output;
}

}  // namespace gloo_bypass::trainer
