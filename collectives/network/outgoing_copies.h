// Short messages that are sent from a copy, so that nobody waits for their end: headers of operations with short
// payloads, control messages.
//
// Bound: as many as are under way at once, kMostBytes each, and last words beyond that. Thread: the engine's exclusive
// access. Destroyed after the channels have been closed.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "collectives/network/peer.h"

namespace gloo_bypass::collectives {

class OutgoingCopies final : public TransferOwner {
 public:
  static constexpr std::size_t kMostPayload = 16 * 1024;
  static constexpr std::size_t kMostBytes = OperationHeader::kBytes + kMostPayload;
  explicit OutgoingCopies(std::size_t mostUnderWay) : mostUnderWay_(mostUnderWay) {}

  // Errors: kExhausted, later there is room again; the channel's.
  Status send(Peer& peer, MessageKey key, std::span<const std::byte> head, std::span<const std::byte> rest = {});
  // Why this rank has failed. It finds room whatever is under way: once or twice for each peer.
  Status sendLastWord(Peer& peer, MessageKey key, std::span<const std::byte> bytes) { return start(peer, key, bytes); }
  // Nothing is under way to a rank that can still be reached.
  bool idle() const;
  bool hasRoom() const { return !free_.empty() || all_.size() < mostUnderWay_; }

 private:
  struct Copy {
    Transfer transfer;
    std::unique_ptr<std::byte[]> bytes;
  };
  Status start(Peer& peer, MessageKey key, std::span<const std::byte> head, std::span<const std::byte> rest = {});
  void onTransferEnd(Transfer& transfer, std::size_t length) noexcept override;

  const std::size_t mostUnderWay_;
  std::vector<std::unique_ptr<Copy>> all_;
  std::vector<Copy*> free_;
};

}  // namespace gloo_bypass::collectives
