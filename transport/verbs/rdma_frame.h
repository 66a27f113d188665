// The messages that two channels exchange in SENDs. Little-endian, 48 bytes, then the payload or the list of keys:
//
//   offset 0  u8 type   1 u8 kind   2 u16 keys that follow   4 u32 session   8 u32 slots returned   12 u32 reserved (0)
//         16  u64 window returned   24 u64 tag or id   32 u64 length   40 u64 remote offset or address
//
//   eager     a whole message: tag, length of the payload that follows, remote offset
//   announce  a message that the receiver fetches by RDMA READ: tag, length, remote offset; then u64 id | u64 address |
//             u32 key for each rail
//   done      the receiver has fetched message `id`: the sender's buffer is free
//   credit    only the fields of every frame: how many receives were posted again, how much of the eager window is free
//             again
//   bye       the sender closes in good order and sends nothing any more
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "transport/channel/message.h"
#include "transport/verbs/rdma_address.h"

namespace gloo_bypass::verbs {

enum class FrameType : std::uint8_t { kEager = 1, kAnnounce = 2, kDone = 3, kCredit = 4, kBye = 5 };

struct RdmaFrame {
  FrameType type = FrameType::kCredit;
  std::uint32_t session = 0;         // low half of the RECEIVER's session id
  std::uint32_t slotsReturned = 0;   // total, modulo 2^32
  std::uint64_t windowReturned = 0;  // total
  MessageKey key;                    // eager, announce
  std::uint64_t length = 0;          // eager, announce
  std::uint64_t remoteOffset = 0;    // eager, announce
  std::uint64_t id = 0;              // announce, done
  std::uint64_t address = 0;         // announce: where the message is in the sender's memory
  std::uint8_t rails = 0;            // announce: how many keys
  std::array<std::uint32_t, kMaxRails> remoteKeys{};
};

inline constexpr std::size_t kFrameHeaderBytes = 48;
inline constexpr std::size_t kMaxFrameBytes =
    kFrameHeaderBytes + 16 + 4 * kMaxRails;  // payload of eager frames not counted
// Messages that one side may have announced without a `done`. A peer that announces more breaks the protocol.
inline constexpr std::size_t kMaxAnnouncedMessages = 65536;

// Writes header and list of keys; returns the number of bytes. The payload of an eager frame follows them.
std::size_t encodeFrame(const RdmaFrame& frame, std::span<std::byte> to);

struct DecodedFrame {
  RdmaFrame frame;
  std::span<const std::byte> payload;  // for an eager frame
};
// The bytes are hostile; nullopt if encodeFrame would never write them.
std::optional<DecodedFrame> decodeFrame(std::span<const std::byte> bytes);

}  // namespace gloo_bypass::verbs
