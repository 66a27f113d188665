// Replaces a header that Debian 12's libtorch-dev lacks and c10d/reducer.hpp includes. The reducer's declaration needs
// only these two names. The system's folders come first, so a package's own header wins.
#pragma once

#include <functional>
#include <memory>

#include <ATen/core/Tensor.h>

namespace torch::distributed::autograd {

class DistAutogradContext {
 public:
  using GradCallback = std::function<bool(at::Tensor&)>;
};
using ContextPtr = std::shared_ptr<DistAutogradContext>;

}  // namespace torch::distributed::autograd
