#include "transport/channel/operation_times.h"

#include <algorithm>

namespace gloo_bypass {
namespace {

OperationTimes::Times& timesOf(OperationTimes& all, std::size_t length) {
  return std::ranges::find_if(all.sizes, [length](const auto& size) { return length <= size.upTo; })->times;
}

}  // namespace

OperationTimes::Times* OperationTimes::peer(const std::string& name) {
  if (!peers.contains(name) && peers.size() >= kMaxTimedPeers) return nullptr;
  return &peers[name];
}

void OperationTimes::addSend(Times* peer, std::size_t length, Duration duration) {
  timesOf(*this, length).send.add(duration);
  if (peer != nullptr) peer->send.add(duration);
}

void OperationTimes::addReceive(Times* peer, std::size_t length, Duration duration) {
  timesOf(*this, length).receive.add(duration);
  if (peer != nullptr) peer->receive.add(duration);
}

}  // namespace gloo_bypass
