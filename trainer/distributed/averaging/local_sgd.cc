#include "trainer/distributed/averaging/local_sgd.h"

#include <ATen/ATen.h>

#include "trainer/distributed/averaging/flat.h"

namespace gloo_bypass::trainer {

void LocalSgd::updateParameters() {
  Averaging::updateParameters();
  if (ranksAgree()) {
    const Exchange exchange(*this);
    meet();
  }
}

void LocalSgd::meet() { setValues(parameters(), meanOverRanks(flat(parameters()))); }

DiLoCo::DiLoCo(const Gpt2& model, AdamW& optimizer, GroupCommunicator& communicator, const AveragingOptions& options)
    : LocalSgd(model, optimizer, communicator, options.innerSteps),
      rate_(options.outerRate),
      momentum_(options.outerMomentum),
      start_(flat(parameters())),
      velocity_(at::zeros_like(start_)) {}

// As torch.optim.SGD with nesterov=True: v = m v + g; x = x - rate (g + m v).
void DiLoCo::meet() {
  const auto gradient = start_ - meanOverRanks(flat(parameters()));
  velocity_.mul_(momentum_).add_(gradient);
  start_.sub_(gradient.add(velocity_, momentum_), rate_);
  setValues(parameters(), start_);
}

RankState DiLoCo::rankState() const {
  auto state = LocalSgd::rankState();
  state.emplace_back("outer.start", start_);
  state.emplace_back("outer.velocity", velocity_);
  return state;
}

}  // namespace gloo_bypass::trainer
