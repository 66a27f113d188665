// The bytes of messages between executors, and the tags that keep their kinds apart. Pure. Whatever is decoded is
// hostile: lengths and ranges are checked here.
//
//   tag, most significant byte first:  0xa0 | operation 24 bits | index 32 bits   a collective's message
//                                      0xa1 | 0                                   control messages
//                                      0xa2 | 0 24 bits | tag 32 bits             a program's own message
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "collectives/operation.h"
#include "collectives/schedule/catalogue.h"
#include "transport/base/status.h"
#include "transport/channel/message.h"

namespace gloo_bypass::collectives {

MessageKey collectiveKey(std::uint64_t operation, std::uint32_t index);
struct CollectiveTag {
  std::uint32_t operation = 0;  // the lower 24 bits of its number
  std::uint32_t index = 0;
  bool operator==(const CollectiveTag&) const = default;
};
std::optional<CollectiveTag> collectiveTag(MessageKey key);  // nullopt: not a collective's message
MessageKey controlKey();
MessageKey programKey(std::uint32_t tag);
std::optional<std::uint32_t> programTag(MessageKey key);  // nullopt: not a program's message

// Begins the first message of an operation to each peer; the first payload follows it if it is short. Little-endian:
//   magic 4 | algorithm 1 | log2 of the part's bytes 1 | payload follows 1 | 0 1 | operation 8 | description 16 |
//   bytes 8 | 0 8
struct OperationHeader {
  static constexpr std::size_t kBytes = 48;  // keeps a payload behind it aligned

  Algorithm algorithm = Algorithm::kDirect;
  std::uint8_t log2PartBytes = 0;
  bool payloadFollows = false;
  std::uint64_t operation = 0;
  DescriptionWords description;
  std::uint64_t bytes = 0;  // of blocks to this peer, where ranks' counts may differ

  bool operator==(const OperationHeader&) const = default;
};
void encode(const OperationHeader& header, std::byte* to);
std::optional<OperationHeader> decodeOperationHeader(std::span<const std::byte> bytes);

// What ranks tell each other beside the operations. Little-endian:
//   magic 4 | type 1 | error code 1 | 0 2 | operation 8 | description 16 | text, up to kMostText
struct ControlMessage {
  enum class Type : std::uint8_t {
    kCalled = 1,  // "I have waited for a while, in this operation"
    kFailed = 2,  // "my group has failed": code and text say why
  };
  static constexpr std::size_t kFixedBytes = 32, kMostText = 1024, kMostBytes = kFixedBytes + kMostText;

  Type type = Type::kCalled;
  ErrorCode code = ErrorCode::kInternal;
  std::uint64_t operation = 0;
  DescriptionWords description;
  std::string text;  // one printable line
};
std::vector<std::byte> encode(const ControlMessage& message);
std::optional<ControlMessage> decodeControlMessage(std::span<const std::byte> bytes);

// A rank's value in the rendezvous: the address of its channel to each peer, by rank; its own is empty.
//   magic 4 | version 4 | rank 4 | size 4 | for each rank: length 2, address
std::vector<std::byte> encodeAddresses(int rank, std::span<const std::vector<std::byte>> addresses);
// Errors: kConfiguration, a rank of another version or size, with both values; kPeerViolatedProtocol.
Result<std::vector<std::vector<std::byte>>> decodeAddresses(std::span<const std::byte> bytes, int rank, int size);

}  // namespace gloo_bypass::collectives
