#include "collectives/network/outgoing_copies.h"

#include <algorithm>

namespace gloo_bypass::collectives {

Status OutgoingCopies::send(Peer& peer, MessageKey key, std::span<const std::byte> head,
                            std::span<const std::byte> rest) {
  if (!hasRoom()) return {ErrorScope::kOperation, ErrorCode::kExhausted, "too many short messages are under way"};
  return start(peer, key, head, rest);
}

Status OutgoingCopies::start(Peer& peer, MessageKey key, std::span<const std::byte> head,
                             std::span<const std::byte> rest) {
  if (free_.empty()) {
    auto copy = std::make_unique<Copy>();
    copy->bytes = std::make_unique_for_overwrite<std::byte[]>(kMostBytes);
    copy->transfer.owner = this;
    copy->transfer.slot = static_cast<std::uint32_t>(all_.size());
    free_.reserve(all_.size() + 1);
    free_.push_back(copy.get());
    all_.push_back(std::move(copy));
  }
  Copy& copy = *free_.back();
  free_.pop_back();
  std::byte* end = std::copy(head.begin(), head.end(), copy.bytes.get());
  std::copy(rest.begin(), rest.end(), end);
  Status status = peer.send(copy.transfer, key, copy.bytes.get(), head.size() + rest.size());
  if (!status.ok()) free_.push_back(&copy);
  return status;
}

bool OutgoingCopies::idle() const {
  return std::none_of(all_.begin(), all_.end(), [](const auto& copy) {
    return copy->transfer.state == Transfer::State::kUnderWay && copy->transfer.peer->ended() == nullptr;
  });
}

void OutgoingCopies::onTransferEnd(Transfer& transfer, std::size_t) noexcept {
  free_.push_back(all_[transfer.slot].get());  // never more than reserved: allocates nothing
}

}  // namespace gloo_bypass::collectives
