// What a port tells its peers: opaque bytes to everybody else, hostile bytes to whoever decodes them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "transport/base/status.h"
#include "transport/dpdk/frame.h"

namespace gloo_bypass::dpdk {

using PortId = std::array<std::uint8_t, 16>;  // random

// A memory link's end. 76 bytes and the directory.
struct MemifAddress {
  PortId portId{};
  PortId secret{};       // whoever knows it may connect
  PortId machineId{};    // the kernel's boot id: memory links stay within one
  PortId directoryId{};  // the directory's device and inode, the same wherever it is mounted on that machine
  std::uint32_t pid = 0;
  std::uint16_t bufferBytes = 0;
  std::uint8_t log2Slots = 0;
  std::string directory;
};

// In place of a memory link's end: this process has none. About as long as that: RDMA's address must fit beside it.
struct NoMemoryAddress {
  PortId machineId{};  // as a MemifAddress's; zero: unknown
  std::uint32_t pid = 0;
  std::string why;  // shortened to kMaxBytes by encodeAddress: first what stands in quotation marks, then the end
  static constexpr std::size_t kMaxBytes = 140;
};

struct UdpAddress {
  Ipv4Address ip = 0;
  std::uint16_t port = 0;
  bool checksums = false;  // its device makes UDP checksums and checks them
};

// Link mode auto: the addresses of the two ports, or a NoMemoryAddress for the first. They lie in the bytes that were
// decoded.
struct AutoAddress {
  std::span<const std::byte> memory, network;
};

std::vector<std::byte> encodeAddress(const MemifAddress& address);
std::vector<std::byte> encodeAddress(const NoMemoryAddress& address);
std::vector<std::byte> encodeAddress(const UdpAddress& address);
// Another kind of port, or bytes that are none: kConfiguration that names both kinds.
Result<MemifAddress> decodeMemifAddress(std::span<const std::byte> bytes);
Result<NoMemoryAddress> decodeNoMemoryAddress(std::span<const std::byte> bytes);
Result<UdpAddress> decodeUdpAddress(std::span<const std::byte> bytes);
std::vector<std::byte> encodeAutoAddress(std::span<const std::byte> memory, std::span<const std::byte> network);
Result<AutoAddress> decodeAutoAddress(std::span<const std::byte> bytes);

// A line for people, if `address` is that of a process that cannot share memory, and may be of `machine`; else
// empty.
std::string whyNoMemory(std::span<const std::byte> address, const PortId& machine);

std::string toHex(const PortId& id);

}  // namespace gloo_bypass::dpdk
