// Connections over this machine's RDMA device, in the guest SoftRoCE: made and ended by the hundred, many at once, and
// flooded with the fewest credits. The kernel's counters show what is left of them. Skipped without a device.
// (guest_test.py checks the guest's kernel log.)
#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/transport/verbs/rdma_end.h"
#include "transport/verbs/verbs_transport.h"

namespace gloo_bypass::test {
namespace {

// The kernel's counts of "qp" and similar objects, over all devices.
nlohmann::json kernelObjects() {
  std::string text;
  std::array<char, 4096> part;
  FILE* const program = popen("rdma -j resource show", "r");
  if (program == nullptr) return nullptr;
  while (const std::size_t count = std::fread(part.data(), 1, part.size(), program)) text.append(part.data(), count);
  return pclose(program) == 0 ? nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false) : nlohmann::json();
}

// How often a message found no posted receive, on either side, by SoftRoCE's count; -1 if there is no such count.
std::int64_t receiverNotReady() {
  std::int64_t sum = -1;
  for (const auto& device : std::filesystem::directory_iterator("/sys/class/infiniband")) {
    for (const char* name : {"rcvd_rnr_err", "send_rnr_err"}) {
      std::ifstream file(device.path() / "ports/1/hw_counters" / name);
      if (std::int64_t count = 0; file >> count) sum = std::max<std::int64_t>(sum, 0) + count;
    }
  }
  return sum;
}

class RdmaConnections : public RdmaChannelTest {
 protected:
  void SetUp() override {
    RdmaChannelTest::SetUp();
    const auto verbs = verbs::systemVerbs();
    if (!verbs.ok()) GTEST_SKIP() << verbs.error().message;
    verbs_ = verbs.value();
    const auto transport = verbs::makeVerbsTransport(*verbs_, {});
    ASSERT_TRUE(transport.ok()) << transport.error().message;
  }
  void makeEnds(const RdmaConfig& rdma) {
    TransportConfig config;
    config.rdma = rdma;
    a = std::make_unique<RdmaEnd>(config, *verbs_);
    b = std::make_unique<RdmaEnd>(config, *verbs_);
  }
  // One connection from begin to end, as both sides see it.
  void connectExchangeAndClose(std::size_t size, bool abort) {
    addChannel();
    ASSERT_FALSE(HasFatalFailure());
    exchange(size, 1);
    a->close(abort);
    ASSERT_TRUE(b->waitState(abort ? ChannelState::kFailed : ChannelState::kPeerClosed));
    b->close(abort);
    a->channels.clear();
    b->channels.clear();
    for (RdmaEnd* end : {a.get(), b.get()}) {
      ASSERT_TRUE(end->wait([&] { return end->transport->report().channels.empty(); }));
    }
  }

  const verbs::VerbsApi* verbs_ = nullptr;
};

TEST_F(RdmaConnections, Hundreds_LeaveNothingInTheKernel) {
  constexpr int kConnections = 200, kWarm = 10;
  RdmaConfig forgetful;
  forgetful.registrationCacheBytes = 0;
  makeEnds(forgetful);
  nlohmann::json warm;
  for (int i = 0; i < kConnections; ++i) {
    connectExchangeAndClose(i % 10 == 0 ? 100'000 : 100, /*abort=*/false);
    if (HasFatalFailure()) FAIL() << "after " << i;
    if (i == kWarm) warm = kernelObjects();
  }
  ASSERT_TRUE(warm.is_array() && !warm.empty()) << "the command rdma told nothing";
  EXPECT_EQ(kernelObjects(), warm);
}

// SoftRoCE's completion queue holds about 100 connections: each process gets a second one, and gives it back.
TEST_F(RdmaConnections, MoreAtOnceThanOneCompletionQueueHolds_AllCarryMessages) {
  constexpr std::size_t kConnections = 130;
  RdmaConfig small;
  small.eagerBytes = 1024;  // 64 receives of it a connection
  makeEnds(small);
  const auto completionQueues = [] {
    int sum = 0;
    for (const auto& device : kernelObjects()) sum += device.value("cq", 0);
    return sum;
  };
  const int before = completionQueues();
  for (std::size_t i = 0; i < kConnections; ++i) {
    addChannel();
    if (HasFatalFailure()) FAIL() << "after " << i;
  }
  EXPECT_GE(completionQueues(), before + 2);
  for (std::size_t i = 0; i < kConnections; i += 3) exchange(i % 2 == 0 ? 100 : 100'000, 1, i);
  for (std::size_t i = 0; i < kConnections; ++i) {
    a->close(false, i);
    ASSERT_TRUE(b->waitState(ChannelState::kPeerClosed, i));
    b->close(false, i);
  }
  a->channels.clear();
  b->channels.clear();
  for (RdmaEnd* end : {a.get(), b.get()}) {
    ASSERT_TRUE(end->wait([&] { return end->transport->report().channels.empty(); }));
  }
  EXPECT_EQ(completionQueues(), before);
}

TEST_F(RdmaConnections, HundredsAborted_LeaveNoQueuePair) {
  constexpr int kConnections = 100;
  makeEnds({});
  const auto queuePairs = [] {
    int sum = 0;
    for (const auto& device : kernelObjects()) sum += device.value("qp", 0);
    return sum;
  };
  const int before = queuePairs();
  for (int i = 0; i < kConnections; ++i) {
    connectExchangeAndClose(100, /*abort=*/true);
    if (HasFatalFailure()) FAIL() << "after " << i;
  }
  EXPECT_EQ(queuePairs(), before);
}

// An overrun of the completion queue would end the connection with an event.
TEST_F(RdmaConnections, FewestCreditsAndFloodBothWays_ReceivesNeverRunDry) {
  constexpr OperationToken kMessages = 1000;
  const std::int64_t before = receiverNotReady();
  if (before < 0) GTEST_SKIP() << "this device does not count messages that found no receive";
  RdmaConfig few;
  few.credits = 3;
  makeEnds(few);
  addChannel();
  const std::vector<std::byte> out(100, std::byte{7});
  std::array<std::vector<std::vector<std::byte>>, 2> in;
  const std::array<RdmaEnd*, 2> ends = {a.get(), b.get()};
  for (std::size_t side = 0; side < ends.size(); ++side) {
    in[side].assign(kMessages, std::vector<std::byte>(out.size()));
    for (OperationToken i = 0; i < kMessages; ++i) ASSERT_TRUE(ends[side]->receive(i, 1, in[side][i]).ok());
  }
  for (OperationToken i = 0; i < kMessages; ++i) {
    for (RdmaEnd* end : ends) ASSERT_TRUE(end->send(i, 1, out).ok());
  }
  for (std::size_t side = 0; side < ends.size(); ++side) {
    ASSERT_TRUE(ends[side]->waitReceived(kMessages - 1));
    for (const auto& message : in[side]) ASSERT_EQ(message, out);
  }
  EXPECT_EQ(receiverNotReady(), before);
}

}  // namespace
}  // namespace gloo_bypass::test
