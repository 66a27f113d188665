// The switch over ports in memory, in virtual time.
#include "tools/fabric/switch/fabric_switch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "tests/tools/fabric/switch/memory_port.h"
#include "tools/fabric/switch/fabric_report.h"

namespace gloo_bypass::fabric {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using ::testing::HasSubstr;

const TimePoint kStart{std::chrono::hours(1)};

Description describedBy(const std::string& text) {
  auto description = parseDescription({.text = text, .name = "test", .flags = {}});
  EXPECT_TRUE(description.ok()) << (description.ok() ? "" : description.error().message);
  return std::move(description).value();
}

dpdk::MacAddress macOf(std::size_t host) { return {0x02, 0, 0, 0, 0, static_cast<std::uint8_t>(host)}; }

Bytes frameOf(const dpdk::MacAddress& destination, const dpdk::MacAddress& source, std::size_t length = 100,
              unsigned mark = 0) {
  Bytes frame(length);
  std::transform(destination.begin(), destination.end(), frame.begin(), [](auto byte) { return std::byte{byte}; });
  std::transform(source.begin(), source.end(), frame.begin() + 6, [](auto byte) { return std::byte{byte}; });
  for (std::size_t i = 14; i < length; ++i) frame[i] = static_cast<std::byte>(mark + i);
  return frame;
}

class Fabric {
 public:
  explicit Fabric(const std::string& text, const SwitchLimits& limits = {}) : description(describedBy(text)) {
    std::vector<std::unique_ptr<FabricPort>> made;
    for (std::size_t i = 0; i < description.hosts.size(); ++i) {
      auto port = std::make_unique<MemoryPort>();
      ports.push_back(port.get());
      made.push_back(std::move(port));
    }
    fabricSwitch = std::make_unique<FabricSwitch>(description, std::move(made), limits, kStart);
  }
  void send(std::size_t from, Bytes frame) { ports[from]->toFabric.push_back(std::move(frame)); }
  void sendTo(std::size_t from, std::size_t to, std::size_t length = 100, unsigned mark = 0) {
    send(from, frameOf(macOf(to), macOf(from), length, mark));
  }
  bool pollAt(Duration elapsed) { return fabricSwitch->poll(kStart + elapsed); }
  // Makes every host known; nothing is under way.
  void introduceAll() {
    for (std::size_t i = 0; i < ports.size(); ++i) send(i, frameOf(dpdk::kBroadcastMac, macOf(i), 14));
    pollAt(Duration::zero());
    pollAt(std::chrono::seconds(10));
    for (MemoryPort* port : ports) port->fromFabric.clear();
  }

  Description description;
  std::vector<MemoryPort*> ports;
  std::unique_ptr<FabricSwitch> fabricSwitch;
};

constexpr Duration kLater = std::chrono::seconds(20);

TEST(FabricSwitch, FrameToKnownAddress_GoesToThatHostAlone) {
  Fabric fabric("ranks = 3\n");
  fabric.introduceAll();
  fabric.sendTo(0, 2, 200);
  EXPECT_TRUE(fabric.pollAt(kLater));
  EXPECT_EQ(fabric.ports[1]->fromFabric.size(), 0U);
  ASSERT_EQ(fabric.ports[2]->fromFabric.size(), 1U);
  EXPECT_EQ(fabric.ports[2]->fromFabric[0], frameOf(macOf(2), macOf(0), 200));
}

TEST(FabricSwitch, FrameToUnknownOrGroupAddress_GoesToAllOthers) {
  Fabric fabric("ranks = 3\n");
  for (const dpdk::MacAddress& destination :
       {dpdk::kBroadcastMac, macOf(2), dpdk::MacAddress{0x33, 0x33, 0, 0, 0, 1}}) {
    fabric.send(0, frameOf(destination, macOf(0)));
    fabric.pollAt(Duration::zero());
  }
  EXPECT_EQ(fabric.ports[0]->fromFabric.size(), 0U);
  EXPECT_EQ(fabric.ports[1]->fromFabric.size(), 3U);
  EXPECT_EQ(fabric.ports[2]->fromFabric.size(), 3U);
}

TEST(FabricSwitch, AddressMovesToAnotherHost_FramesFollow) {
  Fabric fabric("ranks = 3\n");
  fabric.introduceAll();
  fabric.send(1, frameOf(dpdk::kBroadcastMac, macOf(2)));
  fabric.pollAt(kLater);
  for (MemoryPort* port : fabric.ports) port->fromFabric.clear();
  fabric.sendTo(0, 2);
  fabric.pollAt(kLater);
  EXPECT_EQ(fabric.ports[1]->fromFabric.size(), 1U);
  EXPECT_EQ(fabric.ports[2]->fromFabric.size(), 0U);
}

TEST(FabricSwitch, AddressOfTheDescription_IsKnownAtOnceAndNobodyElses) {
  Fabric fabric(
      "[[host]]\nname = \"a\"\n[[host]]\nname = \"b\"\n[[host]]\nname = \"c\"\nmac = \"02:00:00:00:00:02\"\n");
  fabric.sendTo(0, 2);
  fabric.send(1, frameOf(dpdk::kBroadcastMac, macOf(2)));
  fabric.pollAt(Duration::zero());
  EXPECT_EQ(fabric.ports[1]->fromFabric.size(), 0U);
  EXPECT_EQ(fabric.ports[2]->fromFabric.size(), 1U);
  EXPECT_EQ(fabric.fabricSwitch->hostCounters(1).foreignSource, 1U);
}

TEST(FabricSwitch, FrameToItsOwnHost_IsCountedAndNotForwarded) {
  Fabric fabric("ranks = 2\n");
  fabric.introduceAll();
  fabric.sendTo(0, 0);
  fabric.pollAt(kLater);
  EXPECT_EQ(fabric.ports[0]->fromFabric.size() + fabric.ports[1]->fromFabric.size(), 0U);
  EXPECT_EQ(fabric.fabricSwitch->hostCounters(0).notForwarded, 1U);
}

TEST(FabricSwitch, DelayOfOneEdge_HoldsThatDirectionAlone) {
  Fabric fabric("ranks = 2\n[[edge]]\nfrom = \"r0\"\nto = \"r1\"\ndelay = \"300ms\"\n");
  fabric.introduceAll();
  fabric.sendTo(0, 1);
  fabric.sendTo(1, 0);
  fabric.pollAt(kLater);
  EXPECT_EQ(fabric.ports[0]->fromFabric.size(), 1U);
  EXPECT_EQ(fabric.ports[1]->fromFabric.size(), 0U);
  EXPECT_EQ(fabric.fabricSwitch->nextDue(), kStart + kLater + milliseconds(300));
  fabric.pollAt(kLater + milliseconds(300) - Duration(1));
  EXPECT_EQ(fabric.ports[1]->fromFabric.size(), 0U);
  fabric.pollAt(kLater + milliseconds(300));
  EXPECT_EQ(fabric.ports[1]->fromFabric.size(), 1U);
  EXPECT_EQ(fabric.fabricSwitch->nextDue(), kNever);
  EXPECT_EQ(fabric.fabricSwitch->arena().usedBytes(), 0U);
}

TEST(FabricSwitch, FramesOfTwoEdges_ArriveInTheOrderOfTheirTimes) {
  Fabric fabric(
      "ranks = 3\n[[edge]]\nfrom = \"r0\"\nto = \"r2\"\ndelay = \"3ms\"\n[[edge]]\nfrom = \"r1\"\nto = \"r2\"\ndelay = "
      "\"1ms\"\n");
  fabric.introduceAll();
  fabric.sendTo(0, 2, 100, 1);
  fabric.sendTo(1, 2, 100, 2);
  fabric.pollAt(kLater);
  fabric.sendTo(1, 2, 100, 3);
  fabric.pollAt(kLater + milliseconds(1));
  fabric.pollAt(kLater + milliseconds(10));
  ASSERT_EQ(fabric.ports[2]->fromFabric.size(), 3U);
  EXPECT_EQ(fabric.ports[2]->fromFabric[0], frameOf(macOf(2), macOf(1), 100, 2));
  EXPECT_EQ(fabric.ports[2]->fromFabric[1], frameOf(macOf(2), macOf(1), 100, 3));
  EXPECT_EQ(fabric.ports[2]->fromFabric[2], frameOf(macOf(2), macOf(0), 100, 1));
}

TEST(FabricSwitch, LossAndDuplication_CountedFramesAreThoseThatArrive) {
  Fabric fabric("ranks = 2\n[defaults]\nloss = \"10%\"\nduplication = \"5%\"\n");
  fabric.introduceAll();
  const auto before = fabric.fabricSwitch->edge(0, 1).counters();
  fabric.ports[1]->fromFabric.clear();
  constexpr std::uint64_t kFrames = 5000;
  for (std::uint64_t i = 0; i < kFrames; ++i) {
    fabric.sendTo(0, 1);
    fabric.pollAt(kLater + microseconds(i));
  }
  fabric.pollAt(kLater + std::chrono::seconds(1));
  const auto after = fabric.fabricSwitch->edge(0, 1).counters();
  const auto lost = after.lost() - before.lost(), twice = after.duplicated - before.duplicated;
  EXPECT_GT(lost, kFrames / 20);
  EXPECT_GT(twice, kFrames / 50);
  EXPECT_EQ(fabric.ports[1]->fromFabric.size(), kFrames - lost + twice);
  EXPECT_EQ(fabric.fabricSwitch->arena().usedBytes(), 0U);
}

TEST(FabricSwitch, CorruptedBroadcast_KeepsHeaderAndDoesNotTouchOtherCopies) {
  Fabric fabric("ranks = 3\n[[edge]]\nfrom = \"r0\"\nto = \"r1\"\ncorruption = \"100%\"\n");
  const Bytes sent = frameOf(dpdk::kBroadcastMac, macOf(0), 300);
  for (int i = 0; i < 20; ++i) fabric.send(0, sent);
  fabric.pollAt(Duration::zero());
  ASSERT_EQ(fabric.ports[1]->fromFabric.size(), 20U);
  ASSERT_EQ(fabric.ports[2]->fromFabric.size(), 20U);
  for (int i = 0; i < 20; ++i) {
    EXPECT_EQ(fabric.ports[2]->fromFabric[i], sent);
    const Bytes& damaged = fabric.ports[1]->fromFabric[i];
    EXPECT_NE(damaged, sent);
    EXPECT_TRUE(std::equal(damaged.begin(), damaged.begin() + 14, sent.begin()));
  }
}

TEST(FabricSwitch, MemoryUsedUp_DropsAndCountsAndGoesOn) {
  Fabric fabric("ranks = 2\n[defaults]\ndelay = \"1s\"\n", {.memoryBytes = std::size_t{1} << 20});
  fabric.introduceAll();
  for (int i = 0; i < 1000; ++i) {
    fabric.sendTo(0, 1, 1514);
    fabric.pollAt(kLater);
  }
  const auto lost = fabric.fabricSwitch->hostCounters(0).noMemory;
  EXPECT_GT(lost, 100U);
  EXPECT_LT(lost, 500U);
  EXPECT_LE(fabric.fabricSwitch->arena().peakBytes(), std::size_t{1} << 20);
  fabric.pollAt(kLater + std::chrono::seconds(1));
  EXPECT_EQ(fabric.ports[1]->fromFabric.size(), 1000 - lost);
  fabric.ports[1]->fromFabric.clear();
  fabric.sendTo(0, 1, 1514);
  fabric.pollAt(kLater + std::chrono::seconds(2));
  fabric.pollAt(kLater + std::chrono::seconds(3));
  EXPECT_EQ(fabric.ports[1]->fromFabric.size(), 1U);
}

TEST(FabricSwitch, HostThatTakesNothing_KeepsItsQueueBoundedAndGetsTheRestLater) {
  Fabric fabric("ranks = 2\n", {.portQueueBytes = 10'000});
  fabric.introduceAll();
  fabric.ports[1]->room = 2;
  for (int i = 0; i < 50; ++i) fabric.sendTo(0, 1, 1000);
  fabric.pollAt(kLater);
  EXPECT_TRUE(fabric.fabricSwitch->blocked());
  const HostCounters& counters = fabric.fabricSwitch->hostCounters(1);
  EXPECT_EQ(counters.queueFull, 40U);
  EXPECT_EQ(counters.queueBytes, 8'000U);
  EXPECT_EQ(counters.maxQueueBytes, 10'000U);
  fabric.ports[1]->room = SIZE_MAX;
  EXPECT_TRUE(fabric.pollAt(kLater));
  EXPECT_FALSE(fabric.fabricSwitch->blocked());
  EXPECT_EQ(fabric.ports[1]->fromFabric.size(), 10U);
  EXPECT_EQ(counters.queueBytes, 0U);
}

TEST(FabricSwitch, NobodyAttached_FramesAreCountedAndForgotten) {
  Fabric fabric("ranks = 2\n");
  fabric.introduceAll();
  fabric.ports[1]->attached = false;
  fabric.sendTo(0, 1);
  fabric.pollAt(kLater);
  EXPECT_EQ(fabric.fabricSwitch->hostCounters(1).nobodyThere, 1U);
  EXPECT_EQ(fabric.fabricSwitch->arena().usedBytes(), 0U);
}

TEST(FabricSwitch, HostLeavesWhileFramesWait_QueueIsEmptied) {
  Fabric fabric("ranks = 2\n");
  fabric.introduceAll();
  fabric.ports[1]->room = 0;
  for (int i = 0; i < 5; ++i) fabric.sendTo(0, 1);
  fabric.pollAt(kLater);
  fabric.ports[1]->attached = false;
  fabric.pollAt(kLater);
  EXPECT_FALSE(fabric.fabricSwitch->blocked());
  EXPECT_EQ(fabric.fabricSwitch->hostCounters(1).nobodyThere, 5U);
  EXPECT_EQ(fabric.fabricSwitch->hostCounters(1).queueBytes, 0U);
}

TEST(FabricSwitch, LinkDownForAWhile_LosesFramesOfThatTimeAlone) {
  Fabric fabric("ranks = 2\n[[event]]\nat = \"30s\"\nfrom = \"r0\"\nto = \"r1\"\ndown = \"200ms\"\n");
  fabric.introduceAll();
  const auto at = [&](Duration elapsed) {
    fabric.sendTo(0, 1);
    fabric.sendTo(1, 0);
    fabric.pollAt(elapsed);
  };
  const Duration down = std::chrono::seconds(30);
  EXPECT_EQ(fabric.fabricSwitch->nextDue(), kStart + down);
  at(down - milliseconds(1));
  at(down);
  at(down + milliseconds(199));
  EXPECT_EQ(fabric.ports[1]->fromFabric.size(), 1U);
  EXPECT_EQ(fabric.fabricSwitch->edge(0, 1).counters().lostWhileDown, 2U);
  at(down + milliseconds(200));
  EXPECT_EQ(fabric.ports[1]->fromFabric.size(), 2U);
  EXPECT_EQ(fabric.ports[0]->fromFabric.size(), 4U);
}

TEST(FabricSwitch, SameSeedAndFrames_SameFate) {
  const auto arrived = [](unsigned seed) {
    Fabric fabric("ranks = 2\nseed = " + std::to_string(seed) + "\n[defaults]\nloss = \"20%\"\njitter = \"1ms\"\n");
    fabric.introduceAll();
    for (unsigned i = 0; i < 300; ++i) {
      fabric.sendTo(0, 1, 100, i);
      fabric.pollAt(kLater + microseconds(i));
    }
    fabric.pollAt(kLater + std::chrono::seconds(1));
    return fabric.ports[1]->fromFabric;
  };
  EXPECT_EQ(arrived(7), arrived(7));
  EXPECT_NE(arrived(7), arrived(8));
}

TEST(FabricReport, CountersOfARun_AreInTableJsonAndComplaints) {
  Fabric fabric("ranks = 2\n[[edge]]\nfrom = \"r0\"\nto = \"r1\"\ndelay = \"5ms\"\n");
  fabric.introduceAll();
  fabric.sendTo(0, 1, 1000);
  fabric.pollAt(kLater);
  fabric.pollAt(kLater + milliseconds(6));
  fabric.ports[0]->counted.tooLong = 3;
  FabricReport report(fabric.description, *fabric.fabricSwitch, kStart);
  const TimePoint now = kStart + kLater + milliseconds(6);
  const auto json = report.json(now);
  EXPECT_EQ(json["schema"], "gloo-bypass/fabric/1");
  ASSERT_EQ(json["edges"].size(), 2U);
  EXPECT_EQ(json["edges"][0]["from"], "r0");
  EXPECT_EQ(json["edges"][0]["delivered_bytes"], 1014U);
  EXPECT_EQ(json["edges"][0]["mean_delay_ms"], 5.0);
  EXPECT_EQ(json["hosts"][0]["too_long"], 3U);
  EXPECT_THAT(report.table(now, 30), HasSubstr("r0->r1"));
  EXPECT_THAT(report.table(now, 1), HasSubstr("and 1 more edges"));
  EXPECT_THAT(report.complaints(), HasSubstr("r0 (memory): 3 frames from it were longer than the MTU"));
  EXPECT_EQ(report.sample(now)["edges"][0]["offered_bytes"], 1014U);
  EXPECT_EQ(report.sample(now)["edges"].size(), 0U);
  fabric.sendTo(1, 0);
  fabric.pollAt(kLater + milliseconds(7));
  const auto sample = report.sample(now + milliseconds(1));
  ASSERT_EQ(sample["edges"].size(), 1U);
  EXPECT_EQ(sample["edges"][0]["from"], "r1");
}

// A table shows the busiest edges only, and these change from table to table.
TEST(FabricReport, EdgeThatWasNotShown_HasTheRateOfTheLastInterval) {
  Fabric fabric("ranks = 2\n");
  fabric.introduceAll();
  FabricReport report(fabric.description, *fabric.fabricSwitch, kStart);
  fabric.sendTo(0, 1, 1500);
  fabric.sendTo(1, 0, 1000);
  fabric.pollAt(kLater);
  EXPECT_THAT(report.table(kStart + kLater, 1), HasSubstr("r0->r1"));
  fabric.sendTo(1, 0, 1250);
  fabric.pollAt(kLater + milliseconds(10));
  const std::string table = report.table(kStart + kLater + milliseconds(10), 1);  // 1,250 bytes in 10 ms
  EXPECT_THAT(table, HasSubstr("r1->r0              1.00 "));
}

}  // namespace
}  // namespace gloo_bypass::fabric
