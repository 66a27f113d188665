// The blocks of a pcapng file, as bytes: draft-ietf-opsawg-pcapng, sections 4.1 (header), 4.2 (interface), 4.3 (packet) and 4.6
// (statistics). Little-endian, Ethernet, times in nanoseconds. Pure.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace gloo_bypass::capture {

using UnixTime = std::chrono::nanoseconds;  // since 1970

void appendSectionHeader(std::string& to, const std::string& application);
// Interfaces are numbered in the order of their blocks. `snapLength` 0: no limit.
void appendInterface(std::string& to, const std::string& name, const std::string& description, std::uint32_t snapLength);
void appendInterfaceStatistics(std::string& to, std::uint32_t interface, UnixTime now, std::uint64_t received, std::uint64_t dropped);

constexpr std::size_t packetBlockBytes(std::size_t keptBytes) { return 32 + (keptBytes + 3) / 4 * 4; }
// Writes packetBlockBytes(kept.size()) bytes.
void writePacketBlock(std::byte* to, std::uint32_t interface, UnixTime time, std::span<const std::byte> kept, std::size_t originalBytes);

}  // namespace gloo_bypass::capture
