#include <chrono>

#include "tests/support/media/media.h"
#include "tests/support/temporary_folder.h"
#include "transport/dpdk/dpdk_port.h"

namespace gloo_bypass::test {
namespace {

// Simulates two hosts of two processes each: a host is a memif directory.
std::vector<TransportConfig> twoHosts() {
  static const TemporaryFolder first, second;
  TransportConfig config;
  config.interface = "127.0.0.1";
  config.session.longPathRtt = std::chrono::seconds(60);  // a short path, however busy the machine
  std::vector<TransportConfig> all(4, config);
  for (std::size_t i = 0; i < all.size(); ++i) all[i].memifDirectory = (i < 2 ? first : second).path;
  return all;
}

std::vector<Medium> dpdkMedia() {
  TransportConfig memif;
  memif.link = LinkMode::kMemif;
  return {
      {.name = "DpdkMemif", .makeTransport = betweenPorts({memif, memif}, dpdk::makeDpdkPort), .largeSendWaits = false},
      {.name = "DpdkAuto",
       .makeTransport = betweenPorts(twoHosts(), dpdk::makeDpdkPort),
       .largeSendWaits = false,
       .variant = true}};
}

const MediaOf entry(dpdkMedia);

}  // namespace
}  // namespace gloo_bypass::test
