#include "transport/dpdk/settings.h"

#include <arpa/inet.h>
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cstdint>
#include <iterator>
#include <string>
#include <string_view>

#include "transport/base/whole_number.h"
#include "transport/capture/marker_socket.h"
#include "transport/dpdk/eal_arguments.h"
#include "transport/dpdk/memif_directory.h"
#include "transport/udp/settings.h"

namespace gloo_bypass::dpdk {
namespace {

using Config = TransportConfig;

constexpr std::size_t kMaxRingBytes = std::size_t{16} << 20;

Status wrong(std::string message) { return {ErrorScope::kDevice, ErrorCode::kConfiguration, std::move(message)}; }

bool isDirectory(std::string_view text) {
  return text.front() == '/' && text.size() <= kMaxMemifDirectoryBytes && isPrintable(text);
}

bool isPciOrVirtualDevice(std::string_view text) {
  if (!isPrintable(text)) return false;
  if (isVirtualDeviceString(std::string(text))) return true;
  const std::string_view address = text.substr(0, text.find(','));
  const auto isHexDigit = [](unsigned char c) { return std::isxdigit(c) != 0; };
  return address.find_first_not_of("0123456789abcdefABCDEF:.") == std::string_view::npos &&
         std::ranges::count_if(address, isHexDigit) >= 5 && text.find(':') != std::string_view::npos &&
         text.find('.') != std::string_view::npos;
}

bool areShellWords(std::string_view text) { return isPrintable(text) && splitShellWords(std::string(text)).ok(); }

bool isAddress(std::string_view text) { return parseIpv4(std::string(text)).has_value(); }
bool isAddressWithPrefix(std::string_view text) { return parseIpv4Prefix(std::string(text)).has_value(); }
bool isMarkersAddress(std::string_view text) { return capture::MarkerSocket::isAddress(std::string(text)); }

std::vector<Setting> linkSettings() {
  return {
      choiceSetting(
          "GLOO_BYPASS_LINK",
          {{"auto", LinkMode::kAuto},
           {"memif", LinkMode::kMemif},
           {"netdev", LinkMode::kNetdev},
           {"pci", LinkMode::kPci}},
          "How DPDK's packets travel: memif, shared memory of one machine or pod; netdev, a Linux network interface; "
          "pci, a NIC with a DPDK driver; auto, memif between ranks that can, GLOO_BYPASS_NETWORK between all others",
          kField<&Config::link>),
      choiceSetting(
          "GLOO_BYPASS_NETWORK",
          {{"auto", Network::kAuto},
           {"udp", Network::kUdp},
           {"netdev", Network::kNetdev},
           {"pci", Network::kPci},
           {"rdma", Network::kRdma}},
          "What link mode auto uses between hosts: UDP sockets of the kernel, netdev or pci as GLOO_BYPASS_LINK has "
          "them, or RDMA; auto: pci where GLOO_BYPASS_PCI_ADDRESS is set, else udp",
          kField<&Config::network>),
      textSetting(
          "GLOO_BYPASS_MEMIF_DIRECTORY", fmt::format("an absolute path, at most {} bytes", kMaxMemifDirectoryBytes),
          isDirectory,
          "memif: where the links' sockets lie; empty: gloo-bypass-UID in $XDG_RUNTIME_DIR or /tmp, without which auto "
          "uses the network",
          kField<&Config::memifDirectory>),
      numberSetting("GLOO_BYPASS_MEMIF_BUFFER_BYTES", "bytes", 2048, 65000,
                    "memif: one ring slot, and so the largest frame", kField<&Config::memifBufferBytes>),
      numberSetting("GLOO_BYPASS_MEMIF_LOG2_SLOTS", "", 1, 12,
                    "memif: a ring has 2 to the power of this many slots, and 16 MiB at most",
                    kField<&Config::memifLog2Slots>),
      choiceSetting("GLOO_BYPASS_NETDEV_DRIVER",
                    {{"af_packet", NetdevDriver::kAfPacket}, {"af_xdp", NetdevDriver::kAfXdp}},
                    "netdev: how DPDK reaches the interface", kField<&Config::netdevDriver>),
      udp::interfaceSetting(),
      textSetting("GLOO_BYPASS_PCI_ADDRESS",
                  "an address like 0000:00:04.0, or a DPDK virtual device like net_virtio_user0,path=/x",
                  isPciOrVirtualDevice, "pci: the device; device arguments may follow after a comma",
                  kField<&Config::pciAddress>),
      textSetting("GLOO_BYPASS_IPV4", "an address with prefix, like 10.0.0.2/24", isAddressWithPrefix,
                  "pci: this port's address, since no kernel interface has one", kField<&Config::ipv4>),
      textSetting("GLOO_BYPASS_GATEWAY", "an IPv4 address", isAddress, "pci: next hop to peers outside the prefix",
                  kField<&Config::gateway>),
      udp::portSetting(),
      udp::mtuSetting(),
      textSetting(
          "GLOO_BYPASS_EAL_ARGUMENTS", "words as a shell would split them, quotes closed", areShellWords,
          "Added to the arguments of DPDK's environment abstraction layer (EAL), which netdev, pci and telemetry "
          "start; with --log-level among them what DPDK logs is shown",
          kField<&Config::ealArguments>),
      choiceSetting("GLOO_BYPASS_HUGE_PAGES",
                    {{"auto", HugePages::kAuto}, {"off", HugePages::kOff}, {"on", HugePages::kOn}},
                    "EAL: use huge pages; auto: when there are any", kField<&Config::hugePages>),
      numberSetting("GLOO_BYPASS_MEMORY_MIB", "MiB", 16, 65536,
                    "EAL: its memory without huge pages, and the packet pools' bound", kField<&Config::memoryMiB>),
  };
}

std::vector<Setting> observingSettings() {
  return {
      choiceSetting("GLOO_BYPASS_TELEMETRY", {{"off", false}, {"on", true}},
                    "DPDK's telemetry socket, with /gloo_bypass/stats, /gloo_bypass/peers and /gloo_bypass/histograms; "
                    "starts the EAL",
                    kField<&Config::telemetry>),
      textSetting("GLOO_BYPASS_CAPTURE", "a file's path with a / in it; no file of that name", isFilePath,
                  "DPDK: pcapng file of every frame at this process's port (%p: process id, %r: RANK); empty: none",
                  kField<&Config::capture>),
      numberSetting("GLOO_BYPASS_CAPTURE_SNAPLEN", "bytes", 64, 65535,
                    "Kept of each frame's beginning; 65535: all of it", kField<&Config::captureSnapLength>),
      numberSetting("GLOO_BYPASS_CAPTURE_MAX_MIB", "MiB", 1, 1 << 20,
                    "Greatest length of the file, where the capture ends", kField<&Config::captureMaxMiB>),
      textSetting("GLOO_BYPASS_CAPTURE_MARKERS", "an IPv4 address of this machine, or ADDRESS:PORT", isMarkersAddress,
                  "Where rank 0 receives step markers into its capture; without PORT 9999; empty: nowhere",
                  kField<&Config::captureMarkers>),
  };
}

}  // namespace

std::optional<Ipv4Address> parseIpv4(const std::string& text) {
  in_addr address{};
  if (::inet_pton(AF_INET, text.c_str(), &address) != 1) return {};
  return ntohl(address.s_addr);
}

std::optional<Ipv4Prefix> parseIpv4Prefix(const std::string& text) {
  const std::size_t slash = std::min(text.find('/'), text.size());
  const auto ip = parseIpv4(text.substr(0, slash));
  const auto bits = wholeNumber(std::string_view(text).substr(std::min(slash + 1, text.size())), 1, 31);
  if (!ip || !bits) return {};
  return Ipv4Prefix{*ip, ~Ipv4Address{0} << (32 - *bits)};
}

std::vector<Setting> settings() {
  std::vector<Setting> rows = inGroup(SettingGroup::kLinks, linkSettings());
  std::ranges::move(inGroup(SettingGroup::kObserving, observingSettings()), std::back_inserter(rows));
  return rows;
}

Status checkSettings(const TransportConfig& config) {
  const char* const askedForPci = config.link == LinkMode::kPci     ? "GLOO_BYPASS_LINK='pci'"
                                  : config.network == Network::kPci ? "GLOO_BYPASS_NETWORK='pci'"
                                                                    : "GLOO_BYPASS_PCI_ADDRESS";
  if (usesPci(config) && config.pciAddress.empty()) {
    return wrong(fmt::format("GLOO_BYPASS_PCI_ADDRESS is not set: {} needs it", askedForPci));
  }
  if (usesPci(config) && config.ipv4.empty()) {
    return wrong(fmt::format("GLOO_BYPASS_IPV4 is not set: {} needs it, like 10.0.0.2/24", askedForPci));
  }
  if (config.link != LinkMode::kAuto && config.network != Network::kAuto) {
    return wrong(
        "GLOO_BYPASS_NETWORK says what link mode auto uses between hosts: leave GLOO_BYPASS_LINK at 'auto', or "
        "GLOO_BYPASS_NETWORK away");
  }
  if (config.link == LinkMode::kAuto && (usesNetdev(config) || usesPci(config)) && !config.capture.empty()) {
    return wrong(
        "GLOO_BYPASS_CAPTURE is the capture of one port, and GLOO_BYPASS_LINK='auto' has two of DPDK's here: set "
        "GLOO_BYPASS_LINK to the one whose frames you want, or leave GLOO_BYPASS_NETWORK and "
        "GLOO_BYPASS_PCI_ADDRESS away");
  }
  const std::size_t ringBytes = config.memifBufferBytes << config.memifLog2Slots;
  if (ringBytes > kMaxRingBytes) {
    return wrong(
        fmt::format("GLOO_BYPASS_MEMIF_BUFFER_BYTES='{}' times 2^GLOO_BYPASS_MEMIF_LOG2_SLOTS='{}' is {} bytes: at "
                    "most {} are allowed",
                    config.memifBufferBytes, config.memifLog2Slots, ringBytes, kMaxRingBytes));
  }
  return {};
}

}  // namespace gloo_bypass::dpdk
