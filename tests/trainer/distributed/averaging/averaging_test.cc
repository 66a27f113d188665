// Ranks that do not reduce every gradient: their partners, and the results of real ranks.
#include <signal.h>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <filesystem>
#include <set>
#include <sstream>

#include "tests/support/temporary_folder.h"
#include "tests/trainer/tiny_training.h"
#include "tests/trainer/training_results.h"
#include "trainer/distributed/averaging/gossip.h"

namespace gloo_bypass::trainer::testing {
namespace {

using Json = nlohmann::json;
constexpr uint64_t kSeed = 7;

TEST(Neighbours, EveryTopology_HearsWhoSendsAndNobodyTwice) {
  for (const auto topology : {GossipTopology::kRing, GossipTopology::kExponential, GossipTopology::kRandom}) {
    for (const int ranks : {1, 2, 3, 4, 5, 8}) {
      for (int64_t step = 0; step < 6; ++step) {
        std::multiset<std::pair<int, int>> sent, heard;
        for (int rank = 0; rank < ranks; ++rank) {
          const auto neighbours = neighboursOf(rank, ranks, topology, step, kSeed);
          EXPECT_EQ(neighbours.sendTo.size(), neighbours.receiveFrom.size()) << "the mixing is not doubly stochastic";
          for (const int to : neighbours.sendTo) sent.emplace(rank, to);
          for (const int from : neighbours.receiveFrom) heard.emplace(from, rank);
        }
        EXPECT_EQ(sent, heard);
        EXPECT_TRUE(std::all_of(sent.begin(), sent.end(), [&](const auto& way) {
          return sent.count(way) == 1 && way.first != way.second && way.second >= 0 && way.second < ranks;
        }));
      }
    }
  }
}

TEST(Neighbours, Exponential_ReachesEveryRankInLogarithmicallyManySteps) {
  constexpr int kRanks = 8;
  std::vector<std::set<int>> knows(kRanks);  // ranks that have contributed to a rank's parameters
  for (int rank = 0; rank < kRanks; ++rank) knows[static_cast<size_t>(rank)].insert(rank);
  for (int64_t step = 0; step < 3; ++step) {
    const auto before = knows;
    for (int rank = 0; rank < kRanks; ++rank) {
      for (const int from : neighboursOf(rank, kRanks, GossipTopology::kExponential, step, kSeed).receiveFrom) {
        const auto& theirs = before[static_cast<size_t>(from)];
        knows[static_cast<size_t>(rank)].insert(theirs.begin(), theirs.end());
      }
    }
  }
  for (const auto& known : knows) EXPECT_EQ(known.size(), static_cast<size_t>(kRanks));
}

TEST(Neighbours, RandomPairs_DifferFromStepToStep) {
  std::set<std::vector<int>> partners;
  for (int64_t step = 0; step < 8; ++step)
    partners.insert(neighboursOf(0, 8, GossipTopology::kRandom, step, kSeed).sendTo);
  EXPECT_GT(partners.size(), 2u);
}

std::vector<Json> recordsOf(const ProgramResult& finished) {
  summaryOf(finished);
  return records(finished.out);
}

TEST(Averaging, CentralWithTwoRanks_HasTheBitsOfDdp) {
  const std::vector<std::string> common{"--spawn",      "2", "--steps",       "4", "--clip-norm", "0.5",
                                        "--accumulate", "2", "--verify-ranks"};
  auto central = common;
  central.insert(central.end(), {"--average", "central"});
  const auto summary = summaryOf(train(central));
  EXPECT_EQ(digestOf(train(common)), summary.value("sha256", "none"));
  EXPECT_EQ(summary["synchronisations"], 4);
}

TEST(Averaging, DiLoCoWithoutMomentumAtRateOne_IsLocalSgd) {
  const std::vector<std::string> common{"--spawn",       "3", "--steps",       "7", "--precision", "fp64",
                                        "--inner-steps", "3", "--verify-ranks"};
  auto local = common, diloco = common;
  local.insert(local.end(), {"--average", "local-sgd"});
  diloco.insert(diloco.end(), {"--average", "diloco", "--outer-lr", "1", "--outer-momentum", "0"});
  const auto one = recordsOf(train(local)), other = recordsOf(train(diloco));
  ASSERT_EQ(one.size(), other.size());
  for (size_t i = 1; i + 1 < one.size(); ++i) {
    EXPECT_NEAR(one[i]["loss_mean"].get<double>(), other[i]["loss_mean"].get<double>(), 1e-9) << i;
    EXPECT_EQ(one[i]["averaged"], i % 3 == 0) << i;
    EXPECT_EQ(one[i]["distance"].is_number(), i % 3 == 0) << i;
  }
  EXPECT_EQ(one.back()["synchronisations"], 2);
}

TEST(Averaging, BetweenMeetings_NothingButTheLossIsSent) {
  const auto records = recordsOf(
      train({"--spawn", "2", "--steps", "15", "--average", "local-sgd", "--inner-steps", "8", "--no-barrier"}));
  // TCP counts unacknowledged bytes of a busy peer later, the first broadcast's too: so some steps send none.
  EXPECT_EQ(bytesOfAStep({records.begin() + 1, records.begin() + 8}), 0);
  int64_t sent = 0;  // by the meeting of step 8
  for (size_t step = 8; step <= 15; ++step) sent += records.at(step)["bytes_sent"].get<int64_t>();
  EXPECT_GE(sent, 4 * records.at(0)["parameters"].get<int64_t>());
}

TEST(Averaging, ResumedRun_GoesOnBitForBit) {
  for (const std::string method : {"local-sgd", "diloco", "central", "gossip"}) {
    SCOPED_TRACE(method);
    const TemporaryFolder folder;
    const auto with = [&](std::vector<std::string> more) {
      more.insert(more.end(), {"--spawn", "2", "--average", method, "--checkpoint", folder / "c"});
      if (method == "local-sgd" || method == "diloco") more.insert(more.end(), {"--inner-steps", "3"});
      return digestOf(train(more));
    };
    const auto whole = with({"--steps", "8"});
    with({"--steps", "4", "--checkpoint-every", "2"});  // between two meetings
    EXPECT_EQ(with({"--steps", "8", "--resume", folder / "c"}), whole);
    for (const auto& entry : std::filesystem::directory_iterator(folder.path)) {
      EXPECT_EQ(entry.path().filename().string().find("step4"), std::string::npos)
          << entry.path() << " is of no checkpoint any more";
    }
  }
}

TEST(Averaging, RankFileIsMissing_ResumeSaysWhich) {
  const TemporaryFolder folder;
  digestOf(train({"--spawn", "2", "--steps", "2", "--average", "gossip", "--checkpoint", folder / "c"}));
  ASSERT_TRUE(std::filesystem::remove(folder / "c.step2.rank1"));
  const auto refused = train({"--spawn", "2", "--steps", "4", "--average", "gossip", "--resume", folder / "c"});
  EXPECT_NE(refused.shellStatus(), 0);  // the rank that lacks it, or one that lost it
  EXPECT_NE(refused.err.find("c.step2.rank1 is missing"), std::string::npos) << refused.err;
}

// Leftovers of a second run to the same path that was killed before it replaced the first one's checkpoint.
TEST(Averaging, RankFileIsOfAnotherRun_ResumeSaysWhich) {
  const TemporaryFolder folder;
  for (const char* run : {"c", "other"}) {
    digestOf(train({"--spawn", "2", "--steps", "2", "--average", "gossip", "--checkpoint", folder / run}));
  }
  std::filesystem::rename(folder / "other.step2.rank1", folder / "c.step2.rank1");
  const auto refused = train({"--spawn", "2", "--steps", "4", "--average", "gossip", "--resume", folder / "c"});
  EXPECT_NE(refused.shellStatus(), 0);
  EXPECT_NE(refused.err.find("c.step2.rank1: of another run than the checkpoint"), std::string::npos) << refused.err;
}

// The remaining ranks wait for the dead one's parameters, or for those of a rank that does.
TEST(Averaging, RankKilled_EndsTheRunPromptly) {
  for (const std::string method : {"local-sgd", "central", "gossip", "asynchronous"}) {
    SCOPED_TRACE(method);
    Program process = startTraining({"--spawn", "3", "--steps", "1000000", "--average", method, "--timeout", "300"});
    expectEndsWhenARankIsKilled(process, "\"step\":13");
  }
}

TEST(Averaging, FlagOfAnotherMethod_IsRefused) {
  for (const auto& [flag, value, methods] :
       std::vector<std::array<std::string, 3>>{{"--inner-steps", "3", "local-sgd or diloco"},
                                               {"--outer-lr", "0.5", "diloco"},
                                               {"--staleness-bound", "1", "asynchronous"},
                                               {"--staleness-penalty", "inverse", "asynchronous"}}) {
    expectRefused(train({"--average", "gossip", flag, value}), flag + ": is for --average " + methods);
    expectRefused(train({flag, value}), flag + ": is for --average " + methods);
  }
  expectRefused(train({"--gossip-topology", "random", "--average", "central"}),
                "--gossip-topology: is for --average gossip");
}

TEST(Averaging, WhatDoesNotGoTogether_IsRefused) {
  for (const std::vector<std::string>& flags :
       std::vector<std::vector<std::string>>{{"--no-ddp"},
                                             {"--spawn", "2", "--compress", "sign"},
                                             {"--spawn", "2", "--precision", "bf16"},
                                             {"--spawn", "2", "--step-markers", "127.0.0.1"},
                                             {"--spawn", "2", "--passages", "lines"}}) {
    auto all = flags;
    all.insert(all.end(), {"--average", "diloco", "--steps", "1"});
    const auto refused = train(all);
    EXPECT_EQ(refused.shellStatus(), 2) << refused.err;
    EXPECT_NE(refused.err.find("--average"), std::string::npos) << refused.err;
  }
}

}  // namespace
}  // namespace gloo_bypass::trainer::testing
