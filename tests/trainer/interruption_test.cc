// Programs that are ended while they write: nothing half-written stays, and the next run removes what SIGKILL leaves.
// DDP_TRAIN and TOKENISE name the programs, FAILING_CALLS the library that makes fsync take long.
#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <limits>
#include <set>
#include <string>
#include <thread>

#include <gtest/gtest.h>

#include "tests/support/temporary_folder.h"
#include "tests/trainer/tiny_training.h"
#include "tests/trainer/training_results.h"
#include "trainer/files/safetensors.h"
#include "transport/base/file_descriptor.h"

namespace gloo_bypass::trainer::testing {
namespace {

namespace fs = std::filesystem;

std::set<std::string> filesIn(const std::string& folder) {
  std::set<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) names.insert(entry.path().filename().string());
  return names;
}

bool hasNameWith(const std::string& folder, const std::string& part) {
  const auto names = filesIn(folder);
  return std::any_of(names.begin(), names.end(),
                     [&](const std::string& name) { return name.find(part) != std::string::npos; });
}

bool comes(const std::string& folder, const std::string& part) {
  const auto end = std::chrono::steady_clock::now() + kLimit;
  while (!hasNameWith(folder, part) && std::chrono::steady_clock::now() < end)
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  return hasNameWith(folder, part);
}

Environment withSlowDisk() { return withFailing("TEST_FSYNC_SECONDS", "60"); }

class Interruption : public ::testing::TestWithParam<int> {
 protected:
  // Ends `process` once it writes; returns the files left in `folder`.
  std::set<std::string> leftBy(Program& process, const std::string& folder, const std::string& written) {
    EXPECT_TRUE(comes(folder, written));
    ::kill(process.pid(), GetParam());
    return leftBy(process, folder);
  }

  // Of one that has been told to end.
  std::set<std::string> leftBy(Program& process, const std::string& folder) {
    const auto finished = process.finish(kLimit);
    EXPECT_EQ(finished.shellStatus(), 128 + GetParam()) << finished.err;
    EXPECT_LT(finished.elapsed, std::chrono::seconds(50)) << "it waited for the disk";
    return filesIn(folder);
  }
  TemporaryFolder folder_;
};

TEST_P(Interruption, WhileRanksWriteTheirFiles_LeavesNothing) {
  auto process = startTraining({"--spawn", "2", "--average", "local-sgd", "--steps", "9", "--checkpoint", folder_ / "c",
                                "--checkpoint-every", "1"},
                               withSlowDisk());
  EXPECT_EQ(leftBy(process, folder_.path, "c.step1.rank1.tmp."), std::set<std::string>{});
}

TEST_P(Interruption, WhileACheckpointIsWritten_LeavesTheOneBefore) {
  digestOf(train({"--steps", "1", "--checkpoint", folder_ / "c"}));
  const std::string before = contentsOf(folder_ / "c");
  auto process =
      startTraining({"--steps", "9", "--checkpoint", folder_ / "c", "--checkpoint-every", "1"}, withSlowDisk());
  EXPECT_EQ(leftBy(process, folder_.path, "c.tmp."), std::set<std::string>{"c"});
  EXPECT_EQ(contentsOf(folder_ / "c"), before);
}

TEST_P(Interruption, WhileTextIsTokenised_LeavesNoFolder) {
  Program process(std::getenv("TOKENISE"),
                  {std::getenv("SAMPLE_TEXT"), "--output", folder_ / "t", "--shard-tokens", "1000"}, withSlowDisk());
  EXPECT_EQ(leftBy(process, folder_.path, "t.partial."), std::set<std::string>{});
}

TEST_P(Interruption, SentTwiceAtOnce_LeavesNothing) {  // by a terminal, and by the launcher that hands it on
  auto environment = withSlowDisk();
  environment["TEST_REMOVE_SECONDS"] = "1";
  auto process = startTraining({"--steps", "9", "--checkpoint", folder_ / "c", "--checkpoint-every", "1"}, environment);
  ASSERT_TRUE(comes(folder_.path, "c.tmp."));
  for (int i = 0; i < 50; ++i) {
    ::kill(process.pid(), GetParam());
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  EXPECT_EQ(leftBy(process, folder_.path), std::set<std::string>{});
}

INSTANTIATE_TEST_SUITE_P(Signals, Interruption, ::testing::Values(SIGINT, SIGTERM, SIGHUP),
                         [](const auto& info) { return std::string(::sigabbrev_np(info.param)); });

TEST(Leftovers, OfKilledWriters_GoWithTheNextRun) {
  const TemporaryFolder folder;
  const Flags flags{"--spawn", "2", "--average", "local-sgd", "--checkpoint", folder / "c", "--checkpoint-every", "1"};
  {
    auto process = startTraining(Flags{"--steps", "9"} + flags, withSlowDisk());
    ASSERT_TRUE(comes(folder.path, "c.step1.rank1.tmp.") && comes(folder.path, "c.step1.rank0.tmp."));
  }  // SIGKILL, to the launcher and with it to the ranks
  ASSERT_TRUE(hasNameWith(folder.path, ".tmp."));
  const auto finished = train(Flags{"--steps", "2"} + flags);
  EXPECT_EQ(finished.shellStatus(), 0) << finished.err;
  EXPECT_EQ(filesIn(folder.path), (std::set<std::string>{"c", "c.step2.rank0", "c.step2.rank1"}));
}

TEST(Leftovers, RankFilesThatNoCheckpointNeeds_AreRemovedOrNamed) {
  const TemporaryFolder folder;
  const Flags average{"--spawn", "2", "--average", "local-sgd"};
  ASSERT_EQ(train(Flags{"--steps", "4", "--checkpoint", folder / "c"} + average).shellStatus(), 0);
  ASSERT_EQ(train(Flags{"--steps", "2", "--checkpoint", folder / "other"} + average).shellStatus(), 0);
  // Files of the checkpoint's own run, of another one, of a rank that the run does not have, and a stranger's.
  for (const int rank : {0, 1}) {
    const std::string r = std::to_string(rank);
    fs::copy_file(folder / "c.step4.rank" + r, folder / "c.step6.rank" + r);
    fs::rename(folder / "other.step2.rank" + r, folder / "c.step2.rank" + r);
  }
  fs::copy_file(folder / "c.step4.rank0", folder / "c.step6.rank7");
  const std::string ended = std::to_string(std::numeric_limits<pid_t>::max());
  for (const std::string& name : {"c.step8.rank1.tmp." + ended, std::string("c.step4.rank0.bak"),
                                  std::string("c.stepx.rank0"), std::string("cc.step4.rank0")})
    writeText(folder / name, "");
  const auto finished = train(Flags{"--steps", "5", "--resume", folder / "c", "--checkpoint", folder / "c"} + average);
  EXPECT_EQ(finished.shellStatus(), 0) << finished.err;
  EXPECT_EQ(filesIn(folder.path),
            (std::set<std::string>{"c", "c.step5.rank0", "c.step5.rank1", "c.step2.rank0", "c.step2.rank1", "other",
                                   "c.step4.rank0.bak", "c.stepx.rank0", "cc.step4.rank0"}));
  for (const char* rank : {"0", "1"}) {
    EXPECT_NE(finished.err.find((folder / "c.step2.rank") + rank + ": the checkpoint at " + (folder / "c") +
                                " does not need that"),
              std::string::npos)
        << finished.err;
  }
  EXPECT_EQ(finished.err.find("step4"), std::string::npos) << finished.err;
}

TEST(Leftovers, OfTheResumedCheckpointByAnotherPath_AreReplaced) {
  const TemporaryFolder folder;
  const Flags average{"--spawn", "2", "--average", "local-sgd"};
  ASSERT_EQ(train(Flags{"--steps", "2", "--checkpoint", folder / "c"} + average).shellStatus(), 0);
  const auto finished =
      train(Flags{"--steps", "4", "--resume", folder / "c", "--checkpoint", folder / "./c"} + average);
  EXPECT_EQ(finished.shellStatus(), 0) << finished.err;
  EXPECT_EQ(filesIn(folder.path), (std::set<std::string>{"c", "c.step4.rank0", "c.step4.rank1"}));
}

// The checkpoint is rank 0's: elsewhere nobody knows whether it needs a rank's file.
TEST(Leftovers, RankOfAnotherMachine_NamesNoFileThatIsNeeded) {
  const TemporaryFolder folder, other;
  const auto trainOnTwo = [&](const Flags& flags) {
    const uint16_t port = freePort();
    const Flags average{"--average", "local-sgd"};
    Program first = startTraining(flags + average + Flags{"--checkpoint", folder / "c"}, rankOf(0, 2, port));
    const auto second = train(flags + average + Flags{"--checkpoint", other / "c"}, rankOf(1, 2, port));
    EXPECT_EQ(second.shellStatus(), 0) << second.err;
    EXPECT_EQ(first.finish(kLimit).shellStatus(), 0);
    return second.err;
  };
  trainOnTwo({"--steps", "2"});
  ASSERT_EQ(filesIn(other.path), (std::set<std::string>{"c.step2.rank1"}));
  EXPECT_EQ(trainOnTwo({"--steps", "2"}).find("does not need"), std::string::npos);
}

TEST(Leftovers, FileThatAnotherWrites_Stays) {
  const TemporaryFolder folder;
  const std::string ended = std::to_string(std::numeric_limits<pid_t>::max()),
                    mine = (folder / "c.tmp.") + std::to_string(::getpid());
  writeText(mine, "");
  writeText(folder / "c.tmp." + ended, "");
  const FileDescriptor written(::open(mine.c_str(), O_RDWR | O_CLOEXEC));
  ASSERT_EQ(::flock(written.get(), LOCK_EX), 0);  // as a writer has it
  digestOf(train({"--steps", "1", "--checkpoint", folder / "c"}));
  EXPECT_TRUE(fs::exists(mine));
  EXPECT_FALSE(fs::exists(folder / "c.tmp." + ended));
}

TEST(Leftovers, OfTokenise_AreNamed) {
  const TemporaryFolder folder;
  fs::create_directory(folder / "t.partial.abcdef");
  const auto made =
      Program(std::getenv("TOKENISE"), {std::getenv("SAMPLE_TEXT"), "--output", folder / "t"}).finish(kLimit);
  EXPECT_EQ(made.shellStatus(), 0);
  EXPECT_EQ(made.err, "tokenise: " + (folder / "t.partial.abcdef") +
                          " is there: remove it, if a run that was killed has left it\n");
  EXPECT_EQ(filesIn(folder.path), (std::set<std::string>{"t", "t.partial.abcdef"}));
}

}  // namespace
}  // namespace gloo_bypass::trainer::testing
