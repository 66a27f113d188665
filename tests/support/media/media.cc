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

std::function<std::shared_ptr<Transport>()> inTurn(
    const std::vector<TransportConfig>& configs,
    const std::function<Result<std::shared_ptr<Transport>>(const TransportConfig&)>& make) {
  struct Places {
    std::mutex mutex;
    std::vector<std::weak_ptr<Transport>> transports;
    std::size_t turn = 0;
  };
  auto places = std::make_shared<Places>();
  places->transports.resize(configs.size());
  return [=] {
    std::lock_guard<std::mutex> lock(places->mutex);
    const std::size_t index = places->turn++ % configs.size();
    std::weak_ptr<Transport>& place = places->transports[index];
    std::shared_ptr<Transport> transport = place.lock();
    if (transport == nullptr) {
      auto made = make(configs[index]);
      if (!made.ok()) throw std::runtime_error(made.error().message);
      place = transport = std::move(made).value();
    }
    return transport;
  };
}

std::function<std::shared_ptr<Transport>()> betweenPorts(
    const std::vector<TransportConfig>& configs,
    const std::function<Result<std::unique_ptr<PacketPort>>(const TransportConfig&)>& makePort) {
  return inTurn(configs, [makePort](const TransportConfig& config) -> Result<std::shared_ptr<Transport>> {
    auto port = makePort(config);
    if (!port) return port.error();
    return makeDatagramTransport(config, std::move(port).value());
  });
}

}  // namespace gloo_bypass::test
