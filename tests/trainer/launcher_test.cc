#include "trainer/launcher.h"

#include <fstream>

#include <gtest/gtest.h>

#include "process.h"
#include "trainer/free_port.h"

namespace gloo_bypass::trainer {
namespace {

std::vector<std::string> shell(const std::string& script) { return {"/bin/sh", "-c", script}; }

TEST(Launcher, AllSucceed_ReturnsZero) { EXPECT_EQ(launchRanks(shell("exit 0"), 3), 0); }

TEST(Launcher, Children_KnowWhoTheyAre) {
  const testing::TemporaryFolder folder;
  ::setenv("LAUNCHER_TEST_FOLDER", folder.path("").c_str(), 1);
  ::unsetenv("OMP_NUM_THREADS");
  EXPECT_EQ(launchRanks(shell("echo $RANK $LOCAL_RANK $WORLD_SIZE $MASTER_ADDR ${MASTER_PORT:+port} "
                              "${OMP_NUM_THREADS:+threads} > $LAUNCHER_TEST_FOLDER/$RANK"), 2), 0);
  EXPECT_EQ(testing::contents(folder.path("0")), "0 0 2 127.0.0.1 port threads\n");
  EXPECT_EQ(testing::contents(folder.path("1")), "1 1 2 127.0.0.1 port threads\n");
}

TEST(Launcher, OneFails_ItsStatusIsReturnedAndTheOthersEnd) {
  const LaunchTimes times{std::chrono::milliseconds(10), std::chrono::milliseconds(1000)};
  EXPECT_EQ(launchRanks(shell("test $RANK = 1 && exit 7; exec sleep 1000"), 3, times), 7);
}

TEST(Launcher, OneIsKilled_ReturnsSignalStatus) {
  const LaunchTimes times{std::chrono::milliseconds(10), std::chrono::milliseconds(1000)};
  EXPECT_EQ(launchRanks(shell("test $RANK = 0 && kill -9 $$; exec sleep 1000"), 2, times), 128 + 9);
}

TEST(Launcher, OthersIgnoreTerm_AreKilled) {
  const LaunchTimes times{std::chrono::milliseconds(10), std::chrono::milliseconds(50)};
  EXPECT_EQ(launchRanks(shell("test $RANK = 1 && exit 3; trap '' TERM; while :; do sleep 1; done"), 2, times), 3);
}

TEST(FreePort, RangeThatTheKernelGivesAway_IsAvoided) {
  int low = 0;
  std::ifstream("/proc/sys/net/ipv4/ip_local_port_range") >> low;
  if (low < 2048) {
    GTEST_SKIP() << "this machine gives away nearly all ports";
  }
  for (int i = 0; i < 20; ++i) {
    const int port = freePort();
    EXPECT_GE(port, 1024);
    EXPECT_LT(port, low);
  }
}

TEST(Launcher, ProgramMissing_Fails) { EXPECT_EQ(launchRanks({"/no/such/program"}, 1), 127); }

TEST(Launcher, ChildArguments_LeaveSpawnOut) {
  const char* spaced[] = {"ddp_train", "--spawn", "2", "--steps", "3"};
  const auto arguments = childArguments(5, spaced);
  EXPECT_EQ(std::vector<std::string>(arguments.begin() + 1, arguments.end()),
      (std::vector<std::string>{"--steps", "3"}));
  const char* joined[] = {"ddp_train", "--spawn=2", "--steps=3"};
  EXPECT_EQ(childArguments(3, joined).size(), 2u);
}

} // namespace
} // namespace gloo_bypass::trainer
