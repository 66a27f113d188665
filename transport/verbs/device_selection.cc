#include "transport/verbs/device_selection.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <net/if.h>
#include <netinet/in.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "transport/base/comma_list.h"
#include "transport/base/exhausted.h"
#include "transport/base/printable.h"
#include "transport/network/local_address.h"
#include "transport/network/network_interface.h"

namespace gloo_bypass::verbs {
namespace {

constexpr const char* kNameDevices = "name devices in GLOO_BYPASS_RDMA_DEVICES";
constexpr const char* kMakeDevice = "'rdma link add rxe0 type rxe netdev INTERFACE'";  // of iproute2
constexpr unsigned kMaxGidIndex = 255;  // ibv_global_route::sgid_index is 8 bits wide

Error unavailable(std::string message) {
  return Error{ErrorScope::kDevice, ErrorCode::kUnavailable, std::move(message)};
}
// Names of devices and interfaces come from the environment, and may hold control characters.
Error misconfigured(const std::string& message) {
  return Error{ErrorScope::kDevice, ErrorCode::kConfiguration, printable(message)};
}

// --- the interface ---

struct Interface {
  std::string name;
  unsigned index = 0;
  std::array<std::uint8_t, 4> ipv4{};  // its first address; 0.0.0.0: none
};

Result<Interface> lookUpInterface(const std::string& name) {
  Interface found;
  found.name = name;
  found.index = ::if_nametoindex(name.c_str());
  if (found.index == 0) return misconfigured(fmt::format("there is no network interface '{}'", name));
  const auto interfaces = network::listInterfaces();
  if (!interfaces) return found;
  const auto one = std::ranges::find(interfaces.value(), name, &network::ListedInterface::name);
  if (one == interfaces.value().end() || one->addresses.empty() || one->addresses.front().isV6()) return found;
  std::memcpy(found.ipv4.data(), &one->addresses.front().v4.sin_addr, found.ipv4.size());
  return found;
}

bool mapsIpv4(const ibv_gid& gid) {
  static constexpr std::uint8_t kPrefix[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
  return std::memcmp(gid.raw, kPrefix, sizeof kPrefix) == 0;
}
bool isLinkLocal(const ibv_gid& gid) { return gid.raw[0] == 0xfe && (gid.raw[1] & 0xc0) == 0x80; }
bool isEmpty(const ibv_gid& gid) {
  return std::all_of(std::begin(gid.raw), std::end(gid.raw), [](std::uint8_t byte) { return byte == 0; });
}
bool mapsAddressOf(const ibv_gid& gid, const Interface& interface) {
  return interface.ipv4 != std::array<std::uint8_t, 4>{} && mapsIpv4(gid) &&
         std::memcmp(gid.raw + 12, interface.ipv4.data(), interface.ipv4.size()) == 0;
}

// Higher is better; 0: only on explicit request.
int preference(const ibv_gid_entry& entry, const Interface& interface) {
  if (entry.gid_type != IBV_GID_TYPE_ROCE_V2 || isEmpty(entry.gid) || isLinkLocal(entry.gid)) return 0;
  const bool onInterface = interface.index != 0 && entry.ndev_ifindex == interface.index;
  if (mapsAddressOf(entry.gid, interface)) return 5;
  if (mapsIpv4(entry.gid)) return onInterface ? 4 : 3;
  return onInterface ? 2 : 1;
}
bool belongsTo(const ibv_gid_entry& entry, const Interface& interface) {
  return preference(entry, interface) > 0 &&
         (entry.ndev_ifindex == interface.index || mapsAddressOf(entry.gid, interface));
}

// The interface to use, or the preferred ones, the best first; if none, `candidates` is empty.
struct Interfaces {
  bool named = false;
  std::vector<Interface> candidates;

  std::string names() const {
    std::string list;
    for (const Interface& one : candidates) list += (list.empty() ? "" : ", ") + one.name;
    return list;
  }
};

Result<Interfaces> chooseInterfaces(const TransportConfig& config) {
  Interfaces chosen;
  if (!config.interface.empty()) {
    auto named = lookUpInterface(config.interface);
    if (!named) return named.error();
    chosen.named = true;
    chosen.candidates.push_back(std::move(named).value());
    return chosen;
  }
  std::vector<std::string> names;
  if (!config.masterAddress.empty()) {
    if (auto route = network::chooseInterface(config.masterAddress)) names.push_back(std::move(route).value());
  }
  if (!config.hostInterface.empty()) names.push_back(config.hostInterface);
  for (const std::string& name : names) {
    if (auto found = lookUpInterface(name)) chosen.candidates.push_back(std::move(found).value());
  }
  return chosen;
}

// --- the machine's devices ---

struct Device {
  DeviceContext context;
  std::string name;
  std::vector<ibv_port_attr> ports;  // port n is at n - 1
  std::vector<ibv_gid_entry> gids;   // of all ports, without empty ones
  std::string problem;               // why it cannot be used; empty: it can
};

std::string stateName(ibv_port_state state) {
  switch (state) {
    case IBV_PORT_DOWN:
      return "down";
    case IBV_PORT_INIT:
      return "initialising";
    case IBV_PORT_ARMED:
      return "armed";
    case IBV_PORT_ACTIVE:
      return "active";
    case IBV_PORT_ACTIVE_DEFER:
      return "active-defer";
    default:
      return fmt::format("in state {}", static_cast<int>(state));
  }
}

void query(const VerbsApi& api, Device* device) {
  ibv_device_attr attributes{};
  if (const int error = api.queryDevice(device->context.get(), &attributes); error != 0) {
    device->problem = fmt::format("cannot be queried: {}", std::strerror(error));
    return;
  }
  std::size_t gidsAtMost = 0;
  for (unsigned port = 1; port <= attributes.phys_port_cnt; ++port) {
    ibv_port_attr state{};
    if (const int error = api.queryPort(device->context.get(), static_cast<std::uint8_t>(port), &state); error != 0) {
      device->problem = fmt::format("port {} cannot be queried: {}", port, std::strerror(error));
      return;
    }
    device->ports.push_back(state);
    gidsAtMost += state.gid_tbl_len > 0 ? static_cast<std::size_t>(state.gid_tbl_len) : 0;
  }
  device->gids.resize(gidsAtMost + 1);
  const ssize_t filled =
      api.queryGidTable(device->context.get(), device->gids.data(), device->gids.size(), 0, sizeof(ibv_gid_entry));
  device->gids.resize(filled > 0 ? static_cast<std::size_t>(filled) : 0);
  if (filled < 0) device->problem = fmt::format("GIDs cannot be read: {}", std::strerror(static_cast<int>(-filled)));
}

std::string whyNotOpened(int error) {
  if (error == EMFILE || error == ENFILE) return "cannot be opened: " + exhausted(error);
  return fmt::format("cannot be opened: {} (may this user open /dev/infiniband/uverbs*?)",
                     std::strerror(error != 0 ? error : EIO));
}

Result<std::vector<Device>> openDevices(const VerbsApi& api) {
  int count = 0;
  errno = 0;
  ibv_device** list = api.getDeviceList(&count);
  if (list == nullptr || count == 0) {
    const int error = list == nullptr && errno != ENOSYS ? errno : 0;  // ENOSYS: the kernel has no RDMA at all
    if (list != nullptr) api.freeDeviceList(list);
    return unavailable(fmt::format("no RDMA device found{}{}; where the kernel has rdma_rxe, {} makes one in software",
                                   error != 0 ? ": " : "", error != 0 ? std::strerror(error) : "", kMakeDevice));
  }
  std::vector<Device> devices;
  for (int i = 0; i < count; ++i) {
    Device device;
    device.name = api.getDeviceName(list[i]);
    errno = 0;
    device.context = DeviceContext(api.openDevice(list[i]), DeviceCloser{&api});
    if (device.context)
      query(api, &device);
    else
      device.problem = whyNotOpened(errno);
    devices.push_back(std::move(device));
  }
  api.freeDeviceList(list);
  return devices;
}

std::string listed(const std::vector<std::string>& items) {
  std::string list;
  for (const std::string& item : items) list += (list.empty() ? "" : ", ") + item;
  return list;
}

std::string describePorts(const Device& device) {
  if (!device.problem.empty()) return device.problem;
  std::vector<std::string> ports;
  for (std::size_t i = 0; i < device.ports.size(); ++i)
    ports.push_back(fmt::format("port {} {}", i + 1, stateName(device.ports[i].state)));
  return ports.empty() ? "no port" : listed(ports);
}

std::string describeInterfaces(const Device& device) {
  std::vector<std::string> names;
  for (const ibv_gid_entry& entry : device.gids) {
    char name[IF_NAMESIZE] = {};
    if (entry.ndev_ifindex == 0 || ::if_indextoname(entry.ndev_ifindex, name) == nullptr) continue;
    if (std::find(names.begin(), names.end(), name) == names.end()) names.emplace_back(name);
  }
  return names.empty() ? std::string() : fmt::format("on {}, ", listed(names));
}

// "rxe0 (on eth0, port 1 active), rxe1 (...)"
std::string describe(const std::vector<Device>& devices) {
  std::vector<std::string> each;
  for (const Device& device : devices)
    each.push_back(fmt::format("{} ({}{})", device.name, describeInterfaces(device), describePorts(device)));
  return listed(each);
}

bool isActive(const Device& device, unsigned port) {
  return port >= 1 && port <= device.ports.size() && device.ports[port - 1].state == IBV_PORT_ACTIVE;
}
bool isOn(const Device& device, const Interface& interface) {
  return std::any_of(device.gids.begin(), device.gids.end(),
                     [&](const ibv_gid_entry& gid) { return belongsTo(gid, interface); });
}
bool isActiveOn(const Device& device, const Interface& interface) {
  return device.problem.empty() && std::any_of(device.gids.begin(), device.gids.end(), [&](const ibv_gid_entry& gid) {
           return belongsTo(gid, interface) && isActive(device, gid.port_num);
         });
}
// The first of the interfaces that the device is on; else an empty one.
Interface interfaceOf(const Device& device, const Interfaces& interfaces) {
  for (const Interface& one : interfaces.candidates) {
    if (isOn(device, one)) return one;
  }
  return {};
}
bool hasActivePort(const Device& device) {
  return device.problem.empty() && std::any_of(device.ports.begin(), device.ports.end(),
                                               [](const ibv_port_attr& port) { return port.state == IBV_PORT_ACTIVE; });
}

// --- the choice ---

Result<unsigned> choosePort(const Device& device, unsigned wanted, const Interface& interface) {
  if (!device.problem.empty()) return unavailable(fmt::format("RDMA device {} {}", device.name, device.problem));
  if (wanted > device.ports.size())
    return misconfigured(fmt::format("RDMA device {} has no port {}: it has {} (GLOO_BYPASS_RDMA_PORT)", device.name,
                                     wanted, device.ports.size()));
  if (wanted != 0 && !isActive(device, wanted))
    return unavailable(fmt::format("RDMA device {}: port {} is {}; bring its link or interface up", device.name, wanted,
                                   stateName(device.ports[wanted - 1].state)));
  if (wanted != 0) return wanted;
  for (const ibv_gid_entry& entry : device.gids)
    if (interface.index != 0 && belongsTo(entry, interface) && isActive(device, entry.port_num))
      return unsigned{entry.port_num};
  for (unsigned port = 1; port <= device.ports.size(); ++port)
    if (isActive(device, port)) return port;
  return unavailable(fmt::format("RDMA device {} has no active port ({}); bring its link or interface up", device.name,
                                 describePorts(device)));
}

Result<const ibv_gid_entry*> chooseGid(const Device& device, unsigned port, int wanted, const Interface& interface) {
  const bool ethernet = device.ports[port - 1].link_layer == IBV_LINK_LAYER_ETHERNET;
  const int tableLength = device.ports[port - 1].gid_tbl_len;
  const int index = wanted < 0 && !ethernet ? 0 : wanted;
  const ibv_gid_entry* best = nullptr;
  for (const ibv_gid_entry& entry : device.gids) {
    if (entry.port_num != port || isEmpty(entry.gid)) continue;
    if (index >= 0 && entry.gid_index == static_cast<unsigned>(index) && entry.gid_index <= kMaxGidIndex) return &entry;
    if (index >= 0 || entry.gid_index > kMaxGidIndex || preference(entry, interface) == 0) continue;
    if (best == nullptr || preference(entry, interface) > preference(*best, interface)) best = &entry;
  }
  if (best != nullptr) return best;
  const std::string where = fmt::format("RDMA device {}, port {}", device.name, port);
  if (index >= 0 && index >= std::min(tableLength, static_cast<int>(kMaxGidIndex) + 1))
    return misconfigured(fmt::format("{}: there is no GID {}: the table's last is {} (GLOO_BYPASS_RDMA_GID_INDEX)",
                                     where, index, std::min(tableLength, static_cast<int>(kMaxGidIndex) + 1) - 1));
  if (index >= 0)
    return misconfigured(
        fmt::format("{}: GID {} is empty (GLOO_BYPASS_RDMA_GID_INDEX); 'rdma link' and 'ibv_devinfo -v' show those "
                    "there are",
                    where, index));
  return unavailable(
      fmt::format("{}: no RoCEv2 GID with an IPv4 or global IPv6 address; give the device's interface an address, or "
                  "choose one with GLOO_BYPASS_RDMA_GID_INDEX",
                  where));
}

Result<Rail> makeRail(Device* device, const RdmaConfig& config, const Interfaces& interfaces) {
  const Interface interface = interfaceOf(*device, interfaces);
  const auto port = choosePort(*device, config.port, interface);
  if (!port) return port.error();
  const auto gid = chooseGid(*device, port.value(), config.gidIndex, interface);
  if (!gid) return gid.error();
  Rail rail;
  rail.port = static_cast<std::uint8_t>(port.value());
  rail.attributes = device->ports[port.value() - 1];
  rail.gidIndex = static_cast<std::uint8_t>(gid.value()->gid_index);
  rail.gid = gid.value()->gid;
  rail.deviceName = device->name;
  rail.context = std::move(device->context);
  return rail;
}

Result<std::vector<Rail>> railsByName(std::vector<Device> devices, const RdmaConfig& config,
                                      const Interfaces& interfaces) {
  std::vector<Rail> rails;
  for (const std::string& name : splitAtCommas(config.devices)) {
    const auto device = std::find_if(devices.begin(), devices.end(), [&](const Device& d) { return d.name == name; });
    if (device == devices.end())
      return misconfigured(fmt::format("there is no RDMA device '{}' (GLOO_BYPASS_RDMA_DEVICES); there are: {}", name,
                                       describe(devices)));
    if (std::any_of(rails.begin(), rails.end(), [&](const Rail& rail) { return rail.deviceName == name; }))
      return misconfigured(fmt::format("RDMA device '{}' is named twice in GLOO_BYPASS_RDMA_DEVICES", name));
    auto rail = makeRail(&*device, config, interfaces);
    if (!rail) return rail.error();
    rails.push_back(std::move(rail).value());
  }
  return rails;
}

// Of the devices on the interface the active one, else the first. Null: none is on it.
Device* deviceOn(std::vector<Device>& devices, const Interface& interface) {
  Device* found = nullptr;
  for (Device& device : devices) {
    if (!isOn(device, interface)) continue;
    if (isActiveOn(device, interface)) return &device;
    if (found == nullptr) found = &device;
  }
  return found;
}

Result<Device*> chooseDevice(std::vector<Device>& devices, const Interfaces& interfaces) {
  for (const Interface& one : interfaces.candidates) {
    Device* const found = deviceOn(devices, one);
    if (found != nullptr && (interfaces.named || isActiveOn(*found, one))) return found;
  }
  if (interfaces.named) {
    return unavailable(
        fmt::format("no RDMA device has a RoCEv2 GID on interface {}; there are: {}; use the interface of one "
                    "(GLOO_SOCKET_IFNAME), {}, or make one in software: {}",
                    interfaces.names(), describe(devices), kNameDevices, kMakeDevice));
  }
  std::vector<Device*> active;
  for (Device& device : devices) {
    if (hasActivePort(device)) active.push_back(&device);
  }
  if (active.size() == 1) return active.front();
  if (active.empty()) {
    return unavailable(
        fmt::format("no RDMA device has an active port: {}; bring a link or interface up", describe(devices)));
  }
  const std::string names = interfaces.names();
  return misconfigured(fmt::format("several RDMA devices are active{}: {}; {}, or an interface in GLOO_SOCKET_IFNAME",
                                   names.empty() ? "" : ", and none is on " + names, describe(devices), kNameDevices));
}

}  // namespace

Result<std::vector<Rail>> selectRails(const VerbsApi& api, const TransportConfig& config) {
  const auto interfaces = chooseInterfaces(config);
  if (!interfaces) return interfaces.error();
  auto devices = openDevices(api);
  if (!devices) return devices.error();
  if (!config.rdma.devices.empty()) {
    return railsByName(std::move(devices).value(), config.rdma, interfaces.value());
  }
  const auto device = chooseDevice(devices.value(), interfaces.value());
  if (!device) return device.error();
  auto rail = makeRail(device.value(), config.rdma, interfaces.value());
  if (!rail) return rail.error();
  std::vector<Rail> rails;
  rails.push_back(std::move(rail).value());
  return rails;
}

}  // namespace gloo_bypass::verbs
