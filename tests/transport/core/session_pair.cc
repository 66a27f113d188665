#include "session_pair.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "transport/wire/packet.h"

namespace gloo_bypass::test {

Bytes pattern(std::size_t length, std::uint64_t seed) {
  Bytes bytes(length);
  std::uint64_t state = seed * 0x9e3779b97f4a7c15ull + 1;
  for (std::byte& byte : bytes) {
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    byte = static_cast<std::byte>(state >> 56);
  }
  return bytes;
}

SessionPair::SessionPair(std::uint64_t seed, const SessionConfig& configA, const SessionConfig& configB,
                         const WireModel& model)
    : wire(model), random_(seed) {
  a.session = std::make_unique<Session>(configA, kIdA, random_());
  b.session = std::make_unique<Session>(configB, kIdB, random_());
}

void SessionPair::connectBoth() {
  a.session->connect(now, kIdB, wire.maxDatagramBytes, wire.firstDatagramBytes);
  b.session->connect(now, kIdA, wire.maxDatagramBytes, wire.firstDatagramBytes);
}

void SessionPair::carry(Side& to, int direction, const SessionDatagram& datagram) {
  ++datagrams;
  Bytes bytes(datagram.header.begin(), datagram.header.end());
  bytes.insert(bytes.end(), datagram.payload.begin(), datagram.payload.end());
  wire::ParsedPacket packet;
  if (datagram.lasting && wire::parsePacket(bytes, &packet) == wire::ParseResult::kOk) {
    // The session soon overwrites payload that it has built itself.
    EXPECT_TRUE(wire::isData(packet.header.type) || datagram.payload.empty())
        << "type " << static_cast<int>(packet.header.type);
  }
  if (onLeave && !onLeave(direction == 0, bytes)) return;
  if (wire::parsePacket(bytes, &packet) == wire::ParseResult::kOk && wire::isData(packet.header.type)) {
    ++dataFrames;
    checkedFrames += (packet.header.flags & wire::kFlagPayloadChecksum) != 0 ? 1 : 0;
  }
  if (bytes.size() > wire.carriesBytes) return;
  std::uniform_real_distribution<double> chance(0, 1);
  TimePoint departs = now;
  if (wire.bytesPerSecond > 0) {
    TimePoint& busy = busyUntil_[direction];
    busy = std::max(busy, now);
    if (busy - now > wire.queueLimit) return;
    busy += Duration(static_cast<std::int64_t>(static_cast<double>(bytes.size()) * 1e9 / wire.bytesPerSecond));
    departs = busy;
  }
  if (chance(random_) < wire.loss) return;
  const int copies = chance(random_) < wire.duplicate ? 2 : 1;
  if (chance(random_) < wire.corrupt) bytes[random_() % bytes.size()] ^= static_cast<std::byte>(1 + random_() % 255);
  for (int i = 0; i < copies; ++i) {
    TimePoint at = departs + wire.delay;
    if (wire.jitter.count() > 0)
      at += Duration(static_cast<std::int64_t>(random_() % static_cast<std::uint64_t>(wire.jitter.count())));
    flights_.push({at, datagrams * 2 + static_cast<unsigned>(i), &to, bytes});
  }
}

bool SessionPair::flushSide(Side& side, Side& other, int direction) {
  bool any = false;
  SessionDatagram datagram;
  for (int burst = 0; burst < 100000 && side.session->pollTransmit(now, &datagram); ++burst) {
    ++side.transmits;
    if (wire.refuseEvery != 0 && side.transmits % wire.refuseEvery == 0) {
      ++side.refused;
      side.session->undoTransmit();
      continue;
    }
    carry(other, direction, datagram);
    any = true;
  }
  SessionEvent event;
  while (side.session->pollEvent(&event)) {
    any = true;
    side.events.push_back(event);
    switch (event.type) {
      case SessionEvent::Type::kSendComplete:
        ++side.sendsCompleted;
        break;
      case SessionEvent::Type::kReceiveComplete:
        ++side.receivesCompleted;
        side.received.push_back(event.token);
        break;
      case SessionEvent::Type::kMessageAnnounced:
        side.announced.push_back(event);
        break;
      case SessionEvent::Type::kStateChange:
        side.states.push_back(event.state);
        break;
    }
  }
  return any;
}

void SessionPair::flush() {
  while (flushSide(a, b, 0) | flushSide(b, a, 1)) {
  }
}

bool SessionPair::step(TimePoint end) {
  flush();
  TimePoint next = std::min(a.session->pollTimeout(), b.session->pollTimeout());
  if (!flights_.empty()) next = std::min(next, flights_.top().at);
  if (next > end) {
    now = end;
    return false;
  }
  now = std::max(now, next);
  while (!flights_.empty() && flights_.top().at <= now) {
    const Flight flight = flights_.top();
    flights_.pop();
    flight.to->session->handleDatagram(now, flight.bytes);
  }
  for (Side* side : {&a, &b}) {
    if (side->session->pollTimeout() <= now) side->session->handleTimeout(now);
  }
  flush();
  return true;
}

}  // namespace gloo_bypass::test
