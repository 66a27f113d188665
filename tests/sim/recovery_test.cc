// Retransmissions and their times: a receiver that is only slow costs a few frames, a lost tail is back within two
// probe timeouts. Virtual time; the test chooses the losses, seeds the rest.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "tests/sim/pair.h"
#include "tests/sim/settings.h"
#include "tests/sim/stream.h"
#include "transport/wire/packet.h"

namespace gloo_bypass::sim {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr std::size_t kDatagramBytes = 1472;

LinkModel link(Duration oneWay, double bitsPerSecond) {
  LinkModel model;
  model.delay = oneWay;
  model.setBytesPerSecond(bitsPerSecond / 8);
  model.queueBytes = 1 << 20;
  return model;
}

// Passes only the datagrams that `passes` accepts.
class Gate final : public DatagramSink {
 public:
  explicit Gate(DatagramSink& to) : to_(to) {}
  void onDatagram(TimePoint now, std::span<const std::byte> datagram) override {
    wire::ParsedPacket packet;
    if (wire::parsePacket(datagram, &packet) != wire::ParseResult::kOk || !passes || passes(packet))
      to_.onDatagram(now, datagram);
  }
  std::function<bool(const wire::ParsedPacket&)> passes;

 private:
  DatagramSink& to_;
};

// Two hosts on a path, each behind a gate.
struct GatedPair {
  GatedPair(const LinkModel& model, std::uint64_t seed, const SessionConfig& config = {})
      : pair(PathModel::symmetric(model, kDatagramBytes), config, seed), toB(pair.b), toA(pair.a) {
    pair.a.attach(pair.linkForth, toB);
    pair.b.attach(pair.linkBack, toA);
  }
  bool connect() {
    if (!pair.connectWithin(seconds(10))) return false;
    pair.simulation.runFor(seconds(2));  // settle: probes of the path, the first acknowledgements
    return true;
  }

  Pair pair;
  Gate toB, toA;
};

// The first has endless data for the second.
struct StreamingPair : GatedPair {
  StreamingPair(const LinkModel& model, std::uint64_t seed)
      : GatedPair(model, seed), stream(pair.a, pair.b, 64 << 10, 64) {}
  bool streamFor(Duration time) {
    if (!connect()) return false;
    stream.start();
    pair.simulation.runFor(time);
    return true;
  }

  Stream stream;
};

struct StallCase {
  const char* name;
  Duration oneWay;
  double bitsPerSecond;
  Duration settle;  // until the window has its final size
};
class Stall : public testing::TestWithParam<StallCase> {};

// A receiver that waits for a core has lost nothing: its sender asks a few times and retransmits almost nothing.
TEST_P(Stall, FullWindowUnderWay_FewFramesAreSentAgain) {
  forEachSeed(5, 1, [](std::uint64_t seed) {
    SCOPED_TRACE("GLOO_BYPASS_SIM_SEED=" + std::to_string(seed));
    for (const Duration stall : {milliseconds(5), milliseconds(20), milliseconds(100)}) {
      StreamingPair streaming(link(GetParam().oneWay, GetParam().bitsPerSecond), seed);
      ASSERT_TRUE(streaming.streamFor(GetParam().settle + microseconds(Random(seed).below(2000))));
      Pair& pair = streaming.pair;
      const ChannelCounters before = pair.a.session().counters();
      pair.b.stop();
      pair.simulation.runFor(stall);
      pair.b.resume();
      const std::uint64_t resumedAt = streaming.stream.deliveredBytes();
      pair.simulation.runFor(milliseconds(200));
      const ChannelCounters after = pair.a.session().counters();
      ASSERT_EQ(pair.linkForth.edgeCounters().lostInQueue, 0u);
      EXPECT_GT(streaming.stream.deliveredBytes(), resumedAt + (256 << 10));
      EXPECT_LE(after.retransmits - before.retransmits, 4u) << "stopped for " << stall.count() / 1000 << " us";
      EXPECT_LE(pair.b.session().counters().duplicatesReceived, 8u);
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Paths, Stall,
                         testing::Values(StallCase{"Rack", microseconds(50), 1e9, milliseconds(200)},
                                         StallCase{"Metro", milliseconds(2), 2e8, seconds(1)},
                                         StallCase{"Region", milliseconds(10), 5e7, seconds(3)}),
                         [](const auto& info) { return info.param.name; });

constexpr std::size_t kFirstChunkBytes = kDatagramBytes - wire::dataHeaderBytes(wire::FrameType::kData);
constexpr std::size_t kChunkBytes = kDatagramBytes - wire::dataHeaderBytes(wire::FrameType::kChunk);

// The index of a full frame within its message; nullopt: not a frame of it.
std::optional<std::size_t> numberOf(const wire::ParsedPacket& packet) {
  wire::ChunkHeader chunk;
  if (packet.header.type == wire::FrameType::kData) return 0;
  if (!wire::isChunk(packet.header.type) || !wire::decodeChunkHeader(packet.body, &chunk)) return {};
  return 1 + static_cast<std::size_t>(chunk.offset - kFirstChunkBytes) / kChunkBytes;
}

// Sends one message of `frames` frames and drops the frames `lost` the first time: how much later is the message
// complete?
Duration delayOfLoss(Duration oneWay, std::uint64_t frames, const std::function<bool(std::uint64_t)>& isLost) {
  Duration took[2];
  for (const bool lossy : {false, true}) {
    GatedPair gated(link(oneWay, 1e9), 1);
    if (!gated.connect()) return Duration::max();
    Pair& pair = gated.pair;
    const std::size_t bytes = kFirstChunkBytes + (frames - 1) * kChunkBytes;
    std::vector<std::byte> data(bytes), sink(bytes);
    const MessageKey key{MessageKind::kUnbound, 1};
    bool received = false;
    pair.b.setObserver(
        [&](const SessionEvent& event) { received |= event.type == SessionEvent::Type::kReceiveComplete; });
    std::vector<bool> seen(frames, !lossy);
    gated.toB.passes = [&](const wire::ParsedPacket& packet) {
      const auto number = numberOf(packet);
      if (!number || seen[*number] || !isLost(*number)) return true;
      seen[*number] = true;
      return false;
    };
    const TimePoint start = pair.simulation.now();
    pair.b.operate([&](Session& session, TimePoint) {
      ASSERT_TRUE(session.postReceive({1, key, sink.data(), bytes, false}).ok());
    });
    pair.a.operate(
        [&](Session& session, TimePoint) { ASSERT_TRUE(session.postSend({1, key, data.data(), bytes, 0}).ok()); });
    if (!pair.simulation.runUntil(start + seconds(60), [&] { return received; })) return Duration::max();
    took[lossy ? 1 : 0] = pair.simulation.now() - start;
  }
  return took[1] - took[0];
}

// Twice the round trip, and the longest time for which a receiver may delay an acknowledgement.
constexpr Duration kAckDelay = milliseconds(1);
Duration probeTimeout(Duration oneWay) { return 4 * oneWay + kAckDelay; }

TEST(TailLoss, AnyLength_IsRepairedWithinTwoProbeTimeouts) {
  for (const Duration oneWay : {Duration(microseconds(50)), Duration(milliseconds(5)), Duration(milliseconds(100))}) {
    constexpr std::uint64_t kFrames = 12;
    for (const std::uint64_t lost : {1, 4, 12}) {
      const Duration delay = delayOfLoss(oneWay, kFrames, [&](std::uint64_t n) { return n >= kFrames - lost; });
      // The last frame before the loss may be acknowledged late, and the timeout runs from there.
      EXPECT_LE(delay, 2 * probeTimeout(oneWay) + kAckDelay) << oneWay.count() / 1000 << " us, " << lost << " frames";
      EXPECT_GE(delay, 2 * oneWay);  // they were lost
    }
  }
}

TEST(TailLoss, HolesBeforeTheTail_AreRepairedWithIt) {
  for (const Duration oneWay : {Duration(microseconds(50)), Duration(milliseconds(5)), Duration(milliseconds(100))}) {
    const Duration delay = delayOfLoss(oneWay, 12, [](std::uint64_t n) { return n == 2 || n >= 9; });
    EXPECT_LE(delay, 2 * probeTimeout(oneWay) + kAckDelay) << oneWay.count() / 1000 << " us";
  }
}

// Everything arrives, but for a while the sender gets no acknowledgements.
TEST(AcknowledgementsLost, ForFiftyMilliseconds_FewFramesAreSentAgain) {
  for (const Duration oneWay : {Duration(microseconds(50)), Duration(milliseconds(2))}) {
    StreamingPair streaming(link(oneWay, 2e8), 1);
    ASSERT_TRUE(streaming.streamFor(seconds(2)));
    Pair& pair = streaming.pair;
    const std::uint64_t before = pair.a.session().counters().retransmits;
    const TimePoint until = pair.simulation.now() + milliseconds(50);
    streaming.toA.passes = [&](const wire::ParsedPacket&) { return pair.simulation.now() >= until; };
    pair.simulation.runFor(milliseconds(50));
    const std::uint64_t delivered = streaming.stream.deliveredBytes();
    pair.simulation.runFor(seconds(1));
    EXPECT_LE(pair.a.session().counters().retransmits - before, 4u) << oneWay.count() / 1000 << " us";
    EXPECT_GT(streaming.stream.deliveredBytes(), delivered + (4 << 20));
  }
}

// Nothing gets through for a while, on every path: the window that was under way is lost, and traffic resumes soon
// after.
TEST(Outage, WholeWindowLost_TrafficGoesOn) {
  for (const Duration oneWay : {Duration(microseconds(50)), Duration(milliseconds(5)), Duration(milliseconds(50))}) {
    for (const Duration outage : {milliseconds(2), milliseconds(50), milliseconds(500)}) {
      StreamingPair streaming(link(oneWay, 1e8), 1);
      ASSERT_TRUE(streaming.streamFor(seconds(3)));
      Pair& pair = streaming.pair;
      const TimePoint until = pair.simulation.now() + outage;
      const auto open = [&](const wire::ParsedPacket&) { return pair.simulation.now() >= until; };
      streaming.toA.passes = streaming.toB.passes = open;
      pair.simulation.runFor(outage);
      const std::uint64_t before = streaming.stream.deliveredBytes();
      // The probe that gets through is at most as late as the outage was long.
      pair.simulation.runFor(outage + 2 * probeTimeout(oneWay) + 4 * oneWay + milliseconds(20));
      EXPECT_GT(streaming.stream.deliveredBytes(), before)
          << oneWay.count() / 1000 << " us, outage " << outage.count() / 1000;
      const std::uint64_t then = streaming.stream.deliveredBytes();
      pair.simulation.runFor(seconds(3));
      EXPECT_GT(static_cast<double>(streaming.stream.deliveredBytes() - then), 0.5 * 3 * 1e8 / 8);
    }
  }
}

}  // namespace
}  // namespace gloo_bypass::sim
