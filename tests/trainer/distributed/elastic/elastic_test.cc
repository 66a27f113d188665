// Ranks that are killed while they train, and how the run continues.
#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <limits>
#include <map>
#include <random>
#include <set>
#include <sstream>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/support/temporary_folder.h"
#include "tests/trainer/tiny_training.h"
#include "tests/trainer/training_results.h"
#include "tools/common/free_port.h"
#include "trainer/data/sampler.h"
#include "trainer/files/safetensors.h"
#include "transport/base/file_descriptor.h"

namespace gloo_bypass::trainer::testing {
namespace {

using Json = nlohmann::json;

std::vector<std::string> elastic(const TemporaryFolder& folder, std::vector<std::string> more) {
  more.insert(more.begin(), {"--batch-size", "2", "--checkpoint", folder / "c", "--checkpoint-every", "5",
                             "--log-samples", folder / "samples", "--no-progress", "--verify-ranks"});
  return more;
}

// The last try of each step counts: every sample of the epoch's batches, in exactly one kept step.
void expectEverySampleOnce(const std::string& log, int64_t epochSamples, int64_t globalBatch, uint64_t seed) {
  std::map<int64_t, std::pair<int64_t, std::multiset<int64_t>>> kept;  // step -> generation, samples
  std::map<int64_t, int64_t> epochs;
  for (const Json& line : records(log)) {
    auto& [generation, samples] = kept[line["step"].get<int64_t>()];
    if (line["generation"] > generation) {
      generation = line["generation"].get<int64_t>();
      samples.clear();
    }
    epochs[line["step"].get<int64_t>()] = line["epoch"].get<int64_t>();
    samples.merge(std::multiset<int64_t>(line["samples"].get<std::multiset<int64_t>>()));
  }
  const int64_t stepsPerEpoch = epochSamples / globalBatch;
  for (const auto& [step, try_] : kept) {
    const auto order = torchPermutation(epochSamples, seed + static_cast<uint64_t>(epochs[step]));
    const auto first = order.begin() + (step - 1) % stepsPerEpoch * globalBatch;
    EXPECT_EQ(try_.second, std::multiset<int64_t>(first, first + globalBatch)) << "step " << step;
  }
  EXPECT_EQ(static_cast<int64_t>(kept.size()), stepsPerEpoch);
}

TEST(Elastic, TwoRanksKilled_RestGoesOnAndEachSampleCountsOnce) {
  const TemporaryFolder folder;
  const std::vector<std::string> common{"--precision", "fp64", "--samples", "400"};
  auto flags = elastic(folder, {"--elastic", "2:4"});
  flags.insert(flags.end(), common.begin(), common.end());
  Program process = startTraining(flags);
  killAt(process, 1, "\"step\":8");
  killAt(process, 0, "\"event\":\"restart\"");
  const auto finished = process.finish(kLimit);
  ASSERT_EQ(finished.shellStatus(), 0) << finished.err;
  const auto restarts = records(finished.out, "restart");
  ASSERT_EQ(restarts.size(), 2u) << finished.out;
  EXPECT_EQ(restarts[0]["world_size"], 3);
  EXPECT_EQ(restarts[1]["world_size"], 2);
  EXPECT_EQ(restarts[0]["step"].get<int>() % 5, 0);
  EXPECT_GE(restarts[0]["repeated_steps"].get<int>(), 0);
  EXPECT_GT(restarts[0]["lost_seconds"].get<double>(), 0);
  expectEverySampleOnce(contentsOf(folder / "samples"), 400, 8, 42);
  // Every record names its generation, so that repeated steps can be told apart.
  int64_t generation = 0;
  std::set<std::pair<int64_t, int64_t>> steps;
  for (const Json& record : records(finished.out)) {
    ASSERT_TRUE(record.contains("generation")) << record;
    generation = record["event"] == "start" ? record["generation"].get<int64_t>() : generation;
    EXPECT_EQ(record["generation"], generation) << record;
    EXPECT_TRUE(record["event"] != "step" || steps.emplace(generation, record["step"].get<int64_t>()).second) << record;
  }
  EXPECT_EQ(generation, 2);
  // The same batches and weights as in an undisturbed run, up to the order of additions.
  const TemporaryFolder undisturbed;
  const auto straight = train({"--batch-size", "8", "--precision", "fp64", "--samples", "400"});
  ASSERT_EQ(straight.shellStatus(), 0) << straight.err;
  std::map<int, double> expected, actual;
  for (const Json& step : records(straight.out, "step"))
    expected[step["step"].get<int>()] = step["loss_mean"].get<double>();
  for (const Json& step : records(finished.out, "step"))
    actual[step["step"].get<int>()] = step["loss_mean"].get<double>();
  ASSERT_EQ(actual.size(), 50u);
  for (const auto& [step, loss] : expected) EXPECT_NEAR(loss, actual[step], 1e-8) << step;
}

TEST(Elastic, AllRanksThere_EndsBitIdenticalToPlainDdp) {
  const TemporaryFolder folder;
  const auto elasticRun = train(elastic(folder, {"--elastic", "1:3", "--steps", "6"}));
  const auto plain = train({"--batch-size", "2", "--spawn", "3", "--steps", "6", "--no-progress"});
  ASSERT_EQ(elasticRun.shellStatus(), 0) << elasticRun.err;
  ASSERT_EQ(plain.shellStatus(), 0) << plain.err;
  EXPECT_EQ(records(elasticRun.out, "summary").at(0)["sha256"], records(plain.out, "summary").at(0)["sha256"]);
}

TEST(Elastic, PlaceWithoutRest_IsFilledAtTheRestart) {
  const TemporaryFolder folder;
  Program process = startTraining(elastic(folder, {"--elastic", "2:2", "--rejoin-after", "0", "--steps", "40"}));
  killAt(process, 1, "\"step\":7");
  const auto finished = process.finish(kLimit);
  ASSERT_EQ(finished.shellStatus(), 0) << finished.err;
  EXPECT_EQ(records(finished.out, "restart").at(0)["world_size"], 2);
}

TEST(Elastic, TooFewLeft_EndsWithTheReasonAndTheCheckpointsStep) {
  const TemporaryFolder folder;
  Program process = startTraining(elastic(folder, {"--elastic", "2:2", "--steps", "1000000"}));
  killAt(process, 1, "\"step\":8");
  const auto finished = process.finish(kLimit);
  EXPECT_EQ(finished.shellStatus(), 128 + SIGKILL);
  EXPECT_NE(finished.err.find("1 ranks are left, --elastic 2:2 needs 2: 1 of 2: rank 1"), std::string::npos)
      << finished.err;
  EXPECT_NE(finished.err.find("holds step "), std::string::npos) << finished.err;
}

TEST(Elastic, Terminated_EndsWithoutRestart) {
  const TemporaryFolder folder;
  Program process = startTraining(elastic(folder, {"--elastic", "1:2", "--steps", "1000000"}));
  ASSERT_TRUE(process.waitForOutput("\"step\":3", kLimit));
  const auto ranks = ranksOf(process.pid());
  ::kill(process.pid(), SIGTERM);
  const auto finished = process.finish(kLimit);
  EXPECT_EQ(finished.shellStatus(), 128 + SIGTERM);
  EXPECT_TRUE(records(finished.out, "restart").empty());
  EXPECT_EQ(ranks.size(), 2u);
  for (const auto& [rank, pid] : ranks) EXPECT_NE(::kill(pid, 0), 0) << "rank " << rank << " is left";
}

TEST(Elastic, KilledAnywhereInAWrite_CheckpointIsWhole) {
  const TemporaryFolder folder;
  const auto seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  ASSERT_EQ(train({"--steps", "1", "--checkpoint", folder / "c", "--elastic", "1:1"}).shellStatus(), 0);  // one to lose
  for (int round = 0; round < 4; ++round) {
    Program process = startTraining({"--steps", "1000000", "--checkpoint", folder / "c", "--checkpoint-every", "1",
                                     "--elastic", "1:1", "--no-progress", "--max-restarts", "0"});
    // A step's record is written just before its checkpoint: from there a random number of looks at the process's
    // children.
    ASSERT_TRUE(process.waitForOutput("\"tokens_per_s\"", kLimit));
    pid_t writer = 0;
    for (auto looks = 1 + random() % 200; looks > 0; --looks) {
      writer = ranksOf(process.pid()).at(0);
    }
    ASSERT_EQ(::kill(writer, SIGKILL), 0);
    process.finish(kLimit);
    ASSERT_TRUE(std::filesystem::exists(folder / "c"));
    EXPECT_NO_THROW(SafetensorsFile file(folder / "c"));
    for (const auto& entry : std::filesystem::directory_iterator(folder.path)) {
      EXPECT_EQ(entry.path().filename().string().find(".tmp."), std::string::npos) << entry.path();
    }
  }
}

TEST(Elastic, PortThatTheLauncherDrewWasTaken_AnotherIsDrawn) {
  const TemporaryFolder folder;
  const auto finished = train(elastic(folder, {"--elastic", "1:2", "--rejoin-after", "0", "--steps", "2"}),
                              withFailing("TEST_PORT_TAKEN_ONCE", folder / "taken"));
  EXPECT_EQ(finished.shellStatus(), 0) << finished.err;
  EXPECT_TRUE(std::filesystem::exists(folder / "taken"));
  EXPECT_NE(finished.err.find("restart 1 of "), std::string::npos) << finished.err;
}

TEST(Elastic, FileSystemWithoutHardLinks_TheOneBeforeIsKept) {
  const TemporaryFolder folder;
  const auto finished = train(elastic(folder, {"--elastic", "1:1", "--steps", "3", "--checkpoint-every", "1"}),
                              withFailing("TEST_NO_HARD_LINKS", "1"));
  EXPECT_EQ(finished.shellStatus(), 0) << finished.err;
  EXPECT_NO_THROW(SafetensorsFile file(folder / "c"));
  EXPECT_NO_THROW(SafetensorsFile file(folder / "c.previous"));
}

TEST(Elastic, LeftByKilledWriters_IsRemovedAndNothingElse) {
  const TemporaryFolder folder;
  const std::string ended = std::to_string(std::numeric_limits<pid_t>::max()),
                    running = folder / "c.tmp." + std::to_string(::getpid());
  const std::vector<std::string> left = {"c.tmp." + ended, "c.previous.tmp." + ended};
  const std::vector<std::string> others = {"c.tmp." + ended + "0", "c.tmp.x", "cc.tmp." + ended};
  for (const auto& names : {left, others}) {
    for (const auto& name : names) writeText(folder / name, "");
  }
  writeText(running, "");
  const FileDescriptor file(::open(running.c_str(), O_RDWR | O_CLOEXEC));
  ASSERT_EQ(::flock(file.get(), LOCK_EX), 0);  // as a writer has it
  ASSERT_EQ(train(elastic(folder, {"--elastic", "1:1", "--steps", "1"})).shellStatus(), 0);
  for (const auto& name : left) EXPECT_FALSE(std::filesystem::exists(folder / name)) << name;
  for (const auto& name : others) EXPECT_TRUE(std::filesystem::exists(folder / name)) << name;
  EXPECT_TRUE(std::filesystem::exists(running));
}

TEST(Elastic, CheckpointUnreadableOrMissing_TheOneBeforeIsUsedAndNamed) {
  for (const bool isMissing : {false, true}) {
    const TemporaryFolder folder;
    ASSERT_EQ(train(elastic(folder, {"--elastic", "1:2", "--steps", "10"})).shellStatus(), 0);
    if (isMissing) {
      std::filesystem::remove(folder / "c");
    } else {
      writeText(folder / "c", contentsOf(folder / "c").substr(0, 1000));
    }
    const auto finished = train(elastic(folder, {"--elastic", "1:2", "--steps", "12"}));
    EXPECT_EQ(finished.shellStatus(), 0) << finished.err;
    EXPECT_EQ(records(finished.out, "start").at(0)["first_step"], 6);
    EXPECT_NE(finished.err.find("; continuing from " + (folder / "c.previous")), std::string::npos) << finished.err;
  }
}

TEST(Elastic, DamagedCheckpointAndFullDisk_TheOneBeforeStaysWhole) {
  const TemporaryFolder folder;
  ASSERT_EQ(train(elastic(folder, {"--elastic", "1:1", "--steps", "10"})).shellStatus(), 0);
  writeText(folder / "c", contentsOf(folder / "c").substr(0, 1000));
  const std::string before = contentsOf(folder / "c.previous");
  Program process =
      startTraining(elastic(folder, {"--elastic", "1:1", "--steps", "20", "--max-restarts", "0"}), {}, 100'000);
  EXPECT_NE(process.finish(kLimit).shellStatus(), 0) << "a checkpoint of 100 kB was written";
  EXPECT_EQ(contentsOf(folder / "c.previous"), before);
}

// A restarted run meets the full disk again, and no rank is lost.
TEST(Elastic, FullDisk_EndsWithTheReasonAndWithoutRestart) {
  const TemporaryFolder folder;
  ASSERT_EQ(train(elastic(folder, {"--elastic", "1:2", "--steps", "5"})).shellStatus(), 0);
  const std::string before = contentsOf(folder / "c");
  for (const std::vector<std::string>& more :
       {std::vector<std::string>{}, {"--log-samples", "/dev/full"}, {"--metrics", "/dev/full"}}) {
    auto flags = elastic(folder, {"--elastic", "1:2", "--steps", "20"});
    flags.insert(flags.end(), more.begin(), more.end());
    Program process = startTraining(flags, {}, more.empty() ? 100'000 : 0);
    const auto finished = process.finish(kLimit);
    EXPECT_EQ(finished.shellStatus(), 1) << finished.err;
    EXPECT_EQ(finished.err.find("; restart 1 of"), std::string::npos) << finished.err;
    EXPECT_NE(finished.err.find("; a restart would meet it again: rank "), std::string::npos) << finished.err;
    EXPECT_NE(finished.err.find(more.empty() ? ": File too large" : "cannot write /dev/full: No space left on device"),
              std::string::npos)
        << finished.err;
    EXPECT_NE(finished.err.find("c holds step 5: the same command continues from it"), std::string::npos)
        << finished.err;
    EXPECT_EQ(contentsOf(folder / "c"), before);
  }
}

TEST(Elastic, ShardedModel_HasTheSameBits) {
  const TemporaryFolder plain, sharded;
  const auto digest = [](const TemporaryFolder& folder, const std::string& zero) {
    const auto finished = train(elastic(folder, {"--elastic", "2:2", "--steps", "6", "--zero", zero}));
    EXPECT_EQ(finished.shellStatus(), 0) << finished.err;
    return records(finished.out, "summary").at(0)["sha256"].get<std::string>();
  };
  EXPECT_EQ(digest(sharded, "1"), digest(plain, "0"));
}

// As under torchrun: its agents count restarts separately, so a new agent's rank may be the first, and says 0.
TEST(Elastic, AnotherLauncherRestartsWithMoreRanks_EachSampleCountsOnce) {
  const TemporaryFolder folder;
  const auto flags = elastic(folder, {"--elastic", "1:2", "--samples", "800"});
  for (int start = 0; start < 2;
       ++start) {  // the second time it repeats the steps after the checkpoint, and gets no further
    Program alone = startTraining(flags, rankOf(0, 1, freePort()));
    ASSERT_TRUE(alone.waitForOutput(start == 0 ? "\"step\":8," : "\"event\":\"restart\"", kLimit));
    ASSERT_EQ(::kill(alone.pid(), SIGKILL), 0);
    alone.finish(kLimit);
  }
  const uint16_t port = freePort();
  const auto both = [&](int rank) {
    Environment environment = rankOf(rank, 2, port);
    environment["TORCHELASTIC_RESTART_COUNT"] = rank == 0 ? "0" : "1";
    return environment;
  };
  Program second = startTraining(flags, both(1));
  const auto finished = train(flags, both(0));
  ASSERT_EQ(finished.shellStatus(), 0) << finished.err;
  ASSERT_EQ(second.finish(kLimit).shellStatus(), 0);
  const auto restarts = records(finished.out, "restart");
  ASSERT_EQ(restarts.size(), 1u) << finished.out;
  EXPECT_EQ(restarts[0]["generation"], 2);
  EXPECT_EQ(restarts[0]["world_size"], 2);
  expectEverySampleOnce(contentsOf(folder / "samples"), 800, 4, 42);
}

TEST(Elastic, CheckpointThatRankZeroHasNot_IsRefused) {
  const TemporaryFolder folder, other;
  ASSERT_EQ(train(elastic(folder, {"--elastic", "1:2", "--steps", "10"})).shellStatus(), 0);
  const uint16_t port = freePort();
  Program first = startTraining(elastic(other, {"--elastic", "1:2", "--steps", "20"}), rankOf(0, 2, port));
  const auto second = train(elastic(folder, {"--elastic", "1:2", "--steps", "20"}), rankOf(1, 2, port));
  EXPECT_EQ(second.shellStatus(), 2);
  EXPECT_NE(
      second.err.find(
          "holds step 10 here, but rank 0 starts from step 0: --checkpoint must be a file that all machines share"),
      std::string::npos)
      << second.err;
  EXPECT_NE(first.finish(kLimit).shellStatus(), 0);
}

// Its model would be handed out as that of the last step asked for.
TEST(Elastic, CheckpointIsBeyondTheLastStep_IsRefused) {
  const TemporaryFolder folder;
  ASSERT_EQ(train(elastic(folder, {"--elastic", "1:1", "--steps", "4"})).shellStatus(), 0);
  const auto again = train(elastic(folder, {"--elastic", "1:1", "--steps", "4"}));
  EXPECT_EQ(again.shellStatus(), 0) << again.err;
  const auto less = train(elastic(folder, {"--elastic", "1:1", "--steps", "3", "--save-model", folder / "m"}));
  EXPECT_EQ(less.shellStatus(), 2) << less.out;
  EXPECT_NE(less.err.find("has done 4 steps already, of 3 asked for"), std::string::npos) << less.err;
  EXPECT_FALSE(std::filesystem::exists(folder / "m"));
}

TEST(Elastic, BadInput_IsRefused) {
  const auto refused = [](const std::vector<std::string>& flags, const std::string& reason) {
    const auto finished = train(flags);
    EXPECT_EQ(finished.shellStatus(), 2) << finished.out;
    EXPECT_NE(finished.err.find(reason), std::string::npos) << finished.err;
  };
  refused({"--elastic", "3:2", "--checkpoint", "c"}, "MIN is larger than MAX");
  refused({"--elastic", "2", "--checkpoint", "c"}, "must be MIN:MAX");
  refused({"--elastic", "1:2"}, "--elastic needs --checkpoint");
  refused({"--elastic", "2:3", "--checkpoint", "c", "--spawn", "1"}, "--spawn 1: outside of --elastic 2:3");
}

}  // namespace
}  // namespace gloo_bypass::trainer::testing
