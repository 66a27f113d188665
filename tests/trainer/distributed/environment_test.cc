#include <map>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/support/temporary_folder.h"
#include "tools/common/error.h"
#include "trainer/config/trajectory.h"
#include "trainer/distributed/rank_environment.h"
#include "trainer/files/file_io.h"

namespace gloo_bypass::trainer {
namespace {

RankEnvironment read(const std::map<std::string, std::string>& variables) {
  return readRankEnvironment([&](const char* name) -> const char* {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  });
}

void expectRefused(const std::map<std::string, std::string>& variables, const std::string& reason) {
  try {
    read(variables);
    FAIL() << "accepted; expected " << reason;
  } catch (const ProgramError& error) {
    EXPECT_EQ(error.exitStatus(), kExitUsage);
    EXPECT_NE(std::string(error.what()).find(reason), std::string::npos) << error.what();
  }
}

TEST(RankEnvironment, Nothing_IsASingleRank) {
  const auto environment = read({});
  EXPECT_FALSE(environment.launched);
  EXPECT_EQ(environment.worldSize, 1);
}

TEST(RankEnvironment, TorchVariables_AreRead) {
  const auto environment =
      read({{"RANK", "2"}, {"WORLD_SIZE", "4"}, {"MASTER_ADDR", "10.0.0.1"}, {"MASTER_PORT", "1234"}});
  EXPECT_TRUE(environment.launched);
  EXPECT_EQ(environment.rank, 2);
  EXPECT_EQ(environment.worldSize, 4);
  EXPECT_EQ(environment.masterAddress, "10.0.0.1");
  EXPECT_EQ(environment.masterPort, 1234);
}

TEST(RankEnvironment, TorchrunAgent_ServesTheStore) {
  const auto environment = read({{"RANK", "0"},
                                 {"WORLD_SIZE", "2"},
                                 {"MASTER_ADDR", "a"},
                                 {"TORCHELASTIC_USE_AGENT_STORE", "True"},
                                 {"TORCHELASTIC_RESTART_COUNT", "3"}});
  EXPECT_TRUE(environment.agentStore);
  EXPECT_EQ(environment.storePrefix, "/worker/attempt_3");
}

TEST(RankEnvironment, SlurmAndOpenMpi_StandIn) {
  EXPECT_EQ(read({{"SLURM_PROCID", "1"}, {"SLURM_NTASKS", "2"}, {"MASTER_ADDR", "a"}}).rank, 1);
  const auto mpi = read({{"OMPI_COMM_WORLD_RANK", "1"},
                         {"OMPI_COMM_WORLD_SIZE", "2"},
                         {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
                         {"SLURM_PROCID", "0"},
                         {"SLURM_NTASKS", "1"}});
  EXPECT_EQ(mpi.rank, 1);
  EXPECT_EQ(mpi.masterAddress, "127.0.0.1");
}

TEST(RankEnvironment, WrongValues_NameVariableAndRange) {
  expectRefused({{"RANK", "0"}}, "RANK and WORLD_SIZE must be set together");
  expectRefused({{"RANK", "2"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "a"}}, "ranks count from 0 to 1");
  expectRefused({{"RANK", "x"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "a"}}, "RANK=x: must be a whole number");
  expectRefused({{"RANK", "-1"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "a"}}, "RANK=-1: must be");
  expectRefused({{"RANK", "0"}, {"WORLD_SIZE", "2 "}, {"MASTER_ADDR", "a"}}, "WORLD_SIZE=2 : must be");
  expectRefused({{"RANK", "0"}, {"WORLD_SIZE", "2"}}, "MASTER_ADDR is not set");
  expectRefused({{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "a"}, {"MASTER_PORT", "70000"}},
                "MASTER_PORT=70000");
}

Options parse(std::vector<const char*> arguments) {
  arguments.insert(arguments.begin(), "ddp_train");
  return std::get<Options>(parseOptions(static_cast<int>(arguments.size()), arguments.data()));
}

TEST(Options, Defaults_AreTheReferenceRun) {
  const auto options = parse({});
  EXPECT_EQ(options.batchSize, 8);
  EXPECT_EQ(options.seqLength, 64);
  EXPECT_EQ(options.samples, 400);
  EXPECT_EQ(options.bucketCapMb, 25);
  EXPECT_EQ(options.firstBucketMb, 1);
  EXPECT_EQ(options.clipNorm, 0);
  EXPECT_TRUE(options.barrier);
}

TEST(Options, Flags_AreRead) {
  const auto options = parse({"--model", "tiny", "--precision", "fp64", "--no-barrier", "--no-ddp", "--accumulate=3"});
  EXPECT_EQ(options.model, "tiny");
  EXPECT_EQ(options.precision.type, Precision::kFloat64);
  EXPECT_FALSE(options.barrier);
  EXPECT_FALSE(options.ddp);
  EXPECT_EQ(options.accumulate, 3);
}

TEST(Options, WrongValues_AreRefused) {
  EXPECT_THROW(parse({"--batch-size", "0"}), UsageError);
  EXPECT_THROW(parse({"--model", "gpt9"}), UsageError);
  EXPECT_THROW(parse({"--vocab", "vocab.json"}), UsageError);
  EXPECT_THROW(parse({"--checkpoint-every", "5"}), UsageError);
  EXPECT_THROW(parse({"--resume", "a", "--weights", "b"}), UsageError);
  EXPECT_THROW(parse({"--nonsense"}), UsageError);
}

TEST(Options, Difference_NamesTheFirstFieldThatDiffers) {
  Options one, other;
  other.batchSize = 16;
  EXPECT_EQ(firstDifference(trajectoryOf(one, {}), trajectoryOf(other, {}), "there"), "batch_size: 8 here, 16 there");
  EXPECT_EQ(firstDifference(trajectoryOf(one, {}), trajectoryOf(one, {}), "there"), "");
}

TEST(AtomicFile, WithoutCommit_LeavesNothing) {
  const TemporaryFolder folder;
  writeText(folder / "a", "old");
  {
    AtomicFile file(folder / "a");
    file.write("new");
  }
  EXPECT_EQ(contentsOf(folder / "a"), "old");
  {
    AtomicFile file(folder / "a");
    file.write("new");
    file.commit();
  }
  EXPECT_EQ(contentsOf(folder / "a"), "new");
}

TEST(LineWriter, Lines_AreInTheFileAtOnce) {
  const TemporaryFolder folder;
  LineWriter writer(folder / "log");
  writer.writeLine("one");
  EXPECT_EQ(contentsOf(folder / "log"), "one\n");
}

TEST(LineWriter, ExistingFile_IsReplacedOrAppendedTo) {
  const TemporaryFolder folder;
  LineWriter(folder / "log").writeLine("one");
  LineWriter(folder / "log", LineWriter::Existing::kAppendTo).writeLine("two");
  EXPECT_EQ(contentsOf(folder / "log"), "one\ntwo\n");
  LineWriter(folder / "log").writeLine("three");
  EXPECT_EQ(contentsOf(folder / "log"), "three\n");
}

// As a full disk leaves it.
TEST(LineWriter, LastLineIsCutOff_AppendedLinesAreWhole) {
  const TemporaryFolder folder;
  writeText(folder / "log", "one\ntw");
  LineWriter writer(folder / "log", LineWriter::Existing::kAppendTo);
  writer.writeLine("three");
  writer.writeLine("four");
  EXPECT_EQ(contentsOf(folder / "log"), "one\ntw\nthree\nfour\n");
}

TEST(LineWriter, FullDisk_IsReported) {
  LineWriter writer("/dev/full");
  EXPECT_THROW(writer.writeLine("one"), ProgramError);
}

}  // namespace
}  // namespace gloo_bypass::trainer
