// Data frames with short headers (kChunk, kGrantedChunk): their saving, and that nothing depends on their order.
#include <gtest/gtest.h>

#include <map>

#include "session_pair.h"
#include "transport/wire/crc32c.h"
#include "transport/wire/packet.h"
#include "victim_session.h"

namespace gloo_bypass::test {
namespace {

constexpr std::size_t kEthernet = 1472;

// A message of each side to the other, all posted at once.
class BothWays {
 public:
  BothWays(SessionPair& pair, std::size_t bytes)
      : pair_(pair), out_{pattern(bytes, 1), pattern(bytes, 2)}, in_{Bytes(bytes), Bytes(bytes)} {}

  void begin(std::uint64_t tag) {
    const MessageKey key{MessageKind::kUnbound, tag};
    Side* const sides[] = {&pair_.a, &pair_.b};
    for (std::size_t i = 0; i < 2; ++i) {
      std::fill(in_[i].begin(), in_[i].end(), std::byte{0});
      Session& from = *sides[i]->session;
      Session& to = *sides[1 - i]->session;
      ASSERT_TRUE(to.postReceive({.token = 1, .key = key, .data = in_[i].data(), .capacity = in_[i].size()}).ok());
      ASSERT_TRUE(from.postSend({.token = 2, .key = key, .data = out_[i].data(), .length = out_[i].size()}).ok());
    }
    ++begun_;
  }
  bool endsWithin(Duration limit) {
    const auto done = [this] { return pair_.a.receivesCompleted == begun_ && pair_.b.receivesCompleted == begun_; };
    return pair_.runUntil(done, limit) && in_[0] == out_[0] && in_[1] == out_[1];
  }

 private:
  SessionPair& pair_;
  const Bytes out_[2];
  Bytes in_[2];
  std::size_t begun_ = 0;
};

// Bytes of payload in each packet at an MTU of 1,500 bytes, IPv4's and UDP's headers included, from the message's
// second packet on.
TEST(Chunks, LongMessage_FullPacketsCarry1410BytesOfPayload) {
  for (const Duration delay : {Duration(microseconds(50)), Duration(milliseconds(25))}) {
    SessionPair pair(1, {}, WireModel{.delay = delay, .bytesPerSecond = 1e8});
    pair.connectBoth();
    BothWays traffic(pair, 8 << 20);
    std::uint64_t packets = 0, payload = 0;
    std::size_t least = kEthernet, firsts = 0;
    pair.onLeave = [&](bool, const Bytes& datagram) {
      wire::ParsedPacket packet;
      EXPECT_EQ(wire::parsePacket(datagram, &packet), wire::ParseResult::kOk);
      if (datagram.size() != kEthernet || packet.header.type == wire::FrameType::kProbe) return true;
      if (firsts < 2 && packet.header.type == wire::FrameType::kData) {
        ++firsts;
        return true;
      }
      ++packets;
      payload += packet.payload.size();
      least = std::min(least, packet.payload.size());
      return true;
    };
    traffic.begin(1);
    ASSERT_TRUE(traffic.endsWithin(seconds(30)));
    EXPECT_GT(packets, 2u * (8 << 20) / 1500);
    EXPECT_GE(least, 1410u);
    EXPECT_GE(payload, packets * 1410);
  }
}

// Changes a Hello to that of a version without chunks.
void forgetChunks(Bytes& datagram) {
  wire::ParsedPacket packet;
  wire::Hello hello;
  if (wire::parsePacket(datagram, &packet) != wire::ParseResult::kOk || packet.header.type != wire::FrameType::kHello)
    return;
  ASSERT_TRUE(wire::decodeHello(packet.body, &hello));
  ASSERT_NE(hello.capabilities & wire::kCapabilityChunks, 0);
  hello.capabilities &= static_cast<std::uint8_t>(~wire::kCapabilityChunks);
  wire::PacketWriter writer;
  writer.begin(packet.header);
  writer.hello(hello);
  const auto written = writer.finish();
  datagram.assign(written.begin(), written.end());
}

// Counts frames by type and side; hides side a's capability on request.
class Watch {
 public:
  Watch(SessionPair& pair, bool aIsOld) {
    pair.onLeave = [this, aIsOld](bool fromA, Bytes& datagram) {
      if (aIsOld && fromA) forgetChunks(datagram);
      wire::ParsedPacket packet;
      EXPECT_EQ(wire::parsePacket(datagram, &packet), wire::ParseResult::kOk);
      (wire::isChunk(packet.header.type) ? chunks : others)[fromA ? 0 : 1] += wire::isData(packet.header.type) ? 1 : 0;
      return !lose || !lose(fromA, packet);
    };
  }
  std::function<bool(bool fromA, const wire::ParsedPacket&)> lose;
  std::size_t chunks[2] = {}, others[2] = {};  // of data; from a, from b
};

TEST(Chunks, PeerThatKnowsNone_GetsNone) {
  for (const Duration delay : {Duration(microseconds(50)), Duration(milliseconds(10))}) {
    SessionPair pair(2, {}, WireModel{.delay = delay, .bytesPerSecond = 1e8});
    Watch watch(pair, true);
    pair.connectBoth();
    BothWays traffic(pair, 1 << 20);
    traffic.begin(1);
    ASSERT_TRUE(traffic.endsWithin(seconds(10)));
    EXPECT_EQ(watch.chunks[1], 0u);
    EXPECT_GT(watch.others[1], (1u << 20) / 1372);
    EXPECT_GT(watch.chunks[0], 700u);  // b knows them, and says so
  }
}

TEST(Chunks, MemoryLink_HasNone) {
  SessionConfig config;
  config.losslessLink = true;
  SessionPair pair(3, config, WireModel{.maxDatagramBytes = 32768});
  std::size_t chunks = 0;
  pair.onLeave = [&](bool, const Bytes& datagram) {
    wire::ParsedPacket packet;
    EXPECT_EQ(wire::parsePacket(datagram, &packet), wire::ParseResult::kOk);
    wire::Hello hello;
    if (wire::decodeHello(packet.body, &hello) && packet.header.type == wire::FrameType::kHello) {
      EXPECT_EQ(hello.capabilities & wire::kCapabilityChunks, 0);
    }
    chunks += wire::isChunk(packet.header.type) ? 1 : 0;
    return true;
  };
  pair.connectBoth();
  BothWays traffic(pair, 1 << 20);
  traffic.begin(1);
  ASSERT_TRUE(traffic.endsWithin(seconds(1)));
  EXPECT_EQ(chunks, 0u);
}

// The frame that describes a message (its kData or kAnnounce) is lost twice, and arrives long after the chunks.
TEST(Chunks, BeforeWhatDescribesTheirMessage_AreKept) {
  for (const std::size_t bytes : {20'000u, 1u << 20, 9u << 20}) {
    SCOPED_TRACE(bytes);
    SessionPair pair(4, {}, WireModel{.delay = milliseconds(10), .bytesPerSecond = 1e8});
    Watch watch(pair, false);
    std::map<std::pair<bool, std::uint32_t>, int> lost;
    watch.lose = [&](bool fromA, const wire::ParsedPacket& packet) {
      const bool describes =
          packet.header.type == wire::FrameType::kData || packet.header.type == wire::FrameType::kAnnounce;
      return describes && ++lost[{fromA, packet.header.sequence}] <= 2;
    };
    pair.connectBoth();
    BothWays traffic(pair, bytes);
    for (std::uint64_t tag = 1; tag <= 3; ++tag) traffic.begin(tag % 2);
    ASSERT_TRUE(traffic.endsWithin(seconds(60)));
    EXPECT_GE(lost.size(), 6u);
    EXPECT_GT(watch.chunks[0], watch.others[0]);
    // Nothing of it stays.
    EXPECT_EQ(pair.a.announced.size() + pair.b.announced.size(), 0u);
  }
}

// Old and new peers, every fault of a network, a path that shrinks and grows, with and without repair frames.
TEST(Chunks, FaultyNetworks_BitExact) {
  constexpr std::size_t carried[] = {8972, 1250, 1472, 1400, 8972};
  for (std::uint64_t seed = 1; seed <= 12; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    WireModel wire{.delay = seed % 2 == 0 ? Duration(microseconds(100)) : Duration(milliseconds(20))};
    wire.jitter = wire.delay;
    wire.loss = seed % 3 == 0 ? 0.1 : 0.01;
    wire.duplicate = wire.corrupt = 0.02;
    wire.refuseEvery = seed % 4 == 0 ? 5 : 0;
    wire.maxDatagramBytes = seed % 2 == 0 ? kEthernet : 8972;
    SessionConfig config;
    if (seed % 4 >= 2) config.repair.mode = Repair::Mode::kOn;
    SessionPair pair(seed, config, wire);
    Watch watch(pair, seed > 8);
    pair.connectBoth();
    BothWays traffic(pair, 300'000 + seed * 100'000);
    for (std::uint64_t tag = 1; tag <= 4; ++tag) {
      traffic.begin(tag);
      pair.runFor(3 * wire.delay);
      pair.wire.carriesBytes = carried[(seed + tag) % std::size(carried)];
      ASSERT_TRUE(traffic.endsWithin(seconds(60)));
    }
    EXPECT_GT(watch.chunks[0], 200u);
    EXPECT_EQ(watch.chunks[1] > 0, seed <= 8);
  }
}

// Chunks carry no limits. If both sides send little else, and have little more credit than the path holds, credit must
// still come in time: no later than with the limits in every frame.
TEST(Chunks, EagerPayloadBothWays_CreditComesInTime) {
  SessionConfig config;
  config.maxBufferBytes = 4 << 20;
  for (const Duration delay : {Duration(milliseconds(2)), Duration(milliseconds(25)), Duration(milliseconds(150))}) {
    Duration took[2];
    for (const bool old : {false, true}) {
      SessionPair pair(5, config, WireModel{.delay = delay, .bytesPerSecond = 1.25e7, .queueLimit = seconds(1)});
      pair.onLeave = [&](bool, Bytes& datagram) {
        if (old) forgetChunks(datagram);
        return true;
      };
      pair.connectBoth();
      ASSERT_TRUE(pair.runUntil([&] { return pair.established(); }));
      pair.runFor(seconds(1));
      BothWays traffic(pair, 3 << 20);
      const TimePoint start = pair.now;
      for (int i = 0; i < 16; ++i) traffic.begin(1);
      ASSERT_TRUE(traffic.endsWithin(seconds(60)));
      took[old ? 1 : 0] = pair.now - start;
    }
    EXPECT_LT(took[0], took[1]) << delay.count();
  }
}

wire::Hello peerWithChecksums() {
  wire::Hello hello;
  hello.payloadChecksum = 1;
  hello.capabilities = wire::kCapabilityChunks;
  return hello;
}

// The peer counts the frames that it sends.
class ChunkVictim : public VictimSession {
 protected:
  ChunkVictim() : VictimSession(SessionConfig{}, kEthernet, peerWithChecksums()) {}

  void chunk(std::uint64_t id, std::uint64_t offset, std::size_t bytes,
             wire::FrameType type = wire::FrameType::kChunk) {
    beginFrame(type, Bytes(bytes));
    writer_.chunkHeader({id, offset});
    deliver(Bytes(bytes));
  }
  void message(wire::FrameType type, std::uint64_t id, std::uint64_t total, std::uint64_t offset, std::size_t bytes) {
    beginFrame(type, Bytes(bytes));
    wire::MessageHeader header;
    header.id = id;
    header.totalLength = total;
    header.chunkOffset = offset;
    header.chunkLength = static_cast<std::uint16_t>(bytes);
    writer_.messageHeader(header);
    deliver(Bytes(bytes));
  }
  void beginFrame(wire::FrameType type, const Bytes& payload) {
    wire::PacketHeader header = headerOf(type, sent_++);
    header.flags = wire::kFlagPayloadChecksum;
    header.payloadCrc = wire::crc32c(payload);
    writer_.begin(header);
  }
  void receive(std::size_t bytes) {
    in_ = Bytes(bytes, std::byte{1});
    ASSERT_TRUE(
        session_.postReceive({.token = 5, .key = {MessageKind::kUnbound, 0}, .data = in_.data(), .capacity = bytes})
            .ok());
  }
  std::size_t completed() {
    std::size_t count = 0;
    for (SessionEvent event; session_.pollEvent(&event);)
      count += event.type == SessionEvent::Type::kReceiveComplete ? 1 : 0;
    return count;
  }
  void expectAlive() { EXPECT_EQ(session_.state(), SessionState::kEstablished) << session_.error().message; }

  Bytes in_;
  std::uint32_t sent_ = 0;
};

TEST_F(ChunkVictim, ChunksBeforeTheirMessagesHeader_AreReceived) {
  receive(3000);
  chunk(0, 1000, 1000);
  chunk(0, 2000, 1000);
  expectAlive();
  EXPECT_EQ(completed(), 0u);
  message(wire::FrameType::kData, 0, 3000, 0, 1000);
  expectAlive();
  EXPECT_EQ(completed(), 1u);
  EXPECT_EQ(in_, Bytes(3000));
}

// A peer leaves a hole and repeats another part until its bytes add up to the message's length: the message must not
// contain the memory's earlier content, another peer's message.
TEST_F(ChunkVictim, HoleThatIsNeverFilled_HoldsNothingOfOtherMessages) {
  constexpr std::size_t kBytes = 60'000, kPart = 1000;
  const auto send = [&](std::uint64_t id, bool withHole, std::byte value) {
    for (std::size_t i = 0; i < kBytes / kPart; ++i) {
      const Bytes part(kPart, value);
      beginFrame(wire::FrameType::kData, part);
      wire::MessageHeader header;
      header.id = id;
      header.totalLength = kBytes;
      header.chunkOffset = withHole ? kBytes - kPart : i * kPart;
      header.chunkLength = kPart;
      writer_.messageHeader(header);
      deliver(part);
    }
  };
  const auto expectIn = [&](std::byte before, std::byte last) {
    receive(kBytes);
    ASSERT_EQ(completed(), 1u) << session_.error().message;
    EXPECT_EQ(Bytes(in_.begin(), in_.end() - kPart), Bytes(kBytes - kPart, before));
    EXPECT_EQ(Bytes(in_.end() - kPart, in_.end()), Bytes(kPart, last));
  };
  send(0, false, std::byte{0xaa});
  expectIn(std::byte{0xaa}, std::byte{0xaa});
  send(1, true, std::byte{0xbb});
  expectIn(std::byte{0}, std::byte{0xbb});
}

// The message after it is there completely, and waits for the order.
TEST_F(ChunkVictim, MessageNotDescribedYet_LaterOnesWait) {
  receive(2000);
  chunk(0, 1000, 1000);
  message(wire::FrameType::kData, 1, 10, 0, 10);
  EXPECT_EQ(completed(), 0u);
  message(wire::FrameType::kData, 0, 2000, 0, 1000);
  expectAlive();
  EXPECT_EQ(completed(), 1u);
  EXPECT_EQ(in_, Bytes(2000));
}

TEST_F(ChunkVictim, AnnouncedMessageInChunksOnly_IsReceived) {
  receive(3000);
  message(wire::FrameType::kAnnounce, 0, 3000, 1000, 0);
  chunk(0, 0, 1000);
  chunk(0, 1000, 1000, wire::FrameType::kGrantedChunk);
  chunk(0, 2000, 1000, wire::FrameType::kGrantedChunk);
  expectAlive();
  EXPECT_EQ(completed(), 1u);
}

TEST_F(ChunkVictim, ChunkBeyondItsMessage_EndsTheSession) {
  message(wire::FrameType::kData, 0, 3000, 0, 1000);
  chunk(0, 2500, 501);
  expectViolation();
}
TEST_F(ChunkVictim, ChunkOffsetOverflows_EndsTheSession) {
  message(wire::FrameType::kData, 0, 3000, 0, 1000);
  chunk(0, ~0ull, 1);
  expectViolation();
}
TEST_F(ChunkVictim, ChunkTwice_EndsTheSession) {
  message(wire::FrameType::kData, 0, 3000, 0, 1000);
  chunk(0, 1000, 1400);
  chunk(0, 1000, 1400);
  expectViolation();
}
TEST_F(ChunkVictim, ChunkOfNoBytes_EndsTheSession) {
  message(wire::FrameType::kData, 0, 3000, 0, 1000);
  chunk(0, 1000, 0);
  expectViolation();
}
TEST_F(ChunkVictim, UndescribedChunkBeyondAnyMessage_EndsTheSession) {
  chunk(0, ~0ull, 1);
  expectViolation();
}
// Memory is allocated up to the highest byte.
TEST_F(ChunkVictim, UndescribedChunkBeyondTheCredit_EndsTheSession) {
  chunk(0, 1ull << 40, 1);
  expectViolation();
}
TEST_F(ChunkVictim, HeaderBelowChunksThatCameBefore_EndsTheSession) {
  chunk(0, 1000, 1000);
  message(wire::FrameType::kData, 0, 1999, 0, 999);
  expectViolation();
}
TEST_F(ChunkVictim, HeaderOfFewerBytesThanCameBefore_EndsTheSession) {
  chunk(0, 0, 1000);
  chunk(0, 0, 1000);
  message(wire::FrameType::kAnnounce, 0, 1999, 1000, 0);
  expectViolation();
}
TEST_F(ChunkVictim, MessageBeyondCredit_EndsTheSession) {
  chunk(65536, 0, 1);
  expectViolation();
}
TEST_F(ChunkVictim, MessageThatIsOver_EndsTheSession) {
  receive(10);
  message(wire::FrameType::kData, 0, 10, 0, 10);
  EXPECT_EQ(completed(), 1u);
  chunk(0, 0, 1);
  expectViolation();
}
TEST_F(ChunkVictim, GrantedChunkOfAnUnknownMessage_EndsTheSession) {
  chunk(0, 0, 1, wire::FrameType::kGrantedChunk);
  expectViolation();
}
TEST_F(ChunkVictim, GrantedChunkWithoutGrant_EndsTheSession) {
  message(wire::FrameType::kAnnounce, 0, 3000, 0, 0);
  chunk(0, 0, 1000, wire::FrameType::kGrantedChunk);
  expectViolation();
}
TEST_F(ChunkVictim, ChunkOfAWithdrawnMessage_EndsTheSession) {
  beginFrame(wire::FrameType::kWithdraw, {});
  writer_.number(0);
  deliver();
  chunk(0, 0, 1);
  expectViolation();
}
TEST_F(ChunkVictim, WithdrawalAfterAnUndescribedChunk_EndsTheSession) {
  chunk(0, 0, 1);
  beginFrame(wire::FrameType::kWithdraw, {});
  writer_.number(0);
  deliver();
  expectViolation();
}
TEST_F(ChunkVictim, ChunkWithoutTheAgreedChecksum_EndsTheSession) {
  writer_.begin(headerOf(wire::FrameType::kChunk, sent_++));
  writer_.chunkHeader({0, 0});
  deliver(Bytes(1));
  expectViolation();
}
TEST_F(ChunkVictim, MalformedChunk_EndsTheSession) {
  beginFrame(wire::FrameType::kChunk, {});
  writer_.chunkHeader({0, 0});
  writer_.size(1);
  deliver();
  expectViolation();
}

TEST_F(ChunkVictim, MoreUndescribedThanTheCredit_EndsTheSessionWithinTheBound) {
  for (std::uint64_t i = 0; session_.state() == SessionState::kEstablished && i < 10'000; ++i) {
    chunk(i % 1000, i / 1000 * 1400, 1400);
    ASSERT_LT(session_.memoryBytes(), 16u << 20);
  }
  expectViolation();
}

class LosslessChunkVictim : public VictimSession {
 protected:
  static SessionConfig config() {
    SessionConfig config;
    config.losslessLink = true;
    return config;
  }
  static wire::Hello hello() {
    wire::Hello hello;
    hello.lossless = 1;
    hello.capabilities = wire::kCapabilityChunks;
    return hello;
  }
  LosslessChunkVictim() : VictimSession(config(), 32768, hello()) {}
};

TEST_F(LosslessChunkVictim, ChunkThatWasNeverOffered_EndsTheSession) {
  writer_.begin(headerOf(wire::FrameType::kChunk, 0));
  writer_.chunkHeader({0, 0});
  deliver(Bytes(1));
  expectViolation();
}

}  // namespace
}  // namespace gloo_bypass::test
