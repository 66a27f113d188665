// What the beginning of a datagram shows, for captures with a snap length. Pure.
//
// An outline is a guess, good enough for counting: magic, version, type and lengths agree. Where all of the header was
// captured, it says whether the checksum is right.
// Of a sealed datagram (sealed_packet.h) the sequence number is the packet number, and the length of the header is a
// guess as well.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "transport/wire/packet.h"

namespace gloo_bypass::wire {

struct PacketOutline {
  bool sealed = false;
  bool damaged = false;  // the header's checksum is wrong: no field is to be relied on
  FrameType type = FrameType::kAck;
  std::uint64_t receiverId = 0;
  std::uint32_t sequence = 0;
  std::size_t headerBytes = 0;
  std::size_t sackRanges = 0;
};
// As many bytes as an outline needs.
inline constexpr std::size_t kOutlineBytes = 28;

// `captured`: the beginning; `length`: of the whole datagram. nullopt: another protocol or another version.
std::optional<PacketOutline> outlinePacket(std::span<const std::byte> captured, std::size_t length);

// Which message a frame has bytes of, or announces.
struct MessageOutline {
  std::uint64_t id = 0;
  // Of kData and kAnnounce, as far as they were captured.
  std::optional<std::uint64_t> tag, totalLength, chunkOffset;
  std::optional<std::uint16_t> chunkLength;
};
// nullopt: a frame of another type, cut off within the id, or sealed.
std::optional<MessageOutline> outlineMessage(std::span<const std::byte> captured, const PacketOutline& outline);

}  // namespace gloo_bypass::wire
