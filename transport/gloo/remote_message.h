// The messages of puts and gets between two ranks: one message of the channel each, with a fixed header.
//
//   offset size  field                                     little-endian
//        0    1  type (RemoteMessageType)
//        1    1  version
//        2    1  refusal (RemoteRefusal; of kRefused, else 0)
//        3    5  zero
//        8    8  operation: numbered by who asks, from 1 on, without gaps
//       16    8  context                                   of kPut and kGet, else 0
//       24    8  region                                    "
//       32    8  offset in the region, bytes               "
//       40    8  length, bytes                             "
//       48       payload of a short put (kPut) or a short get (kDone): kInlineBytes at most
//
//   asks                                   serves
//    | put, short: kPut + payload           |          short get: kGet              |
//    |------------------------------------->| copies   ---------------------------->|
//    |<--------------------------- kDone ---|          <---------- kDone + payload -|
//    | put, long: kPut                      |          long get: posts a receive; kGet
//    |------------------------------------->|          ---------------------------->|
//    |<---------------- kGo (receive posted)|          <======= the data, tag of it =|
//    |====== the data, tag of it ==========>| placed   <-------------------- kDone --|
//    |<--------------------------- kDone ---|
//
// Each kPut and kGet is answered by exactly one kDone or kRefused. kCancel: the data for which a kGo came will not
// come.
//
// All travel as messages of bound buffers, with tags that no bound buffer has (those are of 32 bits).
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "transport/channel/message.h"

namespace gloo_bypass::adapter {

enum class RemoteMessageType : std::uint8_t { kPut = 1, kGet = 2, kCancel = 3, kGo = 4, kDone = 5, kRefused = 6 };

enum class RemoteRefusal : std::uint8_t {
  kNone = 0,
  kOtherContext = 1,  // the key was given out by another context
  kNoSuchMemory = 2,  // its buffer is gone
  kOutOfRange = 3,
  kMemoryGone = 4,  // its buffer went while the operation was under way
  kCancelled = 5,   // by kCancel
};
const char* describe(RemoteRefusal refusal);

struct RemoteMessage {
  RemoteMessageType type = RemoteMessageType::kPut;
  RemoteRefusal refusal = RemoteRefusal::kNone;
  std::uint64_t operation = 0;
  std::uint64_t context = 0, region = 0, offset = 0, length = 0;
};

inline constexpr std::size_t kRemoteHeaderBytes = 48;
// A payload up to this travels in the message itself, which saves round trips and costs a copy on either side. With the
// header it fits into one frame of every back-end.
inline constexpr std::size_t kInlineBytes = 4096;
inline constexpr std::size_t kMaxRemoteMessageBytes = kRemoteHeaderBytes + kInlineBytes;
// How many operations a rank asks of one peer at a time; further ones wait until answers come.
inline constexpr std::size_t kMaxRemoteOperations = 64;

std::vector<std::byte> encodeRemoteMessage(const RemoteMessage& message, std::span<const std::byte> payload);
// Hostile bytes. Nothing: no correct peer sends this. The payload follows the header, and has the length that fits it.
std::optional<RemoteMessage> decodeRemoteMessage(std::span<const std::byte> bytes);

// The messages themselves, and the data of long operations.
constexpr MessageKey remoteControlKey() { return {MessageKind::kBound, std::uint64_t{1} << 63}; }
constexpr MessageKey putDataKey(std::uint64_t operation) {
  return {MessageKind::kBound, (std::uint64_t{1} << 62) | operation};
}
constexpr MessageKey getDataKey(std::uint64_t operation) {
  return {MessageKind::kBound, (std::uint64_t{1} << 61) | operation};
}
// A bound buffer's slot is an int.
constexpr bool isRemoteKey(MessageKey key) { return key.kind == MessageKind::kBound && (key.tag >> 32) != 0; }

}  // namespace gloo_bypass::adapter
