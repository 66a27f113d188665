// The program in real processes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <string>

#include "collectives/schedule/choices.h"
#include "tests/support/program.h"
#include "tests/support/temporary_folder.h"

namespace gloo_bypass {
namespace {

using ::testing::HasSubstr;

ProgramResult tune(const std::vector<std::string>& arguments) {
  return Program(TUNE_PATH, arguments).finish(std::chrono::seconds(170));
}

TEST(Tune, ThreeRanksOverUdp_WriteATableOfAllKindsWithAChoice) {
  const TemporaryFolder folder;
  const std::string path = folder / "table.json";
  const auto finished = tune({"--ranks", "3", "-b", "64", "-e", "4K", "-f", "64", "--rounds", "1", "-o", path});
  ASSERT_EQ(finished.shellStatus(), 0) << finished.err;
  EXPECT_THAT(finished.out, HasSubstr("double-tree"));
  std::ifstream file(path);
  const std::string text(std::istreambuf_iterator<char>(file), {});
  const auto table = collectives::ChoiceTable::parse(text);
  ASSERT_TRUE(table) << table.error().message;
  for (const char* kind : {"all-reduce", "reduce", "reduce-scatter", "all-gather", "broadcast"}) {
    EXPECT_THAT(text, HasSubstr(std::string("\"") + kind + '"'));
  }
  EXPECT_THAT(table.value().explain({.kind = collectives::Kind::kAllReduce, .bytes = 64, .ranks = 3}),
              HasSubstr("us for "));
}

TEST(Tune, InterfaceOfTorchsPrograms_IsTaken) {
  const auto finished =
      Program(TUNE_PATH, {"--ranks", "2"}, {{"GLOO_SOCKET_IFNAME", "nosuch0"}}).finish(std::chrono::seconds(100));
  EXPECT_EQ(finished.shellStatus(), 1);
  EXPECT_THAT(finished.err, HasSubstr("there is no interface 'nosuch0'"));
}

TEST(Tune, SmallerGroupTakesLongerThanTheTimeout_TheOthersWait) {
  const auto finished =
      tune({"--ranks", "3", "--groups", "2,3", "--timeout", "3", "-b", "1M", "-e", "1M", "--rounds", "60"});
  EXPECT_EQ(finished.shellStatus(), 0) << finished.err;
}

TEST(Tune, RanksThatShareMemory_AreRefused) {
  const auto finished = tune({"--ranks", "2", "--transport", "DPDK"});
  EXPECT_EQ(finished.shellStatus(), 1);
  EXPECT_THAT(finished.err, HasSubstr("share a host's memory"));
}

TEST(Tune, WrongOptions_AreRefusedInOneLine) {
  for (const std::vector<std::string>& arguments : {std::vector<std::string>{"--ranks", "1"},
                                                    {"--ranks", "2", "-b", "0"},
                                                    {"--ranks", "2", "-b", "8", "-e", "4"},
                                                    {"--ranks", "2", "--tolerance", "nan"},
                                                    {"--ranks", "2", "--transport", "TCP"},
                                                    {}}) {
    const auto finished = tune(arguments);
    EXPECT_EQ(finished.shellStatus(), 2) << finished.err;
    EXPECT_EQ(std::count(finished.err.begin(), finished.err.end(), '\n'), 1) << finished.err;
  }
  const auto finished = tune({"--ranks", "2", "--groups", "3"});
  EXPECT_EQ(finished.shellStatus(), 1);
  EXPECT_THAT(finished.err, HasSubstr("--groups: 3 ranks, there are 2"));
}

}  // namespace
}  // namespace gloo_bypass
