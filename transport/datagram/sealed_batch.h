// Memory for sealed datagrams, one after the other, until the port has taken them (OutgoingDatagram::lent). So a run of
// them is one piece of memory for the kernel. One owner.
#pragma once

#include <cstddef>
#include <memory>

#include "transport/wire/packet.h"

namespace gloo_bypass {

class SealedBatch {
 public:
  // What a UDP socket's batch holds; it stays in the cache until the kernel copies it.
  static constexpr std::size_t kBytes = std::size_t{256} << 10;
  static_assert(kBytes >= 2 * wire::kMaxDatagramBytes);

  std::size_t room() const { return kBytes - used_; }
  std::byte* end() const { return bytes_.get() + used_; }
  void append(std::size_t bytes) { used_ += bytes; }
  // The port did not take the last datagram, which had so many bytes.
  void removeLast(std::size_t bytes) { used_ -= bytes; }
  // PacketPort::wakePeers() has returned.
  void clear() { used_ = 0; }

 private:
  const std::unique_ptr<std::byte[]> bytes_ = std::make_unique_for_overwrite<std::byte[]>(kBytes);
  std::size_t used_ = 0;
};

}  // namespace gloo_bypass
