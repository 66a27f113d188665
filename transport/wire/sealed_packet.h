// The format of a sealed datagram: a plain one (packet.h), encrypted from its 16th byte on and followed by a tag.
// transport/security seals and opens. Pure.
//
//   offset size  field
//        0    2  magic 0x4267 ("gB")
//        2    1  version 2
//        3    1  type (FrameType); bit 7: the key's phase
//        4    4  packet number, the low 32 of 64 bits
//        8    8  session id of the RECEIVER
//       16       AES-128-GCM of the plain datagram from its offset 16 on; the 16 bytes before are associated data
//    n - 16  16  the tag
//
// A plain datagram's checksums are neither needed nor checked in a sealed one: their fields are zero.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "transport/wire/packet.h"

namespace gloo_bypass::wire {

inline constexpr std::uint8_t kSealedWireVersion = 2;
inline constexpr std::size_t kSealedHeaderBytes = 16, kSealTagBytes = 16;

struct SealedHeader {
  FrameType type = FrameType::kAck;
  bool keyPhase = false;
  std::uint32_t number = 0;
  std::uint64_t receiverId = 0;
};

// `out`: kSealedHeaderBytes.
void writeSealedHeader(const SealedHeader& header, std::span<std::byte> out);
// nullopt: not a sealed datagram, or too short for one. The second: of one of `length` bytes, with only its
// `beginning` here.
std::optional<SealedHeader> parseSealedHeader(std::span<const std::byte> datagram);
std::optional<SealedHeader> readSealedHeader(std::span<const std::byte> beginning, std::size_t length);

// Of a plain header, at least kSealedHeaderBytes of it.
FrameType typeOf(std::span<const std::byte> header);
std::uint64_t receiverIdOf(std::span<const std::byte> header);
// What a plain datagram has before the encrypted part, without the header's checksum. `out`: kSealedHeaderBytes.
void writePlainBeginning(FrameType type, std::uint64_t receiverId, std::span<std::byte> out);

}  // namespace gloo_bypass::wire
