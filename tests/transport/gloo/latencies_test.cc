// How long sends, receives and connecting take: what the adapter records of two ranks over the loopback port.
#include <chrono>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <gloo/common/error.h>
#include <gloo/transport/buffer.h>
#include <gloo/transport/pair.h>
#include <gloo/transport/unbound_buffer.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/support/loopback_port.h"
#include "transport/compatibility/gloo/remote_key.h"
#include "transport/datagram/datagram_transport.h"
#include "transport/gloo/device.h"
#include "transport/process/report_json.h"
#include "transport/progress/progress_engine.h"

namespace gloo_bypass {
namespace {

constexpr auto kPatience = std::chrono::milliseconds(20000);
constexpr std::uint64_t kSlot = 5;

class Latencies : public ::testing::Test {
 protected:
  void SetUp() override {
    TransportConfig config;
    config.histograms = Histograms::kOn;
    transport_ = makeDatagramTransport(config, test::makeLoopbackPort(8192, 256)).value();
    transport_->measureLatencies();
    for (int rank = 0; rank < 2; ++rank) {
      contexts_[rank] = makeDevice(transport_)->createContext(rank, 2);
      contexts_[rank]->setTimeout(kPatience);
      (void)contexts_[rank]->createPair(1 - rank);
    }
    const auto pair = [this](int rank) -> auto& { return contexts_[rank]->getPair(1 - rank); };
    std::thread other([&] { pair(1)->connect(pair(0)->address().bytes()); });
    pair(0)->connect(pair(1)->address().bytes());
    other.join();
  }
  nlohmann::json latencies() {
    TransportReport report;
    transport_->progress().exclusive([&] {
      report = transport_->report();
      report.operations = *transport_->latencies();
    });
    return reportJson("test", report).at("latencies");
  }
  int count(const char* direction, const char* size) { return latencies()[direction][size]["count"]; }
  // From rank 0 to rank 1.
  void exchange(std::size_t size) {
    std::vector<std::byte> in(size), out(size);
    auto receiving = contexts_[1]->createUnboundBuffer(in.data(), size);
    auto sending = contexts_[0]->createUnboundBuffer(out.data(), size);
    receiving->recv(0, kSlot);
    sending->send(1, kSlot);
    EXPECT_TRUE(receiving->waitRecv());
    EXPECT_TRUE(sending->waitSend());
  }

  std::shared_ptr<Transport> transport_;
  std::shared_ptr<::gloo::transport::Context> contexts_[2];
};

TEST_F(Latencies, MessagesOfFourSizes_EachIsCountedInItsClass) {
  for (const std::size_t size : {0, 1024, 1025, 32 << 10, 1 << 20, (1 << 20) + 1}) exchange(size);
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

TEST_F(Latencies, OnePeerProcess_HasSendsAndReceivesUnderItsName) {
  exchange(10);
  exchange(10);
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

TEST_F(Latencies, Buckets_RiseToCountAndSumFits) {
  for (int i = 0; i < 20; ++i) exchange(100);
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

TEST_F(Latencies, ReceiveFromAny_IsMeasuredFromTheMatchOn) {
  int in = 0, out = 7;
  auto receiving = contexts_[1]->createUnboundBuffer(&in, sizeof(in));
  auto sending = contexts_[0]->createUnboundBuffer(&out, sizeof(out));
  receiving->recv(std::vector<int>{0}, kSlot);
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  const TimePoint before = monotonicNow();
  sending->send(1, kSlot);
  EXPECT_TRUE(receiving->waitRecv());
  const std::chrono::duration<double, std::micro> most = monotonicNow() - before;
  const auto receive = latencies()["receive"]["up_to_1KiB"];
  EXPECT_EQ(receive["count"], 1);
  EXPECT_LE(receive["max"].get<double>(), most.count());
}

TEST_F(Latencies, ReceiveThatIsWithdrawnOrBound_IsNotCounted) {
  int in = 0, boundIn = 0, boundOut = 3;
  contexts_[1]->createUnboundBuffer(&in, sizeof(in))->recv(0, kSlot);
  auto receiving = contexts_[1]->getPair(0)->createRecvBuffer(3, &boundIn, sizeof(boundIn));
  auto sending = contexts_[0]->getPair(1)->createSendBuffer(3, &boundOut, sizeof(boundOut));
  sending->send();
  receiving->waitRecv();
  sending->waitSend();
  EXPECT_EQ(boundIn, 3);
  EXPECT_EQ(count("receive", "up_to_1KiB"), 0);
  EXPECT_EQ(count("send", "up_to_1KiB"), 1);
}

TEST_F(Latencies, PeerCloses_OperationsUnderWayAreNotCounted) {
  int in = 0;
  auto receiving = contexts_[1]->createUnboundBuffer(&in, sizeof(in));
  receiving->recv(0, kSlot);
  contexts_[0]->getPair(1)->close();
  EXPECT_THROW(receiving->waitRecv(), ::gloo::IoException);
  EXPECT_THROW(receiving->recv(0, kSlot), ::gloo::IoException);
  EXPECT_EQ(count("receive", "up_to_1KiB"), 0);
}

// A short put is a message and its answer, a long one two more with the data.
TEST_F(Latencies, PutsAndGets_CountAsTheMessagesThatTheyConsistOf) {
  const auto remote = [](auto& buffer) -> auto& { return dynamic_cast<gloo_version::RemoteKeyBuffer&>(*buffer); };
  std::vector<std::byte> exposed(100 << 10), local(100 << 10);
  auto exposing = contexts_[1]->createUnboundBuffer(exposed.data(), exposed.size());
  auto asking = contexts_[0]->createUnboundBuffer(local.data(), local.size());
  const auto key = remote(exposing).getRemoteKey();
  remote(asking).put(*key, 0, 0, 0, 8);
  EXPECT_TRUE(asking->waitSend());
  const auto counted = [this](const char* direction, const char* size, int wanted) {
    return transport_->progress().waitUntil(
        [&] {
          return reportJson("", TransportReport{.operations = *transport_->latencies()})
                     .at("latencies")[direction][size]["count"] == wanted;
        },
        monotonicNow() + Duration(kPatience));
  };
  EXPECT_TRUE(counted("send", "up_to_1KiB", 2));
  EXPECT_TRUE(counted("receive", "up_to_1KiB", 2));
  remote(asking).put(*key, 0, 0, 0, local.size());
  EXPECT_TRUE(asking->waitSend());
  EXPECT_TRUE(counted("send", "up_to_1MiB", 1));
  EXPECT_TRUE(counted("receive", "up_to_1MiB", 1));
  EXPECT_TRUE(counted("send", "up_to_1KiB", 5));
  EXPECT_TRUE(counted("receive", "up_to_1KiB", 5));
}

TEST(Latencies_Config, Histograms_AreOnWhereNumbersAreAskedFor) {
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
