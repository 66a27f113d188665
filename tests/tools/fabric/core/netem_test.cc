// The tc commands made from a description. tests/guest/netem_test.py checks that the kernel accepts them.
#include "tools/fabric/core/netem.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "tests/tools/fabric/core/descriptions.h"

namespace gloo_bypass::fabric {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::ElementsAre;
using testing::HasSubstr;

NetemPlan planOf(const Description& description, std::size_t host = 0) {
  Result<NetemPlan> plan = netemPlan(description, host, "eth0");
  EXPECT_TRUE(plan.ok()) << (plan.ok() ? "" : plan.error().message);
  return plan.ok() ? std::move(plan).value() : NetemPlan{};
}

// The words behind "netem limit N" of the only other host, and the words behind "tbf".
std::string netemWords(const std::string& edge) {
  const NetemPlan plan = planOf(good("ranks = 2", {{"edge", "from=r0,to=r1," + edge}}));
  const std::string& command = plan.setUp.at(1);
  const std::string prefix = "tc qdisc add dev eth0 parent 1:2 handle 102: netem limit 10000000 ";
  EXPECT_EQ(command.substr(0, prefix.size()), prefix);
  return command.substr(std::min(prefix.size(), command.size()));
}

std::string faultOf(const std::string& edge) {
  const Result<NetemPlan> plan = netemPlan(good("ranks = 2", {{"edge", "from=r0,to=r1," + edge}}), 0, "eth0");
  return plan.ok() ? "(no fault)" : plan.error().message;
}

TEST(Netem, SlowEdge_IsOneOfSeveralBands) {
  const NetemPlan plan =
      planOf(good("ranks = 3\nnetwork = \"10.32.0.0/24\"\n[defaults]\ndelay = \"20us\"\nqueue = \"4MiB\"",
                  {{"edge", "from=r1,to=r2,delay=300ms,rate=1Gbit/s"}}),
             1);
  EXPECT_THAT(
      plan.setUp,
      ElementsAre(
          "tc qdisc add dev eth0 root handle 1: prio bands 3 priomap 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0",
          "tc qdisc add dev eth0 parent 1:2 handle 102: netem limit 10000000 delay 20us rate 100000000000bit",
          "tc filter add dev eth0 parent 1: protocol ip prio 1 u32 match ip dst 10.32.0.2/32 flowid 1:2",
          "tc qdisc add dev eth0 parent 1:3 handle 103: netem limit 10000000 delay 300000us rate 100000000000bit",
          "tc qdisc add dev eth0 parent 103:1 handle 203: tbf rate 1000000000bit burst 16384b limit 4194304b",
          "tc filter add dev eth0 parent 1: protocol ip prio 1 u32 match ip dst 10.32.0.4/32 flowid 1:3"));
  EXPECT_TRUE(plan.changes.empty());
  EXPECT_EQ(plan.removal, "tc qdisc del dev eth0 root");
}

TEST(Netem, Settings_BecomeItsWords) {
  EXPECT_EQ(netemWords("loss=0.1%"), "delay 0us rate 100000000000bit loss 0.1%");
  EXPECT_EQ(netemWords("delay=10ms,jitter=4ms"), "delay 12000us 2000us rate 100000000000bit") << "uniform, in order";
  EXPECT_EQ(netemWords("burst_enter=1%"), "delay 0us rate 100000000000bit loss gemodel 1% 20% 80% 0%");
  EXPECT_EQ(netemWords("burst_enter=1%,burst_leave=10%,burst_loss=50%,loss=10%"),
            "delay 0us rate 100000000000bit loss gemodel 1% 10% 55% 10%");
  EXPECT_EQ(netemWords("corruption=0.01%"), "delay 0us rate 100000000000bit corrupt 0.01%");
}

TEST(Netem, RateAndQueue_BecomeTbfs) {
  const auto tbf = [](const std::string& edge) {
    return planOf(good("ranks = 2", {{"edge", "from=r0,to=r1," + edge}})).setUp.at(2);
  };
  const std::string prefix = "tc qdisc add dev eth0 parent 102:1 handle 202: tbf ";
  EXPECT_EQ(tbf("rate=50Mbit/s"), prefix + "rate 50000000bit burst 16384b limit 1048576b");
  EXPECT_EQ(tbf("rate=50Mbit/s,queue=unlimited,overhead=24B"),
            prefix + "rate 50000000bit burst 16384b limit 4294967295b overhead 24");
  EXPECT_EQ(tbf("rate=100Gbit/s,queue=1GiB"), prefix + "rate 100000000000bit burst 1250000b limit 1073741824b");
}

TEST(Netem, Schedule_BecomesTimedChanges) {
  const NetemPlan plan = planOf(good("ranks = 2", {{"edge", "from=r0,to=r1,delay=1ms,jitter=2us,corruption=1%"},
                                                   {"event", "at=1s,from=r0,to=r1,rate=1Mbit/s"},
                                                   {"event", "at=2s,for=1s,from=r0,to=r1,rate=2Mbit/s,jitter=0s"},
                                                   {"event", "at=4s,from=r1,to=r0,down=1s"},
                                                   {"event", "at=5s,from=r0,to=r1,down=200ms"},
                                                   {"event", "at=6s,from=r0,to=r1,rate=unlimited,corruption=0%"}}));
  const std::string netem = "tc qdisc change dev eth0 parent 1:2 handle 102: netem limit 10000000 ";
  const std::string jitter = "delay 1001us 1us rate 100000000000bit";
  const std::string oneMegabit = "tbf rate 1000000bit burst 16384b limit 1048576b";
  const std::string changeTbf = "tc qdisc change dev eth0 parent 102:1 handle 202: ";
  ASSERT_EQ(plan.changes.size(), 6u) << "what r1 sends is for its own interface";
  EXPECT_EQ(plan.changes[0].at, seconds(1));
  EXPECT_THAT(plan.changes[0].commands, ElementsAre(netem + jitter + " corrupt 1%",
                                                    "tc qdisc add dev eth0 parent 102:1 handle 202: " + oneMegabit));
  EXPECT_THAT(plan.changes[1].commands, ElementsAre(netem + "delay 1000us rate 100000000000bit corrupt 1%",
                                                    changeTbf + "tbf rate 2000000bit burst 16384b limit 1048576b"));
  EXPECT_EQ(plan.changes[2].at, seconds(3));
  EXPECT_THAT(plan.changes[2].commands, ElementsAre(netem + jitter + " corrupt 1%", changeTbf + oneMegabit));
  EXPECT_THAT(plan.changes[3].commands, ElementsAre(netem + "loss 100%", changeTbf + oneMegabit));
  EXPECT_EQ(plan.changes[4].at, milliseconds(5'200));
  EXPECT_THAT(plan.changes[5].commands,
              ElementsAre(netem + jitter + " corrupt 0%", "tc qdisc del dev eth0 parent 102:1 handle 202:"));
}

// Without a rate of its own netem sends each frame after its own delay: later ones would overtake those under way.
TEST(Netem, DelayThatFalls_KeepsFramesInOrder) {
  const NetemPlan plan = planOf(good("ranks = 2", {{"edge", "from=r0,to=r1,delay=300ms"},
                                                   {"event", "at=1s,for=1s,from=r0,to=r1,delay=1ms"},
                                                   {"event", "at=3s,from=r0,to=r1,down=1s"}}));
  ASSERT_EQ(plan.changes.size(), 4u);
  EXPECT_THAT(plan.setUp.at(1), HasSubstr("delay 300000us rate 100000000000bit"));
  EXPECT_THAT(plan.changes[0].commands, ElementsAre(HasSubstr("delay 1000us rate 100000000000bit")));
  EXPECT_THAT(plan.changes[3].commands, ElementsAre(HasSubstr("delay 300000us rate 100000000000bit")));
}

TEST(Netem, Script_WaitsBetweenChanges) {
  const std::string script = netemScript(planOf(good("ranks = 2", {{"event", "at=5s,from=r0,to=r1,down=200ms"}})));
  EXPECT_EQ(script,
            "# for root; tc qdisc del dev eth0 root removes it\nset -e\n"
            "tc qdisc add dev eth0 root handle 1: prio bands 2 priomap 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0\n"
            "tc qdisc add dev eth0 parent 1:2 handle 102: netem limit 10000000 delay 0us rate 100000000000bit\n"
            "tc filter add dev eth0 parent 1: protocol ip prio 1 u32 match ip dst 10.77.0.3/32 flowid 1:2\n"
            "sleep 5.000000  # until 5 s\n"
            "tc qdisc change dev eth0 parent 1:2 handle 102: netem limit 10000000 loss 100%\n"
            "sleep 0.200000  # until 5.2 s\n"
            "tc qdisc change dev eth0 parent 1:2 handle 102: netem limit 10000000 delay 0us rate 100000000000bit\n");
}

TEST(Netem, SeveralInterfaces_AreOnePlanInTheOrderOfTime) {
  const Description description =
      good("ranks = 2", {{"event", "at=1s,from=r1,to=r0,down=2s"}, {"event", "at=2s,from=r0,to=r1,loss=1%"}});
  const NetemPlan first = planOf(description, 0), second = planOf(description, 1);
  const NetemPlan all = together({first, second});
  EXPECT_EQ(all.setUp.size(), first.setUp.size() + second.setUp.size());
  ASSERT_EQ(all.changes.size(), 3u);
  EXPECT_EQ(all.changes[0].at, seconds(1));
  EXPECT_EQ(all.changes[1].at, seconds(2));
  EXPECT_EQ(all.changes[1].commands, first.changes[0].commands);
  EXPECT_EQ(all.changes[2].at, seconds(3));
  EXPECT_EQ(all.removal, "tc qdisc del dev eth0 root; tc qdisc del dev eth0 root");
}

TEST(Netem, WhatItCannotDo_IsRefused) {
  const auto fault = [](const std::string& what) {
    return "edge r0->r1: netem on eth0 cannot do " + what + ", or use a transport whose frames cross the fabric";
  };
  EXPECT_EQ(faultOf("duplication=1%"),
            fault("duplication: its copies would go through all queues again; leave it out"));
  EXPECT_EQ(faultOf("reordering=1%,reorder_delay=1ms"),
            fault("reordering: it sends some frames early, where a fabric's are late; leave it out"));
  EXPECT_EQ(faultOf("rate=1Mbit/s,queue=1kB"),
            fault("a queue of 1 kB: tbf would lose every frame longer than that; give at least 10 kB"));
  EXPECT_EQ(faultOf("delay=5min"), fault("a delay of 300 s; give at most 250 s"));
  EXPECT_EQ(faultOf("delay=10s,jitter=5s"), fault("a jitter of 5 s; give at most 4 s"));
  const Result<NetemPlan> later =
      netemPlan(good("ranks = 2", {{"event", "at=1s,from=*,to=*,duplication=1%"}}), 1, "eth0");
  ASSERT_FALSE(later.ok()) << "a change too";
  EXPECT_THAT(later.error().message, testing::StartsWith("edge r1->r0: netem on eth0 cannot do duplication"));
  EXPECT_EQ(netemPlan(good("ranks = 17"), 0, "eth0").error().message,
            "netem on eth0: r0 has 16 other hosts, and tc's prio has bands for 15; describe fewer hosts");
  EXPECT_TRUE(netemPlan(good("ranks = 16"), 0, "eth0").ok());
  for (const char* const name : {"", "eth0; reboot", "an-interface-too-long", "a/b", "$x", ".."}) {
    EXPECT_FALSE(netemPlan(good("ranks = 2"), 0, name).ok()) << name;
  }
}

}  // namespace
}  // namespace gloo_bypass::fabric
