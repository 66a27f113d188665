#include "transport/gloo/remote_requests.h"

#include <algorithm>
#include <utility>

#include <gloo/common/error.h>
#include <gloo/common/string.h>

#include "transport/gloo/connection.h"
#include "transport/gloo/remote_traffic.h"

namespace gloo_bypass::adapter {

// Whatever is given to the channel may complete, or fail the connection, before the call returns: then what was found
// in asked_ may be gone.

void RemoteRequests::ask(Operation& operation, const RemoteMessage& request, std::byte* local) {
  queue_.push_back({.request = request, .operation = &operation, .local = local, .failure = nullptr});
  askNext();
}

void RemoteRequests::askNext() {
  while (!queue_.empty() && asked_.size() < kMaxRemoteOperations) {
    Asked next = std::move(queue_.front());
    queue_.pop_front();
    const std::uint64_t number = nextNumber_++;
    next.request.operation = next.operation->remoteNumber = number;
    const bool receives = !next.isPut() && !next.isShort();
    next.underWay = receives;
    const RemoteMessage request = next.request;
    std::byte* local = next.local;
    const std::span<const std::byte> payload = next.isPut() && next.isShort()
                                                   ? std::span<const std::byte>(local, request.length)
                                                   : std::span<const std::byte>();
    asked_.emplace(number, std::move(next));
    if (receives) {
      longestGet_ = std::max(longestGet_, request.length);
      if (!traffic_.receiveData(RemoteRole::kAsks, number, getDataKey(number), local, request.length)) return;
    }
    if (!traffic_.tell(request, payload)) return;
  }
}

void RemoteRequests::onAnswer(const RemoteMessage& answer, std::span<const std::byte> payload) {
  const auto found = asked_.find(answer.operation);
  if (found == asked_.end() || found->second.answered) {
    traffic_.violation("it answered a put or get that was not asked of it");
    return;
  }
  Asked& asked = found->second;
  switch (answer.type) {
    case RemoteMessageType::kGo:
      onGo(asked);
      return;
    case RemoteMessageType::kDone:
      onDone(asked, payload);
      return;
    default:
      onRefused(asked, answer.refusal);
      return;
  }
}

void RemoteRequests::onGo(Asked& asked) {
  const std::uint64_t number = asked.request.operation;
  if (!asked.isPut() || asked.isShort() || asked.granted) {
    traffic_.violation("it asked for data of a put or get that has none to come");
    return;
  }
  asked.granted = true;
  if (asked.operation == nullptr) {
    (void)traffic_.tell({.type = RemoteMessageType::kCancel, .operation = number}, {});
    return;
  }
  asked.underWay = true;
  (void)traffic_.sendData(RemoteRole::kAsks, number, putDataKey(number), asked.local, asked.request.length);
}

void RemoteRequests::onDone(Asked& asked, std::span<const std::byte> payload) {
  const bool brings = !asked.isPut() && asked.isShort();
  if (payload.size() != (brings ? asked.request.length : 0)) {
    traffic_.violation("it answered a get with another length than was asked for");
    return;
  }
  if (asked.isPut() && !asked.isShort() && !asked.granted) {
    traffic_.violation("it confirmed a put whose data it has not asked for");
    return;
  }
  if (asked.operation != nullptr && brings) std::copy(payload.begin(), payload.end(), asked.local);
  asked.answered = true;
  conclude(asked.request.operation);
}

void RemoteRequests::onRefused(Asked& asked, RemoteRefusal refusal) {
  const std::uint64_t number = asked.request.operation;
  asked.answered = true;
  asked.failure = makeFailure(GLOO_ERROR_MSG(
      "Rank ", connection_.rank(), ": ", asked.isPut() ? "put to " : "get from ", connection_.describePeer(), " of ",
      asked.request.length, " bytes at offset ", asked.request.offset, " was refused: ", describe(refusal)));
  if (!asked.isPut() && asked.underWay) {
    asked.underWay = false;
    traffic_.cancelReceive(RemoteRole::kAsks, number);
  }
  // A put's data may be under way: the peer takes it in and drops it.
  conclude(number);
}

void RemoteRequests::onData(std::uint64_t number, std::size_t length) {
  const auto found = asked_.find(number);
  if (found == asked_.end() || !found->second.underWay) return;
  Asked& asked = found->second;
  asked.underWay = false;
  if (!asked.isPut()) {
    if (length != asked.request.length) {
      traffic_.violation("it sent less data than a get asked for");
      return;
    }
    // All that the program wants is here; the peer's word is still on its way.
    if (Operation* operation = std::exchange(asked.operation, nullptr)) connection_.finish(operation);
  }
  conclude(number);
}

void RemoteRequests::onUnexpectedData(std::uint64_t number, std::size_t length) {
  if (number == 0 || number >= nextNumber_ || length > longestGet_) {
    traffic_.violation("it sent data that no get asked for");
    return;
  }
  traffic_.drop(getDataKey(number), length);
}

void RemoteRequests::conclude(std::uint64_t number) {
  const auto found = asked_.find(number);
  if (found == asked_.end() || !found->second.answered || found->second.underWay) return;
  Operation* operation = found->second.operation;
  const Failure failure = std::move(found->second.failure);
  asked_.erase(found);
  if (operation != nullptr && failure) connection_.failOperation(operation, failure);
  if (operation != nullptr && !failure) connection_.finish(operation);
  askNext();
}

void RemoteRequests::withdraw(Operation& operation) {
  if (operation.remoteNumber == 0) {
    std::erase_if(queue_, [&](const Asked& asked) { return asked.operation == &operation; });
    return;
  }
  const std::uint64_t number = operation.remoteNumber;
  const auto found = asked_.find(number);
  if (found == asked_.end()) return;
  Asked& asked = found->second;
  asked.operation = nullptr;
  if (!asked.underWay) return;
  const bool put = asked.isPut(), answered = asked.answered;
  asked.underWay = false;
  if (!put) {
    traffic_.cancelReceive(RemoteRole::kAsks, number);
  } else if (traffic_.cancelSend(RemoteRole::kAsks, number) && !answered) {
    // Nothing had gone out, or the connection has failed.
    (void)traffic_.tell({.type = RemoteMessageType::kCancel, .operation = number}, {});
  }
  conclude(number);
}

void RemoteRequests::forget() {
  queue_.clear();
  asked_.clear();
}

}  // namespace gloo_bypass::adapter
