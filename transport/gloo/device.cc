#include "transport/gloo/device.h"

#include <string>
#include <utility>

#include "transport/gloo/context.h"

namespace gloo_bypass {
namespace adapter {
namespace {

class Device final : public ::gloo::transport::Device, public std::enable_shared_from_this<Device> {
 public:
  Device(std::shared_ptr<Transport> transport, ConnectMode mode) : transport_(std::move(transport)), mode_(mode) {}

  std::string str() const override { return transport_->describe(); }
  // Only CUDA algorithms ask, to find a near device; there is none to name.
  const std::string& getPCIBusID() const override { return pciBusId_; }

  std::shared_ptr<::gloo::transport::Context> createContext(int rank, int size) override {
    return std::make_shared<Context>(shared_from_this(), transport_, mode_, rank, size);
  }

 private:
  const std::shared_ptr<Transport> transport_;
  const ConnectMode mode_;
  const std::string pciBusId_;
};

}  // namespace
}  // namespace adapter

std::shared_ptr<::gloo::transport::Device> makeDevice(std::shared_ptr<Transport> transport, ConnectMode mode) {
  return std::make_shared<adapter::Device>(std::move(transport), mode);
}

}  // namespace gloo_bypass
