// A session after its handshake with a peer that the test plays; the test can send it anything.
#pragma once

#include <gtest/gtest.h>

#include "session_pair.h"
#include "transport/wire/packet.h"

namespace gloo_bypass::test {

class VictimSession : public ::testing::Test {
 protected:
  static constexpr std::uint64_t kMine = 7, kTheirs = 9;
  static constexpr std::uint32_t kFirst = 0xfffffff0u;  // so that the numbers wrap soon

  // `hello`: the peer's Hello, without its identity.
  VictimSession(const SessionConfig& config, std::size_t datagramBytes, wire::Hello hello)
      : session_(config, kTheirs, 1) {
    session_.connect(now_, kMine, datagramBytes);
    hello.senderId = kMine;
    hello.initialSequence = kFirst;
    hello.maxDatagramBytes = static_cast<std::uint32_t>(datagramBytes);
    wire::PacketHeader header = headerOf(wire::FrameType::kHello, 0);
    header.flags = wire::kFlagHelloSeen;
    writer_.begin(header);
    writer_.hello(hello);
    deliver();
    EXPECT_EQ(session_.state(), SessionState::kEstablished);
    SessionDatagram datagram;
    while (session_.pollTransmit(now_, &datagram)) {
      wire::ParsedPacket packet;
      EXPECT_EQ(wire::parsePacket(datagram.header, &packet), wire::ParseResult::kOk);
      acknowledged_ = packet.header.sequence;
    }
  }
  // The header of the peer's frame `ahead` behind its first one.
  wire::PacketHeader headerOf(wire::FrameType type, std::uint32_t ahead) const {
    wire::PacketHeader header;
    header.type = type;
    header.receiverId = kTheirs;
    header.sequence = kFirst + ahead;
    header.acknowledged = acknowledged_;
    header.byteLimit = 1 << 20;
    header.messageLimit = 65536;
    return header;
  }
  // Delivers the writer's header, and a payload behind it.
  void deliver(const Bytes& payload = {}) {
    const auto header = writer_.finish();
    Bytes bytes(header.begin(), header.end());
    bytes.insert(bytes.end(), payload.begin(), payload.end());
    session_.handleDatagram(now_, bytes);
  }
  void expectViolation() {
    ASSERT_EQ(session_.state(), SessionState::kFailed);
    EXPECT_EQ(session_.error().code, ErrorCode::kPeerViolatedProtocol) << session_.error().message;
    SessionDatagram datagram;
    ASSERT_TRUE(session_.pollTransmit(now_, &datagram));
    wire::ParsedPacket packet;
    ASSERT_EQ(wire::parsePacket(datagram.header, &packet), wire::ParseResult::kOk);
    EXPECT_EQ(packet.header.type, wire::FrameType::kReset);
    EXPECT_FALSE(session_.pollTransmit(now_, &datagram));
    EXPECT_LT(session_.memoryBytes(), 1u << 20);
  }

  TimePoint now_{seconds(5)};
  Session session_;
  wire::PacketWriter writer_;
  std::uint32_t acknowledged_ = 0;
};

}  // namespace gloo_bypass::test
