// Chooses device, port and GID: as configured, else by the interface.
//
//   devices configured   exactly those, in their order, one rail each
//   interface named      the device with a RoCEv2 GID on it
//   else                 the active device with one on the interface that the kernel's route to MASTER_ADDR uses, else
//                        on the host name's; else the only active device
//   port                 as configured, else the first active one (with that GID, if the GID selected the device)
//   GID                  as configured, else of RoCEv2: the interface's IPv4 address, another IPv4 address, a global
//   IPv6
//                        address. On InfiniBand: 0
//
// Owner: the transport, at its start. Thread: any, one at a time. It closes the devices that it does not choose.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "transport/base/config.h"
#include "transport/base/status.h"
#include "transport/verbs/verbs_api.h"

namespace gloo_bypass::verbs {

// Closes the device. Destroy everything made on it first.
struct DeviceCloser {
  const VerbsApi* api = nullptr;
  void operator()(ibv_context* context) const { api->closeDevice(context); }
};
using DeviceContext = std::unique_ptr<ibv_context, DeviceCloser>;

struct Rail {
  DeviceContext context;
  std::string deviceName;
  std::uint8_t port = 0;       // from 1 on
  ibv_port_attr attributes{};  // active_mtu, lid, link_layer; as of the choice
  std::uint8_t gidIndex = 0;   // 8 bits in verbs
  ibv_gid gid{};
};

// At least one rail. Uses `config`'s rdma, interface, masterAddress (may query a name server) and hostInterface. `api`
// must outlive the rails. Errors (kUnavailable, kConfiguration): one line with what was found and what to do.
Result<std::vector<Rail>> selectRails(const VerbsApi& api, const TransportConfig& config);

}  // namespace gloo_bypass::verbs
