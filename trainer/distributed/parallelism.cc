#include "trainer/distributed/parallelism.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

namespace gloo_bypass::trainer {

namespace {

template <typename TensorOf>
int64_t bytesOf(const std::vector<at::Tensor>& tensors, const TensorOf& tensorOf) {
  int64_t bytes = 0;
  for (const auto& tensor : tensors) {
    const at::Tensor counted = tensorOf(tensor);
    bytes += counted.defined() ? static_cast<int64_t>(counted.nbytes()) : 0;
  }
  return bytes;
}

at::Tensor itself(const at::Tensor& tensor) { return tensor; }

}  // namespace

std::vector<Pass> Parallelism::planPasses(int64_t microBatches) {
  std::vector<Pass> passes;
  for (int64_t micro = 0; micro < microBatches; ++micro) {
    passes.push_back({Pass::Kind::kForward, micro});
    passes.push_back({Pass::Kind::kBackward, micro});
  }
  return passes;
}

int64_t Parallelism::synchronisedBytes(const std::vector<at::Tensor>& parameters) const {
  return bytesOf(parameters, itself);
}

HeldBytes Parallelism::heldBytes(const std::vector<at::Tensor>& parameters) const {
  return {.parameters = bytesOf(parameters, itself),
          .gradients = bytesOf(parameters, [](const at::Tensor& parameter) { return parameter.grad(); }) +
                       bytesOf(optimizer_.gradientSums(), itself),
          .optimizer = bytesOf(optimizer_.firstMoments(), itself) + bytesOf(optimizer_.secondMoments(), itself) +
                       bytesOf(optimizer_.masters(), itself)};
}

at::Tensor Parallelism::whole(StateKind kind, size_t index) {
  switch (kind) {
    case StateKind::kWeight:
      return optimizer_.parameters()[index];
    case StateKind::kFirstMoment:
      return optimizer_.firstMoments()[index];
    case StateKind::kSecondMoment:
      return optimizer_.secondMoments()[index];
  }
  return {};
}

void Parallelism::loadMoments(const MomentSource& source) {
  const at::NoGradGuard noGrad;
  for (size_t i = 0; source && i < optimizer_.parameters().size(); ++i) {
    for (const auto kind : {StateKind::kFirstMoment, StateKind::kSecondMoment}) {
      whole(kind, i).copy_(source(kind, i));
    }
  }
}

}  // namespace gloo_bypass::trainer
