#include "transport/process/settings_table.h"

#include <arpa/inet.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <set>

#include <fmt/format.h>

#include "transport/base/comma_list.h"
#include "transport/dpdk/memif_directory.h"
#include "transport/process/metrics_target.h"

namespace gloo_bypass {
namespace {

constexpr std::int64_t kKiB = 1 << 10;
constexpr std::int64_t kMiB = 1 << 20;
constexpr std::int64_t kGiB = std::int64_t{1} << 30;
constexpr std::int64_t kDayMs = 24 * 3600 * 1000;
constexpr std::size_t kMaxInterfaceName = 15;    // IFNAMSIZ without its zero
constexpr std::size_t kMaxVerbsDeviceName = 63;  // IBV_SYSFS_NAME_MAX without its zero

std::optional<std::int64_t> parseInteger(std::string_view text) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

template <typename Access>
Setting integerSetting(std::string name, std::string unit, std::int64_t lowest, std::int64_t highest,
                       std::string description, Access access) {
  return {std::move(name),
          std::move(unit),
          fmt::format("{} to {}", lowest, highest),
          std::move(description),
          [=](std::string_view text, TransportConfig& config) {
            const auto value = parseInteger(text);
            if (!value || *value < lowest || *value > highest) return false;
            auto& field = access(config);
            field = static_cast<std::remove_reference_t<decltype(field)>>(*value);
            return true;
          },
          [=](const TransportConfig& config) {
            TransportConfig copy = config;
            return fmt::format("{}", access(copy));
          }};
}

template <typename Unit, typename Access>
Setting durationSetting(std::string name, std::int64_t lowest, std::int64_t highest, std::string description,
                        Access access) {
  const std::string unit = std::is_same_v<Unit, std::chrono::microseconds> ? "us" : "ms";
  return {std::move(name),
          unit,
          fmt::format("{} to {}", lowest, highest),
          std::move(description),
          [=](std::string_view text, TransportConfig& config) {
            const auto value = parseInteger(text);
            if (!value || *value < lowest || *value > highest) return false;
            access(config) = Unit(*value);
            return true;
          },
          [=](const TransportConfig& config) {
            TransportConfig copy = config;
            return fmt::format("{}", std::chrono::duration_cast<Unit>(access(copy)).count());
          }};
}

template <typename Value>
struct Choice {
  const char* text;
  Value value;
};

std::string listOf(const std::vector<std::string>& words) {
  std::string list;
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (i > 0) list += i + 1 == words.size() ? " or " : ", ";
    list += words[i];
  }
  return list;
}

template <typename Value, typename Access>
Setting choiceSetting(std::string name, std::initializer_list<Choice<Value>> choices, std::string description,
                      Access access) {
  const std::vector<Choice<Value>> known(choices);
  std::vector<std::string> words;
  for (const auto& choice : known) words.emplace_back(choice.text);
  return {std::move(name),
          "",
          listOf(words),
          std::move(description),
          [=](std::string_view text, TransportConfig& config) {
            for (const auto& choice : known) {
              if (text != choice.text) continue;
              access(config) = choice.value;
              return true;
            }
            return false;
          },
          [=](const TransportConfig& config) -> std::string {
            TransportConfig copy = config;
            for (const auto& choice : known) {
              if (access(copy) == choice.value) return choice.text;
            }
            return "not a known value";
          }};
}

template <typename Access>
Setting textSetting(std::string name, std::string allowed, bool (*isAllowed)(std::string_view), std::string description,
                    Access access) {
  return {std::move(name),
          "",
          std::move(allowed),
          std::move(description),
          [=](std::string_view text, TransportConfig& config) {
            if (!text.empty() && !isAllowed(text)) return false;
            access(config) = std::string(text);
            return true;
          },
          [=](const TransportConfig& config) {
            TransportConfig copy = config;
            return std::string(access(copy));
          }};
}

// A mode, or how many repair frames for every hundred.
Setting repairSetting(std::string name, std::string description) {
  using Mode = Repair::Mode;
  static constexpr std::array<Choice<Mode>, 3> kModes{{{"auto", Mode::kAuto}, {"off", Mode::kOff}, {"on", Mode::kOn}}};
  return {std::move(name),
          "%",
          fmt::format("auto, off, on or 1 to {}", Repair::kMostPercent),
          std::move(description),
          [](std::string_view text, TransportConfig& config) {
            for (const auto& mode : kModes) {
              if (text != mode.text) continue;
              config.session.repair = {mode.value, 0};
              return true;
            }
            const auto percent = parseInteger(text);
            if (!percent || *percent < 1 || *percent > Repair::kMostPercent) return false;
            config.session.repair = {Mode::kOn, static_cast<unsigned>(*percent)};
            return true;
          },
          [](const TransportConfig& config) -> std::string {
            const Repair& repair = config.session.repair;
            if (repair.percent > 0) return fmt::format("{}", repair.percent);
            for (const auto& mode : kModes) {
              if (repair.mode == mode.value) return mode.text;
            }
            return "not a known value";
          }};
}

Setting portSetting(std::string name, std::string description) {
  return {std::move(name),
          "",
          "0 to 65535, or a range like 47777-47800",
          std::move(description),
          [](std::string_view text, TransportConfig& config) {
            const auto ports = parsePortRange(text);
            if (ports) config.udpPorts = *ports;
            return ports.has_value();
          },
          [](const TransportConfig& config) { return toString(config.udpPorts); }};
}

bool isPrintable(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](unsigned char c) { return c >= 0x20 && c != 0x7f; });
}

bool isDirectory(std::string_view text) {
  return text.front() == '/' && text.size() <= dpdk::kMaxMemifDirectoryBytes && isPrintable(text);
}

bool isInterfaceName(std::string_view text) {
  return !text.empty() && text.size() <= kMaxInterfaceName && isPrintable(text) &&
         text.find_first_of("/ :") == std::string_view::npos;
}

bool areInterfaceNames(std::string_view text) {
  const std::vector<std::string> names = splitAtCommas(text);
  return std::all_of(names.begin(), names.end(), isInterfaceName);
}

bool isPciOrVirtualDevice(std::string_view text) {
  if (!isPrintable(text)) return false;
  if (text.substr(0, 4) == "net_") return true;
  std::size_t hexDigits = 0;
  for (const char c : text.substr(0, text.find(','))) {
    if (std::string_view("0123456789abcdefABCDEF").find(c) != std::string_view::npos)
      ++hexDigits;
    else if (c != ':' && c != '.')
      return false;
  }
  return hexDigits >= 5 && text.find(':') != std::string_view::npos && text.find('.') != std::string_view::npos;
}

bool isAddress(std::string_view text) {
  in_addr address{};
  return inet_pton(AF_INET, std::string(text).c_str(), &address) == 1;
}

bool isAddressWithPrefix(std::string_view text) {
  const std::size_t slash = text.find('/');
  if (slash == std::string_view::npos || !isAddress(text.substr(0, slash))) return false;
  const auto bits = parseInteger(text.substr(slash + 1));
  return bits && *bits >= 1 && *bits <= 31;
}

// Names with commas between, each once.
bool isListOfVerbsDevices(std::string_view text) {
  std::set<std::string> seen;
  for (const std::string& name : splitAtCommas(text)) {
    if (name.empty() || name.size() > kMaxVerbsDeviceName || !isPrintable(name) ||
        name.find_first_of("/ ") != std::string::npos || !seen.insert(name).second) {
      return false;
    }
  }
  return true;
}

bool hasBalancedQuotes(std::string_view text) {
  char open = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\\' && open != '\'')
      ++i;
    else if (open == 0 && (text[i] == '"' || text[i] == '\''))
      open = text[i];
    else if (text[i] == open)
      open = 0;
  }
  return open == 0 && isPrintable(text);
}

bool isFilePath(std::string_view text) {
  return isPrintable(text) && text.find('/') != std::string_view::npos && text.back() != '/';
}

bool isStatsTarget(std::string_view text) { return text == "stderr" || isFilePath(text); }

bool isMarkersAddress(std::string_view text) {
  const std::size_t colon = text.find(':');
  if (colon == std::string_view::npos) return isAddress(text);
  const auto port = parseInteger(text.substr(colon + 1));
  return isAddress(text.substr(0, colon)) && port && *port >= 1 && *port <= 65535;
}

bool isMetricsTarget(std::string_view text) {
  std::string replaced(text);
  if (const std::size_t at = replaced.find("%r"); at != std::string::npos) replaced.replace(at, 2, 1, '0');
  return parseMetricsTarget(replaced).has_value();
}

std::vector<Setting> linkSettings() {
  return {
      choiceSetting<LinkMode>(
          "GLOO_BYPASS_LINK",
          {{"auto", LinkMode::kAuto},
           {"memif", LinkMode::kMemif},
           {"netdev", LinkMode::kNetdev},
           {"pci", LinkMode::kPci}},
          "How DPDK's packets travel: memif, shared memory of one machine or pod; netdev, a Linux network interface; "
          "pci, a "
          "NIC with a DPDK driver; auto, memif between ranks that can, GLOO_BYPASS_NETWORK between all others",
          [](TransportConfig& c) -> auto& { return c.link; }),
      choiceSetting<Network>(
          "GLOO_BYPASS_NETWORK",
          {{"auto", Network::kAuto},
           {"udp", Network::kUdp},
           {"netdev", Network::kNetdev},
           {"pci", Network::kPci},
           {"rdma", Network::kRdma}},
          "What link mode auto uses between hosts: UDP sockets of the kernel, netdev or pci as GLOO_BYPASS_LINK has "
          "them, or RDMA; "
          "auto: pci where GLOO_BYPASS_PCI_ADDRESS is set, else udp",
          [](TransportConfig& c) -> auto& { return c.network; }),
      textSetting(
          "GLOO_BYPASS_MEMIF_DIRECTORY",
          fmt::format("an absolute path, at most {} bytes", dpdk::kMaxMemifDirectoryBytes), isDirectory,
          "memif: where the links' sockets lie; empty: gloo-bypass-UID in $XDG_RUNTIME_DIR or /tmp, without which auto "
          "uses the network",
          [](TransportConfig& c) -> auto& { return c.memifDirectory; }),
      integerSetting("GLOO_BYPASS_MEMIF_BUFFER_BYTES", "bytes", 2048, 65000,
                     "memif: one ring slot, and so the largest frame",
                     [](TransportConfig& c) -> auto& { return c.memifBufferBytes; }),
      integerSetting("GLOO_BYPASS_MEMIF_LOG2_SLOTS", "", 1, 12,
                     "memif: a ring has 2 to the power of this many slots, and 16 MiB at most",
                     [](TransportConfig& c) -> auto& { return c.memifLog2Slots; }),
      choiceSetting<NetdevDriver>(
          "GLOO_BYPASS_NETDEV_DRIVER", {{"af_packet", NetdevDriver::kAfPacket}, {"af_xdp", NetdevDriver::kAfXdp}},
          "netdev: how DPDK reaches the interface", [](TransportConfig& c) -> auto& { return c.netdevDriver; }),
      textSetting(
          "GLOO_BYPASS_INTERFACE",
          fmt::format("names of interfaces, commas between, at most {} characters each", kMaxInterfaceName),
          areInterfaceNames,
          "auto, netdev, RDMA, UDP: the interface; auto with UDP, UDP: several are striped over, and an IPv4 address "
          "of this machine will do; empty: GLOO_SOCKET_IFNAME, else that of the route to MASTER_ADDR",
          [](TransportConfig& c) -> auto& { return c.interface; }),
      textSetting("GLOO_BYPASS_PCI_ADDRESS",
                  "an address like 0000:00:04.0, or a DPDK virtual device like net_virtio_user0,path=/x",
                  isPciOrVirtualDevice, "pci: the device; device arguments may follow after a comma",
                  [](TransportConfig& c) -> auto& { return c.pciAddress; }),
      textSetting("GLOO_BYPASS_IPV4", "an address with prefix, like 10.0.0.2/24", isAddressWithPrefix,
                  "pci: this port's address, since no kernel interface has one",
                  [](TransportConfig& c) -> auto& { return c.ipv4; }),
      textSetting("GLOO_BYPASS_GATEWAY", "an IPv4 address", isAddress, "pci: next hop to peers outside the prefix",
                  [](TransportConfig& c) -> auto& { return c.gateway; }),
      portSetting(
          "GLOO_BYPASS_UDP_PORT",
          "UDP port of this process; of a range the first that is free, one for each rank of a host; 0: any free "
          "one; pci: always the range's first, 0 is 47777"),
      integerSetting("GLOO_BYPASS_MTU", "bytes", 0, 65535,
                     "IP packet size, at least 576; 0: the interface's, and what the path carries of it; pci: 1500",
                     [](TransportConfig& c) -> auto& { return c.mtu; }),
  };
}

std::vector<Setting> processSettings() {
  return {
      textSetting(
          "GLOO_BYPASS_EAL_ARGUMENTS", "words as a shell would split them, quotes closed", hasBalancedQuotes,
          "Added to the arguments of DPDK's environment abstraction layer (EAL), which netdev, pci and telemetry "
          "start; with --log-level among them what DPDK logs is shown",
          [](TransportConfig& c) -> auto& { return c.ealArguments; }),
      choiceSetting<HugePages>(
          "GLOO_BYPASS_HUGE_PAGES", {{"auto", HugePages::kAuto}, {"off", HugePages::kOff}, {"on", HugePages::kOn}},
          "EAL: use huge pages; auto: when there are any", [](TransportConfig& c) -> auto& { return c.hugePages; }),
      integerSetting("GLOO_BYPASS_MEMORY_MIB", "MiB", 16, 65536,
                     "EAL: its memory without huge pages, and the packet pools' bound",
                     [](TransportConfig& c) -> auto& { return c.memoryMiB; }),
      durationSetting<std::chrono::microseconds>(
          "GLOO_BYPASS_SPIN_US", 0, 1'000'000,
          "Polling without result before a waiter blocks, where such waits were short lately",
          [](TransportConfig& c) -> auto& { return c.spin; }),
      integerSetting("GLOO_BYPASS_ENGINE_CPU", "", -1, 1023, "CPU the engine thread is pinned to; -1: not pinned",
                     [](TransportConfig& c) -> auto& { return c.engineCpu; }),
      textSetting("GLOO_BYPASS_STATS", "stderr, or a file's path with a / in it", isStatsTarget,
                  "Counters at exit: text to stderr, or JSON to a file (%p: process id, %r: RANK); empty: none",
                  [](TransportConfig& c) -> auto& { return c.stats; }),
      choiceSetting<Histograms>(
          "GLOO_BYPASS_HISTOGRAMS", {{"auto", Histograms::kAuto}, {"off", Histograms::kOff}, {"on", Histograms::kOn}},
          "Measure how long sends, receives and connecting take; auto: with GLOO_BYPASS_STATS, _METRICS or _TELEMETRY",
          [](TransportConfig& c) -> auto& { return c.histograms; }),
      textSetting(
          "GLOO_BYPASS_METRICS", kMetricsTargetForms, isMetricsTarget,
          "Prometheus metrics while it runs: to a file (%p: process id, %r: RANK), or served; no ADDRESS: 127.0.0.1; "
          "empty: none",
          [](TransportConfig& c) -> auto& { return c.metrics; }),
      durationSetting<std::chrono::milliseconds>("GLOO_BYPASS_METRICS_INTERVAL_MS", 100, 3'600'000,
                                                 "Time after which the metrics file is written anew",
                                                 [](TransportConfig& c) -> auto& { return c.metricsInterval; }),
      choiceSetting<bool>(
          "GLOO_BYPASS_TELEMETRY", {{"off", false}, {"on", true}},
          "DPDK's telemetry socket, with /gloo_bypass/stats, /gloo_bypass/peers and /gloo_bypass/histograms; starts "
          "the EAL",
          [](TransportConfig& c) -> auto& { return c.telemetry; }),
  };
}

std::vector<Setting> captureSettings() {
  return {
      textSetting("GLOO_BYPASS_CAPTURE", "a file's path with a / in it; no file of that name", isFilePath,
                  "DPDK: pcapng file of every frame at this process's port (%p: process id, %r: RANK); empty: none",
                  [](TransportConfig& c) -> auto& { return c.capture; }),
      integerSetting("GLOO_BYPASS_CAPTURE_SNAPLEN", "bytes", 64, 65535,
                     "Kept of each frame's beginning; 65535: all of it",
                     [](TransportConfig& c) -> auto& { return c.captureSnapLength; }),
      integerSetting("GLOO_BYPASS_CAPTURE_MAX_MIB", "MiB", 1, kMiB,
                     "Greatest length of the file, where the capture ends",
                     [](TransportConfig& c) -> auto& { return c.captureMaxMiB; }),
      textSetting("GLOO_BYPASS_CAPTURE_MARKERS", "an IPv4 address of this machine, or ADDRESS:PORT", isMarkersAddress,
                  "Where rank 0 receives step markers into its capture; without PORT 9999; empty: nowhere",
                  [](TransportConfig& c) -> auto& { return c.captureMarkers; }),
  };
}

std::vector<Setting> protocolSettings() {
  using std::chrono::microseconds;
  using std::chrono::milliseconds;
  return {
      choiceSetting<CongestionControl>(
          "GLOO_BYPASS_CONGESTION_CONTROL",
          {{"auto", CongestionControl::kAuto},
           {"fixed", CongestionControl::kFixed},
           {"swift", CongestionControl::kSwift},
           {"bbr", CongestionControl::kBbr}},
          "auto: fixed window on memory links, else by round-trip time: swift, and bbr from GLOO_BYPASS_BBR_RTT_US on",
          [](TransportConfig& c) -> auto& { return c.session.congestionControl; }),
      choiceSetting<PayloadChecksum>(
          "GLOO_BYPASS_PAYLOAD_CHECKSUM",
          {{"auto", PayloadChecksum::kAuto}, {"off", PayloadChecksum::kOff}, {"on", PayloadChecksum::kOn}},
          "CRC-32C over each packet's payload; auto: not on memory links, and where the kernel (UDP) or both ends' "
          "NICs (pci) check packets only from GLOO_BYPASS_LONG_PATH_RTT_US on",
          [](TransportConfig& c) -> auto& { return c.session.payloadChecksum; }),
      repairSetting(
          "GLOO_BYPASS_FEC",
          "Repair frames for every hundred, from which a peer finds lost ones again; auto: from GLOO_BYPASS_BBR_RTT_US "
          "on, by the loss measured, none before any; on: by the loss on every network; off: none either way"),
      integerSetting("GLOO_BYPASS_RENDEZVOUS_BYTES", "bytes", 1024, kGiB,
                     "Short paths: longer messages wait for the receiver's grant and are not copied",
                     [](TransportConfig& c) -> auto& { return c.session.rendezvousBytes; }),
      durationSetting<microseconds>("GLOO_BYPASS_LONG_PATH_RTT_US", 0, 60'000'000,
                                    "From this round-trip time on sends are buffered and data flows ahead of receives",
                                    [](TransportConfig& c) -> auto& { return c.session.longPathRtt; }),
      durationSetting<microseconds>(
          "GLOO_BYPASS_BBR_RTT_US", 0, 60'000'000,
          "From this round-trip time on auto has bbr, and repair frames where something is lost",
          [](TransportConfig& c) -> auto& { return c.session.bbrRtt; }),
      integerSetting("GLOO_BYPASS_EAGER_BYTES", "bytes", 64 * 1024, kGiB,
                     "Short paths: bytes a peer may send before a receive asks for them",
                     [](TransportConfig& c) -> auto& { return c.session.shortPathEagerBytes; }),
      integerSetting("GLOO_BYPASS_MAX_BUFFER_BYTES", "bytes", kMiB, 16 * kGiB,
                     "Long paths: cap of each peer's send buffer, and of its receive buffer",
                     [](TransportConfig& c) -> auto& { return c.session.maxBufferBytes; }),
      integerSetting("GLOO_BYPASS_FIXED_WINDOW_BYTES", "bytes", 64 * 1024, kGiB,
                     "Window of the fixed congestion control",
                     [](TransportConfig& c) -> auto& { return c.session.fixedWindowBytes; }),
      durationSetting<microseconds>(
          "GLOO_BYPASS_MIN_RTO_US", 100, 10'000'000,
          "Shortest wait before a silent peer's acknowledgement is requested again; GLOO_BYPASS_MAX_RTO_MS at most",
          [](TransportConfig& c) -> auto& { return c.session.minRto; }),
      durationSetting<milliseconds>("GLOO_BYPASS_MAX_RTO_MS", 1, 60'000, "Longest wait between two such requests",
                                    [](TransportConfig& c) -> auto& { return c.session.maxRto; }),
      durationSetting<milliseconds>(
          "GLOO_BYPASS_KEEP_ALIVE_MS", 10, kDayMs,
          "Silence after which an idle connection is probed, half of GLOO_BYPASS_PEER_TIMEOUT_MS at most, or a minute "
          "where that is 0; memory links need none",
          [](TransportConfig& c) -> auto& { return c.session.keepAlive; }),
      durationSetting<milliseconds>(
          "GLOO_BYPASS_PEER_TIMEOUT_MS", 0, kDayMs,
          "Silence after which a peer has vanished; 0: the process group's timeout, and two minutes at least. Memory "
          "links notice by themselves",
          [](TransportConfig& c) -> auto& { return c.peerTimeout; }),
      durationSetting<milliseconds>(
          "GLOO_BYPASS_CONNECT_TIMEOUT_MS", 0, kDayMs,
          "Longest time to connect to a peer, where the process group's timeout is not shorter; 0: that timeout",
          [](TransportConfig& c) -> auto& { return c.connectTimeout; }),
  };
}

std::vector<Setting> rdmaSettings() {
  return {
      textSetting("GLOO_BYPASS_RDMA_DEVICES", "names of different verbs devices, commas between", isListOfVerbsDevices,
                  "RDMA: the devices; several carry stripes; empty: the one whose address is on the interface",
                  [](TransportConfig& c) -> auto& { return c.rdma.devices; }),
      integerSetting("GLOO_BYPASS_RDMA_PORT", "", 0, 255, "RDMA: port of each device; 0: its first active one",
                     [](TransportConfig& c) -> auto& { return c.rdma.port; }),
      integerSetting("GLOO_BYPASS_RDMA_GID_INDEX", "", -1, 255,
                     "RDMA: index in the port's GID table; -1: the RoCEv2 GID of the interface's IPv4 address",
                     [](TransportConfig& c) -> auto& { return c.rdma.gidIndex; }),
      integerSetting("GLOO_BYPASS_RDMA_EAGER_BYTES", "bytes", 256, 64 * kKiB,
                     "RDMA: up to here a message is copied and sent at once; longer ones are read by the receiver",
                     [](TransportConfig& c) -> auto& { return c.rdma.eagerBytes; }),
      integerSetting("GLOO_BYPASS_RDMA_CREDITS", "", 8, 1024, "RDMA: receives that stand ready for each peer",
                     [](TransportConfig& c) -> auto& { return c.rdma.credits; }),
      integerSetting("GLOO_BYPASS_RDMA_CHUNK_BYTES", "bytes", 64 * kKiB, 8 * kMiB,
                     "RDMA: most that one RDMA READ carries",
                     [](TransportConfig& c) -> auto& { return c.rdma.chunkBytes; }),
      integerSetting(
          "GLOO_BYPASS_RDMA_READ_BYTES", "bytes", 64 * kKiB, kGiB,
          "RDMA: most that READs under way carry from one peer together, each at most half; a network that loses what "
          "waits must hold it",
          [](TransportConfig& c) -> auto& { return c.rdma.readBytes; }),
      integerSetting("GLOO_BYPASS_RDMA_TRAFFIC_CLASS", "", 0, 255,
                     "RDMA: traffic class; RoCEv2: DSCP times 4, plus ECN",
                     [](TransportConfig& c) -> auto& { return c.rdma.trafficClass; }),
      integerSetting("GLOO_BYPASS_RDMA_SERVICE_LEVEL", "", 0, 15, "RDMA: service level; RoCE: priority, 0 to 7",
                     [](TransportConfig& c) -> auto& { return c.rdma.serviceLevel; }),
      integerSetting("GLOO_BYPASS_RDMA_TIMEOUT", "", 1, 31,
                     "RDMA: an acknowledgement is awaited for 4.096 us times 2 to the power of this",
                     [](TransportConfig& c) -> auto& { return c.rdma.timeoutExponent; }),
      integerSetting("GLOO_BYPASS_RDMA_RETRY_COUNT", "", 0, 7, "RDMA: retransmissions before the connection is lost",
                     [](TransportConfig& c) -> auto& { return c.rdma.retryCount; }),
      integerSetting("GLOO_BYPASS_RDMA_REGISTRATION_CACHE_BYTES", "bytes", 0, 1024 * kGiB,
                     "RDMA: registered, and so pinned, memory that is kept for its next use",
                     [](TransportConfig& c) -> auto& { return c.rdma.registrationCacheBytes; }),
  };
}

}  // namespace

std::vector<Setting> makeSettingsTable() {
  std::vector<Setting> table = linkSettings();
  for (auto& setting : processSettings()) table.push_back(std::move(setting));
  for (auto& setting : captureSettings()) table.push_back(std::move(setting));
  for (auto& setting : protocolSettings()) table.push_back(std::move(setting));
  for (auto& setting : rdmaSettings()) table.push_back(std::move(setting));
  return table;
}

}  // namespace gloo_bypass
