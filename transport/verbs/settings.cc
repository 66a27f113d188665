#include "transport/verbs/settings.h"

#include <cstdint>
#include <set>
#include <string>
#include <string_view>

#include "transport/base/comma_list.h"

namespace gloo_bypass::verbs {
namespace {

constexpr std::int64_t kKiB = 1 << 10, kMiB = 1 << 20, kGiB = 1 << 30;
constexpr std::size_t kMaxDeviceName = 63;  // IBV_SYSFS_NAME_MAX without its zero

// Names with commas between, each once.
bool isListOfDevices(std::string_view text) {
  std::set<std::string> seen;
  for (const std::string& name : splitAtCommas(text)) {
    if (name.empty() || name.size() > kMaxDeviceName || !isPrintable(name) ||
        name.find_first_of("/ ") != std::string::npos || !seen.insert(name).second) {
      return false;
    }
  }
  return true;
}

template <auto field>
constexpr auto kRdmaField = kField<&TransportConfig::rdma, field>;

}  // namespace

std::vector<Setting> settings() {
  using Rdma = RdmaConfig;
  return {
      textSetting("GLOO_BYPASS_RDMA_DEVICES", "names of different verbs devices, commas between", isListOfDevices,
                  "RDMA: the devices; several carry stripes; empty: the one whose address is on the interface",
                  kRdmaField<&Rdma::devices>),
      numberSetting("GLOO_BYPASS_RDMA_PORT", "", 0, 255, "RDMA: port of each device; 0: its first active one",
                    kRdmaField<&Rdma::port>),
      numberSetting("GLOO_BYPASS_RDMA_GID_INDEX", "", -1, 255,
                    "RDMA: index in the port's GID table; -1: the RoCEv2 GID of the interface's IPv4 address",
                    kRdmaField<&Rdma::gidIndex>),
      numberSetting("GLOO_BYPASS_RDMA_EAGER_BYTES", "bytes", 256, 64 * kKiB,
                    "RDMA: up to here a message is copied and sent at once; longer ones are read by the receiver",
                    kRdmaField<&Rdma::eagerBytes>),
      numberSetting("GLOO_BYPASS_RDMA_CREDITS", "", 8, 1024, "RDMA: receives that stand ready for each peer",
                    kRdmaField<&Rdma::credits>),
      numberSetting("GLOO_BYPASS_RDMA_CHUNK_BYTES", "bytes", 64 * kKiB, 8 * kMiB,
                    "RDMA: most that one RDMA READ carries", kRdmaField<&Rdma::chunkBytes>),
      numberSetting("GLOO_BYPASS_RDMA_READ_BYTES", "bytes", 64 * kKiB, kGiB,
                    "RDMA: most that READs under way carry from one peer together, each at most half; a network that "
                    "loses what waits must hold it",
                    kRdmaField<&Rdma::readBytes>),
      numberSetting("GLOO_BYPASS_RDMA_TRAFFIC_CLASS", "", 0, 255, "RDMA: traffic class; RoCEv2: DSCP times 4, plus ECN",
                    kRdmaField<&Rdma::trafficClass>),
      numberSetting("GLOO_BYPASS_RDMA_SERVICE_LEVEL", "", 0, 15, "RDMA: service level; RoCE: priority, 0 to 7",
                    kRdmaField<&Rdma::serviceLevel>),
      numberSetting("GLOO_BYPASS_RDMA_TIMEOUT", "", 1, 31,
                    "RDMA: an acknowledgement is awaited for 4.096 us times 2 to the power of this",
                    kRdmaField<&Rdma::timeoutExponent>),
      numberSetting("GLOO_BYPASS_RDMA_RETRY_COUNT", "", 0, 7, "RDMA: retransmissions before the connection is lost",
                    kRdmaField<&Rdma::retryCount>),
      numberSetting("GLOO_BYPASS_RDMA_REGISTRATION_CACHE_BYTES", "bytes", 0, 1024 * kGiB,
                    "RDMA: registered, and so pinned, memory that is kept for its next use",
                    kRdmaField<&Rdma::registrationCacheBytes>),
      choiceSetting("GLOO_BYPASS_RDMA_TRUSTED_NETWORK", {{"off", false}, {"on", true}},
                    "on: nobody else is on the network between the adapters, so that GLOO_BYPASS_SECURITY='encrypt' "
                    "allows RDMA, which sends messages in clear; peers are authenticated all the same",
                    kRdmaField<&Rdma::trustedNetwork>),
  };
}

}  // namespace gloo_bypass::verbs
