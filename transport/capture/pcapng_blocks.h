// The blocks of a pcapng file, as bytes: draft-ietf-opsawg-pcapng, sections 4.1 (header), 4.2 (interface), 4.3 (packet)
// and 4.6 (statistics). Little-endian, Ethernet, times in nanoseconds. Pure.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>

namespace gloo_bypass::capture {

using UnixTime = std::chrono::nanoseconds;  // since 1970

void appendSectionHeader(std::string& to, const std::string& application);
// Interfaces are numbered in the order of their blocks. `snapLength` 0: no limit.
void appendInterface(std::string& to, const std::string& name, const std::string& description,
                     std::uint32_t snapLength);
void appendInterfaceStatistics(std::string& to, std::uint32_t interface, UnixTime now, std::uint64_t received,
                               std::uint64_t dropped);

// From the interface's point of view; kUnknown: unspecified.
enum class FrameDirection : std::uint32_t { kUnknown = 0, kReceived = 1, kSent = 2 };
struct PacketBlock {
  std::uint32_t interface = 0;
  UnixTime time{};
  FrameDirection direction = FrameDirection::kUnknown;
  std::size_t keptBytes = 0, originalBytes = 0;

  constexpr std::size_t bytes() const {
    return 32 + (keptBytes + 3) / 4 * 4 + (direction == FrameDirection::kUnknown ? 0 : 12);
  }
};
// Writes block.bytes() bytes to `to`. The caller puts the frame's first block.keptBytes bytes at kKeptBytesAt.
inline constexpr std::size_t kKeptBytesAt = 28;
void writePacketBlock(std::byte* to, const PacketBlock& block);

}  // namespace gloo_bypass::capture
