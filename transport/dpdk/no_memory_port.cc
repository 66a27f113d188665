#include "transport/dpdk/no_memory_port.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <utility>

#include "transport/base/doorbell.h"
#include "transport/base/exhausted.h"
#include "transport/base/wake_event.h"
#include "transport/dpdk/memif_directory.h"
#include "transport/dpdk/memif_port.h"
#include "transport/dpdk/port_address.h"

namespace gloo_bypass::dpdk {
namespace {

// If the kernel does not identify this machine, any peer may be on it.
bool mayBeOfMachine(std::span<const std::byte> address, const PortId& machine) {
  if (machine == PortId{}) return true;
  if (const auto memory = decodeMemifAddress(address)) return memory.value().machineId == machine;
  const auto none = decodeNoMemoryAddress(address);
  return none && none.value().machineId == machine;
}

class NoMemoryPort final : public PacketPort {
 public:
  NoMemoryPort(std::string why, FileDescriptor elsewhere)
      : why_(std::move(why)),
        self_{.machineId = machineId(), .pid = static_cast<std::uint32_t>(::getpid()), .why = why_},
        elsewhere_(std::move(elsewhere)) {}
  const Status& canBeWoken() const { return here_.made(); }

  std::vector<std::byte> localAddress() const override { return encodeAddress(self_); }
  std::string describe() const override { return fmt::format("no shared memory ({})", why_); }
  PacketPortTraits traits() const override { return {.wakesForRoom = true}; }
  bool reaches(std::span<const std::byte> remoteAddress) const override {
    if (!said_ && mayBeOfMachine(remoteAddress, self_.machineId)) {
      said_ = true;
      std::fprintf(stderr, "gloo-bypass: this process reaches the ranks of its own host over the network: %s\n",
                   why_.c_str());
    }
    return false;
  }
  Result<LinkId> openLink(std::span<const std::byte>) override {
    return Error{ErrorScope::kSession, ErrorCode::kUnavailable, why_};
  }
  void closeLink(LinkId) override {}
  LinkProperties linkProperties(LinkId) const override { return {}; }
  std::size_t receive(PacketSink&, std::size_t) override { return 0; }
  std::size_t transmit(LinkId, std::span<const OutgoingDatagram>) override { return 0; }

  // A wake-up meant for a sleep here only ends the other sleep early.
  void sleepElsewhere(bool elsewhere) override { sleepsElsewhere_.store(elsewhere, std::memory_order_seq_cst); }
  void armWakeup() override { here_.arm(); }
  void block(Duration timeout) override { here_.block({}, timeout); }
  void disarmWakeup() override { here_.disarm(); }
  void wake() override {
    here_.wake();
    if (sleepsElsewhere_.load(std::memory_order_seq_cst)) Doorbell::ring(elsewhere_.get());
  }
  PortCounters counters() const override { return {}; }

 private:
  const std::string why_;
  const NoMemoryAddress self_;
  WakeEvent here_;
  const FileDescriptor elsewhere_;
  std::atomic<bool> sleepsElsewhere_{false};
  mutable bool said_ = false;
};

}  // namespace

Result<std::unique_ptr<PacketPort>> makeMemoryPort(const TransportConfig& config, int doorbell) {
  auto memory = makeMemifPort(config, doorbell);
  if (memory || memory.error().code != ErrorCode::kUnavailable) return memory;
  if (!config.capture.empty()) {
    return Error{ErrorScope::kDevice, ErrorCode::kConfiguration,
                 fmt::format("GLOO_BYPASS_CAPTURE='{}' is of the frames of memory links, and there are none here: {}",
                             config.capture, memory.error().message)};
  }
  FileDescriptor elsewhere(::fcntl(doorbell, F_DUPFD_CLOEXEC, 0));
  if (!elsewhere) {
    const auto [code, text] = failedCall("fcntl(F_DUPFD_CLOEXEC)");
    return Error{ErrorScope::kDevice, code, text};
  }
  auto port = std::make_unique<NoMemoryPort>(memory.error().message, std::move(elsewhere));
  if (!port->canBeWoken()) return port->canBeWoken();
  return std::unique_ptr<PacketPort>(std::move(port));
}

}  // namespace gloo_bypass::dpdk
