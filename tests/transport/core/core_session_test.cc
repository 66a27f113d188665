// Two sessions against each other in virtual time.
#include <gtest/gtest.h>

#include <numeric>

#include "session_pair.h"
#include "transport/core/ack_tracker.h"

namespace gloo_bypass::test {
namespace {

SessionConfig lossless() {
  SessionConfig config;
  config.losslessLink = true;
  config.keepAlive = milliseconds(0);
  return config;
}

WireModel memoryLink() {
  WireModel wire;
  wire.maxDatagramBytes = 32768;
  return wire;
}

void send(Side& side, OperationToken token, MessageKey key, const Bytes& data) {
  ASSERT_TRUE(side.session->postSend({.token = token, .key = key, .data = data.data(), .length = data.size()}).ok());
}
void receive(Side& side, OperationToken token, MessageKey key, Bytes& data) {
  ASSERT_TRUE(
      side.session->postReceive({.token = token, .key = key, .data = data.data(), .capacity = data.size()}).ok());
}
MessageKey tag(std::uint64_t value) { return {MessageKind::kUnbound, value}; }

// Exchanges messages of all sizes in both directions, posted in the order of `receiveFirst`; bit-exact at the end.
void exchange(SessionPair& pair, int count, std::size_t maxLength, bool receiveFirst, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  struct Transfer {
    Bytes out, in;
    MessageKey key;
  };
  std::vector<Transfer> transfers[2];
  for (auto& list : transfers) {
    for (int i = 0; i < count; ++i) {
      const std::size_t length =
          i % 7 == 0 ? 0 : random() % (i % 3 == 0 ? maxLength : std::min<std::size_t>(maxLength, 3000));
      list.push_back({pattern(length, random()), Bytes(length), tag(random() % 5)});
    }
  }
  Side* sides[2] = {&pair.a, &pair.b};
  const auto post = [&](bool receives) {
    for (int s = 0; s < 2; ++s) {
      for (int i = 0; i < count; ++i) {
        Transfer& t = transfers[s][static_cast<std::size_t>(i)];
        if (receives)
          receive(*sides[1 - s], static_cast<OperationToken>(i), t.key, t.in);
        else
          send(*sides[s], static_cast<OperationToken>(i), t.key, t.out);
      }
    }
  };
  post(receiveFirst);
  if (!receiveFirst) pair.runFor(milliseconds(300));
  post(!receiveFirst);
  const auto n = static_cast<std::size_t>(count);
  ASSERT_TRUE(pair.runUntil(
      [&] {
        return pair.a.sendsCompleted == n && pair.b.sendsCompleted == n && pair.a.receivesCompleted == n &&
               pair.b.receivesCompleted == n;
      },
      seconds(600)))
      << pair.a.sendsCompleted << " " << pair.b.sendsCompleted << " " << pair.a.receivesCompleted << " "
      << pair.b.receivesCompleted << " states " << int(pair.a.session->state()) << " " << int(pair.b.session->state())
      << " " << (pair.a.session->state() == SessionState::kFailed ? pair.a.session->error().message : "") << " "
      << (pair.b.session->state() == SessionState::kFailed ? pair.b.session->error().message : "");
  for (const auto& list : transfers) {
    for (const Transfer& t : list) ASSERT_EQ(t.out, t.in);
  }
}

TEST(Session, BothConnect_BecomeEstablished) {
  SessionPair pair(1, lossless(), memoryLink());
  pair.connectBoth();
  ASSERT_TRUE(pair.runUntil([&] { return pair.established(); }, seconds(1)));
  EXPECT_EQ(pair.a.states, std::vector{SessionState::kEstablished});
}

// Timestamps wrap around after 275 s: behind a long silence a new one may look older than the last.
TEST(AckTracker, SilenceOfMinutes_NewTimestampIsEchoed) {
  constexpr std::int64_t kSilence = std::int64_t{150} * 1'000'000'000 / wire::kTickNanoseconds;
  AckTracker tracker(8, milliseconds(1));
  const TimePoint start{seconds(1)};
  const auto echo = [&](TimePoint at) {
    wire::PacketHeader header;
    tracker.fillHeader(at, &header);
    return header.timestampEcho;
  };
  tracker.onTimestamp(start, 1000);
  tracker.onTimestamp(start + milliseconds(1), 900);  // overtaken
  EXPECT_EQ(echo(start + milliseconds(1)), 1000u);
  const auto late = static_cast<std::uint32_t>(1000 + kSilence);
  ASSERT_LT(static_cast<std::int32_t>(late - 1000), 0);
  tracker.onTimestamp(start + seconds(150), late);
  EXPECT_EQ(echo(start + seconds(150)), late);
}

TEST(Session, HelloBeforeConnect_IsAnsweredOnConnect) {
  SessionPair pair(2, lossless(), memoryLink());
  pair.a.session->connect(pair.now, SessionPair::kIdB, 32768);
  pair.runFor(seconds(2));
  EXPECT_EQ(pair.b.session->state(), SessionState::kIdle);
  pair.b.session->connect(pair.now, SessionPair::kIdA, 32768);
  ASSERT_TRUE(pair.runUntil([&] { return pair.established(); }, milliseconds(5)));
}

TEST(Session, LosslessBothOrders_BitExact) {
  for (bool receiveFirst : {false, true}) {
    SessionPair pair(3, lossless(), memoryLink());
    pair.connectBoth();
    exchange(pair, 200, 300000, receiveFirst, 7);
    EXPECT_EQ(pair.a.session->counters().retransmits, 0u);
    EXPECT_EQ(pair.b.session->counters().retransmits, 0u);
  }
}

TEST(Session, PortRefusesDatagrams_NothingIsLost) {
  for (std::size_t every : {2, 3, 7}) {
    WireModel wire = memoryLink();
    wire.refuseEvery = every;
    SessionPair pair(4, lossless(), wire);
    pair.connectBoth();
    exchange(pair, 200, 300000, true, every);
    EXPECT_EQ(pair.a.session->counters().retransmits, 0u);
    EXPECT_GT(pair.a.refused, 50u);
  }
}

struct Faults {
  const char* name;
  WireModel wire;
};

TEST(Session, FaultyNetworks_BitExact) {
  std::vector<Faults> cases;
  cases.push_back({"loss 1 %", {.delay = microseconds(50), .loss = 0.01}});
  cases.push_back({"loss 30 %", {.delay = microseconds(50), .loss = 0.3}});
  cases.push_back({"duplicates", {.delay = microseconds(50), .duplicate = 0.3}});
  cases.push_back({"reordering", {.delay = microseconds(50), .jitter = microseconds(200)}});
  cases.push_back({"corruption", {.delay = microseconds(50), .corrupt = 0.05}});
  cases.push_back(
      {"all",
       {.delay = microseconds(100), .jitter = microseconds(300), .loss = 0.05, .duplicate = 0.05, .corrupt = 0.02}});
  cases.push_back({"long", {.delay = milliseconds(50), .loss = 0.01}});
  cases.push_back(
      {"long, all",
       {.delay = milliseconds(30), .jitter = milliseconds(20), .loss = 0.05, .duplicate = 0.05, .corrupt = 0.02}});
  cases.push_back({"narrow", {.delay = milliseconds(1), .bytesPerSecond = 1e7, .queueLimit = milliseconds(5)}});
  cases.push_back({"narrow, refusing",
                   {.delay = milliseconds(1),
                    .loss = 0.02,
                    .bytesPerSecond = 1e7,
                    .queueLimit = milliseconds(5),
                    .refuseEvery = 3}});
  for (const Faults& faults : cases) {
    for (std::uint64_t seed = 1; seed <= 3; ++seed) {
      SCOPED_TRACE(std::string(faults.name) + ", seed " + std::to_string(seed));
      SessionPair pair(seed, {}, faults.wire);
      pair.connectBoth();
      exchange(pair, 60, 200000, seed % 2 == 0, seed);
      if (HasFatalFailure()) return;
    }
  }
}

TEST(Session, UnreceivedMessage_DoesNotBlockOtherKeys) {
  SessionPair pair(5, lossless(), memoryLink());
  pair.connectBoth();
  // More than the eager credit, never received.
  std::vector<Bytes> stuck;
  for (int i = 0; i < 100; ++i) stuck.push_back(pattern(30000, 1));
  for (int i = 0; i < 100; ++i)
    send(pair.a, 1000 + static_cast<OperationToken>(i), tag(1), stuck[static_cast<std::size_t>(i)]);
  const Bytes large = pattern(5 << 20, 2), small = pattern(100, 3);
  send(pair.a, 1, tag(2), large);
  send(pair.a, 2, tag(3), small);
  Bytes in(large.size()), in2(small.size());
  pair.runFor(milliseconds(10));
  receive(pair.b, 1, tag(2), in);
  receive(pair.b, 2, tag(3), in2);
  ASSERT_TRUE(pair.runUntil([&] { return pair.b.receivesCompleted == 2; }, seconds(1)));
  EXPECT_EQ(in, large);
  EXPECT_EQ(in2, small);
  ASSERT_EQ(pair.b.announced.size(), 102u);
  EXPECT_EQ(pair.b.announced[0].key, tag(1));
  EXPECT_EQ(pair.b.announced[101].key, tag(3));
  // And the stuck ones still come, in order.
  std::vector<Bytes> late(100, Bytes(30000));
  for (int i = 0; i < 100; ++i)
    receive(pair.b, 100 + static_cast<OperationToken>(i), tag(1), late[static_cast<std::size_t>(i)]);
  ASSERT_TRUE(pair.runUntil([&] { return pair.b.receivesCompleted == 102; }, seconds(1)));
  for (const Bytes& bytes : late) ASSERT_EQ(bytes, stuck[0]);
}

TEST(Session, TenThousandTags_MemoryReturns) {
  SessionPair pair(6, lossless(), memoryLink());
  pair.connectBoth();
  const auto round = [&](std::uint64_t base) {
    const Bytes out = pattern(64, 1);
    for (std::uint64_t i = 0; i < 10000; ++i) {
      Bytes in(64);
      receive(pair.b, i, tag(base + i), in);
      send(pair.a, i, tag(base + i), out);
      pair.flush();
      if (i % 16 == 15)
        ASSERT_TRUE(pair.runUntil([&] { return pair.b.receivesCompleted == base + i + 1; }, seconds(1)));
      else
        ASSERT_TRUE(pair.runUntil([&] { return pair.b.receivesCompleted > base + i; }, seconds(1)));
    }
  };
  // Rings and pools reach their working size within the first rounds, depending on when acknowledgements arrive.
  round(0);
  round(10000);
  const std::size_t memory = pair.b.session->memoryBytes() + pair.a.session->memoryBytes();
  round(20000);
  EXPECT_LE(pair.b.session->memoryBytes() + pair.a.session->memoryBytes(), memory);
}

TEST(Session, PersistentReceive_PlacesAtOffsets) {
  SessionPair pair(7, lossless(), memoryLink());
  pair.connectBoth();
  const MessageKey key{MessageKind::kBound, 9};
  Bytes region(300000);
  const Bytes early = pattern(100000, 1), late = pattern(1000, 2);
  ASSERT_TRUE(pair.a.session->postSend({1, key, early.data(), early.size(), 200000}).ok());
  pair.runFor(milliseconds(1));
  ASSERT_TRUE(pair.b.session->postReceive({5, key, region.data(), region.size(), true}).ok());
  ASSERT_TRUE(pair.a.session->postSend({2, key, late.data(), late.size(), 17}).ok());
  ASSERT_TRUE(pair.runUntil([&] { return pair.b.receivesCompleted == 2; }, seconds(1)));
  EXPECT_TRUE(std::equal(early.begin(), early.end(), region.begin() + 200000));
  EXPECT_TRUE(std::equal(late.begin(), late.end(), region.begin() + 17));
  EXPECT_EQ(pair.b.received, (std::vector<OperationToken>{5, 5}));
  ASSERT_TRUE(pair.a.session->postSend({3, key, late.data(), late.size(), region.size() - 999}).ok());
  ASSERT_TRUE(pair.runUntil([&] { return pair.b.session->state() == SessionState::kFailed; }, seconds(1)));
  ASSERT_TRUE(pair.runUntil([&] { return pair.a.session->state() == SessionState::kFailed; }, seconds(1)));
}

TEST(Session, MessageLongerThanReceive_FailsBothSides) {
  SessionPair pair(8, lossless(), memoryLink());
  pair.connectBoth();
  const Bytes out = pattern(65, 1);
  Bytes in(64);
  receive(pair.b, 1, tag(1), in);
  send(pair.a, 1, tag(1), out);
  ASSERT_TRUE(pair.runUntil([&] { return pair.a.session->state() == SessionState::kFailed; }, seconds(1)));
  EXPECT_EQ(pair.b.session->error().code, ErrorCode::kMessageTooLong);
}

TEST(Session, SettingsDiffer_BothNameThem) {
  SessionConfig a, b;
  a.payloadChecksum = PayloadChecksum::kOn;
  b.payloadChecksum = PayloadChecksum::kOff;
  WireModel wire{.loss = 0.2};
  SessionPair pair(9, a, b, wire);
  pair.connectBoth();
  ASSERT_TRUE(pair.runUntil([&] {
    return pair.a.session->state() == SessionState::kFailed && pair.b.session->state() == SessionState::kFailed;
  }));
  EXPECT_EQ(pair.a.session->error().code, ErrorCode::kConfiguration);
  EXPECT_EQ(pair.b.session->error().code, ErrorCode::kConfiguration);
  EXPECT_NE(pair.a.session->error().message.find("on here and off"), std::string::npos)
      << pair.a.session->error().message;
}

struct Frames {
  std::uint64_t data = 0, checked = 0;
};
Frames overVerifiedLink(const SessionConfig& config, Duration delay) {
  SessionPair pair(11, config, WireModel{.delay = delay});
  pair.a.session->markVerified();
  pair.b.session->markVerified();
  pair.connectBoth();
  exchange(pair, 50, 100000, true, 5);
  return {pair.dataFrames, pair.checkedFrames};
}

TEST(Session, LinkChecksItself_ShortPath_NoChecksumOfOurs) {
  const Frames frames = overVerifiedLink({}, microseconds(20));
  EXPECT_GT(frames.data, 500u);
  EXPECT_EQ(frames.checked, 0u);
}

TEST(Session, LinkChecksItself_LongPath_PayloadIsCheckedAllTheSame) {
  const Frames frames = overVerifiedLink({}, milliseconds(10));
  EXPECT_GT(frames.data, 500u);
  EXPECT_EQ(frames.checked, frames.data);
}

TEST(Session, LinkChecksItself_ChecksumOnOrOff_AsConfigured) {
  SessionConfig config;
  config.payloadChecksum = PayloadChecksum::kOn;
  const Frames on = overVerifiedLink(config, microseconds(20));
  EXPECT_EQ(on.checked, on.data);
  config.payloadChecksum = PayloadChecksum::kOff;
  EXPECT_EQ(overVerifiedLink(config, milliseconds(10)).checked, 0u);
}

TEST(Session, LinkDoesNotCheckItself_PayloadIsChecked) {
  SessionPair pair(12, SessionConfig{}, WireModel{.delay = microseconds(20)});
  pair.connectBoth();
  exchange(pair, 50, 100000, true, 5);
  EXPECT_EQ(pair.checkedFrames, pair.dataFrames);
}

// Ranks on links of different kinds would not agree on the checksum either.
TEST(Session, OneEndOfTheLinkChecks_BothNameTheChecksum) {
  SessionPair pair(13);
  pair.a.session->markVerified();
  pair.connectBoth();
  ASSERT_TRUE(pair.runUntil([&] { return pair.a.session->state() == SessionState::kFailed; }));
  EXPECT_NE(pair.a.session->error().message.find("the payload checksum is off here"), std::string::npos)
      << pair.a.session->error().message;
}

TEST(Session, NobodyAnswers_ConnectTimesOut) {
  SessionConfig config;
  config.connectTimeout = seconds(3);
  SessionPair pair(10, config, WireModel{.loss = 1});
  pair.connectBoth();
  ASSERT_TRUE(pair.runUntil([&] { return pair.a.session->state() == SessionState::kFailed; }, milliseconds(3010)));
  EXPECT_EQ(pair.a.session->error().code, ErrorCode::kTimedOut);
}

TEST(Session, PeerVanishes_FailsAfterTimeout) {
  SessionConfig config;
  config.peerTimeout = seconds(5);
  SessionPair pair(11, config);
  pair.connectBoth();
  ASSERT_TRUE(pair.runUntil([&] { return pair.established(); }));
  pair.runFor(seconds(60));
  EXPECT_TRUE(pair.established());  // keep-alives hold it
  pair.wire.loss = 1;
  ASSERT_TRUE(pair.runUntil([&] { return pair.a.session->state() == SessionState::kFailed; }, milliseconds(6100)));
  EXPECT_EQ(pair.a.session->error().code, ErrorCode::kPeerVanished);
}

// As often as an attacker likes, or as a kernel answers each datagram.
class PortUnreachable : public ::testing::Test {
 protected:
  void SetUp() override {
    pair.connectBoth();
    ASSERT_TRUE(pair.runUntil([&] { return pair.established(); }));
    pair.runFor(milliseconds(10));
  }
  // Until a is told to give up; how long that took, at most `limit`.
  Duration tell(Duration interval, Duration limit) {
    const TimePoint begin = pair.now;
    while (pair.now - begin < limit) {
      if (pair.a.session->onPortUnreachable(pair.now)) break;
      pair.runFor(interval);
    }
    return pair.now - begin;
  }
  SessionPair pair{11, {}, WireModel{.delay = milliseconds(1)}};
};

TEST_F(PortUnreachable, PeerAnswers_SessionLivesHoweverOftenItIsSaid) {
  for (const Duration interval : {Duration(milliseconds(3)), Duration(milliseconds(400)), Duration(seconds(2))}) {
    EXPECT_GE(tell(interval, seconds(60)), seconds(60));
  }
  EXPECT_TRUE(pair.established());
}

TEST_F(PortUnreachable, PeerDoesNotAnswer_ItIsGoneAfterThreeSeconds) {
  for (const Duration interval : {Duration(milliseconds(3)), Duration(seconds(1))}) {
    pair.wire.loss = 1;
    const Duration took = tell(interval, seconds(60));
    EXPECT_GE(took, seconds(3));
    EXPECT_LE(took, seconds(4));
    pair.wire.loss = 0;
    pair.runFor(seconds(1));
  }
}

// A path that carries nothing for a while, and one forged message in that time.
TEST_F(PortUnreachable, SaidOnce_SessionLivesAsLongAsWithout) {
  pair.wire.loss = 1;
  EXPECT_FALSE(pair.a.session->onPortUnreachable(pair.now));
  pair.runFor(seconds(100));
  EXPECT_TRUE(pair.established());
}

TEST_F(PortUnreachable, IsSaid_PeerIsAskedAtOnceAndSomeTimesASecond) {
  pair.wire.loss = 1;
  std::size_t asked = 0;
  pair.onLeave = [&](bool fromA, Bytes&) {
    asked += fromA ? 1 : 0;
    return true;
  };
  EXPECT_FALSE(pair.a.session->onPortUnreachable(pair.now));
  pair.flush();
  EXPECT_EQ(asked, 1u);
  pair.runFor(milliseconds(2000));
  EXPECT_GE(asked, 8u);
  EXPECT_LE(asked, 10u);
}

// What the peer has sent meanwhile is read after the messages.
TEST_F(PortUnreachable, ThisProcessStoodStill_ThePeerIsAskedOnceMore) {
  EXPECT_FALSE(pair.a.session->onPortUnreachable(pair.now));
  pair.now += seconds(20);
  EXPECT_FALSE(pair.a.session->onPortUnreachable(pair.now));
  pair.runFor(milliseconds(200));
  EXPECT_GE(tell(milliseconds(100), seconds(10)), seconds(10));
}

TEST(Session, PortUnreachableBeforeThePeerIsHeard_ProvesNothing) {
  SessionPair pair(11, {}, WireModel{.loss = 1});
  pair.connectBoth();
  for (int i = 0; i < 100; ++i, pair.runFor(milliseconds(100))) {
    EXPECT_FALSE(pair.a.session->onPortUnreachable(pair.now));
  }
}

SessionState stateOf(const Side& side) { return side.session->state(); }

// No complete send may be in the sending process alone, since that may end.
TEST(Session, ShortSendThatThePortRefuses_CompletesOnceTaken) {
  for (const bool onMemory : {true, false}) {
    WireModel wire = onMemory ? memoryLink() : WireModel{};
    SessionPair pair(30, onMemory ? lossless() : SessionConfig{}, wire);
    pair.connectBoth();
    ASSERT_TRUE(pair.runUntil([&] { return pair.established(); }));
    pair.runFor(milliseconds(1));
    const Bytes out = pattern(3000, 1);
    pair.wire.refuseEvery = 1;
    send(pair.a, 1, tag(1), out);
    SessionDatagram datagram;
    for (int i = 0; i < 10 && pair.a.session->pollTransmit(pair.now, &datagram); ++i) {
      pair.a.session->undoTransmit();
    }
    SessionEvent event;
    EXPECT_FALSE(pair.a.session->pollEvent(&event));
    pair.wire.refuseEvery = 0;
    pair.flush();
    EXPECT_EQ(pair.a.sendsCompleted, 1u);
  }
}

TEST(Session, ShortSend_CompletesWhenSent_ConfirmedOneWhenAcknowledged) {
  SessionPair pair(31, {}, WireModel{.delay = microseconds(50)});
  pair.connectBoth();
  ASSERT_TRUE(pair.runUntil([&] { return pair.established(); }));
  pair.runFor(milliseconds(1));
  const Bytes out = pattern(3000, 1), none;
  send(pair.a, 1, tag(1), out);
  send(pair.a, 2, tag(1), none);
  pair.flush();
  EXPECT_EQ(pair.a.sendsCompleted, 2u);
  const auto confirmed = [&](OperationToken token, const Bytes& bytes) {
    const SendRequest request{
        .token = token, .key = tag(1), .data = bytes.data(), .length = bytes.size(), .confirmed = true};
    ASSERT_TRUE(pair.a.session->postSend(request).ok());
  };
  const TimePoint begin = pair.now;
  confirmed(3, out);
  confirmed(4, none);
  pair.flush();
  EXPECT_EQ(pair.a.sendsCompleted, 2u);
  ASSERT_TRUE(pair.runUntil([&] { return pair.a.sendsCompleted == 4; }));
  EXPECT_LT(pair.now - begin, microseconds(300));  // the acknowledgement was requested
  EXPECT_EQ(pair.b.session->counters().payloadBytesReceived, 6000u);
}

TEST(Session, ConfirmedSend_LossOfAll_NeverCompletes) {
  SessionPair pair(32, {});
  pair.connectBoth();
  ASSERT_TRUE(pair.runUntil([&] { return pair.established(); }));
  pair.wire.loss = 1;
  const Bytes out = pattern(100, 1);
  ASSERT_TRUE(
      pair.a.session->postSend({.token = 1, .key = tag(1), .data = out.data(), .length = out.size(), .confirmed = true})
          .ok());
  pair.runFor(seconds(10));
  EXPECT_EQ(pair.a.sendsCompleted, 0u);
  pair.wire.loss = 0;
  ASSERT_TRUE(pair.runUntil([&] { return pair.a.sendsCompleted == 1; }));
}

TEST(Session, CancelCopiedSend_GoesOnAndNobodyIsTold) {
  SessionPair pair(33, {});
  pair.connectBoth();
  Bytes out = pattern(3000, 1), in(3000);
  const Bytes want = out;
  send(pair.a, 1, tag(1), out);  // waits for the handshake
  EXPECT_FALSE(pair.a.session->cancelSend(1));
  std::fill(out.begin(), out.end(), std::byte{0});
  receive(pair.b, 1, tag(1), in);
  ASSERT_TRUE(pair.runUntil([&] { return pair.b.receivesCompleted == 1; }));
  EXPECT_EQ(in, want);
  EXPECT_EQ(pair.a.sendsCompleted, 0u);
}

// As over TCP: data in the socket's buffer can still be read after the peer has ended.
TEST(Session, PeerIsLost_WhatHadArrivedWhole_CanBeReceived) {
  for (const ErrorCode why : {ErrorCode::kPeerVanished, ErrorCode::kUnavailable, ErrorCode::kPeerViolatedProtocol}) {
    SessionPair pair(34, {});
    pair.connectBoth();
    ASSERT_TRUE(pair.runUntil([&] { return pair.established(); }));
    const Bytes first = pattern(3000, 1), second = pattern(500, 2), long1 = pattern(1 << 20, 3), none;
    send(pair.a, 1, tag(1), first);
    send(pair.a, 2, tag(1), second);
    send(pair.a, 3, tag(2), none);
    send(pair.a, 4, tag(3), long1);   // is announced only
    send(pair.a, 5, tag(3), second);  // so this one must not be taken for it
    pair.runFor(milliseconds(5));
    Bytes waits(100);
    receive(pair.b, 9, tag(9), waits);
    pair.b.session->fail({ErrorScope::kSession, why, "the link is down"});
    pair.flush();
    ASSERT_EQ(stateOf(pair.b), SessionState::kFailed);
    EXPECT_EQ(pair.b.receivesCompleted, 0u);
    Bytes in(3000), in2(500), in3(1 << 20);
    const auto post = [&](OperationToken token, MessageKey key, Bytes& into) {
      return pair.b.session->postReceive({token, key, into.data(), into.size()}).ok();
    };
    const bool lost = Error{.code = why}.isLoss();
    EXPECT_EQ(pair.b.session->oldestUnmatched(tag(1)).has_value(), lost);
    EXPECT_EQ(post(1, tag(1), in), lost);
    EXPECT_EQ(post(2, tag(1), in2), lost);
    EXPECT_EQ(post(3, tag(2), in3), lost);
    pair.flush();
    EXPECT_EQ(pair.b.receivesCompleted, lost ? 3u : 0u);
    EXPECT_EQ(std::pair(in, in2) == std::pair(first, second), lost);
    EXPECT_FALSE(post(4, tag(3), in3));
    EXPECT_FALSE(post(5, tag(1), in2));
    EXPECT_FALSE(pair.b.session->postSend({6, tag(1), in.data(), in.size()}).ok());
    pair.b.session->close(pair.now, false);
    EXPECT_FALSE(post(7, tag(1), in));
  }
}

// No message of its key could follow: a later receive would wait for ever.
TEST(Session, PeerIsLost_MessageThatDoesNotFit_IsTheLast) {
  SessionPair pair(35, {});
  pair.connectBoth();
  ASSERT_TRUE(pair.runUntil([&] { return pair.established(); }));
  const Bytes out = pattern(3000, 1);
  send(pair.a, 1, tag(1), out);
  send(pair.a, 2, tag(1), out);
  pair.runFor(milliseconds(5));
  pair.b.session->fail({ErrorScope::kSession, ErrorCode::kPeerVanished, "the link is down"});
  Bytes in(3000);
  const Status tooShort = pair.b.session->postReceive({1, tag(1), in.data(), 100});
  ASSERT_FALSE(tooShort.ok());
  EXPECT_EQ(tooShort.error().code, ErrorCode::kMessageTooLong);
  EXPECT_FALSE(pair.b.session->oldestUnmatched(tag(1)).has_value());
  EXPECT_FALSE(pair.b.session->postReceive({2, tag(1), in.data(), in.size()}).ok());
}

TEST(Session, Close_DeliversWhatWasSentFirst) {
  for (const double loss : {0.0, 0.2}) {
    SessionPair pair(12, {}, WireModel{.delay = microseconds(100), .loss = loss});
    pair.connectBoth();
    Bytes large = pattern(1 << 20, 1), small = pattern(500, 2);
    const Bytes wantLarge = large, wantSmall = small;
    Bytes in(large.size()), in2(small.size());
    send(pair.a, 1, tag(1), large);
    send(pair.a, 2, tag(2), small);
    receive(pair.b, 1, tag(1), in);
    ASSERT_TRUE(pair.runUntil([&] { return pair.established(); }));
    pair.a.session->close(pair.now, false);
    const std::size_t told = pair.a.events.size();
    std::fill(large.begin(), large.end(), std::byte{0});
    ASSERT_TRUE(pair.runUntil([&] { return pair.b.session->state() == SessionState::kPeerClosed; }, seconds(20)));
    EXPECT_EQ(pair.b.receivesCompleted, 1u);
    EXPECT_EQ(in, wantLarge);
    receive(pair.b, 2, tag(2), in2);  // had arrived before the close
    pair.flush();
    EXPECT_EQ(pair.b.receivesCompleted, 2u);
    EXPECT_EQ(in2, wantSmall);
    EXPECT_FALSE(pair.b.session->postReceive({3, tag(2), in2.data(), in2.size()}).ok());
    EXPECT_FALSE(pair.b.session->postSend({3, tag(2), in2.data(), in2.size()}).ok());
    pair.b.session->close(pair.now, false);
    ASSERT_TRUE(pair.runUntil([&] { return pair.a.session->drained() && pair.b.session->drained(); }, seconds(40)));
    EXPECT_EQ(pair.a.events.size(), told);  // nothing after close
  }
}

TEST(Session, BothClose_BothDrain) {
  for (std::uint64_t seed = 1; seed < 20; ++seed) {
    SessionPair pair(seed, {}, WireModel{.delay = microseconds(100), .loss = seed % 2 == 0 ? 0.3 : 0});
    pair.connectBoth();
    const Bytes out = pattern(100000, 1);
    Bytes in(out.size());
    send(pair.a, 1, tag(1), out);
    receive(pair.b, 1, tag(1), in);
    ASSERT_TRUE(pair.runUntil([&] { return pair.established(); }));
    pair.a.session->close(pair.now, false);
    pair.b.session->close(pair.now, false);
    ASSERT_TRUE(pair.runUntil([&] { return pair.a.session->drained() && pair.b.session->drained(); }, seconds(40)));
  }
}

TEST(Session, Abort_PeerFails) {
  SessionPair pair(13, lossless(), memoryLink());
  pair.connectBoth();
  ASSERT_TRUE(pair.runUntil([&] { return pair.established(); }));
  pair.a.session->close(pair.now, true);
  EXPECT_FALSE(pair.a.session->drained());
  ASSERT_TRUE(pair.runUntil([&] { return pair.b.session->state() == SessionState::kFailed; }, seconds(1)));
  EXPECT_TRUE(pair.a.session->drained());
}

TEST(Session, CancelReceive_BufferUntouchedMessageGoesOn) {
  SessionPair pair(14, lossless(), memoryLink());
  pair.connectBoth();
  Bytes first(1000), second(1000);
  const Bytes out = pattern(1000, 1);
  receive(pair.b, 1, tag(1), first);
  receive(pair.b, 2, tag(1), second);
  EXPECT_TRUE(pair.b.session->cancelReceive(1));
  EXPECT_FALSE(pair.b.session->cancelReceive(1));
  send(pair.a, 1, tag(1), out);
  ASSERT_TRUE(pair.runUntil([&] { return pair.b.receivesCompleted == 1; }, seconds(1)));
  EXPECT_EQ(second, out);
  EXPECT_EQ(first, Bytes(1000));
}

TEST(Session, CancelReceiveInTransit_RestIsThrownAway) {
  SessionPair pair(15, {}, WireModel{.delay = microseconds(100), .bytesPerSecond = 1e8});
  pair.connectBoth();
  Bytes in(1 << 20), next(100);
  const Bytes out = pattern(1 << 20, 1), small = pattern(100, 2);
  receive(pair.b, 1, tag(1), in);
  send(pair.a, 1, tag(1), out);
  ASSERT_TRUE(pair.runUntil([&] { return pair.b.session->counters().payloadBytesReceived > 100000; }));
  EXPECT_TRUE(pair.b.session->cancelReceive(1));
  const Bytes before = in;
  send(pair.a, 2, tag(1), small);
  receive(pair.b, 2, tag(1), next);
  ASSERT_TRUE(pair.runUntil([&] { return pair.b.receivesCompleted == 1 && pair.a.sendsCompleted == 2; }));
  EXPECT_EQ(next, small);
  EXPECT_EQ(in, before);
}

TEST(Session, CancelAnnouncedSend_NextMessageMatchesInstead) {
  SessionConfig config;
  config.longPathRtt = milliseconds(10);  // beyond it nothing is announced
  for (const bool posted : {false, true}) {
    for (std::uint64_t seed = 1; seed < 10; ++seed) {
      SessionPair pair(seed, config, WireModel{.delay = microseconds(100), .jitter = microseconds(100), .loss = 0.2});
      pair.connectBoth();
      ASSERT_TRUE(pair.runUntil([&] { return pair.established(); }));
      pair.runFor(milliseconds(50));
      const Bytes large = pattern(1 << 20, 1), other = pattern(200000, 2);
      Bytes in(1 << 20);
      if (posted) receive(pair.b, 1, tag(1), in);
      send(pair.a, 1, tag(1), large);
      pair.runFor(microseconds(50));
      ASSERT_TRUE(pair.a.session->cancelSend(1));
      send(pair.a, 2, tag(1), other);
      if (!posted) receive(pair.b, 1, tag(1), in);
      ASSERT_TRUE(pair.runUntil([&] { return pair.b.receivesCompleted == 1 && pair.a.sendsCompleted == 1; }));
      in.resize(other.size());
      EXPECT_EQ(in, other);
      EXPECT_TRUE(pair.established());
    }
  }
}

TEST(Session, CancelHalfSentSend_GoesOnAsACopyUnlessItIsTooLong) {
  for (const std::size_t room : {1u << 21, 1u << 19}) {
    SessionConfig config;
    config.maxBufferBytes = room;
    SessionPair pair(16, config, WireModel{.delay = microseconds(100), .bytesPerSecond = 1e8});
    pair.connectBoth();
    Bytes in(1 << 20), out = pattern(1 << 20, 1);
    const Bytes want = out;
    receive(pair.b, 1, tag(1), in);
    send(pair.a, 1, tag(1), out);
    ASSERT_TRUE(pair.runUntil([&] { return pair.b.session->counters().payloadBytesReceived > 100000; }));
    const bool fits = room > out.size();
    EXPECT_EQ(pair.a.session->cancelSend(1), !fits);
    std::fill(out.begin(), out.end(), std::byte{0});
    if (fits) {
      ASSERT_TRUE(pair.runUntil([&] { return pair.b.receivesCompleted == 1; }));
      EXPECT_EQ(in, want);
      EXPECT_TRUE(pair.established());
    } else {
      EXPECT_EQ(pair.a.session->state(), SessionState::kFailed);
      ASSERT_TRUE(pair.runUntil([&] { return pair.b.session->state() == SessionState::kFailed; }));
    }
    EXPECT_EQ(pair.a.sendsCompleted, 0u);
  }
}

// The session learns only at the next request for a datagram that the port has taken the last one.
TEST(Session, CancelSendThatThePortHasJustTaken_NoCompletionComes) {
  SessionPair pair(37, {});
  pair.connectBoth();
  ASSERT_TRUE(pair.runUntil([&] { return pair.established(); }));
  pair.runFor(milliseconds(5));
  const Bytes out = pattern(100, 1);
  ASSERT_TRUE(pair.a.session->postSend({1, tag(1), out.data(), out.size()}).ok());
  SessionDatagram datagram;
  ASSERT_TRUE(pair.a.session->pollTransmit(pair.now, &datagram));
  EXPECT_FALSE(pair.a.session->cancelSend(1));
  pair.runFor(milliseconds(500));
  EXPECT_EQ(pair.a.sendsCompleted, 0u);
}

// The last message is announced, for want of credit, and waits for room to be copied. It is withdrawn while its
// announcement is under way, and then the first ones make room.
TEST(Session, CancelSendThatWaitsForRoomOnALongPath_IsNotCopied) {
  constexpr int kLast = 60;
  SessionConfig config;
  config.maxBufferBytes = config.shortPathEagerBytes = 1 << 20;
  for (milliseconds after(0); after < milliseconds(1500); after += milliseconds(20)) {
    SessionPair pair(38, config, WireModel{.delay = milliseconds(50)});
    pair.connectBoth();
    ASSERT_TRUE(pair.runUntil([&] { return pair.established(); }));
    pair.runFor(seconds(1));
    const Bytes out = pattern(30'000, 1), other = pattern(100, 2);
    for (int i = 1; i <= kLast; ++i) send(pair.a, i, tag(i), out);
    pair.runFor(after);
    const bool cancelled = pair.a.session->cancelSend(kLast);
    pair.runFor(seconds(1));
    EXPECT_TRUE(pair.established());
    send(pair.a, kLast + 1, tag(kLast), other);
    std::vector<Bytes> in(kLast, Bytes(out.size()));
    for (int i = 1; i <= kLast; ++i) receive(pair.b, i, tag(i), in[static_cast<std::size_t>(i - 1)]);
    ASSERT_TRUE(pair.runUntil([&] { return pair.b.receivesCompleted == kLast; }));
    EXPECT_EQ(in[0], out);
    in.back().resize(cancelled ? other.size() : out.size());
    EXPECT_EQ(in.back(), cancelled ? other : out);
  }
}

// One way: another continent, the next town.
class SessionLongPath : public testing::TestWithParam<microseconds> {};

TEST_P(SessionLongPath, Send_CompletesWhenAllOfItHasGoneOut) {
  SessionPair pair(17, {}, WireModel{.delay = GetParam()});
  pair.connectBoth();
  ASSERT_TRUE(pair.runUntil([&] { return pair.established(); }));
  const Bytes out = pattern(1 << 20, 1);
  send(pair.a, 1, tag(1), out);
  pair.flush();
  EXPECT_EQ(pair.a.sendsCompleted, 0u);  // the window is shorter
  // The data flows although no receive is posted, and the sender does not wait for the last acknowledgements.
  ASSERT_TRUE(pair.runUntil([&] { return pair.a.sendsCompleted == 1; }, seconds(2)));
  EXPECT_LT(pair.b.session->counters().payloadBytesReceived, out.size());
  pair.runFor(seconds(2));
  EXPECT_EQ(pair.b.session->counters().payloadBytesReceived, out.size());
  Bytes in(out.size());
  receive(pair.b, 1, tag(1), in);
  pair.flush();
  EXPECT_EQ(pair.b.receivesCompleted, 1u);
  EXPECT_EQ(in, out);
}

INSTANTIATE_TEST_SUITE_P(OneWay, SessionLongPath, testing::Values(microseconds(50'000), microseconds(160)),
                         [](const auto& info) { return std::to_string(info.param.count()) + "us"; });

TEST(Session, JumboPath_IsFoundOut) {
  WireModel wire{.delay = microseconds(50), .maxDatagramBytes = 16000, .carriesBytes = 9000};
  SessionPair pair(18, {}, wire);
  pair.connectBoth();
  ASSERT_TRUE(pair.runUntil([&] { return pair.established(); }));
  pair.runFor(seconds(1));
  const Bytes out = pattern(1 << 20, 1);
  Bytes in(out.size());
  receive(pair.b, 1, tag(1), in);
  const auto before = pair.a.session->counters().packetsSent;
  send(pair.a, 1, tag(1), out);
  ASSERT_TRUE(pair.runUntil([&] { return pair.b.receivesCompleted == 1; }));
  EXPECT_EQ(in, out);
  EXPECT_LT(pair.a.session->counters().packetsSent - before, 200u);  // 118 of 8,972 bytes
}

// Delivers datagrams of `from` one by one; each is answered before the next is fetched.
void deliverOneByOne(TimePoint now, Session& from, Session& to, int limit) {
  SessionDatagram datagram;
  const auto carry = [&](Session& sender, Session& receiver) {
    if (!sender.pollTransmit(now, &datagram)) return false;
    Bytes bytes(datagram.header.begin(), datagram.header.end());
    bytes.insert(bytes.end(), datagram.payload.begin(), datagram.payload.end());
    receiver.handleDatagram(now, bytes);
    return true;
  };
  for (int i = 0; i < limit && carry(from, to); ++i) (void)carry(to, from);
}

TEST(Session, AcknowledgedBeforeSettled_SendStillCompletesAtHandOver) {
  const TimePoint now{std::chrono::seconds(1)};
  const SessionConfig config = lossless();
  Session a(config, 1, 11), b(config, 2, 22);
  a.connect(now, 2, 8192);
  b.connect(now, 1, 8192);
  deliverOneByOne(now, a, b, 4);
  deliverOneByOne(now, b, a, 4);
  ASSERT_EQ(a.state(), SessionState::kEstablished);
  const Bytes out = pattern(100000, 5);
  Bytes in(out.size());
  ASSERT_TRUE(b.postReceive({.token = 1, .key = tag(1), .data = in.data(), .capacity = in.size()}).ok());
  ASSERT_TRUE(a.postSend({.token = 7, .key = tag(1), .data = out.data(), .length = out.size()}).ok());
  // All but the last few chunks are acknowledged, on request here, before the sender looks again.
  SessionDatagram datagram;
  std::vector<Bytes> wire;
  const auto sent = [&] {
    SessionEvent event;
    while (a.pollEvent(&event)) {
      if (event.type == SessionEvent::Type::kSendComplete && event.token == 7) return true;
    }
    return false;
  };
  for (int chunk = 0; a.pollTransmit(now, &datagram); ++chunk) {
    Bytes bytes(datagram.header.begin(), datagram.header.end());
    bytes.insert(bytes.end(), datagram.payload.begin(), datagram.payload.end());
    b.handleDatagram(now, bytes);
    if (chunk >= 8) continue;
    // Any datagram from b acknowledges: a small message of its own.
    ASSERT_TRUE(
        b.postSend({.token = 100u + static_cast<OperationToken>(chunk), .key = tag(2), .data = nullptr, .length = 0})
            .ok());
    SessionDatagram answer;
    while (b.pollTransmit(now, &answer)) {
      Bytes back(answer.header.begin(), answer.header.end());
      a.handleDatagram(now, back);
    }
  }
  EXPECT_EQ(in, out);
  EXPECT_TRUE(sent()) << "the port has every byte";
}

TEST(Session, AbortedBeforeThePeerWasHeard_NothingIsLeftToSend) {
  const TimePoint now{std::chrono::seconds(1)};
  Session session(lossless(), 1, 11);
  session.connect(now, 2, 8192);
  session.close(now, true);
  EXPECT_TRUE(session.drained());
}

// A link that is not up yet accepts nothing.
TEST(Session, AbortedAfterThePortRefusedItsHello_NothingIsLeftToSend) {
  const TimePoint now{std::chrono::seconds(1)};
  Session session(lossless(), 1, 11);
  session.connect(now, 2, 8192);
  SessionDatagram datagram;
  ASSERT_TRUE(session.pollTransmit(now, &datagram));
  session.undoTransmit();
  session.close(now, true);
  EXPECT_TRUE(session.drained());
  EXPECT_FALSE(session.pollTransmit(now, &datagram));
}

// Its owner may free what the token leads to.
TEST(Session, CancelOfACompleteReceive_NoCompletionFollows) {
  SessionPair pair(1, lossless(), memoryLink());
  pair.connectBoth();
  const Bytes out = pattern(100, 1);
  Bytes in(100);
  send(pair.a, 1, tag(5), out);
  ASSERT_TRUE(pair.runUntil([&] { return !pair.b.announced.empty(); }));
  receive(pair.b, 2, tag(5), in);  // has its message
  EXPECT_FALSE(pair.b.session->cancelReceive(2));
  pair.runFor(milliseconds(10));
  EXPECT_EQ(pair.b.receivesCompleted, 0u);
}

// The receive that fails has no other completion, although a message before the wrong one fitted.
TEST(Session, PersistentReceiveMeetsAMessageThatDoesNotFit_NoCompletionFollows) {
  SessionPair pair(1, lossless(), memoryLink());
  pair.connectBoth();
  const MessageKey key{MessageKind::kBound, 5};
  const Bytes out = pattern(5, 1);
  for (const std::uint64_t offset : {0, 6}) {
    ASSERT_TRUE(
        pair.a.session
            ->postSend({.token = offset, .key = key, .data = out.data(), .length = out.size(), .remoteOffset = offset})
            .ok());
  }
  ASSERT_TRUE(pair.runUntil([&] { return pair.b.announced.size() == 2; }));
  Bytes region(10);
  const Status posted = pair.b.session->postReceive(
      {.token = 2, .key = key, .data = region.data(), .capacity = region.size(), .persistent = true});
  ASSERT_FALSE(posted.ok());
  EXPECT_EQ(posted.error().code, ErrorCode::kMessageTooLong);
  pair.runFor(milliseconds(10));
  EXPECT_EQ(pair.b.receivesCompleted, 0u);
}

// Which of the two ends how, in whose name its peer must hear of it.
class Session_LostReset : public ::testing::TestWithParam<bool> {};

TEST_P(Session_LostReset, IsSentAgainToAPeerThatGoesOn) {
  SessionPair pair(1);
  pair.connectBoth();
  ASSERT_TRUE(pair.runUntil([&] { return pair.established(); }));
  int resets = 0;
  pair.onLeave = [&](bool fromA, Bytes& datagram) {
    wire::ParsedPacket packet;
    if (!fromA || wire::parsePacket(datagram, &packet) != wire::ParseResult::kOk) return true;
    return packet.header.type != wire::FrameType::kReset || ++resets > 1;
  };
  const Bytes out = pattern(100, 1);
  if (GetParam()) {
    pair.a.session->close(pair.now, true);
  } else {
    pair.a.session->fail({ErrorScope::kSession, ErrorCode::kPeerViolatedProtocol, "nonsense"}, true);
  }
  send(pair.b, 1, tag(5), out);
  EXPECT_TRUE(pair.runUntil([&] { return pair.b.session->state() == SessionState::kFailed; }, seconds(3)));
  EXPECT_EQ(resets, 2);
  pair.runFor(seconds(10));
  EXPECT_EQ(resets, 2);
  EXPECT_TRUE(pair.a.session->drained());
}
INSTANTIATE_TEST_SUITE_P(OfAnAbortAndOfAFailure, Session_LostReset, ::testing::Bool());

}  // namespace
}  // namespace gloo_bypass::test
