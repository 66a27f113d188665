// The one validated configuration of the transports. transport/process/environment.cc fills it from GLOO_BYPASS_* (no
// other file reads the environment), or from the settings of a C++ program. The back-ends' settings.cc and
// transport/process/settings_table.cc state the ranges.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>

#include "transport/base/port_range.h"
#include "transport/base/time.h"

namespace gloo_bypass {

enum class LinkMode : std::uint8_t {
  kAuto = 0,    // memif between ranks that share a machine and a memif directory, `network` between all others
  kMemif = 1,   // shared memory between processes of one machine or pod
  kNetdev = 2,  // a Linux network interface, through af_packet or af_xdp
  kPci = 3,     // a NIC with a DPDK driver
};
// The network that link mode auto uses between hosts.
enum class Network : std::uint8_t {
  kAuto = 0,    // pci if a device address is set, else UDP
  kUdp = 1,     // the kernel's UDP sockets
  kNetdev = 2,  // as in LinkMode
  kPci = 3,
  kRdma = 4,  // a verbs device, as in the RDMA transport; kAuto never chooses it
};
enum class NetdevDriver : std::uint8_t { kAfPacket, kAfXdp };
enum class CongestionControl : std::uint8_t {
  kAuto = 0,  // a fixed window on lossless links; elsewhere by measured RTT: Swift below bbrRtt, BBR from there on
  kFixed = 1,
  kSwift = 2,  // delay-based, for racks
  kBbr = 3,    // model-based, loss-tolerant, for long-haul paths
};
enum class PayloadChecksum : std::uint8_t {
  kAuto = 0,  // memory links: none. Ports that check their payload (UDP sockets): on long paths. Others: always
  kOff = 1,
  kOn = 2,
};
// Repair frames: the receiver recovers lost frames from them, without a round trip.
struct Repair {
  enum class Mode : std::uint8_t {
    kAuto = 0,  // on long paths, from the first loss and for as long as frames get lost
    kOff = 1,   // neither sent nor requested
    kOn = 2,    // everywhere but on memory links
  };
  static constexpr unsigned kMostPercent = 25;
  Mode mode = Mode::kAuto;
  unsigned percent = 0;  // kOn: repair frames for every hundred; 0: as many as the measured loss asks for
};
enum class HugePages : std::uint8_t { kAuto = 0, kOff = 1, kOn = 2 };
enum class Histograms : std::uint8_t {
  kAuto = 0,  // if stats, metrics or telemetry will show them
  kOff = 1,
  kOn = 2,
};

// The protocol's part: all that transport/core needs to know.
struct SessionConfig {
  bool losslessLink = false;
  bool verifiedLink = false;  // the port checks its payload, as TCP does, by a checksum of 16 bits
  bool sealedLink = false;    // whoever hands datagrams over has authenticated them (transport/security)
  CongestionControl congestionControl = CongestionControl::kAuto;
  PayloadChecksum payloadChecksum = PayloadChecksum::kAuto;
  Repair repair;
  std::size_t rendezvousBytes =
      32 * 1024;  // short paths: longer messages wait for the receiver's grant and are not copied
  // From this RTT on, sends are buffered and data flows ahead of receives. Racks of one building have a lower RTT,
  // towns a higher one.
  Duration longPathRtt = std::chrono::microseconds(300);
  // From this RTT on, kAuto chooses BBR. BBR takes drops of a queue that is too short for the path's loss, which costs
  // much where round trips are short.
  Duration bbrRtt = std::chrono::milliseconds(1);
  std::size_t shortPathEagerBytes =
      4 << 20;                              // short paths: eager (unmatched) bytes that a peer may have in flight to us
  std::size_t maxBufferBytes = 64u << 20;   // long paths: bound of each peer's send buffer, and of its receive buffer
  std::size_t fixedWindowBytes = 8u << 20;  // congestion window of kFixed
  Duration minRto = std::chrono::milliseconds(5);
  Duration maxRto = std::chrono::seconds(2);
  Duration keepAlive =
      std::chrono::seconds(1);  // an idle session probes after this silence; lossless links need no probe
  // Silence after which the peer counts as vanished; lossless links report it themselves. The channel's user may wait
  // longer (peerTimeout below).
  Duration peerTimeout = std::chrono::seconds(120);
  Duration connectTimeout = std::chrono::seconds(30);
};

// The RDMA back-end's part.
struct RdmaConfig {
  std::string devices;  // names of verbs devices, comma-separated; messages are striped over several; empty: the device
                        // that has its GID on the interface
  unsigned port = 0;    // of each device; 0: its first active one
  int gidIndex = -1;    // -1: the RoCEv2 GID that maps the interface's IPv4 address
  std::size_t eagerBytes =
      32 * 1024;          // up to here a message is copied and sent at once; longer ones are read by the receiver
  unsigned credits = 64;  // receives posted for each peer
  std::size_t chunkBytes = 1u << 20;  // of one RDMA READ; at most half of readBytes
  std::size_t readBytes = 16u << 20;  // of all READs under way from one peer: a burst of this size enters its network
  unsigned trafficClass = 0;
  unsigned serviceLevel = 0;
  unsigned timeoutExponent = 16;  // wait for an acknowledgement: 4.096 us * 2^n (InfiniBand, Local ACK Timeout)
  unsigned retryCount = 7;        // retransmissions before the connection is lost
  std::size_t registrationCacheBytes = std::size_t{4} << 30;  // pinned memory that stays registered for reuse
  bool trustedNetwork = false;                                // with encrypt: adapters may send in clear
};

// What protects messages on networks. Memory links need none: only their two ends have the memory mapped.
enum class Security : std::uint8_t {
  kOff = 0,
  kEncrypt = 1,  // every datagram is sealed with AES-128-GCM (transport/security); RDMA's peers are authenticated
};

struct TransportConfig {
  LinkMode link = LinkMode::kAuto;
  Network network = Network::kAuto;
  std::string memifDirectory;  // sockets of memif links; empty: $XDG_RUNTIME_DIR or /tmp, + /gloo-bypass-UID
  // The user did not name it: auto works without memory links if it cannot be used. No setting of its own.
  bool memifDirectoryIsDefault = false;
  std::size_t memifBufferBytes = 60 * 1024;  // one ring slot and so the largest frame
  unsigned memifLog2Slots = 6;  // ring slots: 2^n; 64 x 60 KiB hold the segments that Gloo's ring has under way
  NetdevDriver netdevDriver = NetdevDriver::kAfPacket;
  std::string interface;      // names, or an IPv4 address (udp/settings.cc); empty: Gloo's, or the way to MASTER_ADDR
  std::string pciAddress;     // pci: 0000:00:04.0, or a vdev string such as net_virtio_user0,path=...
  std::string ipv4;           // pci: address/prefix of this port, since no kernel interface has one
  std::string gateway;        // pci: next hop for peers outside the prefix
  Duration connectTimeout{};  // of each peer; 0: what the channel's user has
  Duration peerTimeout{};  // of each session; 0: session.peerTimeout, or what the channel's user has if that is longer
  PortRange udpPorts;      // this process takes the first free one
  std::size_t mtu = 0;     // 0: discovered from the interface or driver
  std::string ealArguments;  // appended to the EAL's, as a shell would split them
  HugePages hugePages = HugePages::kAuto;
  std::size_t memoryMiB = 64;  // EAL memory without huge pages, and mempools' bound
  Duration spin = std::chrono::microseconds(200);
  int engineCpu = -1;
  bool ownCollectives = false;  // programs that say "gloo" get collectives/; read by plugin/python
  int threads = 0;           // at most, of one rank, for copies and sums of large vectors inside a host; 0: its share
  std::string algorithm;     // of collectives between hosts: "" as the table says, or ChoiceTable::prefer's names
  std::string choices;       // the file of a table that tune measured; "": the built-in one
  bool sumsInOrder = false;  // of ranks, whatever the algorithm, so that bits do not depend on it
  std::string stats;         // at exit: "" nothing, "stderr", or a file that gets JSON
  Histograms histograms = Histograms::kAuto;
  std::string metrics;  // while it runs: "" nothing, "file:PATH", "unix:PATH" or "http://ADDRESS:PORT", Prometheus's
                        // text format
  Duration metricsInterval = std::chrono::seconds(10);  // between two writings of that file
  bool telemetry = false;                               // DPDK's telemetry socket
  std::string capture;                                  // pcapng file of the port's frames; "": none
  std::size_t captureSnapLength = 256;                  // bytes kept of each frame
  std::size_t captureMaxMiB = 4096;                     // the file's greatest length
  std::string captureMarkers;  // where rank 0 receives step markers into it: ADDRESS or ADDRESS:PORT; "": nowhere
  std::string dpdkDirectory =
      "/tmp/dpdk";            // where DPDK makes its sockets, by its own environment variables. No setting of its own
  std::string masterAddress;  // MASTER_ADDR; its route selects the interface if none is named. No setting of its own
  std::string hostInterface;  // RDMA: the interface of Gloo's host name, or empty. No setting of its own
  std::string rank;           // RANK, for labels of metrics; may be empty. No setting of its own
  Security security = Security::kOff;
  std::string keyFile;  // a pre-shared key for the sessions' keys; "": those who can write to the store are trusted
  std::string job;      // bound into the sessions' keys
  SessionConfig session;
  RdmaConfig rdma;
};

// The connect timeout of a channel; its user's own is `users`.
inline Duration connectTimeout(const TransportConfig& config, Duration users) {
  return config.connectTimeout == Duration{} ? users : std::min(config.connectTimeout, users);
}

// The same for silence. Longer than the user's wait, since a stopped machine may resume, or a path return.
inline Duration peerTimeout(const TransportConfig& config, Duration users) {
  return config.peerTimeout == Duration{} ? std::max(config.session.peerTimeout, users) : config.peerTimeout;
}

// The value of `network` that link mode auto uses.
inline Network chosenNetwork(const TransportConfig& config) {
  if (config.network != Network::kAuto) return config.network;
  return config.pciAddress.empty() ? Network::kUdp : Network::kPci;
}
inline bool usesMemif(const TransportConfig& config) {
  return config.link == LinkMode::kAuto || config.link == LinkMode::kMemif;
}
inline bool usesNetdev(const TransportConfig& config) {
  return config.link == LinkMode::kNetdev ||
         (config.link == LinkMode::kAuto && chosenNetwork(config) == Network::kNetdev);
}
inline bool usesPci(const TransportConfig& config) {
  return config.link == LinkMode::kPci || (config.link == LinkMode::kAuto && chosenNetwork(config) == Network::kPci);
}

inline bool usesRdma(const TransportConfig& config) {
  return config.link == LinkMode::kAuto && chosenNetwork(config) == Network::kRdma;
}

inline bool measuresLatencies(const TransportConfig& config) {
  if (config.histograms != Histograms::kAuto) return config.histograms == Histograms::kOn;
  return config.telemetry || !config.metrics.empty() || !config.stats.empty();
}

}  // namespace gloo_bypass
