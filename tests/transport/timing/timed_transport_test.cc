// TimedTransport around real sessions on the loopback port.
#include "transport/timing/timed_transport.h"

#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/support/channel_pair.h"
#include "tests/support/loopback_port.h"

namespace gloo_bypass {
namespace {

class TimedPair : public test::ChannelPairTest {
 protected:
  void SetUp() override {
    TransportConfig config;
    config.histograms = Histograms::kOn;
    connect(makeTimedTransport(makeDatagramTransport(config, test::makeLoopbackPort(8192, 256))));
  }
  nlohmann::json latencies() { return counters().at("latencies"); }
  void exchange(OperationToken token, std::size_t size) {
    const std::vector<std::byte> out(size);
    std::vector<std::byte> in(size);
    exclusive([&] {
      ASSERT_TRUE(b->postReceive({.token = token, .key = {}, .data = in.data(), .capacity = size}).ok());
      ASSERT_TRUE(a->postSend({.token = token, .key = {}, .data = out.data(), .length = size}).ok());
    });
    ASSERT_TRUE(wait([&] { return atA.sent.contains(token) && atB.received.contains(token); }));
  }
};

TEST_F(TimedPair, MessagesOfFourSizes_EachIsCountedInItsClass) {
  exchange(1, 0);
  exchange(2, 1024);
  exchange(3, 1025);
  exchange(4, 32 << 10);
  exchange(5, 1 << 20);
  exchange(6, (1 << 20) + 1);
  const auto json = latencies();
  const std::map<std::string, int> expected = {{"up_to_1KiB", 2}, {"up_to_32KiB", 2}, {"up_to_1MiB", 1}, {"larger", 1}};
  for (const auto& [name, count] : expected) {
    EXPECT_EQ(json["send"][name]["count"], count) << name;
    EXPECT_EQ(json["receive"][name]["count"], count) << name;
    EXPECT_GT(json["receive"][name]["p50"], 0) << name;
  }
  EXPECT_EQ(json["connect"]["count"], 2);
  EXPECT_GT(json["rtt"]["count"], 0) << "the sessions' own samples";
}

TEST_F(TimedPair, OnePeerProcess_HasSendsAndReceivesUnderItsName) {
  exchange(1, 10);
  exchange(2, 10);
  const auto peers = latencies()["peers"];
  std::uint64_t sends = 0, receives = 0;
  for (const auto& peer : peers) {
    EXPECT_FALSE(peer["peer"].get<std::string>().empty());
    sends += peer["send"]["count"].get<std::uint64_t>();
    receives += peer["receive"]["count"].get<std::uint64_t>();
  }
  EXPECT_EQ(sends, 2u);
  EXPECT_EQ(receives, 2u);
}

TEST_F(TimedPair, Buckets_RiseToCountAndSumFits) {
  for (OperationToken token = 1; token <= 20; ++token) exchange(token, 100);
  const auto receive = latencies()["receive"]["up_to_1KiB"];
  EXPECT_EQ(receive["unit"], "us");
  std::uint64_t before = 0;
  double edge = 0;
  for (const auto& bucket : receive["buckets"]) {
    EXPECT_GT(bucket[0].get<double>(), edge);
    EXPECT_GE(bucket[1].get<std::uint64_t>(), before);
    edge = bucket[0];
    before = bucket[1];
  }
  EXPECT_EQ(before, 20u);
  EXPECT_NEAR(receive["sum"].get<double>() / 20, receive["mean"].get<double>(), 0.01);
  EXPECT_LE(receive["p50"], receive["p90"]);
  EXPECT_LE(receive["p99"], receive["max"]);
}

TEST_F(TimedPair, ReceiveThatIsCancelledOrPersistent_IsNotCounted) {
  std::vector<std::byte> in(8), out(8);
  exclusive([&] {
    ASSERT_TRUE(b->postReceive({.token = 1, .key = {}, .data = in.data(), .capacity = 8}).ok());
    EXPECT_TRUE(b->cancelReceive(1));
    EXPECT_FALSE(b->cancelReceive(1));
    const MessageKey bound{MessageKind::kBound, 3};
    ASSERT_TRUE(b->postReceive({.token = 2, .key = bound, .data = in.data(), .capacity = 8, .persistent = true}).ok());
    ASSERT_TRUE(a->postSend({.token = 3, .key = bound, .data = out.data(), .length = 8}).ok());
  });
  ASSERT_TRUE(wait([&] { return !atB.received.empty(); }));
  EXPECT_TRUE(atB.received.contains(2));
  EXPECT_EQ(atB.received.size(), 1u);
  EXPECT_EQ(latencies()["receive"]["up_to_1KiB"]["count"], 0);
}

TEST_F(TimedPair, PeerAborts_OperationsUnderWayAreForgottenAndOthersRefused) {
  std::vector<std::byte> in(8);
  exclusive([&] {
    ASSERT_TRUE(b->postReceive({.token = 1, .key = {}, .data = in.data(), .capacity = 8}).ok());
    a->close(true);
  });
  ASSERT_TRUE(wait([&] { return atB.state == ChannelState::kFailed; }));
  exclusive([&] { EXPECT_FALSE(b->postReceive({.token = 2, .key = {}, .data = in.data(), .capacity = 8}).ok()); });
  EXPECT_TRUE(atB.received.empty());
  EXPECT_EQ(latencies()["receive"]["up_to_1KiB"]["count"], 0);
}

TEST(TimedTransport_Config, Histograms_AreOnWhereNumbersAreAskedFor) {
  TransportConfig config;
  EXPECT_FALSE(measuresLatencies(config));
  config.metrics = "file:/x.prom";
  EXPECT_TRUE(measuresLatencies(config));
  config.histograms = Histograms::kOff;
  EXPECT_FALSE(measuresLatencies(config));
  config = {};
  config.histograms = Histograms::kOn;
  EXPECT_TRUE(measuresLatencies(config));
}

}  // namespace
}  // namespace gloo_bypass
