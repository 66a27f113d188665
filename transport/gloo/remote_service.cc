#include "transport/gloo/remote_service.h"

#include <algorithm>

#include "transport/gloo/remote_traffic.h"

namespace gloo_bypass::adapter {

// Whatever is given to the channel may complete, or fail the connection, before the call returns: then what was found
// in served_ may be gone.

// Both are inside their regions: no sum wraps.
bool RemoteService::Served::conflictsWith(const Served& other) const {
  if (request.region != other.request.region || (!isPut() && !other.isPut())) return false;
  return request.offset < other.request.offset + other.request.length &&
         other.request.offset < request.offset + request.length;
}

void RemoteService::onRequest(const RemoteMessage& request, std::span<const std::byte> payload) {
  if (request.operation != nextNumber_ || served_.size() >= kMaxRemoteOperations) {
    traffic_.violation("it asked for more puts and gets at once than a correct peer does, or out of turn");
    return;
  }
  ++nextNumber_;
  const ExposedMemory::Place place = memory_.find(request);
  if (place.refusal != RemoteRefusal::kNone) {
    (void)traffic_.tell({.type = RemoteMessageType::kRefused, .refusal = place.refusal, .operation = request.operation},
                        {});
    return;
  }
  memory_.begin(request.region);
  served_[request.operation] = {request, place.data, {payload.begin(), payload.end()}, false};
  startReady();
}

void RemoteService::startReady() {
  for (Iterator ready = firstReady(); ready != served_.end(); ready = firstReady()) start(ready->first);
}

RemoteService::Iterator RemoteService::firstReady() {
  for (Iterator candidate = served_.begin(); candidate != served_.end(); ++candidate) {
    if (candidate->second.started) continue;
    const bool waits = std::any_of(served_.begin(), candidate,
                                   [&](const auto& older) { return older.second.conflictsWith(candidate->second); });
    if (!waits) return candidate;
  }
  return served_.end();
}

void RemoteService::start(std::uint64_t number) {
  Served& served = served_.at(number);
  served.started = true;
  const auto length = static_cast<std::size_t>(served.request.length);
  std::byte* place = served.place;
  if (served.isShort()) {
    if (served.isPut()) std::copy(served.payload.begin(), served.payload.end(), place);
    const std::span<const std::byte> answered(place, served.isPut() ? 0 : length);
    answer(number, RemoteRefusal::kNone, answered);
  } else if (served.isPut()) {
    longestPut_ = std::max(longestPut_, served.request.length);
    if (!traffic_.receiveData(RemoteRole::kServes, number, putDataKey(number), place, length)) return;
    (void)traffic_.tell({.type = RemoteMessageType::kGo, .operation = number}, {});
  } else {
    (void)traffic_.sendData(RemoteRole::kServes, number, getDataKey(number), place, length);
  }
}

void RemoteService::answer(std::uint64_t number, RemoteRefusal refusal, std::span<const std::byte> payload) {
  const auto found = served_.find(number);
  if (found == served_.end()) return;
  memory_.end(found->second.request.region);
  served_.erase(found);
  const auto type = refusal == RemoteRefusal::kNone ? RemoteMessageType::kDone : RemoteMessageType::kRefused;
  (void)traffic_.tell({.type = type, .refusal = refusal, .operation = number}, payload);
}

void RemoteService::onData(std::uint64_t number, std::size_t length) {
  const auto found = served_.find(number);
  if (found == served_.end()) return;
  if (found->second.isPut() && length != found->second.request.length) {
    traffic_.violation("it sent less data than its put announced");
    return;
  }
  answer(number, RemoteRefusal::kNone);
  startReady();
}

void RemoteService::onCancel(std::uint64_t number) {
  const auto found = served_.find(number);
  const bool over = found == served_.end() && number < nextNumber_;  // refused, and that is on its way
  if (over) return;
  if (found == served_.end() || !found->second.started || !found->second.isPut()) {
    traffic_.violation("it cancelled a put or get that cannot be cancelled");
    return;
  }
  traffic_.cancelReceive(RemoteRole::kServes, number);
  answer(number, RemoteRefusal::kCancelled);
  startReady();
}

void RemoteService::onUnexpectedData(std::uint64_t number, std::size_t length) {
  if (number == 0 || number >= nextNumber_ || served_.contains(number) || length > longestPut_) {
    traffic_.violation("it sent data that no put announced");
    return;
  }
  traffic_.drop(putDataKey(number), length);
}

void RemoteService::conceal(std::uint64_t region) {
  const auto ofRegion = [&](const auto& item) { return item.second.request.region == region; };
  for (;;) {
    const auto found = std::find_if(served_.begin(), served_.end(), ofRegion);
    if (found == served_.end()) break;
    const std::uint64_t number = found->first;
    const bool started = found->second.started, put = found->second.isPut();
    if (started && put) traffic_.cancelReceive(RemoteRole::kServes, number);
    if (started && !put) (void)traffic_.cancelSend(RemoteRole::kServes, number);
    answer(number, RemoteRefusal::kMemoryGone);
  }
  startReady();
}

void RemoteService::forget() {
  for (const auto& [number, served] : served_) memory_.end(served.request.region);
  served_.clear();
}

}  // namespace gloo_bypass::adapter
