// The map that holds each parameter's state in torch::optim.
#pragma once

#include <sstream>
#include <string>
#include <type_traits>

#include <ATen/core/Tensor.h>

namespace gloo_bypass::torch_version {

// Its key is the parameter's address: as text in PyTorch 1.13, as a pointer in 2.6.
template <typename State>
auto stateKey([[maybe_unused]] const State& state, const at::Tensor& parameter) {
  if constexpr (std::is_same_v<typename State::key_type, std::string>) {
    std::ostringstream text;
    text << parameter.unsafeGetTensorImpl();
    return text.str();
  } else {
    return static_cast<typename State::key_type>(parameter.unsafeGetTensorImpl());
  }
}

}  // namespace gloo_bypass::torch_version
