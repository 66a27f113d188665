// Bytes that no correct peer sends: nothing crashes, nothing grows, and a violation addressed to a session ends it.
#include <gtest/gtest.h>

#include <functional>

#include "transport/base/sequence.h"
#include "transport/wire/crc32c.h"
#include "victim_session.h"

namespace gloo_bypass::test {
namespace {

SessionConfig lossless() {
  SessionConfig config;
  config.losslessLink = true;
  return config;
}

wire::Hello losslessPeer() {
  wire::Hello hello;
  hello.lossless = 1;
  return hello;
}

// The peer counts the frames that it sends.
class Victim : public VictimSession {
 protected:
  Victim() : VictimSession(lossless(), 32768, losslessPeer()) {}
  wire::PacketHeader makeHeader(wire::FrameType type) const { return headerOf(type, sent_); }
  void message(wire::FrameType type, const wire::MessageHeader& message, std::size_t payload = 0) {
    writer_.begin(makeHeader(type));
    writer_.messageHeader(message);
    ++sent_;
    deliver(Bytes(payload));
  }
  void number(wire::FrameType type, std::uint64_t value) {
    writer_.begin(makeHeader(type));
    writer_.number(value);
    ++sent_;
    deliver();
  }
  void expectAlive() { EXPECT_EQ(session_.state(), SessionState::kEstablished) << session_.error().message; }

  std::uint32_t sent_ = 0;
};

wire::MessageHeader header(std::uint64_t id, std::uint64_t total, std::uint64_t offset, std::uint16_t length) {
  wire::MessageHeader message;
  message.id = id;
  message.totalLength = total;
  message.chunkOffset = offset;
  message.chunkLength = length;
  return message;
}

TEST_F(Victim, CorrectMessage_IsStaged) {
  message(wire::FrameType::kData, header(0, 10, 0, 10), 10);
  expectAlive();
  EXPECT_EQ(session_.counters().stagedReceives, 1u);
}
TEST_F(Victim, ChunkBeyondMessage_Fails) {
  message(wire::FrameType::kData, header(0, 10, 5, 6), 6);
  expectViolation();
}
TEST_F(Victim, ChunkOffsetOverflows_Fails) {
  message(wire::FrameType::kData, header(0, 10, ~0ull, 6), 6);
  expectViolation();
}
TEST_F(Victim, ChunkLengthLies_Fails) {
  message(wire::FrameType::kData, header(0, 100, 0, 6), 7);
  expectViolation();
}
TEST_F(Victim, HugeMessage_Fails) {
  message(wire::FrameType::kData, header(0, ~0ull, 0, 6), 6);
  expectViolation();
}
TEST_F(Victim, HugeMessageLastByte_AllocatesNothing) {
  message(wire::FrameType::kData, header(0, 1ull << 40, (1ull << 40) - 1, 1), 1);
  expectViolation();
}
TEST_F(Victim, MessageIdBeyondCredit_Fails) {
  message(wire::FrameType::kData, header(65536, 1, 0, 1), 1);
  expectViolation();
}
TEST_F(Victim, MessageIdMaximal_Fails) {
  message(wire::FrameType::kData, header(~0ull, 1, 0, 1), 1);
  expectViolation();
}
TEST_F(Victim, FinishedMessageAgain_Fails) {
  std::byte in[4];
  ASSERT_TRUE(session_.postReceive({1, {}, in, 4}).ok());
  message(wire::FrameType::kData, header(0, 4, 0, 4), 4);
  expectAlive();
  message(wire::FrameType::kData, header(0, 4, 0, 4), 4);
  expectViolation();
}
TEST_F(Victim, ChunkTwice_Fails) {
  message(wire::FrameType::kData, header(0, 10, 0, 6), 6);
  message(wire::FrameType::kData, header(0, 10, 0, 6), 6);
  expectViolation();
}
TEST_F(Victim, ContradictoryChunks_Fail) {
  message(wire::FrameType::kData, header(0, 10, 0, 6), 6);
  message(wire::FrameType::kData, header(0, 11, 6, 4), 4);
  expectViolation();
}
TEST_F(Victim, UnknownKind_Fails) {
  wire::MessageHeader bad = header(0, 1, 0, 1);
  bad.kind = 2;
  message(wire::FrameType::kData, bad, 1);
  expectViolation();
}
TEST_F(Victim, PayloadWithoutGrant_Fails) {
  wire::MessageHeader bad = header(0, 100, 0, 1);
  bad.flags = wire::kFlagGranted;
  message(wire::FrameType::kData, bad, 1);
  expectViolation();
}
// What is staged counts against the credit, and what is granted does not: the one cannot fill a hole of the other.
TEST_F(Victim, GrantedPayloadInAHoleOfEagerPayload_Fails) {
  Bytes memory(100);
  message(wire::FrameType::kAnnounce, header(0, 100, 50, 0));
  message(wire::FrameType::kData, header(0, 100, 20, 30), 30);
  ASSERT_TRUE(session_.postReceive({.token = 1, .key = {}, .data = memory.data(), .capacity = memory.size()}).ok());
  expectAlive();
  wire::MessageHeader bad = header(0, 100, 0, 20);
  bad.flags = wire::kFlagGranted;
  message(wire::FrameType::kData, bad, 20);
  expectViolation();
}
TEST_F(Victim, StagedPartWithAHole_IsConsumedOnceItIsFull) {
  struct Consumed {
    Bytes times = Bytes(100);
  } consumed;
  const auto count = [](void* context, std::size_t offset, std::span<const std::byte> bytes) noexcept {
    for (std::size_t i = 0; i < bytes.size(); ++i) {
      std::byte& times = static_cast<Consumed*>(context)->times[offset + i];
      times = static_cast<std::byte>(static_cast<int>(times) + 1);
    }
  };
  Bytes memory(100);
  message(wire::FrameType::kData, header(0, 100, 20, 30), 30);
  ASSERT_TRUE(
      session_
          .postReceive(
              {.token = 1, .key = {}, .data = memory.data(), .capacity = memory.size(), .consumer = {count, &consumed}})
          .ok());
  EXPECT_EQ(consumed.times, Bytes(100));
  message(wire::FrameType::kData, header(0, 100, 50, 40), 40);
  message(wire::FrameType::kData, header(0, 100, 90, 10), 10);
  message(wire::FrameType::kData, header(0, 100, 0, 20), 20);
  expectAlive();
  EXPECT_EQ(consumed.times, Bytes(100, std::byte{1}));
  EXPECT_EQ(memory, Bytes(100));
  SessionEvent event;
  ASSERT_TRUE(session_.pollEvent(&event));
}
TEST_F(Victim, MoreThanCredit_Fails) {
  const std::size_t within = SessionConfig{}.shortPathEagerBytes / 32000;
  for (std::uint64_t i = 0; i <= within && session_.state() == SessionState::kEstablished; ++i) {
    message(wire::FrameType::kData, header(i, 32000, 0, 32000), 32000);
  }
  EXPECT_EQ(sent_, within + 1);
  expectViolation();
}
TEST_F(Victim, AnnouncedTwice_Fails) {
  message(wire::FrameType::kAnnounce, header(0, 100, 0, 0));
  expectAlive();
  message(wire::FrameType::kAnnounce, header(0, 100, 0, 0));
  expectViolation();
}
TEST_F(Victim, AnnouncedEmpty_Fails) {
  message(wire::FrameType::kAnnounce, header(0, 0, 0, 0));
  expectViolation();
}
TEST_F(Victim, GrantOfNothing_Fails) {
  number(wire::FrameType::kGrant, 0);
  expectViolation();
}
TEST_F(Victim, WithdrawalBeyondCredit_Fails) {
  number(wire::FrameType::kWithdraw, 70000);
  expectViolation();
}
TEST_F(Victim, WithdrawalsWithoutAnnouncement_AreBounded) {
  std::uint64_t id = 0;
  for (; session_.state() == SessionState::kEstablished && id < 100000; ++id) number(wire::FrameType::kWithdraw, id);
  EXPECT_EQ(id, 65537u);
  expectViolation();
}
TEST_F(Victim, AnnouncesAndWithdrawsWithoutEnd_IsBounded) {
  Bytes in(200'000);
  ASSERT_TRUE(session_.postReceive({.token = 1, .key = {}, .data = in.data(), .capacity = in.size()}).ok());
  std::uint64_t id = 0;
  for (; session_.state() == SessionState::kEstablished && id < 1'000'000; ++id) {
    message(wire::FrameType::kAnnounce, header(id, in.size(), 0, 0));
    number(wire::FrameType::kWithdraw, id);
  }
  EXPECT_EQ(id, 131'073u);
  expectViolation();
}
TEST_F(Victim, ClosedTwice_Fails) {
  sent_ = 1;  // a gap before, so that the first one waits
  number(wire::FrameType::kClose, 0);
  number(wire::FrameType::kClose, 0);
  expectViolation();
}
TEST_F(Victim, AcknowledgesTheFuture_Fails) {
  acknowledged_ += 100;
  message(wire::FrameType::kAnnounce, header(0, 100, 0, 0));
  expectViolation();
}
// The data may be gone from the user's buffer, and must not be read again.
TEST_F(Victim, GapReported_Fails) {
  const Bytes out(100);
  for (OperationToken i = 0; i < 5; ++i) {
    ASSERT_TRUE(session_.postSend({.token = i, .key = {}, .data = out.data(), .length = out.size()}).ok());
  }
  SessionDatagram datagram;
  while (session_.pollTransmit(now_, &datagram)) continue;
  writer_.begin(makeHeader(wire::FrameType::kAck));
  writer_.addSackRange({acknowledged_ + 3, acknowledged_ + 4});
  deliver();
  expectViolation();
}

class LossyVictim : public VictimSession {
 protected:
  LossyVictim() : VictimSession(lossy(), 1472, {}) {}
  static SessionConfig lossy() {
    SessionConfig config;
    config.payloadChecksum = PayloadChecksum::kOff;
    return config;
  }
};
TEST_F(LossyVictim, SackOfTheFuture_Fails) {
  writer_.begin(headerOf(wire::FrameType::kAck, 0));
  writer_.addSackRange({acknowledged_ + 5, acknowledged_ + 9});
  deliver();
  expectViolation();
}
TEST_F(LossyVictim, SackBackwards_Fails) {
  writer_.begin(headerOf(wire::FrameType::kAck, 0));
  writer_.addSackRange({acknowledged_ + 9, acknowledged_ + 5});
  deliver();
  expectViolation();
}
TEST_F(Victim, FarSequence_IsDropped) {
  sent_ = 200000;
  message(wire::FrameType::kData, header(0, 1, 0, 1), 1);
  expectAlive();
  EXPECT_EQ(session_.counters().invalidReceived, 1u);
}
TEST_F(Victim, WrongBodyLength_Fails) {
  writer_.begin(makeHeader(wire::FrameType::kData));
  writer_.number(5);
  deliver();
  expectViolation();
}
TEST_F(Victim, ForeignSession_IsDropped) {
  wire::PacketHeader other = makeHeader(wire::FrameType::kReset);
  other.receiverId = kTheirs + 1;
  writer_.begin(other);
  writer_.reason(1);
  deliver();
  expectAlive();
  EXPECT_EQ(session_.counters().invalidReceived, 1u);
}
TEST_F(Victim, HelloOfAStranger_IsDropped) {
  writer_.begin(makeHeader(wire::FrameType::kHello));
  wire::Hello hello;
  hello.senderId = 1234;
  hello.maxDatagramBytes = 1472;
  writer_.hello(hello);
  deliver();
  expectAlive();
}

// Well-formed datagrams with random fields and correct checksums: no crash, and bounded memory.
TEST(Hostile, RandomFields_NoCrash) {
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    std::mt19937_64 random(seed);
    SessionConfig network;
    network.payloadChecksum = PayloadChecksum::kOff;
    SessionPair pair(seed, seed % 2 == 0 ? lossless() : network);
    pair.connectBoth();
    ASSERT_TRUE(pair.runUntil([&] { return pair.established(); }));
    Bytes in(1000);
    for (OperationToken i = 0; i < 4; ++i)
      ASSERT_TRUE(pair.b.session->postReceive({i, {MessageKind::kUnbound, i}, in.data(), in.size()}).ok());
    const auto small = [&] { return random() % 4 == 0 ? random() : random() % 5; };
    std::uint32_t firstSequence = 0;
    {
      SessionDatagram datagram;
      ASSERT_TRUE(pair.a.session->postSend({1, {MessageKind::kUnbound, 99}, in.data(), 1}).ok());
      ASSERT_TRUE(pair.a.session->pollTransmit(pair.now, &datagram));
      wire::ParsedPacket packet;
      ASSERT_EQ(wire::parsePacket(datagram.header, &packet), wire::ParseResult::kOk);
      firstSequence = packet.header.sequence;
    }
    for (int i = 0; i < 200; ++i) {
      wire::PacketWriter writer;
      wire::PacketHeader header;
      constexpr wire::FrameType kTypes[] = {
          wire::FrameType::kHello,       wire::FrameType::kAck,    wire::FrameType::kProbe,
          wire::FrameType::kProbeReply,  wire::FrameType::kData,   wire::FrameType::kData,
          wire::FrameType::kAnnounce,    wire::FrameType::kGrant,  wire::FrameType::kWithdraw,
          wire::FrameType::kClose,       wire::FrameType::kCredit, wire::FrameType::kChunk,
          wire::FrameType::kGrantedChunk};
      header.type = kTypes[random() % std::size(kTypes)];
      header.receiverId = SessionPair::kIdB;
      header.flags = static_cast<std::uint8_t>(random() % 16) & static_cast<std::uint8_t>(~wire::kFlagPayloadChecksum);
      header.sequence = firstSequence + static_cast<std::uint32_t>(small());
      header.timestamp = static_cast<std::uint32_t>(random());
      header.byteLimit = small();
      header.messageLimit = static_cast<std::uint32_t>(small());
      writer.begin(header);
      wire::MessageHeader message{small(),
                                  small(),
                                  small() % 3000,
                                  small(),
                                  small(),
                                  static_cast<std::uint16_t>(small()),
                                  static_cast<std::uint8_t>(small() % 3),
                                  static_cast<std::uint8_t>(small() % 2)};
      if (header.type == wire::FrameType::kData || header.type == wire::FrameType::kAnnounce)
        writer.messageHeader(message);
      else if (wire::isChunk(header.type))
        writer.chunkHeader({message.id, message.chunkOffset});
      else if (header.type == wire::FrameType::kHello)
        writer.hello({small(), small(), small(), 0, 1472, 1, 0});
      else if (header.type != wire::FrameType::kCredit && header.type != wire::FrameType::kAck)
        writer.number(small());
      const auto span = writer.finish();
      Bytes bytes(span.begin(), span.end());
      if (wire::isData(header.type)) bytes.insert(bytes.end(), message.chunkLength % 3000u, std::byte{});
      pair.b.session->handleDatagram(pair.now, bytes);
      SessionDatagram out;
      for (int n = 0; n < 20 && pair.b.session->pollTransmit(pair.now, &out); ++n) {
      }
      pair.now += microseconds(random() % 1000);
      pair.b.session->handleTimeout(pair.now);
    }
    EXPECT_LT(pair.b.session->memoryBytes(), 8u << 20);
  }
}

}  // namespace
}  // namespace gloo_bypass::test
