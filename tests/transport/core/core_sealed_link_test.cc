// Sessions on links that seal datagrams: no checksums, and room for the tag.
#include <gtest/gtest.h>

#include <algorithm>

#include "session_pair.h"
#include "transport/base/byte_order.h"

namespace gloo_bypass::test {
namespace {

SessionConfig sealed() {
  SessionConfig config;
  config.sealedLink = true;
  return config;
}

// Whether `count` messages of `length` bytes arrive as they were sent.
bool arrive(SessionPair& pair, std::size_t count, std::size_t length) {
  std::vector<Bytes> out, in;
  for (std::size_t i = 0; i < count; ++i) {
    out.push_back(pattern(length, i));
    in.emplace_back(length);
  }
  for (std::size_t i = 0; i < count; ++i) {
    EXPECT_TRUE(
        pair.b.session->postReceive({.token = i, .key = {.tag = 1}, .data = in[i].data(), .capacity = length}).ok());
    EXPECT_TRUE(
        pair.a.session->postSend({.token = i, .key = {.tag = 1}, .data = out[i].data(), .length = length}).ok());
  }
  return pair.runUntil([&] { return pair.b.receivesCompleted == count; }, seconds(600)) && in == out;
}

TEST(SealedLink, NeitherHeaderNorPayload_HasAChecksum) {
  for (const auto wanted : {PayloadChecksum::kAuto, PayloadChecksum::kOn}) {
    for (const Duration delay : {microseconds(5), microseconds(20'000)}) {
      SessionConfig config = sealed();
      config.payloadChecksum = wanted;
      SessionPair pair(1, config, {.delay = delay, .loss = 0.01, .maxDatagramBytes = 1456, .firstDatagramBytes = 1456});
      std::size_t seen = 0;
      pair.onLeave = [&](bool, Bytes& datagram) {
        EXPECT_EQ(loadLittle<std::uint32_t>(datagram.data() + 4), 0u);
        EXPECT_EQ(std::to_integer<unsigned>(datagram[16]) & wire::kFlagPayloadChecksum, 0u);
        ++seen;
        return true;
      };
      pair.connectBoth();
      EXPECT_TRUE(arrive(pair, 50, 100'000));
      EXPECT_GT(seen, 1000u);
    }
  }
}

TEST(SealedLink, LossReorderingAndRepairFrames_BitExact) {
  SessionConfig config = sealed();
  config.repair.mode = Repair::Mode::kOn;
  SessionPair pair(7, config,
                   {.delay = milliseconds(10),
                    .jitter = milliseconds(2),
                    .loss = 0.02,
                    .duplicate = 0.01,
                    .maxDatagramBytes = 1456,
                    .firstDatagramBytes = 1456});
  pair.connectBoth();
  EXPECT_TRUE(arrive(pair, 50, 200'000));
  EXPECT_GT(pair.b.session->counters().framesRecovered, 0u);
}

// The usual sizes of paths are those of sealed datagrams.
TEST(SealedLink, PathThatCarriesLess_UsesTheUsualSizeLessTheTag) {
  for (const std::size_t carries : {4068u, 1472u, 1372u}) {
    WireModel wire{.maxDatagramBytes = 8956, .firstDatagramBytes = 1184, .carriesBytes = carries - 16};
    SessionPair pair(3, sealed(), wire);
    pair.connectBoth();
    ASSERT_TRUE(pair.runUntil([&] { return pair.established(); }, seconds(1)));
    pair.runFor(seconds(4));
    EXPECT_EQ(pair.a.session->path().datagramBytes, carries - 16) << carries;
  }
}

TEST(SealedLink, WireBytes_CountTheTags) {
  SessionPair pair(1, sealed(), {.maxDatagramBytes = 1456, .firstDatagramBytes = 1456});
  std::size_t plain = 0;
  pair.onLeave = [&](bool fromA, Bytes& datagram) {
    if (fromA) plain += datagram.size();
    return true;
  };
  pair.connectBoth();
  EXPECT_TRUE(arrive(pair, 3, 50'000));
  const ChannelCounters counters = pair.a.session->counters();
  EXPECT_EQ(counters.wireBytesSent, plain + 16 * counters.packetsSent);
}

}  // namespace
}  // namespace gloo_bypass::test
