#include "tests/support/software_rnic.h"

#include "tests/support/software_rnic_fabric.h"
#include "tests/support/software_rnic_verbs.h"

namespace gloo_bypass::test {

std::vector<SoftwareDeviceOptions> defaultSoftwareDevices() {
  std::vector<SoftwareDeviceOptions> devices(2);
  devices[0].gids = {{mappedGid("127.0.0.1")}};
  devices[1].name = "soft1";
  devices[1].gids = {{mappedGid("127.0.0.2")}};
  return devices;
}

std::string LiveObjects::describe() const {
  std::string text;
  const auto add = [&text](std::size_t count, const char* name) {
    if (count == 0) return;
    text += (text.empty() ? "" : ", ") + std::to_string(count) + " " + name + (count == 1 ? "" : "s");
  };
  add(deviceLists, "device list");
  add(contexts, "context");
  add(protectionDomains, "protection domain");
  add(regions, "region");
  add(windows, "memory window");
  add(channels, "completion channel");
  add(completionQueues, "completion queue");
  add(queuePairs, "queue pair");
  return text.empty() ? "nothing" : text;
}

const verbs::VerbsApi& softwareVerbs() {
  static const verbs::VerbsApi api = [] {
    verbs::VerbsApi filled;
    fillDeviceVerbs(filled);
    fillCompletionVerbs(filled);
    fillQueueVerbs(filled);
    return filled;
  }();
  return api;
}

SoftwareRnic& SoftwareRnic::instance() {
  static SoftwareRnic rnic;
  return rnic;
}

void SoftwareRnic::reset() {
  Fabric& fabric = Fabric::instance();
  fabric.setPaused(false);
  const Fabric::Lock lock(fabric);
  fabric.reset();
}

void SoftwareRnic::setDevices(std::vector<SoftwareDeviceOptions> devices) {
  Fabric& fabric = Fabric::instance();
  const Fabric::Lock lock(fabric);
  GLOO_BYPASS_CHECK(fabric.contexts.size() == 0);
  fabric.setDevices(devices);
}

void SoftwareRnic::changeDevice(const std::string& name, const SoftwareDeviceOptions& options) {
  Fabric& fabric = Fabric::instance();
  const Fabric::Lock lock(fabric);
  GLOO_BYPASS_CHECK(options.name == name);
  fabric.findDevice(name)->options = options;
}

SoftwareDeviceOptions SoftwareRnic::device(const std::string& name) const {
  Fabric& fabric = Fabric::instance();
  const Fabric::Lock lock(fabric);
  return fabric.findDevice(name)->options;
}

void SoftwareRnic::setPort(const std::string& name, bool up) {
  Fabric& fabric = Fabric::instance();
  const Fabric::Lock lock(fabric);
  fabric.setPort(*fabric.findDevice(name), up);
}

void SoftwareRnic::losePort(const std::string& name, std::uint64_t tries) {
  Fabric& fabric = Fabric::instance();
  const Fabric::Lock lock(fabric);
  GLOO_BYPASS_CHECK(tries > 0);
  SoftDevice& device = *fabric.findDevice(name);
  fabric.setPort(device, false);
  device.triesUntilUp = tries;
}

void SoftwareRnic::removeDevice(const std::string& name) {
  Fabric& fabric = Fabric::instance();
  const Fabric::Lock lock(fabric);
  fabric.remove(*fabric.findDevice(name));
}

void SoftwareRnic::killContext(const ibv_context* context) {
  Fabric& fabric = Fabric::instance();
  const Fabric::Lock lock(fabric);
  for (const auto& [address, qp] : fabric.queuePairs) {
    if (qp->owner == context) fabric.kill(*qp);
  }
}

void SoftwareRnic::killQueuePair(std::uint32_t number) {
  Fabric& fabric = Fabric::instance();
  const Fabric::Lock lock(fabric);
  const auto found = fabric.queuePairByNumber.find(number);
  if (found != fabric.queuePairByNumber.end()) fabric.kill(*found->second);
}

void SoftwareRnic::failOperation(const OperationFault& fault) {
  Fabric& fabric = Fabric::instance();
  const Fabric::Lock lock(fabric);
  fabric.faults.push_back(fault);
}

void SoftwareRnic::setLatency(Duration latency) { Fabric::instance().latency = latency.count(); }

void SoftwareRnic::setPaused(bool paused) { Fabric::instance().setPaused(paused); }

void SoftwareRnic::limitRegisteredBytes(std::uint64_t bytes) {
  Fabric& fabric = Fabric::instance();
  const Fabric::Lock lock(fabric);
  fabric.registrationLimit = bytes;
}

SoftwareRnicCounters SoftwareRnic::counters() const {
  Fabric& fabric = Fabric::instance();
  const Fabric::Lock lock(fabric);
  return fabric.counters;
}

LiveObjects SoftwareRnic::liveObjects() const {
  Fabric& fabric = Fabric::instance();
  const Fabric::Lock lock(fabric);
  return fabric.liveObjects();
}

}  // namespace gloo_bypass::test
