#include "transport/pairs/pair_channel.h"

#include <algorithm>

#include "transport/base/check.h"
#include "transport/pairs/pair_address.h"

namespace gloo_bypass::pairs {
namespace {

Status refusal(const char* why) { return Status(ErrorScope::kSession, ErrorCode::kInvalidArgument, why); }

}  // namespace

Status PairChannel::setInner(std::unique_ptr<MessageChannel> memory, std::unique_ptr<MessageChannel> network) {
  memory_ = std::move(memory);
  network_ = std::move(network);
  auto ofMemory = decodeChannelAddress(memory_->localAddress());
  auto ofNetwork = decodeChannelAddress(network_->localAddress());
  GLOO_BYPASS_CHECK(ofMemory.ok() && ofNetwork.ok());
  auto address = encodePairAddress({std::move(ofMemory).value(), std::move(ofNetwork).value()});
  if (!address) return address.error();
  address_ = std::move(address).value();
  return {};
}

Status PairChannel::connect(std::span<const std::byte> remoteAddress) {
  if (state() != ChannelState::kUnconnected || chosen_ != nullptr) {
    return refusal("connect: already called, or closed");
  }
  const auto peer = decodePairAddress(remoteAddress);
  if (!peer) return peer.error();
  const bool local = reachesByMemory_(peer.value().memory.portAddress);
  (local ? network_ : memory_).reset();
  chosen_ = (local ? memory_ : network_).get();
  if (chosen_->state() == ChannelState::kFailed) return chosen_->error();  // its device has failed since
  if (Status status = postWaiting(); !status) return status;
  return chosen_->connect(encodeChannelAddress(local ? peer.value().memory : peer.value().network));
}

// A channel that is not connected takes what is posted, and completes nothing.
Status PairChannel::postWaiting() {
  for (const ReceiveRequest& request : std::exchange(receives_, {})) {
    if (Status status = chosen_->postReceive(request); !status) return status;
  }
  for (const SendRequest& request : std::exchange(sends_, {})) {
    if (Status status = chosen_->postSend(request); !status) return status;
  }
  return {};
}

template <typename Request>
Status PairChannel::post(std::vector<Request>& waiting, const Request& request,
                         Status (MessageChannel::*posted)(const Request&)) {
  if (chosen_ != nullptr) return (chosen_->*posted)(request);
  if (closed_) return refusal("the channel has been closed");
  waiting.push_back(request);
  return {};
}

template <typename Request>
bool PairChannel::cancel(std::vector<Request>& waiting, OperationToken token,
                         bool (MessageChannel::*cancelled)(OperationToken)) {
  if (chosen_ != nullptr) return (chosen_->*cancelled)(token);
  const auto found =
      std::find_if(waiting.begin(), waiting.end(), [&](const Request& request) { return request.token == token; });
  if (found == waiting.end()) return false;
  waiting.erase(found);
  return true;
}

const Error& PairChannel::error() const {
  GLOO_BYPASS_CHECK(chosen_ != nullptr);
  return chosen_->error();
}

std::string PairChannel::describePeer() const {
  return chosen_ == nullptr ? "(not connected)" : chosen_->describePeer();
}

void PairChannel::close(bool abort) {
  if (closed_) return;
  closed_ = true;
  for (MessageChannel* inner : {memory_.get(), network_.get()}) {
    if (inner != nullptr) inner->close(abort);
  }
  sends_.clear();
  receives_.clear();
}

}  // namespace gloo_bypass::pairs
