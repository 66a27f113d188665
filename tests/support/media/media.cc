#include "tests/support/media/media.h"

#include <algorithm>
#include <mutex>
#include <stdexcept>
#include <utility>
#include <vector>

#include "transport/datagram/datagram_transport.h"

namespace gloo_bypass::test {
namespace {

std::vector<MakeMedia>& entries() {
  static std::vector<MakeMedia> all;
  return all;
}

}  // namespace

MediaOf::MediaOf(MakeMedia make) { entries().push_back(make); }

std::vector<Medium> backEndMedia() {
  std::vector<Medium> all;
  for (const MakeMedia make : entries()) {
    for (Medium& medium : make()) all.push_back(std::move(medium));
  }
  return all;
}

std::function<std::shared_ptr<Transport>()> betweenPorts(
    const std::vector<TransportConfig>& configs,
    const std::function<Result<std::unique_ptr<PacketPort>>(const TransportConfig&)>& makePort) {
  struct Ports {
    std::mutex mutex;
    std::vector<std::weak_ptr<Transport>> transports;
    std::size_t turn = 0;
  };
  auto ports = std::make_shared<Ports>();
  ports->transports.resize(configs.size());
  return [=] {
    std::lock_guard<std::mutex> lock(ports->mutex);
    const std::size_t index = ports->turn++ % configs.size();
    std::weak_ptr<Transport>& place = ports->transports[index];
    std::shared_ptr<Transport> transport = place.lock();
    if (transport == nullptr) {
      auto port = makePort(configs[index]);
      if (!port.ok()) throw std::runtime_error(port.error().message);
      place = transport = makeDatagramTransport(configs[index], std::move(port).value());
    }
    return transport;
  };
}

}  // namespace gloo_bypass::test
