// A port's address for its peers: opaque bytes in between, hostile bytes for the decoder.
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

// An end of a memory link. 76 bytes plus the directory's name.
struct MemifAddress {
  PortId portId{};       // ends with the first bytes of machineId
  PortId secret{};       // grants the right to connect
  PortId machineId{};    // the kernel's boot id: memory links stay within one machine
  PortId directoryId{};  // the directory's device and inode, the same wherever that machine mounts it
  std::uint32_t pid = 0;
  std::uint16_t bufferBytes = 0;
  std::uint8_t log2Slots = 0;
  std::string directory;
};

// Replaces a MemifAddress if this process has no memory links. About as long as one: RDMA's address must fit beside it.
struct NoMemoryAddress {
  PortId machineId{};  // as in MemifAddress; zero: unknown
  std::uint32_t pid = 0;
  std::string why;  // encodeAddress shortens it to kMaxBytes: first the quoted text, then the end
  static constexpr std::size_t kMaxBytes = 140;
};

struct UdpAddress {
  Ipv4Address ip = 0;
  std::uint16_t port = 0;
  bool checksums = false;  // its device computes and checks UDP checksums
};

// Link mode auto: the addresses of the two ports, or a NoMemoryAddress for the first. They point into the decoded
// bytes.
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

// A line for users if `address` belongs to a process that cannot share memory and may be on `machine`; else empty.
std::string whyNoMemory(std::span<const std::byte> address, const PortId& machine);

std::string toHex(const PortId& id);

}  // namespace gloo_bypass::dpdk
