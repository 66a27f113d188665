#include "trainer/averaging/central.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

namespace gloo_bypass::trainer {

// Each is divided before they are added in the order of the ranks: with two ranks the bits are those of DistributedDataParallel.
void Central::gatherGradients() {
  const Exchange exchange(*this);
  isGathered_ = true;
  std::vector<at::Tensor> parts;
  for (const auto& parameter : parameters()) {
    parts.push_back((parameter.grad().defined() ? parameter.grad() : at::zeros_like(parameter)).view({-1}));
  }
  auto sum = at::cat(parts).div_(communicator().worldSize());
  if (communicator().rank() != 0) {
    communicator().send(sum, 0);
    return;
  }
  auto other = at::empty_like(sum);
  for (int rank = 1; rank < communicator().worldSize(); ++rank) {
    communicator().receive(other, rank);
    sum.add_(other);
  }
  int64_t begin = 0;
  for (auto& parameter : parameters()) {
    parameter.mutable_grad() = sum.narrow(0, begin, parameter.numel()).view(parameter.sizes());
    begin += parameter.numel();
  }
}

double Central::clipGradients(double maxNorm) {
  gatherGradients();
  return Averaging::clipGradients(maxNorm);
}

void Central::updateParameters() {
  if (!isGathered_) gatherGradients();
  isGathered_ = false;
  if (communicator().rank() == 0) {
    Averaging::updateParameters();
  } else {
    optimizer_.clearGradients();
  }
  const Exchange exchange(*this);
  auto weights = flat();
  if (communicator().rank() == 0) {
    for (int rank = 1; rank < communicator().worldSize(); ++rank) communicator().send(weights, rank);
    return;
  }
  communicator().receive(weights, 0);
  setParameters(weights);
}

} // namespace gloo_bypass::trainer
