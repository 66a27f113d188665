#include <utility>

#include "tests/support/media/media.h"
#include "tests/support/media/verbs_media.h"
#include "tests/support/temporary_folder.h"
#include "transport/dpdk/dpdk_transport.h"

namespace gloo_bypass::test {
namespace {

Result<std::shared_ptr<Transport>> makeBesideSoftwareRdma(const TransportConfig& config) {
  auto network = makePolledSoftwareRdma(config);
  if (!network) return network.error();
  return dpdk::makeMemoryBeside(config, std::move(network).value());
}

// Simulates two hosts of two processes each: a host is a memif directory and an adapter.
std::vector<Medium> pairsMedia() {
  static const TemporaryFolder first, second;
  std::vector<TransportConfig> all(4);
  for (std::size_t i = 0; i < all.size(); ++i) {
    all[i].memifDirectory = (i < 2 ? first : second).path;
    all[i].rdma.devices = i < 2 ? "soft0" : "soft1";
  }
  // Two ranks of one transport also connect by memory, where a large send may complete at once.
  return {{.name = "DpdkRdma",
           .makeTransport = inTurn(all, makeBesideSoftwareRdma),
           .largeSendWaits = false,
           .variant = true}};
}

const MediaOf entry(pairsMedia);

}  // namespace
}  // namespace gloo_bypass::test
