#include "trainer/distributed/launcher.h"

#include <cstdlib>

#include <gtest/gtest.h>

#include "tests/support/temporary_folder.h"

namespace gloo_bypass::trainer {
namespace {

std::vector<std::string> shell(const std::string& script) { return {"/bin/sh", "-c", script}; }

TEST(Launcher, Children_KnowWhoTheyAre) {
  const TemporaryFolder folder;
  ::setenv("LAUNCHER_TEST_FOLDER", folder.path.c_str(), 1);
  ::unsetenv("OMP_NUM_THREADS");
  EXPECT_EQ(launchRanks(shell("echo $RANK $LOCAL_RANK $WORLD_SIZE $MASTER_ADDR ${MASTER_PORT:+port} "
                              "${OMP_NUM_THREADS:+threads} > $LAUNCHER_TEST_FOLDER/$RANK"),
                        2)
                .exitStatus,
            0);
  EXPECT_EQ(contentsOf(folder / "0"), "0 0 2 127.0.0.1 port threads\n");
  EXPECT_EQ(contentsOf(folder / "1"), "1 1 2 127.0.0.1 port threads\n");
}

TEST(Launcher, OneFails_ItsStatusIsReturnedAndTheOthersEnd) {
  const RankTimes times{.grace = std::chrono::milliseconds(10), .killAfter = std::chrono::milliseconds(1000)};
  EXPECT_EQ(launchRanks(shell("test $RANK = 1 && exit 7; exec sleep 1000"), 3, times).exitStatus, 7);
}

TEST(Launcher, ProgramMissing_Fails) { EXPECT_EQ(launchRanks({"/no/such/program"}, 1).exitStatus, 127); }

TEST(Launcher, ChildArguments_LeaveSpawnOut) {
  const char* spaced[] = {"ddp_train", "--spawn", "2", "--steps", "3"};
  const auto arguments = childArguments(5, spaced);
  EXPECT_EQ(std::vector<std::string>(arguments.begin() + 1, arguments.end()),
            (std::vector<std::string>{"--steps", "3"}));
  const char* joined[] = {"ddp_train", "--spawn=2", "--steps=3"};
  EXPECT_EQ(childArguments(3, joined).size(), 2u);
}

}  // namespace
}  // namespace gloo_bypass::trainer
