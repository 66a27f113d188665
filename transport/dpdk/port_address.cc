#include "transport/dpdk/port_address.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <string_view>

#include "transport/base/packet_socket.h"
#include "transport/base/printable.h"

namespace gloo_bypass::dpdk {
namespace {

// "GBP", the kind of port, the format's version.
constexpr std::array<std::byte, 3> kMagic{std::byte{'G'}, std::byte{'B'}, std::byte{'P'}};
constexpr char kMemifKind = 'M';
constexpr char kNoMemoryKind = 'N';
constexpr char kUdpKind = 'U';
constexpr char kAutoKind = 'A';
constexpr char kPairsKind = 'R';  // transport/pairs uses it; no port does
constexpr std::uint8_t kVersion = 2;
constexpr std::size_t kPrefixBytes = 5;
constexpr std::size_t kMemifFixedBytes = kPrefixBytes + 4 * 16 + 4 + 2 + 1;
constexpr std::size_t kNoMemoryFixedBytes = kPrefixBytes + 16 + 4;
constexpr std::size_t kUdpBytes = kPrefixBytes + 4 + 2;
// One more byte, a 1, if the port's device computes and checks checksums.
constexpr std::byte kChecksums{1};

std::string kindName(char kind) {
  if (kind == kMemifKind) return "link mode memif (shared memory of one machine)";
  if (kind == kNoMemoryKind) return "no shared memory";
  if (kind == kAutoKind) return "link mode auto (memory within a host, the network between hosts)";
  if (kind == kPairsKind) return "link mode auto with RDMA (memory within a host, RDMA between hosts)";
  if (kind == kUdpKind) return "link mode netdev or pci (UDP over IPv4)";
  return "an unknown link mode";
}

std::vector<std::byte> prefix(char kind) {
  std::vector<std::byte> bytes(kMagic.begin(), kMagic.end());
  bytes.push_back(static_cast<std::byte>(kind));
  bytes.push_back(std::byte{kVersion});
  return bytes;
}

Error refuse(std::string message) { return Error{ErrorScope::kSession, ErrorCode::kConfiguration, std::move(message)}; }

Status checkPrefix(std::span<const std::byte> bytes, char wanted) {
  if (bytes.size() < kPrefixBytes || std::memcmp(bytes.data(), kMagic.data(), kMagic.size()) != 0) {
    return refuse(
        fmt::format("this rank uses {}, the peer's address is of no DPDK port: use the same transport on all ranks",
                    kindName(wanted)));
  }
  const char kind = static_cast<char>(bytes[3]);
  if (kind != wanted) {
    return refuse(
        fmt::format("this rank uses {}, the peer uses {}: set the same GLOO_BYPASS_LINK and GLOO_BYPASS_NETWORK on all "
                    "ranks",
                    kindName(wanted), kindName(kind)));
  }
  const auto version = std::to_integer<unsigned>(bytes[4]);
  if (version != kVersion) {
    return refuse(
        fmt::format("this rank's address format is version {}, the peer's {}: use the same release on all ranks",
                    kVersion, version));
  }
  return {};
}

void appendId(std::vector<std::byte>& out, const PortId& id) {
  for (const std::uint8_t b : id) out.push_back(static_cast<std::byte>(b));
}

// Shortens to kMaxBytes, the name in quotation marks first, since the cause follows it.
std::string shortened(std::string why) {
  constexpr std::string_view kLeftOut = "...";
  if (why.size() <= NoMemoryAddress::kMaxBytes) return why;
  const std::size_t begin = why.find('\''), end = why.rfind('\'');
  if (begin < end) {
    const std::size_t surplus = why.size() - NoMemoryAddress::kMaxBytes + kLeftOut.size();
    const std::size_t cut = std::min(surplus, end - begin - 1);
    why.replace(end - cut, cut, kLeftOut);
  }
  return why.substr(0, NoMemoryAddress::kMaxBytes);
}

Error malformed() {
  return Error{ErrorScope::kSession, ErrorCode::kPeerViolatedProtocol, "the peer's port address is malformed"};
}

}  // namespace

std::vector<std::byte> encodeAddress(const MemifAddress& address) {
  std::vector<std::byte> out = prefix(kMemifKind);
  appendId(out, address.portId);
  appendId(out, address.secret);
  appendId(out, address.machineId);
  appendId(out, address.directoryId);
  std::array<std::byte, 7> tail{};
  writeBe32(&tail[0], address.pid);
  writeBe16(&tail[4], address.bufferBytes);
  tail[6] = static_cast<std::byte>(address.log2Slots);
  for (const std::byte b : tail) out.push_back(b);
  for (const char c : address.directory) out.push_back(static_cast<std::byte>(c));
  return out;
}

Result<MemifAddress> decodeMemifAddress(std::span<const std::byte> bytes) {
  const Status prefixOk = checkPrefix(bytes, kMemifKind);
  if (!prefixOk) return prefixOk.error();
  if (bytes.size() <= kMemifFixedBytes || bytes.size() > kMemifFixedBytes + kMaxSocketPathBytes) return malformed();
  MemifAddress address;
  const std::byte* p = bytes.data() + kPrefixBytes;
  for (PortId* id : {&address.portId, &address.secret, &address.machineId, &address.directoryId}) {
    std::memcpy(id->data(), p, id->size());
    p += id->size();
  }
  address.pid = readBe32(p);
  address.bufferBytes = readBe16(p + 4);
  address.log2Slots = std::to_integer<std::uint8_t>(p[6]);
  p += 7;
  address.directory.assign(reinterpret_cast<const char*>(p), bytes.size() - kMemifFixedBytes);
  if (address.directory.front() != '/' || address.directory.find('\0') != std::string::npos) return malformed();
  return address;
}

std::vector<std::byte> encodeAddress(const NoMemoryAddress& address) {
  std::vector<std::byte> out = prefix(kNoMemoryKind);
  appendId(out, address.machineId);
  out.resize(kNoMemoryFixedBytes);
  writeBe32(&out[kNoMemoryFixedBytes - 4], address.pid);
  for (const char c : shortened(address.why)) out.push_back(static_cast<std::byte>(c));
  return out;
}

Result<NoMemoryAddress> decodeNoMemoryAddress(std::span<const std::byte> bytes) {
  const Status prefixOk = checkPrefix(bytes, kNoMemoryKind);
  if (!prefixOk) return prefixOk.error();
  if (bytes.size() < kNoMemoryFixedBytes || bytes.size() > kNoMemoryFixedBytes + NoMemoryAddress::kMaxBytes) {
    return malformed();
  }
  NoMemoryAddress address;
  std::memcpy(address.machineId.data(), &bytes[kPrefixBytes], address.machineId.size());
  address.pid = readBe32(&bytes[kNoMemoryFixedBytes - 4]);
  const auto why = bytes.subspan(kNoMemoryFixedBytes);
  address.why.assign(reinterpret_cast<const char*>(why.data()), why.size());
  return address;
}

std::vector<std::byte> encodeAddress(const UdpAddress& address) {
  std::vector<std::byte> out = prefix(kUdpKind);
  out.resize(kUdpBytes);
  writeBe32(&out[kPrefixBytes], address.ip);
  writeBe16(&out[kPrefixBytes + 4], address.port);
  if (address.checksums) out.push_back(kChecksums);
  return out;
}

Result<UdpAddress> decodeUdpAddress(std::span<const std::byte> bytes) {
  const Status prefixOk = checkPrefix(bytes, kUdpKind);
  if (!prefixOk) return prefixOk.error();
  const bool checksums = bytes.size() == kUdpBytes + 1 && bytes[kUdpBytes] == kChecksums;
  if (bytes.size() != kUdpBytes && !checksums) return malformed();
  const UdpAddress address{readBe32(&bytes[kPrefixBytes]), readBe16(&bytes[kPrefixBytes + 4]), checksums};
  const unsigned firstByte = address.ip >> 24;
  // No unicast address of a host begins like this.
  if (firstByte == 0 || firstByte >= 224 || address.port == 0) return malformed();
  return address;
}

// The first one's length in 16 bits, the first, the second.
std::vector<std::byte> encodeAutoAddress(std::span<const std::byte> memory, std::span<const std::byte> network) {
  std::vector<std::byte> out = prefix(kAutoKind);
  out.resize(kPrefixBytes + 2);
  writeBe16(&out[kPrefixBytes], static_cast<std::uint16_t>(memory.size()));
  out.insert(out.end(), memory.begin(), memory.end());
  out.insert(out.end(), network.begin(), network.end());
  return out;
}

Result<AutoAddress> decodeAutoAddress(std::span<const std::byte> bytes) {
  const Status prefixOk = checkPrefix(bytes, kAutoKind);
  if (!prefixOk) return prefixOk.error();
  const auto rest = bytes.subspan(kPrefixBytes);
  if (rest.size() < 2 || readBe16(rest.data()) > rest.size() - 2) return malformed();
  const std::size_t memoryBytes = readBe16(rest.data());
  return AutoAddress{rest.subspan(2, memoryBytes), rest.subspan(2 + memoryBytes)};
}

std::string whyNoMemory(std::span<const std::byte> address, const PortId& machine) {
  const auto peer = decodeNoMemoryAddress(address);
  if (!peer) return "";
  const bool unknown = peer.value().machineId == PortId{};
  if (!unknown && peer.value().machineId != machine) return "";
  return fmt::format("process {} {} shares no memory, and is reached over the network: {}", peer.value().pid,
                     unknown ? "(it does not know whether of this host)" : "of this host", printable(peer.value().why));
}

std::string toHex(const PortId& id) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string text;
  for (const std::uint8_t byte : id) {
    text.push_back(kDigits[byte >> 4]);
    text.push_back(kDigits[byte & 0xf]);
  }
  return text;
}

}  // namespace gloo_bypass::dpdk
