// Frames of collective operations, made with the transport's and the collectives' own codecs.
#pragma once

#include <cstdint>

#include "collectives/network/wire.h"
#include "tests/tools/capture/capture_builder.h"

namespace gloo_bypass::capture::test {

// What one rank sends to another in one group. Numbers messages and frames.
class OperationSender {
 public:
  OperationSender(Endpoint from, Endpoint to, std::uint64_t receiverId)
      : from_(from), to_(to), receiverId_(receiverId) {}

  // The first message of an operation: its header, and so many bytes of payload behind it.
  Octets header(std::uint64_t operation, const collectives::Description& description, std::size_t payloadBytes = 0,
                collectives::Algorithm algorithm = collectives::Algorithm::kRing);
  // The first frame of a message of `totalBytes`, with so many of them; with none it announces the message.
  Octets message(std::uint64_t tag, std::size_t frameBytes, std::size_t totalBytes);
  Octets message(std::uint64_t operation, std::uint32_t index, std::size_t frameBytes, std::size_t totalBytes) {
    return message(collectives::collectiveKey(operation, index).tag, frameBytes, totalBytes);
  }
  // A further part of message number `id`; `path`: 0, or a rail.
  Octets chunk(std::uint64_t id, std::size_t frameBytes, std::size_t path = 0);

  std::uint64_t lastMessage() const { return messages_; }
  Endpoint from() const { return from_; }

 private:
  Octets described(std::uint64_t tag, const Octets& payload, std::size_t totalBytes);

  Endpoint from_, to_;
  std::uint64_t receiverId_;
  std::uint64_t messages_ = 0;
  std::uint32_t frames_ = 0;
};

}  // namespace gloo_bypass::capture::test
