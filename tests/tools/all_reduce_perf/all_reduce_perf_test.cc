// The benchmark as users run it: real processes, real transports.
#include <signal.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <regex>
#include <sstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/support/gloo_notes.h"
#include "tests/support/program.h"
#include "tests/support/temporary_folder.h"
#include "tools/all_reduce_perf/device_factory.h"
#include "tools/common/free_port.h"

namespace gloo_bypass {
namespace {

using ::testing::HasSubstr;
using Words = std::vector<std::string>;

const std::string kPath = ALL_REDUCE_PERF_PATH;
constexpr std::chrono::seconds kPrompt{30};  // generous for a busy machine; the timeouts in play are 60 s

ProgramResult perf(const Words& arguments, const std::map<std::string, std::string>& environment = {}) {
  return runProgram(kPath, arguments, environment);
}

// The table's rows, in words.
std::vector<Words> rowsOf(const std::string& out) {
  std::vector<Words> rows;
  std::istringstream lines(out);
  for (std::string line; std::getline(lines, line);) {
    if (line.empty() || line[0] == '#') continue;
    std::istringstream words(line);
    rows.emplace_back(std::istream_iterator<std::string>(words), std::istream_iterator<std::string>());
  }
  return rows;
}

long lineCount(const std::string& text) { return std::count(text.begin(), text.end(), '\n'); }

pid_t pidOfRank(const std::string& out, int rank) {
  std::smatch match;
  const std::regex pattern("Rank +" + std::to_string(rank) + " Pid +([0-9]+)");
  return std::regex_search(out, match, pattern) ? std::stoi(match[1]) : -1;
}

nlohmann::json readJson(const std::string& path) {
  std::ifstream file(path);
  return nlohmann::json::parse(file);
}

TEST(AllReducePerf, TwoRanksOverTcp_PrintsOneCheckedRowASize) {
  const ProgramResult result = perf({"--ranks", "2", "-b", "4", "-e", "64K", "-f", "16", "-n", "3", "-c", "2"});
  ASSERT_EQ(result.exitStatus, 0) << result.err;
  const auto rows = rowsOf(result.out);
  ASSERT_EQ(rows.size(), 4u) << result.out;
  for (const Words& row : rows) {
    ASSERT_EQ(row.size(), 10u);
    EXPECT_EQ(std::stoul(row[0]), 4 * std::stoul(row[1]));
    EXPECT_EQ(row[2], "float");
    EXPECT_EQ(row[3], "sum");
    EXPECT_GT(std::stod(row[4]), 0);
    EXPECT_EQ(row[7], "0");
    EXPECT_LE(std::stod(row[8]), std::stod(row[9]));
  }
  EXPECT_EQ(rows[0][0], "4");
  EXPECT_THAT(result.out, HasSubstr("# Out of bounds values : 0 OK"));
  EXPECT_THAT(result.out, HasSubstr("# Avg bus bandwidth"));
  EXPECT_THAT(result.out, HasSubstr("TCP: tcp, "));
  EXPECT_EQ(test::withoutGloosNotes(result.err), "");
}

TEST(AllReducePerf, OwnCollectives_RunOverTheNamedInterface) {
  if (const std::string problem = transportProblem("UDP"); !problem.empty()) GTEST_SKIP() << problem;
  const Words few{"--ranks", "2", "-b", "4", "-e", "4", "-n", "1", "-w", "0", "--interface"};
  const auto over = [&](const std::string& interface, const std::string& transports) {
    Words words = few;
    words.insert(words.end(), {interface, "--transports", transports});
    return perf(words);
  };
  const ProgramResult missing = over("nosuch0", "UDP/own");
  EXPECT_EQ(missing.exitStatus, 1);
  EXPECT_THAT(missing.err, HasSubstr("there is no interface 'nosuch0'"));
  const ProgramResult beside = over("lo", "UDP,UDP/own");
  EXPECT_EQ(beside.exitStatus, 0) << beside.err;
  EXPECT_EQ(test::withoutGloosNotes(beside.err), "");
}

TEST(AllReducePerf, ResultsCannotBePrinted_IsAFailure) {
  for (const char* arguments : {" --ranks 2 -b 4 -e 4", " --help"}) {
    const ProgramResult result = runProgram("/bin/sh", {"-c", kPath + arguments + " > /dev/full"});
    EXPECT_EQ(result.exitStatus, 1) << arguments;
    EXPECT_THAT(result.err, HasSubstr("No space left on device"));
  }
}

TEST(AllReducePerf, OneRank_Works) {
  const ProgramResult result = perf({"--ranks", "1", "-b", "4", "-e", "4", "-n", "2"});
  EXPECT_EQ(result.exitStatus, 0) << result.err;
  EXPECT_EQ(rowsOf(result.out).size(), 1u);
}

struct Variant {
  const char* algorithm;
  const char* type;
  const char* op;
  const char* ranks;
};
class AllReducePerfVariant : public ::testing::TestWithParam<Variant> {};
INSTANTIATE_TEST_SUITE_P(Tcp, AllReducePerfVariant,
                         ::testing::Values(Variant{"ring", "double", "sum", "4"}, Variant{"ring", "int8", "max", "3"},
                                           Variant{"bcube", "half", "sum", "4"}, Variant{"bcube", "int64", "min", "2"},
                                           Variant{"halving_doubling", "int32", "prod", "4"},
                                           Variant{"halving_doubling", "half", "max", "3"},
                                           Variant{"ring_chunked", "uint8", "sum", "4"},
                                           Variant{"ring_chunked", "float", "prod", "2"}),
                         [](const auto& info) {
                           return std::string(info.param.algorithm) + "_" + info.param.type + "_" + info.param.op +
                                  "_" + info.param.ranks;
                         });

TEST_P(AllReducePerfVariant, SeveralSizes_ExactResults) {
  const Variant& variant = GetParam();
  const ProgramResult result = perf({"--ranks", variant.ranks, "--algorithm", variant.algorithm,
                                     "-d",      variant.type,  "-o",          variant.op,
                                     "-b",      "8",           "-e",          "200000",
                                     "-f",      "25",          "-n",          "2",
                                     "-w",      "1",           "-c",          "2"});
  ASSERT_EQ(result.exitStatus, 0) << result.err;
  const auto rows = rowsOf(result.out);
  ASSERT_EQ(rows.size(), 4u);
  for (const Words& row : rows) EXPECT_EQ(row[7], "0");
}

TEST(AllReducePerf, SmallSegments_ExactResults) {
  const ProgramResult result =
      perf({"--ranks", "2", "-b", "1M", "-e", "1M", "-n", "2", "-c", "1", "--segment-bytes", "4K"});
  EXPECT_EQ(result.exitStatus, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("segment: 4096"));
}

TEST(AllReducePerf, NoCheck_SaysNotAvailable) {
  const ProgramResult result = perf({"--ranks", "2", "-b", "4", "-e", "4", "-n", "2", "-c", "0"});
  ASSERT_EQ(result.exitStatus, 0) << result.err;
  EXPECT_EQ(rowsOf(result.out).at(0).at(7), "N/A");
}

TEST(AllReducePerf, Json_HasWhatTheTableHas) {
  const TemporaryFolder folder;
  const ProgramResult result = perf(
      {"--ranks", "2", "-b", "4", "-e", "1K", "-f", "256", "-n", "3", "--rounds", "2", "--json", folder / "out.json"});
  ASSERT_EQ(result.exitStatus, 0) << result.err;
  const nlohmann::json json = readJson(folder / "out.json");
  EXPECT_EQ(json.at("schema"), "gloo-bypass/all_reduce_perf/1");
  EXPECT_EQ(json.at("parameters").at("algorithm"), "ring");
  EXPECT_EQ(json.at("wrong_total"), 0);
  EXPECT_GT(json.at("average_busbw_gb_s").at("TCP").get<double>(), 0);
  EXPECT_TRUE(json.at("build").at("commit").is_string());
  EXPECT_EQ(json.at("build").at("transports").at(0), "TCP");
  ASSERT_EQ(json.at("ranks").size(), 2u);
  EXPECT_GT(json["ranks"][1].at("machine").at("cores").get<int>(), 0);
  EXPECT_THAT(json["ranks"][1].at("devices").at("TCP").get<std::string>(), HasSubstr("tcp"));
  ASSERT_EQ(json.at("results").size(), 2u);
  const nlohmann::json& row = json["results"][1];
  EXPECT_EQ(row.at("size"), 1024);
  EXPECT_EQ(row.at("count"), 256);
  const nlohmann::json& tcp = row.at("transports").at(0);
  EXPECT_EQ(tcp.at("transport"), "TCP");
  for (const char* name : {"time_us", "p50_us", "p99_us", "min_us", "max_us", "algbw_gb_s", "busbw_gb_s"})
    EXPECT_GT(tcp.at(name).get<double>(), 0) << name;
  EXPECT_EQ(tcp.at("wrong"), 0);
  EXPECT_EQ(tcp.at("ratio_p50"), 1.0);
  EXPECT_EQ(tcp.at("round_time_us").size(), 2u);
  ASSERT_EQ(tcp.at("round_slowest_us").size(), 2u);
  for (std::size_t round = 0; round < 2; ++round) {
    EXPECT_GE(tcp.at("round_slowest_us").at(round), tcp.at("round_time_us").at(round));
    EXPECT_GE(tcp.at("max_us"), tcp.at("round_slowest_us").at(round));
  }
  EXPECT_EQ(tcp.at("cpu_seconds_of_rank").size(), 2u);
}

TEST(AllReducePerf, ComputingBetween_TimesTheCallsAndWhatTheyAdd) {
  const TemporaryFolder folder;
  const ProgramResult result = perf({"--ranks", "2", "-b", "8K", "-e", "8K", "-n", "10", "--rounds", "3", "--compute",
                                     "3", "--json", folder / "out.json"});
  ASSERT_EQ(result.exitStatus, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("compute: 3(ms) before each"));
  EXPECT_EQ(rowsOf(result.out).at(0).size(), 12u);
  const nlohmann::json json = readJson(folder / "out.json");
  EXPECT_EQ(json.at("parameters").at("compute_milliseconds"), 3.0);
  const nlohmann::json& tcp = json.at("results").at(0).at("transports").at(0);
  // The machine may be busy and the processor's clock may change: check only that it computes, and for about so long.
  EXPECT_GT(tcp.at("round_alone_us").get<double>(), 500);
  EXPECT_GT(tcp.at("round_with_us").get<double>(), tcp.at("p50_us").get<double>());
  EXPECT_GT(tcp.at("after_last_p50_us").get<double>(), 0);
  EXPECT_LE(tcp.at("after_last_p50_us").get<double>(), tcp.at("max_us").get<double>());
  EXPECT_NEAR(tcp.at("adds_us").get<double>(),
              tcp.at("round_with_us").get<double>() - tcp.at("round_alone_us").get<double>(), 1e-6);
}

TEST(AllReducePerf, FirstCalls_AreReportedApartInTheirOrder) {
  const TemporaryFolder folder;
  const ProgramResult result = perf({"--ranks", "2", "--transports", "TCP,UDP", "-b", "4", "-e", "64", "-f", "16", "-n",
                                     "5", "--first", "7", "--json", folder / "out.json"});
  ASSERT_EQ(result.exitStatus, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("# first 7 calls of 4 bytes, TCP: the first "));
  const nlohmann::json first = readJson(folder / "out.json").at("first_calls");
  ASSERT_EQ(first.size(), 2u);
  EXPECT_EQ(first[1].at("transport"), "UDP");
  EXPECT_EQ(first[1].at("size"), 4);
  ASSERT_EQ(first[1].at("call_us").size(), 7u);
  for (const nlohmann::json& us : first[1].at("call_us")) EXPECT_GT(us.get<double>(), 0);
}

TEST(AllReducePerf, FirstCallsOfBoundBuffers_Work) {
  const ProgramResult result =
      perf({"--ranks", "3", "--algorithm", "ring_chunked", "-b", "64", "-e", "64", "-n", "2", "--first", "3"});
  EXPECT_EQ(result.exitStatus, 0) << result.err;
}

TEST(AllReducePerf, BadArguments_OneLineAndNothingStarted) {
  for (const Words& arguments : std::vector<Words>{{"--ranks", "2", "-b", "3x"},
                                                   {"--ranks", "2", "--transports", "ROCE"},
                                                   {"--ranks", "2", "-d", "quad"},
                                                   {"--no-such-flag"}}) {
    const ProgramResult result = perf(arguments);
    EXPECT_EQ(result.exitStatus, 2) << result.err;
    EXPECT_EQ(result.out, "");
    EXPECT_EQ(lineCount(test::withoutGloosNotes(result.err)), 1) << result.err;
  }
}

TEST(AllReducePerf, JsonCannotBeWritten_FailsBeforeMeasuring) {
  const ProgramResult result = perf({"--ranks", "2", "-b", "4", "-e", "4", "--json", "/nonexistent/out.json"});
  EXPECT_EQ(result.exitStatus, 1);
  EXPECT_EQ(result.out, "");
  EXPECT_THAT(result.err, HasSubstr("/nonexistent/out.json"));
}

TEST(AllReducePerf, InterfaceDoesNotExist_OneLineForAllRanks) {
  const ProgramResult result = perf({"--ranks", "2", "-b", "4", "-e", "4", "--interface", "nosuch0"});
  EXPECT_EQ(result.exitStatus, 1);
  EXPECT_THAT(result.err, HasSubstr("nosuch0"));
  EXPECT_EQ(lineCount(test::withoutGloosNotes(result.err)), 1) << result.err;
}

TEST(AllReducePerf, HostNameDoesNotResolve_OneLineForAllRanks) {
  const ProgramResult result = perf({"--ranks", "2", "-b", "4", "-e", "4", "--hostname", "nosuch.invalid"});
  EXPECT_EQ(result.exitStatus, 1);
  EXPECT_THAT(result.err, HasSubstr("nosuch.invalid"));
  EXPECT_EQ(lineCount(test::withoutGloosNotes(result.err)), 1) << result.err;
}

TEST(AllReducePerf, RankKilled_EndsPromptlyAndNamesIt) {
  const TemporaryFolder folder;
  Program program(kPath, {"--ranks", "3", "-b", "256K", "-e", "256K", "-n", "1000000", "--timeout", "60", "--json",
                          folder / "out.json"});
  ASSERT_TRUE(program.waitForOutput("(GB/s)", kPrompt));  // connected: the columns are printed
  const pid_t victim = pidOfRank(program.out(), 1);
  ASSERT_GT(victim, 0);
  ASSERT_EQ(::kill(victim, SIGKILL), 0);
  const ProgramResult result = program.finish(kPrompt);
  EXPECT_FALSE(result.timedOut);
  EXPECT_EQ(result.exitStatus, 1);
  EXPECT_THAT(result.err, HasSubstr("rank 1 (pid " + std::to_string(victim) + ") was ended by signal 9"));
  for (const int rank : {0, 2}) EXPECT_NE(::kill(pidOfRank(program.out(), rank), 0), 0) << "rank " << rank;
  EXPECT_FALSE(std::filesystem::exists(folder / "out.json"));
}

TEST(AllReducePerf, LauncherKilled_RanksEndToo) {
  Program program(kPath, {"--ranks", "2", "-b", "256K", "-e", "256K", "-n", "1000000", "--timeout", "60"});
  ASSERT_TRUE(program.waitForOutput("(GB/s)", kPrompt));
  ASSERT_EQ(::kill(program.pid(), SIGKILL), 0);
  // The ranks hold the other ends of the pipes: the streams end only when the ranks have ended.
  EXPECT_FALSE(program.finish(kPrompt).timedOut);
}

TEST(AllReducePerf, Terminated_PassesTheSignalOn) {
  Program program(kPath, {"--ranks", "2", "-b", "256K", "-e", "256K", "-n", "1000000", "--timeout", "60"});
  ASSERT_TRUE(program.waitForOutput("(GB/s)", kPrompt));
  ASSERT_EQ(::kill(program.pid(), SIGTERM), 0);
  const ProgramResult result = program.finish(kPrompt);
  EXPECT_FALSE(result.timedOut);
  EXPECT_EQ(result.exitStatus, 128 + SIGTERM);
  EXPECT_THAT(result.err, HasSubstr("signal 15"));
  for (const int rank : {0, 1}) EXPECT_NE(::kill(pidOfRank(program.out(), rank), 0), 0) << "rank " << rank;
}

TEST(AllReducePerf, RankStopped_EndsAtTheTimeout) {
  Program program(kPath,
                  {"--ranks", "2", "-b", "256K", "-e", "256K", "-n", "1000000", "--timeout", "5"});  // to connect, too
  ASSERT_TRUE(program.waitForOutput("(GB/s)", kPrompt));
  ASSERT_EQ(::kill(pidOfRank(program.out(), 1), SIGSTOP), 0);
  const ProgramResult result = program.finish(std::chrono::seconds(30));
  EXPECT_FALSE(result.timedOut);
  EXPECT_EQ(result.exitStatus, 1);
  EXPECT_THAT(result.err, HasSubstr("rank 0, TCP, "));
}

TEST(AllReducePerf, Deadline_EndsAllRanks) {
  const ProgramResult result = perf({"--ranks", "2", "-b", "256K", "-e", "256K", "-n", "1000000", "--deadline", "1"});
  EXPECT_EQ(result.exitStatus, 1);
  EXPECT_THAT(result.err, HasSubstr("--deadline"));
}

// Both ranks with the given arguments, started as a scheduler would.
std::array<ProgramResult, 2> runGiven(const Words& ofRank0, const Words& ofRank1,
                                      std::map<std::string, std::string> environment) {
  environment["WORLD_SIZE"] = "2";
  environment["RANK"] = "1";
  Program one(kPath, ofRank1, environment);
  environment["RANK"] = "0";
  Program zero(kPath, ofRank0, environment);
  return {zero.finish(std::chrono::seconds(40)), one.finish(std::chrono::seconds(40))};
}

TEST(AllReducePerf, RanksFromEnvironment_MeetAtMaster) {
  const Words arguments{"-b", "4", "-e", "4", "-n", "3", "--hostname", "127.0.0.1"};
  const auto [zero, one] =
      runGiven(arguments, arguments, {{"MASTER_ADDR", "127.0.0.1"}, {"MASTER_PORT", std::to_string(freePort())}});
  EXPECT_EQ(zero.exitStatus, 0) << zero.err;
  EXPECT_EQ(one.exitStatus, 0) << one.err;
  EXPECT_EQ(rowsOf(zero.out).size(), 1u);
  EXPECT_EQ(one.out, "");
}

TEST(AllReducePerf, RanksFromEnvironment_MeetInAFolderThatIsUsedOnce) {
  const TemporaryFolder folder;
  const Words arguments{"-b", "4", "-e", "4", "-n", "3", "--hostname", "127.0.0.1", "--store-dir", folder / "store"};
  const auto [zero, one] = runGiven(arguments, arguments, {});
  EXPECT_EQ(zero.exitStatus, 0) << zero.err;
  EXPECT_EQ(one.exitStatus, 0) << one.err;
  const auto [again, other] = runGiven(arguments, arguments, {});
  EXPECT_EQ(again.exitStatus, 1);
  EXPECT_THAT(again.err, HasSubstr("fresh folder"));
}

TEST(AllReducePerf, RanksWithDifferentFlags_NameTheDifference) {
  const Words common{"-e", "64", "--hostname", "127.0.0.1", "--timeout", "60"};  // rank 0 does not wait for it
  Words ofRank0 = common, ofRank1 = common;
  ofRank0.insert(ofRank0.end(), {"-b", "4"});
  ofRank1.insert(ofRank1.end(), {"-b", "8"});
  const auto [zero, one] =
      runGiven(ofRank0, ofRank1, {{"MASTER_ADDR", "127.0.0.1"}, {"MASTER_PORT", std::to_string(freePort())}});
  for (const ProgramResult& result : {zero, one}) {
    EXPECT_FALSE(result.timedOut);
    EXPECT_EQ(result.exitStatus, 1);
    EXPECT_THAT(result.err, HasSubstr("min_bytes is 8 here but 4 on rank 0"));
  }
  EXPECT_THAT(zero.err, HasSubstr("rank 1 says"));
}

TEST(AllReducePerf, EnvironmentIncomplete_SaysWhatIsMissing) {
  const std::map<std::string, std::string> none{{"RANK", ""}, {"WORLD_SIZE", ""}};
  const ProgramResult result = perf({"-b", "4", "-e", "4"}, none);
  EXPECT_EQ(result.exitStatus, 2);
  EXPECT_THAT(result.err, HasSubstr("--ranks N"));
  EXPECT_THAT(perf({"-b", "4", "-e", "4"}, {{"WORLD_SIZE", "2"}, {"RANK", "2"}}).err, HasSubstr("RANK=2"));
}

TEST(AllReducePerf, Idle_ReportsCpuAndMemoryOfEachRank) {
  const TemporaryFolder folder;
  const ProgramResult result = perf({"--ranks", "2", "--idle", "1", "-e", "64K", "--json", folder / "out.json"});
  ASSERT_EQ(result.exitStatus, 0) << result.err;
  EXPECT_EQ(rowsOf(result.out).size(), 2u);
  const nlohmann::json idle = readJson(folder / "out.json").at("idle").at(0);
  EXPECT_EQ(idle.at("transport"), "TCP");
  ASSERT_EQ(idle.at("ranks").size(), 2u);
  EXPECT_GE(idle["ranks"][1].at("cpu_percent").get<double>(), 0);
  EXPECT_GE(idle["ranks"][1].at("seconds").get<double>(), 1);
  EXPECT_GT(idle["ranks"][1].at("rss_bytes").get<std::uint64_t>(), 0u);
}

// Runs if DPDK is built in; its default link, memory within a host, needs neither NIC nor huge pages nor root.
class AllReducePerfDpdk : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const std::string problem = transportProblem("DPDK"); !problem.empty()) GTEST_SKIP() << problem;
  }
};

TEST_F(AllReducePerfDpdk, InterleavedWithTcp_ExactResultsAndARatio) {
  const TemporaryFolder folder;
  const ProgramResult result = perf({"--ranks", "2", "--transports", "TCP,DPDK", "-b", "4", "-e", "1M", "-f", "512",
                                     "-n", "5", "--rounds", "2", "-c", "2", "--json", folder / "out.json"});
  ASSERT_EQ(result.exitStatus, 0) << result.err;
  const auto rows = rowsOf(result.out);
  ASSERT_EQ(rows.size(), 6u) << result.out;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    EXPECT_EQ(rows[i].at(4), i % 2 == 0 ? "TCP" : "DPDK");
    EXPECT_EQ(rows[i].at(8), "0");
    EXPECT_GT(std::stod(rows[i].at(11)), 0);
  }
  EXPECT_THAT(result.out, HasSubstr("(DPDK)"));
  const nlohmann::json json = readJson(folder / "out.json");
  EXPECT_GT(json.at("average_busbw_gb_s").at("DPDK").get<double>(), 0);
}

// A rank that is ahead goes on to the next transport while another one still counts the last one's bytes.
TEST(AllReducePerf, TcpIsTimedLast_BytesOfTheCheckThatFollowsAreNotItsOwn) {
  const Words arguments{"--ranks", "2", "--transports", "UDP,TCP", "-b",       "1K", "-e", "64K",
                        "-f",      "2", "-n",           "5",       "--rounds", "1"};
  for (int i = 0; i < 5; ++i) {
    const ProgramResult result = runProgram(ALL_REDUCE_PERF_PATH, arguments);
    ASSERT_EQ(result.exitStatus, 0) << result.err;
  }
}

TEST(AllReducePerf, OwnAlgorithmsByName_ExactResultsInTurn) {
  const ProgramResult result = perf({"--ranks", "3", "--transports", "UDP,UDP/own,UDP/own:ring,UDP/own:double-tree",
                                     "-b", "4", "-e", "64K", "-f", "64", "-n", "3", "--rounds", "2", "-c", "2"});
  ASSERT_EQ(result.exitStatus, 0) << result.err;
  const auto rows = rowsOf(result.out);
  ASSERT_EQ(rows.size(), 12u) << result.out;
  const Words names{"UDP", "UDP/own", "UDP/own:ring", "UDP/own:double-tree"};
  for (std::size_t i = 0; i < rows.size(); ++i) {
    EXPECT_EQ(rows[i].at(4), names[i % 4]);
    EXPECT_EQ(rows[i].at(8), "0");
  }
}

// The leader of a two-level algorithm has its result first, and goes on to the next transport.
TEST_F(AllReducePerfDpdk, ARankIsFirst_BytesOfTheTransportThatFollowsAreNotCounted) {
  const ProgramResult result = perf({"--ranks", "4", "--transports", "UDP/own:two-level-one-shot,DPDK", "-b", "64",
                                     "-e", "16K", "-f", "256", "-n", "20", "--rounds", "10"});
  EXPECT_EQ(result.exitStatus, 0) << result.err;
}

TEST_F(AllReducePerfDpdk, OwnAlgorithmInAHostsMemory_IsRefused) {
  const ProgramResult result = perf({"--ranks", "2", "--transports", "DPDK/own:ring", "-b", "4", "-e", "4"});
  EXPECT_EQ(result.exitStatus, 1);
  EXPECT_THAT(result.err, HasSubstr("no algorithm can be chosen: measure DPDK/own"));
}

TEST_F(AllReducePerfDpdk, EachAlgorithmOnFourRanks_ExactResults) {
  for (const char* algorithm : {"ring", "halving_doubling", "bcube", "ring_chunked"}) {
    const ProgramResult result = perf({"--ranks", "4", "--transports", "DPDK", "--algorithm", algorithm, "-b", "4",
                                       "-e", "256K", "-f", "256", "-n", "3", "-c", "2"});
    EXPECT_EQ(result.exitStatus, 0) << algorithm << ": " << result.err;
  }
}

TEST_F(AllReducePerfDpdk, SixtyFourRanksOfOneHost_Connect) {
  const ProgramResult result = runProgram(
      kPath, {"--ranks", "64", "--transports", "DPDK", "-b", "4", "-e", "4", "-n", "1", "-w", "0", "--timeout", "120"},
      {}, std::chrono::seconds(170));
  ASSERT_EQ(result.exitStatus, 0) << result.err;
  EXPECT_EQ(rowsOf(result.out).size(), 1U);
}

TEST_F(AllReducePerfDpdk, RankKilled_EndsPromptlyAndNamesIt) {
  Program program(
      kPath, {"--ranks", "2", "--transports", "DPDK", "-b", "256K", "-e", "256K", "-n", "1000000", "--timeout", "60"});
  ASSERT_TRUE(program.waitForOutput("(GB/s)", kPrompt));
  const pid_t victim = pidOfRank(program.out(), 1);
  ASSERT_GT(victim, 0);
  ASSERT_EQ(::kill(victim, SIGKILL), 0);
  const ProgramResult result = program.finish(kPrompt);
  EXPECT_FALSE(result.timedOut);
  EXPECT_THAT(result.err, HasSubstr("was ended by signal 9"));
}

TEST_F(AllReducePerfDpdk, WrongSetting_OneLine) {
  const ProgramResult result =
      perf({"--ranks", "2", "--transports", "DPDK", "-b", "4", "-e", "4"}, {{"GLOO_BYPASS_LINK", "carrier-pigeon"}});
  EXPECT_EQ(result.exitStatus, 1);
  EXPECT_THAT(result.err, HasSubstr("carrier-pigeon"));
  EXPECT_EQ(lineCount(test::withoutGloosNotes(result.err)), 1) << result.err;
}

// The named transport, the devices' transport, and the expected message.
struct Mislabelled {
  const char* named;
  const char* used;
  const char* said;
};
class AllReducePerfMislabelled : public ::testing::TestWithParam<Mislabelled> {};
INSTANTIATE_TEST_SUITE_P(
    Devices, AllReducePerfMislabelled,
    ::testing::Values(Mislabelled{"UDP", "TCP", "UDP was to carry 6144 bytes at least, and carried 0"},
                      Mislabelled{"TCP", "UDP", "came over UDP"}, Mislabelled{"DPDK", "UDP", "came over UDP"},
                      Mislabelled{"DPDK", "TCP", "DPDK was to carry 6144 bytes at least, and carried 0"}),
    [](const auto& info) { return std::string(info.param.named) + "_" + info.param.used; });

TEST_P(AllReducePerfMislabelled, BytesOverAnotherTransport_AreRefused) {
  const auto& [named, used, said] = GetParam();
  const TemporaryFolder folder;
  const Words arguments{"--ranks", "2",  "--transports", named, "-b",     "4K",
                        "-e",      "4K", "-n",           "3",   "--json", folder / "out.json"};
  const ProgramResult result = runProgram(MISLABELLED_PERF_PATH, arguments, {{"PLANTED_TRANSPORT", used}});
  EXPECT_EQ(result.exitStatus, 1);
  EXPECT_THAT(result.err, HasSubstr(said));
  EXPECT_FALSE(std::filesystem::exists(folder / "out.json"));
}

TEST(AllReducePerfMislabelled, IdleRanksOverAnotherTransport_AreRefused) {
  const Words arguments{"--ranks", "2", "--transports", "TCP", "-e", "4K", "--idle", "1"};
  const ProgramResult result = runProgram(MISLABELLED_PERF_PATH, arguments, {{"PLANTED_TRANSPORT", "UDP"}});
  EXPECT_EQ(result.exitStatus, 1);
  EXPECT_THAT(result.err, HasSubstr("came over UDP"));
}

TEST(AllReducePerfMislabelled, RightDevices_AreAccepted) {
  const Words arguments{"--ranks", "2", "--transports", "UDP", "-b", "4", "-e", "4K", "-f", "32"};
  const ProgramResult result = runProgram(MISLABELLED_PERF_PATH, arguments, {{"PLANTED_TRANSPORT", "UDP"}});
  EXPECT_EQ(result.exitStatus, 0) << result.err;
}

// Needs an RDMA device, as scripts/softroce and scripts/rdma-guest make one: the suite "guest" runs it there.
class AllReducePerfRdma : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const std::string problem = transportProblem("RDMA"); !problem.empty()) GTEST_SKIP() << problem;
    std::error_code none;
    if (std::filesystem::directory_iterator("/sys/class/infiniband", none) == std::filesystem::directory_iterator())
      GTEST_SKIP() << "this machine has no RDMA device";
  }
};

TEST_F(AllReducePerfRdma, EachAlgorithmOnThreeRanks_ExactResults) {
  for (const char* algorithm : {"ring", "halving_doubling", "bcube", "ring_chunked"}) {
    const ProgramResult result = perf({"--ranks", "3", "--transports", "RDMA", "--algorithm", algorithm, "-b", "4",
                                       "-e", "256K", "-f", "256", "-n", "3", "-c", "2"});
    EXPECT_EQ(result.exitStatus, 0) << algorithm << ": " << result.err;
  }
}

TEST_F(AllReducePerfRdma, BesideGloosOwnIbverbs_ExactResultsAndARatio) {
  if (const std::string problem = transportProblem("GLOO_IBVERBS"); !problem.empty()) GTEST_SKIP() << problem;
  std::vector<const char*> algorithms = {"ring_chunked"};
  if (!hasBoundBuffersOnly("GLOO_IBVERBS")) algorithms.push_back("ring");
  for (const char* algorithm : algorithms) {
    const ProgramResult result =
        perf({"--ranks", "2", "--transports", "TCP,RDMA,GLOO_IBVERBS", "--algorithm", algorithm, "-b", "4", "-e", "1M",
              "-f", "512", "-n", "5", "--rounds", "2", "-c", "2"});
    ASSERT_EQ(result.exitStatus, 0) << algorithm << ": " << result.err;
    const auto rows = rowsOf(result.out);
    ASSERT_EQ(rows.size(), 9u) << result.out;
    for (const Words& row : rows) EXPECT_EQ(row.at(8), "0") << algorithm;
  }
}

TEST_F(AllReducePerfRdma, DeviceDoesNotExist_OneLineForAllRanks) {
  const ProgramResult result =
      perf({"--ranks", "2", "--transports", "RDMA", "-b", "4", "-e", "4"}, {{"GLOO_BYPASS_RDMA_DEVICES", "nosuch0"}});
  EXPECT_EQ(result.exitStatus, 1);
  EXPECT_THAT(result.err, HasSubstr("nosuch0"));
  EXPECT_EQ(lineCount(test::withoutGloosNotes(result.err)), 1) << result.err;
}

}  // namespace
}  // namespace gloo_bypass
