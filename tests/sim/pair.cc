#include "tests/sim/pair.h"

#include <fmt/format.h>

#include <algorithm>

namespace gloo_bypass::sim {
namespace {

// Scoreboard, pools and tables: they grow with packets in flight and with open operations, not with time.
constexpr std::size_t kBookkeepingBytes = 16 << 20;

}  // namespace

std::size_t memoryBound(const SessionConfig& config, bool longPath) {
  if (longPath) return 2 * config.maxBufferBytes + kBookkeepingBytes;
  return 2 * config.shortPathEagerBytes + kBookkeepingBytes;
}

Pair::Pair(const PathModel& path, const SessionConfig& config, std::uint64_t seed)
    : linkForth(simulation, path.forth, seed * 4 + 1),
      linkBack(simulation, path.back, seed * 4 + 2),
      a(simulation, config, Random(seed * 8 + 1).next(), Random(seed * 8 + 2).next()),
      b(simulation, config, Random(seed * 8 + 3).next(), Random(seed * 8 + 4).next()),
      path_(path),
      config_(config) {
  a.attach(linkForth, b);
  b.attach(linkBack, a);
}

void Pair::connect() {
  a.connect(b, path_.maxDatagramBytes);
  b.connect(a, path_.maxDatagramBytes);
}

bool Pair::connectWithin(Duration limit) {
  connect();
  return simulation.runUntil(simulation.now() + limit, [this] {
    return a.session().state() == SessionState::kEstablished && b.session().state() == SessionState::kEstablished;
  });
}

void Pair::observe(Conversation* forth, Conversation* back) {
  a.setObserver([=](const SessionEvent& event) {
    if (forth != nullptr) forth->onSenderEvent(event);
    if (back != nullptr) back->onReceiverEvent(event);
  });
  b.setObserver([=](const SessionEvent& event) {
    if (back != nullptr) back->onSenderEvent(event);
    if (forth != nullptr) forth->onReceiverEvent(event);
  });
}

std::vector<std::string> Pair::audit(const Conversation& forth, const Conversation& back) const {
  std::vector<std::string> faults;
  const auto equal = [&](const char* what, std::uint64_t counted, std::uint64_t expected) {
    if (counted != expected) faults.push_back(fmt::format("{}: counted {}, expected {}", what, counted, expected));
  };
  const auto atMost = [&](const char* what, std::uint64_t counted, std::uint64_t bound) {
    if (counted > bound) faults.push_back(fmt::format("{}: {} is over {}", what, counted, bound));
  };
  const ChannelCounters ca = a.session().counters(), cb = b.session().counters();
  equal("packets sent by a", ca.packetsSent, linkForth.counters().offered - linkForth.counters().refused);
  equal("packets sent by b", cb.packetsSent, linkBack.counters().offered - linkBack.counters().refused);
  atMost("packets received by b", cb.packetsReceived, linkForth.counters().delivered);
  atMost("packets received by a", ca.packetsReceived, linkBack.counters().delivered);
  atMost("messages that arrived at b", forth.messagesDelivered(), cb.messagesReceived);
  atMost("messages that arrived at a", back.messagesDelivered(), ca.messagesReceived);
  atMost("messages received by b", cb.messagesReceived, ca.messagesSent);
  atMost("messages received by a", ca.messagesReceived, cb.messagesSent);
  atMost("payload received by b", cb.payloadBytesReceived, ca.payloadBytesSent);
  atMost("payload received by a", ca.payloadBytesReceived, cb.payloadBytesSent);
  const bool longPath =
      std::max(a.session().path().smoothedRtt, b.session().path().smoothedRtt) >= config_.longPathRtt / 2;
  atMost("memory of a", a.maxMemoryBytes(), memoryBound(config_, longPath));
  atMost("memory of b", b.maxMemoryBytes(), memoryBound(config_, longPath));
  return faults;
}

}  // namespace gloo_bypass::sim
