// An object that autograd's functions of this folder call, as an argument of apply() and in a context until backward.
#pragma once

#include <torch/csrc/autograd/custom_function.h>

namespace gloo_bypass::trainer {

// Not owned: the object outlives every graph.
template <typename Object>
class Handle {
 public:
  explicit Handle(Object& object) : object_(&object) {}
  Object* operator->() const { return object_; }

  void keepIn(torch::autograd::AutogradContext* context) const {
    context->saved_data["object"] = static_cast<int64_t>(reinterpret_cast<intptr_t>(object_));
  }
  static Object& of(torch::autograd::AutogradContext* context) {
    return *reinterpret_cast<Object*>(static_cast<intptr_t>(context->saved_data["object"].toInt()));
  }

 private:
  Object* object_;
};

}  // namespace gloo_bypass::trainer
