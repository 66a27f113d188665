// ddp_train with --collectives own: the results are those of Gloo, and a rank that ends or differs is named.
#include <signal.h>

#include <cstdlib>
#include <string>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/support/temporary_folder.h"
#include "tests/trainer/tiny_training.h"
#include "tests/trainer/training_results.h"
#include "tools/common/free_port.h"

namespace gloo_bypass::trainer::testing {
namespace {

constexpr int kUsage = 2;

// One that has each kind of exchange. The order of additions is the same for two ranks.
const std::vector<Flags> kMethods{{},
                                  {"--precision", "bf16"},
                                  {"--compress", "topk"},
                                  {"--average", "gossip"},
                                  {"--zero", "3"},
                                  {"--model-parallel", "tensor"},
                                  {"--model-parallel", "1f1b", "--batch-size", "2", "--accumulate", "4"}};

class OwnCollectives : public ::testing::Test {
 protected:
  void SetUp() override {
    const char* plugin = std::getenv("DDP_TRAIN_PLUGIN");
    if (plugin == nullptr) GTEST_SKIP() << "the plug-in or its DPDK transport is not part of this build";
    plugin_ = {"--plugin", plugin};
  }

  // A run of these ranks over our collectives, or over Gloo.
  ProgramResult run(const std::string& collectives, const std::string& ranks, const Flags& more,
                    const std::string& transport = "DPDK") const {
    return train(Flags{"--spawn", ranks, "--steps", "4", "--collectives", collectives} + plugin_ + more,
                 {{"GLOO_DEVICE_TRANSPORT", transport}});
  }
  Program start(const Flags& flags, Environment environment = {}) const {
    environment.insert({"GLOO_DEVICE_TRANSPORT", "DPDK"});
    return startTraining(Flags{"--collectives", "own"} + plugin_ + flags, environment);
  }

 private:
  Flags plugin_;
};

TEST_F(OwnCollectives, EveryMethodOfTwoRanks_EndsWithGloosDigest) {
  for (const Flags& method : kMethods) {
    EXPECT_EQ(digestOf(run("own", "2", method)), digestOf(run("gloo", "2", method)))
        << (method.empty() ? "DDP" : method[1]);
  }
}

TEST_F(OwnCollectives, RanksThatDoNotWaitForOthers_Finish) {
  EXPECT_NE(digestOf(run("own", "3", {"--average", "asynchronous"})), "none");
}

TEST_F(OwnCollectives, EveryTransport_EndsWithTheSameDigest) {
  const auto memory = summaryOf(run("own", "2", {"--verify-ranks"}));
  const auto datagrams = summaryOf(run("own", "2", {"--verify-ranks"}, "UDP"));
  EXPECT_EQ(memory["collectives"], "own");
  EXPECT_EQ(memory["transport"], "DPDK");
  EXPECT_EQ(datagrams["transport"], "UDP");
  EXPECT_EQ(memory["sha256"], datagrams["sha256"]);
}

TEST_F(OwnCollectives, MoreRanks_RepeatTheirBitsHoweverTheGradientsAreCut) {
  const auto first = digestOf(run("own", "3", {"--verify-ranks"}));
  EXPECT_EQ(digestOf(run("own", "3", {})), first);
  EXPECT_EQ(digestOf(run("own", "3", {"--bucket-cap-mb", "0.01", "--first-bucket-mb", "0.001"})), first);
}

TEST_F(OwnCollectives, Steps_CountTheBytesOfMemoryAndOfMessages) {
  for (const Flags& method : {Flags{}, Flags{"--model-parallel", "gpipe", "--batch-size", "2", "--accumulate", "2"}}) {
    const auto steps = stepsOf(run("own", "2", method).out);
    ASSERT_EQ(steps.size(), 4u);
    for (const auto& step : steps) {
      EXPECT_EQ(step["bytes_source"], "gloo_bypass_stats_json");
      EXPECT_GT(step["bytes_sent"].get<double>(), 0) << step;
      EXPECT_GT(step["bytes_received"].get<double>(), 0) << step;
    }
  }
}

TEST_F(OwnCollectives, ResumedRun_EndsBitIdentical) {
  const TemporaryFolder folder;
  const auto whole = digestOf(run("own", "3", {}));
  ASSERT_EQ(run("own", "3", {"--steps", "2", "--checkpoint", folder / "c"}).shellStatus(), 0);
  EXPECT_EQ(digestOf(run("own", "3", {"--resume", folder / "c"})), whole);
}

TEST_F(OwnCollectives, CheckpointOfOthers_IsRefused) {
  const TemporaryFolder folder;
  const Flags one{"--steps", "1", "--checkpoint", folder / "c"};
  ASSERT_EQ(start(one).finish(kLimit).shellStatus(), 0);
  expectRefused(start({"--steps", "2", "--resume", folder / "c", "--collectives", "gloo"}).finish(kLimit),
                "collectives: nothing here, \"own\"");
}

TEST_F(OwnCollectives, RankKilled_EndsTheRunAndSurvivorsNameIt) {
  Program process = start({"--spawn", "3", "--steps", "1000000", "--timeout", "300"});
  killAt(process, 1, "\"step\":3");
  const auto finished = process.finish(kLimit);
  EXPECT_EQ(finished.shellStatus(), 128 + SIGKILL);
  EXPECT_NE(finished.err.find(") was ended by signal 9"), std::string::npos) << finished.err;
  for (const char* survivor : {"rank 0: ", "rank 2: "}) {
    EXPECT_NE(finished.err.find(survivor + std::string("the process of rank 1 has ended")), std::string::npos)
        << finished.err;
  }
}

TEST_F(OwnCollectives, RankKilledInAnElasticRun_RestGoesOn) {
  const TemporaryFolder folder;
  Program process = start({"--elastic", "2:3", "--steps", "60", "--batch-size", "2", "--checkpoint", folder / "c",
                           "--checkpoint-every", "5", "--verify-ranks"});
  killAt(process, 1, "\"step\":7");
  const auto summary = summaryOf(process.finish(kLimit));
  EXPECT_EQ(summary["world_size"], 2);
  EXPECT_EQ(summary["collectives"], "own");
}

TEST_F(OwnCollectives, Tcp_IsRefusedOnceWithTheWayOut) {
  for (const auto* transport : {"TCP", ""}) {
    const auto refused = run("own", "2", {}, transport);
    expectRefused(refused,
                  "--collectives own goes over the plug-in's transports, not over TCP: set GLOO_DEVICE_TRANSPORT");
    EXPECT_EQ(refused.shellStatus(), kUsage);
  }
}

TEST_F(OwnCollectives, EncryptionOverTcp_IsRefusedOnceWithTheWayOut) {
  const Flags flags{"--spawn", "2", "--steps", "1"};
  const auto refused = train(flags, {{"GLOO_DEVICE_TRANSPORT", "TCP"}, {"GLOO_BYPASS_SECURITY", "encrypt"}});
  expectRefused(refused, "GLOO_BYPASS_SECURITY='encrypt' encrypts nothing over TCP: set GLOO_DEVICE_TRANSPORT");
  EXPECT_EQ(refused.shellStatus(), kUsage);
}

TEST_F(OwnCollectives, AnotherRankHasGloo_BothAreNamed) {
  const uint16_t port = freePort();
  Program first = start({"--steps", "1"}, rankOf(0, 2, port));
  Program second = start({"--steps", "1", "--collectives", "gloo"}, rankOf(1, 2, port));
  for (Program* rank : {&first, &second}) {
    expectRefused(rank->finish(kLimit), "collectives: ");
  }
}

}  // namespace
}  // namespace gloo_bypass::trainer::testing
