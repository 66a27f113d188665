#include "transport/channel/latency_recorder.h"

namespace gloo_bypass {
namespace {

struct SizeClass {
  std::size_t upTo;  // bytes, inclusive
  const char* name;
};
// 32 KiB is where rendezvous begins by default, 1 MiB the segment of Gloo's ring.
constexpr SizeClass kClasses[] = {{std::size_t{1} << 10, "up_to_1KiB"},
                                  {std::size_t{32} << 10, "up_to_32KiB"},
                                  {std::size_t{1} << 20, "up_to_1MiB"},
                                  {SIZE_MAX, "larger"}};

}  // namespace

std::size_t LatencyRecorder::classOf(std::size_t length) {
  static_assert(std::size(kClasses) == kSizeClasses);
  std::size_t i = 0;
  while (length > kClasses[i].upTo) ++i;
  return i;
}

LatencyRecorder::Peer* LatencyRecorder::peer(const std::string& name) {
  if (!peers_.contains(name) && peers_.size() >= kMaxTimedPeers) return nullptr;
  return &peers_[name];
}

void LatencyRecorder::addSend(Peer* peer, std::size_t length, Duration duration) {
  send_[classOf(length)].add(duration);
  if (peer != nullptr) peer->send.add(duration);
}

void LatencyRecorder::addReceive(Peer* peer, std::size_t length, Duration duration) {
  receive_[classOf(length)].add(duration);
  if (peer != nullptr) peer->receive.add(duration);
}

OperationTimes LatencyRecorder::report() const {
  OperationTimes times{.sizes = {}, .peers = {}, .connect = connect_};
  for (std::size_t i = 0; i < kSizeClasses; ++i) times.sizes.push_back({kClasses[i].name, send_[i], receive_[i]});
  for (const auto& [name, peer] : peers_) times.peers.push_back({name, peer.send, peer.receive});
  return times;
}

}  // namespace gloo_bypass
