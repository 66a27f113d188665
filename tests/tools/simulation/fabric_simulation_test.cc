// The program itself: its table, files and exit statuses.
#include <gtest/gtest.h>

#include <csignal>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "tests/support/program.h"
#include "tests/support/temporary_folder.h"

namespace gloo_bypass::sim {
namespace {

const std::string kSites = std::string(FABRIC_EXAMPLES) + "/ring-23-sites.toml";

ProgramResult simulate(const std::vector<std::string>& arguments) {
  return runProgram(FABRIC_SIMULATION_PATH, arguments);
}

TEST(FabricSimulation, SeveralRanks_AreTableAndJsonAndCsv) {
  const TemporaryFolder folder;
  const std::string json = folder.path + "/s.json", csv = folder.path + "/s.csv";
  const auto result = simulate({"--config", kSites, "--ranks", "2,4", "--bytes", "1MB", "--loss", "1%", "--groups", "2",
                                "--json", json, "--csv", csv});
  ASSERT_EQ(result.exitStatus, 0) << result.err;
  EXPECT_EQ(result.err, "");  // no terminal, no progress
  EXPECT_NE(result.out.find("schedule with repetitions"), std::string::npos) << result.out;
  const auto report = nlohmann::json::parse(contentsOf(json));
  EXPECT_EQ(report["schema"], "gloo-bypass/fabric-simulation/1");
  EXPECT_EQ(report["inputs"]["loss"], "1%");
  ASSERT_EQ(report["results"].size(), 2u);
  const auto& four = report["results"][1];
  EXPECT_EQ(four["ranks"], 4);
  EXPECT_EQ(four["times_s"].size(), 2u);
  EXPECT_EQ(four["times_s"][0].size(), 3u);
  EXPECT_GT(four["time_s"]["median"].get<double>(), 0);
  EXPECT_GT(four["model"]["schedule_with_loss_s"].get<double>(), four["model"]["schedule_s"].get<double>());
  EXPECT_GT(four["lost"]["randomly"].get<int>(), 0);
  EXPECT_EQ(four["lost"]["queue_full"], 0);
  EXPECT_GT(four["wire"]["bytes"].get<double>(), four["payload_bytes"].get<double>());
  EXPECT_GT(four["fairness"].get<double>(), 0.5);
  const std::string lines = contentsOf(csv);
  EXPECT_EQ(std::count(lines.begin(), lines.end(), '\n'), 3);
  EXPECT_EQ(lines.rfind("ranks,groups,end,median_s", 0), 0u);
  EXPECT_NE(lines.find("\n4,2,done,"), std::string::npos) << lines;
}

TEST(FabricSimulation, BadInput_IsTwoAndNothingIsWritten) {
  const TemporaryFolder folder;
  const auto result = simulate({"--config", kSites, "--bytes", "-1MB", "--json", folder.path + "/s.json"});
  EXPECT_EQ(result.exitStatus, 2);
  EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1) << result.err;
  EXPECT_FALSE(std::filesystem::exists(folder.path + "/s.json"));
}

TEST(FabricSimulation, ResultsThatCannotBeWritten_AreOne) {
  const auto result = simulate({"--config", kSites, "--ranks", "2", "--bytes", "100kB", "--json", "/nowhere/s.json"});
  EXPECT_EQ(result.exitStatus, 1);
  EXPECT_NE(result.err.find("--json: cannot write /nowhere/s.json"), std::string::npos) << result.err;
}

TEST(FabricSimulation, JsonToStandardOutput_IsWrittenOnce) {
  const auto result = simulate({"--config", kSites, "--ranks", "2,3", "--bytes", "100kB", "--json", "/dev/stdout"});
  ASSERT_EQ(result.exitStatus, 0) << result.err;
  const auto first = result.out.find("\"schema\"");
  ASSERT_NE(first, std::string::npos);
  EXPECT_EQ(result.out.find("\"schema\"", first + 1), std::string::npos);
}

TEST(FabricSimulation, Interrupted_KeepsResultsSoFar) {
  const TemporaryFolder folder;
  const std::string json = folder.path + "/s.json";
  // The second number of ranks takes far longer than this test may.
  Program program(FABRIC_SIMULATION_PATH, {"--config", kSites, "--ranks", "2,64", "--bytes", "400MB", "--iterations",
                                           "1", "--warm-ups", "0", "--mtu", "9000", "--json", json});
  ASSERT_TRUE(program.waitForOutput("\n    2 ", std::chrono::seconds(40))) << program.out();
  ::kill(program.pid(), SIGINT);
  const auto result = program.finish(std::chrono::seconds(15));
  EXPECT_EQ(result.exitStatus, 130) << result.err;
  EXPECT_NE(result.err.find("interrupted: 1 of 2"), std::string::npos) << result.err;
  const auto report = nlohmann::json::parse(contentsOf(json));
  ASSERT_GE(report["results"].size(), 1u);
  EXPECT_EQ(report["results"][0]["end"], "done");
}

}  // namespace
}  // namespace gloo_bypass::sim
