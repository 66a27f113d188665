// Paths that change their MTU while messages are under way, in virtual time.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>

#include "session_pair.h"
#include "transport/core/handshake.h"
#include "transport/core/path_probe.h"
#include "transport/core/repair/frame_symbol.h"
#include "transport/wire/crc32c.h"
#include "victim_session.h"

namespace gloo_bypass::test {
namespace {

constexpr std::size_t kJumbo = 8972, kEthernet = 1472;

WireModel jumboPath() { return {.delay = microseconds(50), .bytesPerSecond = 1e9, .maxDatagramBytes = kJumbo}; }

// One message at a time, to and fro.
class Traffic {
 public:
  Traffic(SessionPair& pair, std::size_t bytes) : pair_(pair), out_(pattern(bytes, 1)), in_(bytes) {}

  void begin(bool forth) {
    Side& from = forth ? pair_.a : pair_.b;
    to_ = forth ? &pair_.b : &pair_.a;
    wanted_ = to_->receivesCompleted + 1;
    std::fill(in_.begin(), in_.end(), std::byte{0});
    const MessageKey key{MessageKind::kUnbound, 7};
    ASSERT_TRUE(to_->session->postReceive({.token = 1, .key = key, .data = in_.data(), .capacity = in_.size()}).ok());
    ASSERT_TRUE(from.session->postSend({.token = 2, .key = key, .data = out_.data(), .length = out_.size()}).ok());
  }
  bool endsWithin(Duration limit) {
    return pair_.runUntil([this] { return to_->receivesCompleted == wanted_; }, limit) && in_ == out_;
  }

 private:
  SessionPair& pair_;
  const Bytes out_;
  Bytes in_;
  Side* to_ = nullptr;
  std::size_t wanted_ = 0;
};

std::string why(const SessionPair& pair) {
  std::string text;
  for (const Side* side : {&pair.a, &pair.b}) {
    if (side->session->state() == SessionState::kFailed) text += side->session->error().message + "; ";
  }
  return text;
}

// Below 1,200 bytes it takes a second search: 1,200 is tried first.
TEST(PathMtu, ShrinksInMidMessage_TheMessageArrivesWithinASecondOrTwo) {
  for (const std::size_t carried :
       {kEthernet, std::size_t{1372}, std::size_t{1200}, std::size_t{1199}, std::size_t{972}, std::size_t{548}}) {
    const Duration limit = seconds(carried < 1200 ? 2 : 1);
    for (const Duration delay : {Duration(microseconds(50)), Duration(milliseconds(10))}) {
      SCOPED_TRACE(std::to_string(carried) + " bytes, " + std::to_string(delay.count()) + " ns");
      WireModel wire = jumboPath();
      wire.delay = delay;
      SessionPair pair(1, {}, wire);
      pair.connectBoth();
      Traffic traffic(pair, 8 << 20);
      traffic.begin(true);
      pair.runFor(5 * delay + milliseconds(2));
      ASSERT_EQ(pair.b.receivesCompleted, 0u);
      pair.wire.carriesBytes = carried;
      ASSERT_TRUE(traffic.endsWithin(limit + 100 * delay)) << why(pair);
      traffic.begin(false);
      ASSERT_TRUE(traffic.endsWithin(limit + 100 * delay)) << why(pair);
    }
  }
}

// Its loss probes leave together with the questions that are answered, so nothing overtakes it.
TEST(PathMtu, ShrinksBelowAFrameThatIsAlone_ItArrives) {
  for (const std::size_t bytes : {std::size_t{480}, std::size_t{1000}, std::size_t{1376}}) {
    for (const Duration delay : {Duration(microseconds(50)), Duration(milliseconds(3)), Duration(milliseconds(100))}) {
      SCOPED_TRACE(std::to_string(bytes) + " bytes, " + std::to_string(delay.count()) + " ns");
      WireModel wire;
      wire.delay = delay;
      SessionPair pair(1, {}, wire);
      pair.connectBoth();
      pair.runFor(seconds(1));
      pair.wire.carriesBytes = bytes + 90;
      Traffic traffic(pair, bytes);
      traffic.begin(true);
      ASSERT_TRUE(traffic.endsWithin(seconds(2) + 100 * delay)) << why(pair);
    }
  }
}

TEST(PathMtu, GrowsAgain_IsFoundWithinTheBackOff) {
  SessionPair pair(2, {}, jumboPath());
  pair.connectBoth();
  Traffic traffic(pair, 1 << 20);
  traffic.begin(true);
  ASSERT_TRUE(traffic.endsWithin(seconds(1)));
  EXPECT_EQ(pair.a.session->path().datagramBytes, kJumbo);
  pair.wire.carriesBytes = kEthernet;
  traffic.begin(true);
  ASSERT_TRUE(traffic.endsWithin(seconds(2))) << why(pair);
  pair.runFor(seconds(2));
  EXPECT_EQ(pair.a.session->path().datagramBytes, kEthernet);
  pair.wire.carriesBytes = kJumbo;
  pair.runFor(seconds(6));
  EXPECT_EQ(pair.a.session->path().datagramBytes, kJumbo);
  EXPECT_EQ(pair.b.session->path().datagramBytes, kJumbo);  // has lost nothing
  traffic.begin(true);
  ASSERT_TRUE(traffic.endsWithin(seconds(1))) << why(pair);
}

// The usual size needs no probe, and may be too large from the beginning: a tunnel.
TEST(PathMtu, SmallerThanTheUsualFromTheBeginning_IsFound) {
  for (const std::size_t carried : {std::size_t{1452}, std::size_t{1372}, std::size_t{1200}, std::size_t{1172},
                                    std::size_t{972}, std::size_t{548}}) {
    WireModel wire = jumboPath();
    wire.carriesBytes = carried;
    SessionPair pair(3, {}, wire);
    pair.connectBoth();
    Traffic traffic(pair, 1 << 20);
    traffic.begin(true);
    ASSERT_TRUE(traffic.endsWithin(seconds(2))) << carried << " " << why(pair);
    pair.runFor(seconds(1));
    EXPECT_EQ(pair.a.session->path().datagramBytes, carried);
  }
}

// A frame or two with nothing behind them: each is lost until the size is known.
TEST(PathMtu, SmallerThanTheUsualAndLittleToSend_IsFound) {
  for (const std::size_t carried : {std::size_t{1372}, std::size_t{872}, std::size_t{548}}) {
    for (const std::size_t bytes : {600, 1300, 2000, 5000}) {
      SCOPED_TRACE(std::to_string(bytes) + " bytes over " + std::to_string(carried));
      WireModel wire;
      wire.carriesBytes = carried;
      SessionPair pair(7, {}, wire);
      pair.connectBoth();
      Traffic traffic(pair, bytes);
      for (int i = 0; i < 3; ++i) {
        traffic.begin(i % 2 == 0);
        ASSERT_TRUE(traffic.endsWithin(seconds(3))) << i << " " << why(pair);
      }
    }
  }
}

// Messages in both directions, with all faults of a network, and frames of each size under way at each change.
TEST(PathMtu, ChangesAgainAndAgainUnderFaults_BitExact) {
  for (std::uint64_t seed = 1; seed <= 6; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    WireModel wire = jumboPath();
    wire.delay = seed % 2 == 0 ? Duration(microseconds(100)) : Duration(milliseconds(20));
    wire.jitter = wire.delay;
    wire.loss = seed % 3 == 0 ? 0.05 : 0.005;
    wire.duplicate = wire.corrupt = 0.01;
    wire.refuseEvery = seed < 4 ? 5 : 0;
    SessionConfig config;
    if (seed > 3) config.repair.mode = Repair::Mode::kOn;
    SessionPair pair(seed, config, wire);
    pair.connectBoth();
    Traffic traffic(pair, 2 << 20);
    const std::size_t carried[] = {8972, 1472, 4100, 1250, 8972, 1400, 560, 1472, 1000};
    for (int i = 0; i < 24; ++i) {
      traffic.begin(i % 3 != 0);
      pair.runFor(wire.delay * (i % 7));
      pair.wire.carriesBytes = carried[i % std::size(carried)];
      ASSERT_TRUE(traffic.endsWithin(seconds(60))) << "message " << i << ": " << why(pair);
    }
  }
}

// The bytes that repair frames add to a frame in flight do not count for the size under suspicion: small frames that
// arrive all the time prove nothing about larger ones.
TEST(PathMtu, ShrinksWhileCoveredSmallFramesArrive_IsFound) {
  SessionConfig config;
  config.repair = {.mode = Repair::Mode::kOn, .percent = Repair::kMostPercent};
  SessionPair pair(6, config, jumboPath());
  pair.connectBoth();
  ASSERT_TRUE(pair.runUntil([&] { return pair.a.session->path().datagramBytes == kJumbo; }, seconds(1)));
  pair.wire.carriesBytes = 1800;
  const Bytes small = pattern(1650, 1), large = pattern(1950, 2);
  Bytes smallIn(small.size()), largeIn(large.size());
  const auto exchange = [&](OperationToken token, const Bytes& out, Bytes& in) {
    const MessageKey key{MessageKind::kUnbound, token};
    ASSERT_TRUE(
        pair.b.session->postReceive({.token = token, .key = key, .data = in.data(), .capacity = in.size()}).ok());
    ASSERT_TRUE(pair.a.session->postSend({.token = token, .key = key, .data = out.data(), .length = out.size()}).ok());
  };
  constexpr OperationToken kSmall = 1, kLarge = 2;
  exchange(kLarge, large, largeIn);
  const auto arrived = [&] { return std::count(pair.b.received.begin(), pair.b.received.end(), kLarge) == 1; };
  for (int i = 0; i < 2000 && !arrived(); ++i) {
    exchange(kSmall, small, smallIn);
    pair.runFor(milliseconds(1));
  }
  ASSERT_TRUE(arrived()) << why(pair);
  EXPECT_EQ(largeIn, large);
  EXPECT_GT(pair.b.receivesCompleted, 1u);
}

// A queue that holds only a few large frames drops many in a row and lets small ones pass; the path has not changed.
TEST(PathMtu, LossesOfAFullQueue_LeaveTheSize) {
  WireModel wire = jumboPath();
  wire.bytesPerSecond = 2e7;
  wire.queueLimit = milliseconds(3);
  wire.loss = 0.02;
  SessionPair pair(4, {}, wire);
  pair.connectBoth();
  Traffic traffic(pair, 16 << 20);
  traffic.begin(true);
  pair.runFor(milliseconds(10));
  while (pair.b.receivesCompleted == 0) {
    ASSERT_LT(pair.now, TimePoint(seconds(1100))) << why(pair);
    pair.runFor(milliseconds(10));
    ASSERT_EQ(pair.a.session->path().datagramBytes, kJumbo);
  }
}

// IPv4 promises no more than 548 bytes in a datagram. Everything must fit: acknowledgements with all their ranges too.
TEST(PathMtu, NarrowFromTheBeginning_NoDatagramIsLonger) {
  for (const std::size_t carried : {std::size_t{1192}, std::size_t{972}, std::size_t{548}}) {
    for (std::uint64_t seed = 1; seed <= 4; ++seed) {
      SCOPED_TRACE(std::to_string(carried) + " bytes, seed " + std::to_string(seed));
      WireModel wire{.delay = milliseconds(seed % 2 == 0 ? 50 : 5), .bytesPerSecond = 1e9, .maxDatagramBytes = carried};
      wire.jitter = wire.delay;
      wire.loss = 0.1;
      SessionConfig config;
      if (seed > 2) config.repair.mode = Repair::Mode::kOn;
      SessionPair pair(seed, config, wire);
      std::size_t longest = 0;
      pair.onLeave = [&](bool, Bytes& datagram) {
        longest = std::max(longest, datagram.size());
        return true;
      };
      pair.connectBoth();
      Traffic traffic(pair, 4 << 20);
      for (int i = 0; i < 3; ++i) {
        traffic.begin(i % 2 == 0);
        ASSERT_TRUE(traffic.endsWithin(seconds(60))) << why(pair);
      }
      // One time in many all probes are lost: then it is found again once it is probed for growth, within 10 minutes.
      const auto found = [&] { return pair.a.session->path().datagramBytes == carried; };
      EXPECT_TRUE(pair.runUntil(found, seconds(700)));
      EXPECT_EQ(longest, carried);
    }
  }
}

TEST(PathMtu, SmallAtFirst_GrowsToWhatThePathCarries) {
  for (const std::size_t carried : {kJumbo, kEthernet, std::size_t{1200}}) {
    WireModel wire = jumboPath();
    wire.firstDatagramBytes = 1200;
    wire.carriesBytes = carried;
    SessionPair pair(5, {}, wire);
    pair.connectBoth();
    ASSERT_TRUE(pair.runUntil([&] { return pair.a.session->state() == SessionState::kEstablished; }, seconds(1)));
    EXPECT_EQ(pair.a.session->path().datagramBytes, 1200u);
    Traffic traffic(pair, 1 << 20);
    traffic.begin(true);
    ASSERT_TRUE(traffic.endsWithin(seconds(1))) << carried << " " << why(pair);
    pair.runFor(seconds(1));
    EXPECT_EQ(pair.a.session->path().datagramBytes, carried);
    EXPECT_EQ(pair.a.session->counters().retransmits, 0u);
  }
}

// The size in use is verified in between, and a reply to the last probe may still be on its way.
TEST(PathMtu, SearchIsInterruptedAtItsLastTry_ProbesOnceMoreAndKnowsALateReply) {
  constexpr Duration kTimeout = milliseconds(5);
  PathProbe probe;
  TimePoint now(seconds(1));
  probe.start(now, kEthernet, kJumbo);
  for (; probe.candidate() == kJumbo; now += kTimeout) {
    ASSERT_TRUE(probe.due(now));
    probe.onSent(now, kTimeout);
    if (now == TimePoint(seconds(1)) + 3 * kTimeout) break;
    (void)probe.onTimeout(now + kTimeout);
  }
  probe.suspect(now, kEthernet);
  for (int sent = 0; sent < 2; ++sent) probe.onSent(now, kTimeout);  // its companion is the first
  probe.onReply(now += milliseconds(1), kEthernet);
  EXPECT_FALSE(probe.onTimeout(now));
  EXPECT_EQ(probe.candidate(), kJumbo) << "dropped, with no time for a reply";
  EXPECT_TRUE(probe.due(now));
  probe.onReply(now, kJumbo);
  EXPECT_EQ(probe.confirmed(), kJumbo);
}

// Each search ends, however often it is interrupted.
TEST(PathMtu, SearchIsInterruptedAtItsLastTry_ItsCandidateIsDroppedAfterOneMore) {
  constexpr Duration kTimeout = milliseconds(5);
  PathProbe probe;
  TimePoint now(seconds(1));
  probe.start(now, kEthernet, 2048);
  for (int i = 0; i < 4; ++i) probe.onSent(now, kTimeout);
  probe.suspect(now, kEthernet);
  for (int sent = 0; sent < 2; ++sent) probe.onSent(now, kTimeout);  // its companion is the first
  probe.onReply(now, kEthernet);
  probe.onSent(now, kTimeout);
  EXPECT_FALSE(probe.onTimeout(now + kTimeout));
  EXPECT_EQ(probe.candidate(), 0u);
}

// On a lossy path a frame is lost twice every few seconds; the path may have become wide again all the same.
TEST(PathMtu, SizeIsVerifiedAgainAndAgain_NextSearchComesWhenItWasDue) {
  constexpr Duration kTimeout = milliseconds(5);
  PathProbe probe;
  TimePoint now(seconds(1));
  probe.start(now, kEthernet, 2048);
  while (probe.candidate() != 0) {
    if (probe.due(now)) probe.onSent(now, kTimeout);
    now += kTimeout;
    (void)probe.onTimeout(now);
  }
  const TimePoint due = probe.deadline();
  ASSERT_LE(due, now + seconds(5));
  for (now += seconds(1); now < due; now += seconds(1)) {
    probe.suspect(now, kEthernet);
    for (int sent = 0; sent < 2; ++sent) probe.onSent(now, kTimeout);
    probe.onReply(now + milliseconds(1), kEthernet);
    ASSERT_EQ(probe.deadline(), due);
  }
  EXPECT_FALSE(probe.onTimeout(due));
  EXPECT_EQ(probe.candidate(), 2048u);
}

// Verifies a size for some tries; whether the companions of its probes are answered. Returns how many probes that took.
int probesUntilShrunk(PathProbe& probe, TimePoint& now, bool answered, int most) {
  constexpr Duration kTimeout = milliseconds(20);
  probe.suspect(now, kJumbo);
  for (int probes = 0; probes < most; ++probes) {
    EXPECT_EQ(probe.candidate(), PathProbe::kSmallest);
    probe.onSent(now, kTimeout);
    EXPECT_TRUE(probe.due(now)) << "the probe follows at once";
    EXPECT_EQ(probe.candidate(), kJumbo);
    probe.onSent(now, kTimeout);
    if (answered) probe.onReply(now + milliseconds(1), PathProbe::kSmallest);
    now = probe.deadline();
    if (probe.onTimeout(now)) return probes + 1;
  }
  return most;
}

TEST(PathMtu, OnlyCompanionsOfProbesAreAnswered_PathIsNarrower) {
  for (const int tries : {PathProbe::kTries, PathProbe::kTriesToEnd}) {
    PathProbe probe;
    TimePoint now(seconds(1));
    probe.start(now, kJumbo, kJumbo, 0, tries);
    EXPECT_EQ(probesUntilShrunk(probe, now, true, 100), tries);
    EXPECT_EQ(probe.confirmed(), PathProbe::kUsualSmallest);
  }
}

TEST(PathMtu, NeitherProbesNorCompanionsAreAnswered_TriesBecomeRarerAndDoNotCount) {
  PathProbe probe;
  TimePoint now(seconds(1));
  probe.start(now, kJumbo, kJumbo);
  EXPECT_EQ(probesUntilShrunk(probe, now, false, 100), 100);
  EXPECT_EQ(probe.confirmed(), kJumbo);
  EXPECT_GT(now, TimePoint(seconds(90))) << "a second between two tries";
  EXPECT_EQ(probesUntilShrunk(probe, now, true, 100), PathProbe::kTries);
}

TEST(PathMtu, LinkTakesTheCompanionAlone_TryDoesNotCount) {
  PathProbe probe;
  TimePoint now(seconds(1));
  probe.start(now, kJumbo, kJumbo);
  probe.suspect(now, kJumbo);
  for (int i = 0; i < 100; ++i) {
    for (int sent = 0; sent < 2; ++sent) probe.onSent(now, milliseconds(20));
    probe.onNotSent();
    probe.onReply(now + milliseconds(1), PathProbe::kSmallest);
    now = probe.deadline();
    ASSERT_FALSE(probe.onTimeout(now)) << i;
  }
}

// Nothing else is under way that would show that the size is right.
TEST(PathMtu, PeerReceivesProbeAndCompanionAtOnce_SizeStaysInUse) {
  WireModel wire = jumboPath();
  wire.bytesPerSecond = 0;  // so they arrive at the same time, and the peer answers when it has both
  SessionPair pair(1, {}, wire);
  pair.connectBoth();
  const auto grown = [&] { return pair.a.session->path().datagramBytes == kJumbo; };
  ASSERT_TRUE(pair.runUntil(grown, seconds(10)));
  for (int i = 0; i < 20; ++i) {
    pair.a.session->suspectDatagramSize(pair.now, kJumbo);
    pair.runFor(milliseconds(500));
    ASSERT_TRUE(grown()) << i;
  }
}

wire::Hello helloWithChecksums() {
  wire::Hello hello;
  hello.payloadChecksum = 1;
  return hello;
}

class ProbedVictim : public VictimSession {
 protected:
  ProbedVictim() : VictimSession({}, kJumbo, helloWithChecksums()) {}
  void probe(std::size_t size) {
    writer_.begin(headerOf(wire::FrameType::kProbe, 0));
    writer_.size(static_cast<std::uint16_t>(size));
    deliver(Bytes(size - writer_.finish().size()));
  }
};

TEST_F(ProbedVictim, ProbeAndCompanionArriveTogether_TheLargerOneIsAnswered) {
  for (const auto& sizes : {std::array{kJumbo, PathProbe::kSmallest}, std::array{PathProbe::kSmallest, kJumbo}}) {
    for (const std::size_t size : sizes) probe(size);
    std::uint16_t answered = 0;
    SessionDatagram datagram;
    while (session_.pollTransmit(now_, &datagram)) {
      wire::ParsedPacket packet;
      ASSERT_EQ(wire::parsePacket(datagram.header, &packet), wire::ParseResult::kOk);
      if (packet.header.type != wire::FrameType::kProbeReply) continue;
      EXPECT_TRUE(wire::decodeSize(packet.body, &answered));
    }
    EXPECT_EQ(answered, kJumbo);
  }
}

// The peer's version knows no pieces; the path to it carries kEthernet.
class OldPeerVictim : public VictimSession {
 protected:
  OldPeerVictim() : VictimSession(SessionConfig{}, kJumbo, helloWithChecksums()) {}
  // Answers the first probe of a size; after that drops large datagrams and answers small ones, probes too.
  void answerSmallDatagrams() {
    SessionDatagram datagram;
    bool requested = false;
    std::uint32_t newest = 0;
    while (session_.pollTransmit(now_, &datagram)) {
      Bytes bytes(datagram.header.begin(), datagram.header.end());
      bytes.insert(bytes.end(), datagram.payload.begin(), datagram.payload.end());
      wire::ParsedPacket packet;
      ASSERT_EQ(wire::parsePacket(bytes, &packet), wire::ParseResult::kOk);
      const bool arrives = !shrunk_ || bytes.size() <= kEthernet;
      if (packet.header.type == wire::FrameType::kProbe && arrives) replyTo(packet);
      if (bytes.size() > kEthernet || (packet.header.flags & wire::kFlagAckRequested) == 0) continue;
      requested = true;
      newest = packet.header.timestamp;
    }
    if (!requested) return;
    wire::PacketHeader header = headerOf(wire::FrameType::kAck, 0);
    header.flags = wire::kFlagEcho;
    header.timestamp = ++stamp_;
    header.timestampEcho = newest;
    writer_.begin(header);
    deliver();
  }
  void replyTo(const wire::ParsedPacket& probe) {
    std::uint16_t size = 0;
    ASSERT_TRUE(wire::decodeSize(probe.body, &size));
    writer_.begin(headerOf(wire::FrameType::kProbeReply, 0));
    writer_.size(size);
    deliver();
    shrunk_ = true;
  }

 private:
  bool shrunk_ = false;
  std::uint32_t stamp_ = 0;
};

TEST_F(OldPeerVictim, PathShrinks_FailsSayingSo) {
  const Bytes out = pattern(20000, 1);
  bool posted = false;
  for (int i = 0; i < 10000 && session_.state() == SessionState::kEstablished; ++i) {
    if (!posted && session_.path().datagramBytes == kJumbo) {
      posted = true;
      ASSERT_TRUE(session_.postSend({.token = 1, .key = {}, .data = out.data(), .length = out.size()}).ok());
    }
    answerSmallDatagrams();
    now_ += milliseconds(1);
    session_.handleTimeout(now_);
  }
  ASSERT_EQ(session_.state(), SessionState::kFailed);
  EXPECT_NE(session_.error().message.find("set GLOO_BYPASS_MTU"), std::string::npos) << session_.error().message;
}

// Stopped, or cut off: that says nothing about the path.
TEST_F(OldPeerVictim, StandsStill_SessionGoesOn) {
  for (int i = 0; i < 1000 && session_.path().datagramBytes != kJumbo; ++i) {
    answerSmallDatagrams();
    now_ += milliseconds(1);
    session_.handleTimeout(now_);
  }
  ASSERT_EQ(session_.path().datagramBytes, kJumbo);
  session_.suspectDatagramSize(now_, kJumbo);
  int probes = 0;
  for (const TimePoint until = now_ + seconds(60); now_ < until; now_ += milliseconds(1)) {
    SessionDatagram datagram;
    while (session_.pollTransmit(now_, &datagram)) ++probes;
    session_.handleTimeout(now_);
    ASSERT_EQ(session_.state(), SessionState::kEstablished) << session_.error().message;
  }
  EXPECT_EQ(session_.path().datagramBytes, kJumbo);
  EXPECT_LT(probes, 200);
}

// The path from here is narrow, and such a peer sends nothing below 1,200 bytes.
TEST(PathMtu, NarrowWayAndAnOldPeer_OneLineSaysSo) {
  wire::Hello here, peer;
  here.maxDatagramBytes = 972;
  here.capabilities = wire::kCapabilitySmall;
  peer.maxDatagramBytes = kEthernet;
  const auto refused = compareSettings(here, peer);
  ASSERT_TRUE(refused);
  EXPECT_EQ(refused->code, ErrorCode::kConfiguration);
  EXPECT_EQ(refused->message,
            "the way from here carries datagrams of 972 bytes, and the peer's version needs 1200: install the same "
            "version on both ranks, or raise the MTU of the way");
  EXPECT_FALSE(compareSettings(peer, here)) << "the peer's own version decides";
  peer.capabilities = wire::kCapabilitySmall;
  EXPECT_FALSE(compareSettings(here, peer));
}

class PiecesVictim : public VictimSession {
 protected:
  PiecesVictim() : VictimSession(SessionConfig{}, kEthernet, helloWithChecksums()) {}
  void piece(const wire::PieceHeader& piece, const Bytes& payload) {
    wire::PacketHeader header = headerOf(wire::FrameType::kPiece, 0);
    header.flags = wire::kFlagPayloadChecksum;
    header.payloadCrc = wire::crc32c(payload);
    writer_.begin(header);
    writer_.pieceHeader(piece);
    deliver(payload);
  }
  void expectFrameAcknowledged() {
    EXPECT_EQ(session_.state(), SessionState::kEstablished) << session_.error().message;
    SessionDatagram datagram;
    ASSERT_TRUE(session_.pollTransmit(now_, &datagram));
    wire::ParsedPacket packet;
    ASSERT_EQ(wire::parsePacket(datagram.header, &packet), wire::ParseResult::kOk);
    EXPECT_EQ(packet.header.acknowledged, kFirst + 1);
  }
};

TEST_F(PiecesVictim, FrameInPieces_ArrivesOnce) {
  FrameSymbol credit;
  credit.type = wire::FrameType::kCredit;
  Bytes symbol(2 * wire::kPieceBytes + 10);
  credit.write(symbol);
  const auto part = [&](std::size_t i) {
    const auto begin = symbol.begin() + static_cast<std::ptrdiff_t>(i * wire::kPieceBytes);
    return Bytes(begin, i == 2 ? symbol.end() : begin + wire::kPieceBytes);
  };
  for (const std::size_t i : {2, 0, 0, 1, 1}) {
    piece({kFirst, static_cast<std::uint16_t>(symbol.size()), static_cast<std::uint8_t>(i)}, part(i));
  }
  expectFrameAcknowledged();
}

// A frame's usual pieces and its small ones; the usual ones were under way when the path shrank further.
TEST_F(PiecesVictim, FrameInPiecesOfBothSizes_ArrivesOnce) {
  FrameSymbol credit;
  credit.type = wire::FrameType::kCredit;
  Bytes symbol(65535);
  credit.write(symbol);
  const auto send = [&](bool small, std::size_t i) {
    const std::size_t most = wire::pieceBytes(small), begin = i * most;
    const Bytes part(symbol.begin() + static_cast<std::ptrdiff_t>(begin),
                     symbol.begin() + static_cast<std::ptrdiff_t>(std::min(begin + most, symbol.size())));
    piece({kFirst, static_cast<std::uint16_t>(symbol.size()), static_cast<std::uint8_t>(i), small}, part);
  };
  const std::size_t pieces = (symbol.size() + wire::kSmallPieceBytes - 1) / wire::kSmallPieceBytes;
  EXPECT_EQ(pieces, 136u);
  for (std::size_t i = 0; i < pieces; ++i) {
    if (i < 50) send(false, i);
    SessionDatagram none;
    EXPECT_FALSE(session_.pollTransmit(now_, &none)) << i;
    send(true, i);
  }
  expectFrameAcknowledged();
}

TEST_F(PiecesVictim, PieceOutsideItsFrame_EndsTheSession) {
  piece({kFirst, 2000, 2}, Bytes(1));
  expectViolation();
}

TEST_F(PiecesVictim, PieceOfTheLastIndex_EndsTheSession) {
  piece({kFirst, 65535, 255}, Bytes(wire::kPieceBytes));
  expectViolation();
}

TEST_F(PiecesVictim, PieceOfAnotherLength_EndsTheSession) {
  piece({kFirst, 2000, 1}, Bytes(2000 - wire::kPieceBytes + 1));
  expectViolation();
}

TEST_F(PiecesVictim, FrameChangesItsLength_EndsTheSession) {
  piece({kFirst, 3000, 0}, Bytes(wire::kPieceBytes));
  piece({kFirst, 3001, 1}, Bytes(wire::kPieceBytes));
  expectViolation();
}

TEST_F(PiecesVictim, PiecesThatGiveNoFrame_EndTheSession) {
  piece({kFirst, 100, 0}, Bytes(100, std::byte{0xff}));
  expectViolation();
}

TEST_F(PiecesVictim, NoPieceAtAll_EndsTheSession) {
  piece({kFirst, 0, 0}, {});
  expectViolation();
}

TEST_F(PiecesVictim, MalformedPiece_EndsTheSession) {
  writer_.begin(headerOf(wire::FrameType::kPiece, 0));
  writer_.size(1);
  deliver();
  expectViolation();
}

TEST_F(PiecesVictim, PiecesOfManyFrames_TakeBoundedMemory) {
  for (std::uint32_t i = 0; i < 10000; ++i) piece({kFirst + i, 65000, 0}, Bytes(wire::kPieceBytes));
  piece({kFirst + (1u << 20), 65000, 0}, Bytes(wire::kPieceBytes));  // outside the window
  EXPECT_EQ(session_.state(), SessionState::kEstablished) << session_.error().message;
  EXPECT_LT(session_.memoryBytes(), 2u << 20);
}

}  // namespace
}  // namespace gloo_bypass::test
