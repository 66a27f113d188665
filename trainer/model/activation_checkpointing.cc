#include "trainer/model/activation_checkpointing.h"

#include <mutex>
#include <utility>

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>

namespace gloo_bypass::trainer {
namespace {

// What a second forward needs besides the input.
struct Recomputation : torch::CustomClassHolder {
  std::function<at::Tensor(const at::Tensor&)> compute;
  std::vector<at::Tensor> parameters;
  at::Tensor generatorState;  // before the first forward
};

at::Tensor generatorState() {
  auto generator = at::detail::getDefaultCPUGenerator();
  const std::lock_guard lock(generator.mutex());
  return generator.get_state();
}

void setGeneratorState(const at::Tensor& state) {
  auto generator = at::detail::getDefaultCPUGenerator();
  const std::lock_guard lock(generator.mutex());
  generator.set_state(state);
}

constexpr const char* kRecomputation = "recomputation";

struct CheckpointedPart : torch::autograd::Function<CheckpointedPart> {
  // Runs without a graph. The parameters are arguments so that the graph leads to them; compute() knows them already.
  static at::Tensor forward(torch::autograd::AutogradContext* context,
                            const c10::intrusive_ptr<Recomputation>& recomputation, const at::Tensor& x,
                            at::TensorList /*parameters*/) {
    context->save_for_backward({x});
    context->saved_data[kRecomputation] = c10::IValue::make_capsule(recomputation);
    return recomputation->compute(x);
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& outputGradients) {
    const auto recomputation =
        c10::static_intrusive_pointer_cast<Recomputation>(context->saved_data[kRecomputation].toCapsule());
    const at::AutoGradMode withGraph(true);
    std::vector<at::Tensor> inputs{context->get_saved_variables()[0].detach().set_requires_grad(true)};
    inputs.insert(inputs.end(), recomputation->parameters.begin(), recomputation->parameters.end());
    const auto resumed = generatorState();
    setGeneratorState(recomputation->generatorState);
    const auto output = recomputation->compute(inputs[0]);
    setGeneratorState(resumed);
    auto gradients = torch::autograd::grad({output}, inputs, {outputGradients[0]});
    gradients.insert(gradients.begin(), at::Tensor());  // of the recomputation, which is no tensor
    return gradients;
  }
};

}  // namespace

at::Tensor checkpointed(std::function<at::Tensor(const at::Tensor&)> compute, const at::Tensor& x,
                        const std::vector<at::Tensor>& parameters) {
  auto recomputation = c10::make_intrusive<Recomputation>();
  recomputation->compute = std::move(compute);
  recomputation->parameters = parameters;
  recomputation->generatorState = generatorState();
  return CheckpointedPart::apply(recomputation, x, at::TensorList(parameters));
}

}  // namespace gloo_bypass::trainer
