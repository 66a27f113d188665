#include "collectives/memory/memory_transport.h"

#include <algorithm>

#include "transport/base/wake_event.h"
#include "transport/process/environment.h"
#include "transport/process/process_transport.h"
#include "transport/progress/progress_engine.h"

namespace gloo_bypass::collectives {
namespace {

// Nothing ever arrives here.
class Silence final : public Pollable {
 public:
  bool poll(TimePoint) noexcept override { return false; }
  void flush(TimePoint) noexcept override {}
  TimePoint nextDeadline() const noexcept override { return kNever; }
  void armWakeup() noexcept override { wake_.arm(); }
  void disarmWakeup() noexcept override { wake_.disarm(); }
  void block(Duration timeout) noexcept override { wake_.block({}, timeout); }
  void wake() noexcept override { wake_.wake(); }

 private:
  WakeEvent wake_;
};

class MemoryTransport final : public Transport {
 public:
  MemoryTransport() : engine_(silence_, {}) {}
  ProgressEngine& progress() override { return engine_; }
  std::string describe() const override { return "the memory of this host"; }
  Result<std::unique_ptr<MessageChannel>> openChannel(const ChannelOptions&, ChannelObserver*) override {
    return Error{ErrorScope::kDevice, ErrorCode::kUnavailable, "flat shared memory has no channels"};
  }
  TransportReport report() const override {
    const MemoryTraffic& traffic = memoryTraffic();
    TransportReport report;
    report.description = describe();
    report.bytesSent = report.total.payloadBytesSent = traffic.bytesSent;
    report.bytesReceived = report.total.payloadBytesReceived = traffic.bytesReceived;
    report.total.messagesSent = report.total.messagesReceived = traffic.operations;
    return report;
  }

 private:
  Silence silence_;
  ProgressEngine engine_;
};

}  // namespace

MemoryTraffic& memoryTraffic() {
  static MemoryTraffic traffic;
  return traffic;
}

Result<std::shared_ptr<Transport>> acquireMemoryTransport() {
  static const BackEnd backEnd{.name = "MEMORY",
                               .missing = "",
                               .package = "",
                               .make = [](const TransportConfig&) -> Result<std::shared_ptr<Transport>> {
                                 return std::shared_ptr<Transport>(std::make_shared<MemoryTransport>());
                               }};
  const auto config = configurationFromEnvironment();
  if (!config) return config.error();
  return ProcessTransport::instance().acquire(backEnd, config.value());
}

}  // namespace gloo_bypass::collectives
