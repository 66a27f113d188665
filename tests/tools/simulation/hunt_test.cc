// The program: what it prints, and its exit statuses.
#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <fstream>

#include "tests/support/program.h"
#include "tests/support/temporary_folder.h"

namespace gloo_bypass::sim {
namespace {

ProgramResult hunt(const std::vector<std::string>& arguments) { return runProgram(HUNT_PATH, arguments); }

TEST(Hunt, FewWorlds_PrintsWhatTheyHeld) {
  const auto result = hunt({"--seeds", "20", "--from", "5"});
  EXPECT_EQ(result.exitStatus, 0) << result.out << result.err;
  EXPECT_EQ(result.out.rfind("20 worlds in ", 0), 0U) << result.out;
  EXPECT_NE(result.out.find("; 0 failures\n"), std::string::npos) << result.out;
}

TEST(Hunt, PlantedFault_IsPrintedAsAScriptThatRepeatsIt) {
  const auto found = hunt({"--seeds", "300", "--plant", "swallow", "--failures", "1", "--shrink-worlds", "500"});
  EXPECT_EQ(found.exitStatus, 1) << found.out;
  const std::size_t end = found.out.find("\n\n");
  ASSERT_NE(end, std::string::npos) << found.out;
  const TemporaryFolder folder;
  std::ofstream(folder.path + "/small.hunt") << found.out.substr(0, end + 1);
  const auto again = hunt({"--script", folder.path + "/small.hunt"});
  EXPECT_EQ(again.exitStatus, 1) << again.out << again.err;
  const std::size_t comma = found.out.find(", ");
  const std::string promise = found.out.substr(comma + 2, found.out.find('\n') - comma - 2);
  EXPECT_EQ(again.out.rfind(promise, 0), 0U) << promise << "\n" << again.out;
}

// A failure is there as soon as it is found, and a process that a fault ends has said which seed it was.
TEST(Hunt, EndedByAFault_HasPrintedWhatItFoundAndNamesTheSeed) {
  Program endless(HUNT_PATH,
                  {"--seeds", "1000000", "--plant", "swallow", "--failures", "1000", "--shrink-worlds", "1"});
  ASSERT_TRUE(endless.waitForOutput("# seed ", std::chrono::seconds(50)));
  ASSERT_EQ(::kill(endless.pid(), SIGABRT), 0);
  const auto ended = endless.finish(std::chrono::seconds(50));
  EXPECT_EQ(ended.signal, SIGABRT);
  EXPECT_EQ(ended.err.rfind("hunt: seed ", 0), 0U) << ended.err;
  EXPECT_NE(ended.err.find(" ended the process: hunt --seed "), std::string::npos) << ended.err;
}

TEST(Hunt, OneSeed_ShowsItsScript) {
  const auto result = hunt({"--seed", "7", "--show"});
  EXPECT_EQ(result.exitStatus, 0) << result.out;
  EXPECT_EQ(result.out.rfind("world seed=7", 0), 0U) << result.out;
}

TEST(Hunt, BadInput_IsTwoAndOneLine) {
  const TemporaryFolder folder;
  std::ofstream(folder.path + "/bad.hunt") << "world ranks=99\n";
  for (const auto& arguments :
       {std::vector<std::string>{"--script", folder.path + "/bad.hunt"},
        std::vector<std::string>{"--seed", "1", "--from", "2"}, std::vector<std::string>{"--seeds", "0"},
        std::vector<std::string>{"--script", folder.path + "/bad.hunt", "--plant", "flip"},
        std::vector<std::string>{"--seeds", "1", "--show"}}) {
    const auto result = hunt(arguments);
    EXPECT_EQ(result.exitStatus, 2);
    EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1) << result.err;
  }
}

}  // namespace
}  // namespace gloo_bypass::sim
