// c10d's process groups, ProcessGroupGloo above all, for code that derives from them and passes them to the reducer.
//
//   GLOO_BYPASS_TORCH_LAZY_INIT      devices may connect lazily; TORCH_GLOO_LAZY_INIT asks for it (from PyTorch 2.8)
//   GLOO_BYPASS_TORCH_WORK_SEQUENCE  a piece of work has a type and a sequence number (2.6 has, 1.13 not)
//   GLOO_BYPASS_TORCH_WORK_CONTEXT   it also knows its context, timeout, inputs and outputs (2.14 has, 2.6 not)
//
// Thread: as c10d's own classes.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

namespace gloo_bypass::torch_version {

// The devices that torch.distributed would make: for the host's name, and for an interface.
inline std::shared_ptr<::gloo::transport::Device> defaultDevice() {
#if GLOO_BYPASS_TORCH_LAZY_INIT
  return c10d::ProcessGroupGloo::createDefaultDevice(c10d::getDefaultGlooLazyInit());
#else
  return c10d::ProcessGroupGloo::createDefaultDevice();
#endif
}

inline std::shared_ptr<::gloo::transport::Device> deviceForInterface(const std::string& interface) {
#if GLOO_BYPASS_TORCH_LAZY_INIT
  return c10d::ProcessGroupGloo::createDeviceForInterface(interface, c10d::getDefaultGlooLazyInit());
#else
  return c10d::ProcessGroupGloo::createDeviceForInterface(interface);
#endif
}

// The base of ProcessGroupGloo: whoever derives from it takes Gloo's place. Both classes declare the same collectives.
using CollectiveBackend = std::conditional_t<std::is_base_of_v<c10d::ProcessGroup, c10d::ProcessGroupGloo>,
                                             c10d::ProcessGroup, c10d::Backend>;

class GlooProcessGroup : public c10d::ProcessGroupGloo {
 public:
  using ProcessGroupGloo::ProcessGroupGloo;

 protected:
  // For a collective that a derived class enqueues. 0 if work has no sequence numbers.
  uint64_t nextSequence() {
#if GLOO_BYPASS_TORCH_WORK_SEQUENCE
    return ++seq_;
#else
    return 0;
#endif
  }
  std::chrono::milliseconds timeout() const { return options_->timeout; }
};

// An all-reduce in place, as a GlooProcessGroup enqueues it; a derived class implements it.
class GlooAllReduceWork : public c10d::ProcessGroupGloo::AsyncWork {
 public:
  GlooAllReduceWork(const std::shared_ptr<::gloo::Context>& context, const std::vector<at::Tensor>& tensors,
                    [[maybe_unused]] uint64_t sequence, [[maybe_unused]] std::chrono::milliseconds timeout)
#if GLOO_BYPASS_TORCH_WORK_CONTEXT
      : AsyncWork(context, {tensors}, c10d::OpType::ALLREDUCE, sequence, timeout, kTitle, tensors),
#elif GLOO_BYPASS_TORCH_WORK_SEQUENCE
      : AsyncWork({tensors}, c10d::OpType::ALLREDUCE, sequence, kTitle, tensors),
#else
      : AsyncWork({tensors}, kTitle, tensors),
#endif
        glooContext_(context),
        reduced_(tensors) {
  }

#if GLOO_BYPASS_TORCH_WORK_CONTEXT
  const std::vector<at::Tensor> getInputTensors() override { return reduced_; }
  const std::vector<at::Tensor> getOutputTensors() override { return reduced_; }
#endif

 protected:
  static constexpr const char* kTitle = "gloo:all_reduce";
  const std::shared_ptr<::gloo::Context>& glooContext() const { return glooContext_; }
  std::vector<at::Tensor>& reduced() { return reduced_; }

 private:
  std::shared_ptr<::gloo::Context> glooContext_;
  std::vector<at::Tensor> reduced_;
};

// The group in the form that the reducer and c10d's functions take. Up to PyTorch 1.13 a ProcessGroupGloo is a
// ProcessGroup; since then it is a Backend, and a ProcessGroup passes CPU tensors to it.
template <typename Group>
c10::intrusive_ptr<c10d::ProcessGroup> asProcessGroup(const c10::intrusive_ptr<c10d::Store>& store,
                                                      const c10::intrusive_ptr<Group>& group) {
  if constexpr (std::is_base_of_v<c10d::ProcessGroup, Group>) {
    return group;
  } else {
    using ProcessGroup = std::enable_if_t<std::is_class_v<Group>, c10d::ProcessGroup>;  // exists on this branch only
    auto whole = c10::make_intrusive<ProcessGroup>(store, group->getRank(), group->getSize());
    whole->setBackend(c10::DeviceType::CPU, ProcessGroup::BackendType::GLOO, group);
    whole->setDefaultBackend(ProcessGroup::BackendType::GLOO);
    return whole;
  }
}

}  // namespace gloo_bypass::torch_version
