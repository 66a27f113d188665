#include "trainer/distributed/averaging/central.h"

#include <ATen/ATen.h>

#include "trainer/distributed/averaging/flat.h"

namespace gloo_bypass::trainer {

// Each is divided before they are added in the order of the ranks: with two ranks the bits are those of
// DistributedDataParallel.
void Central::gatherGradients() {
  const Exchange exchange(*this, Part::kNotLast);
  isGathered_ = true;
  auto sum = flatGradients(parameters()).div_(communicator().worldSize());
  if (communicator().rank() != 0) {
    communicator().send(sum, 0);
    return;
  }
  auto other = at::empty_like(sum);
  for (int rank = 1; rank < communicator().worldSize(); ++rank) {
    communicator().receive(other, rank);
    sum.add_(other);
  }
  setGradients(parameters(), sum);
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
  auto weights = flat(parameters());
  if (communicator().rank() == 0) {
    for (int rank = 1; rank < communicator().worldSize(); ++rank) communicator().send(weights, rank);
    return;
  }
  communicator().receive(weights, 0);
  setValues(parameters(), weights);
}

}  // namespace gloo_bypass::trainer
