// Stand-in for a header that Debian 12's libtorch-dev leaves out and c10d/reducer.hpp includes. The reducer's
// declaration needs these two names only; found after the system's folders, so a package that ships it wins.
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
