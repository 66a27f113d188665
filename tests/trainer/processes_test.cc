// Real ranks, started as users start them. Everything runs the tiny model; DDP_TRAIN names the program.
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <sstream>
#include <thread>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/support/temporary_folder.h"
#include "tests/trainer/tiny_training.h"
#include "tests/trainer/training_results.h"
#include "tools/common/free_port.h"

namespace gloo_bypass::trainer::testing {
namespace {

TEST(Training, OneRank_EqualsTheLoopWithoutDdp) {
  const auto ddp = digestOf(train({"--steps", "6"}));
  EXPECT_EQ(ddp, digestOf(train({"--steps", "6", "--no-ddp"})));
  EXPECT_NE(ddp, digestOf(train({"--steps", "6", "--no-ddp", "--seed", "1"})));
}

TEST(Training, OneRankWithAccumulation_EqualsTheLoopWithoutDdp) {
  EXPECT_EQ(digestOf(train({"--steps", "3", "--accumulate", "3"})),
            digestOf(train({"--steps", "3", "--accumulate", "3", "--no-ddp"})));
}

std::vector<double> losses(const ProgramResult& finished) {
  summaryOf(finished);
  std::vector<double> values;
  for (const auto& record : stepsOf(finished.out)) {
    values.push_back(record["loss_mean"].get<double>());
  }
  return values;
}

TEST(Training, RanksTogether_EqualOneRankWithTheWholeBatch) {
  const auto one = losses(train({"--steps", "8", "--batch-size", "8", "--precision", "fp64"}));
  const auto two = losses(train({"--steps", "8", "--batch-size", "4", "--precision", "fp64", "--spawn", "2"}));
  const auto four = losses(train({"--steps", "8", "--batch-size", "2", "--precision", "fp64", "--spawn", "4"}));
  // Accumulation groups samples differently only in the order of additions.
  ASSERT_EQ(one.size(), 8u);
  ASSERT_EQ(two.size(), 8u);
  ASSERT_EQ(four.size(), 8u);
  for (size_t i = 0; i < one.size(); ++i) {
    EXPECT_NEAR(one[i], two[i], 1e-9) << i;
    EXPECT_NEAR(one[i], four[i], 1e-9) << i;
  }
  EXPECT_LT(one.back(), one.front());
}

// 41 samples in steps of 12; the last step has 5, in shares of 5; 3 and 2; 2, 2 and 1; or a micro-batch of 4 and one of
// 1.
TEST(Training, WeightedTail_EqualsOneRankWithTheWholeBatch) {
  const std::vector<std::string> common{"--samples",   "41",   "--epochs", "2",
                                        "--precision", "fp64", "--tail",   "weighted"};
  const auto with = [&](std::vector<std::string> flags) {
    flags.insert(flags.begin(), common.begin(), common.end());
    return train(flags);
  };
  const auto alone = with({"--batch-size", "12"});
  const auto one = losses(alone);
  ASSERT_EQ(one.size(), 8u);
  EXPECT_EQ(stepsOf(alone.out)[3]["tokens"], 5 * 16);
  const std::vector<std::vector<std::string>> ways{{"--batch-size", "6", "--spawn", "2"},
                                                   {"--batch-size", "4", "--spawn", "3"},
                                                   {"--batch-size", "2", "--spawn", "2", "--accumulate", "3"},
                                                   {"--batch-size", "1", "--spawn", "6", "--accumulate", "2"},
                                                   {"--batch-size", "6", "--spawn", "2", "--zero", "3"}};
  for (const auto& way : ways) {
    const auto finished = with(way);
    const auto some = losses(finished);
    ASSERT_EQ(some.size(), 8u);
    for (size_t i = 0; i < one.size(); ++i) {
      EXPECT_NEAR(one[i], some[i], 1e-9) << way[1] << " x " << way[3] << ", step " << i;
      EXPECT_EQ(stepsOf(finished.out)[i]["tokens"], stepsOf(alone.out)[i]["tokens"]);
    }
  }
}

// 41 samples: the last step has 5, which 2 ranks make 6.
TEST(Training, PaddedTail_IsAStepOfEqualShares) {
  const auto finished = train(
      {"--samples", "41", "--epochs", "1", "--batch-size", "6", "--spawn", "2", "--tail", "pad", "--verify-ranks"});
  summaryOf(finished);
  const auto steps = stepsOf(finished.out);
  ASSERT_EQ(steps.size(), 4u);
  EXPECT_EQ(steps[3]["tokens"], 6 * 16);
  EXPECT_EQ(stepsOf(train({"--samples", "41", "--epochs", "1", "--batch-size", "6", "--spawn", "2"}).out).size(), 3u);
}

TEST(Training, TailSmallerThanTheRanks_LeavesSomeWithoutSamples) {
  const std::vector<std::string> common{"--samples", "9", "--epochs", "3", "--precision", "fp64", "--tail", "weighted"};
  auto one = common, four = common;
  one.insert(one.end(), {"--batch-size", "8"});
  four.insert(four.end(), {"--batch-size", "2", "--spawn", "4"});
  const auto alone = losses(train(one)), together = losses(train(four));
  ASSERT_EQ(alone.size(), 6u);
  ASSERT_EQ(together.size(), 6u);
  for (size_t i = 0; i < alone.size(); ++i) {
    EXPECT_NEAR(alone[i], together[i], 1e-9) << i;
  }
}

// 9 samples: the second step has one, rank 0's.
TEST(Metrics, LossOfARankWithoutSamples_IsUnknown) {
  const TemporaryFolder folder;
  const auto finished = train({"--samples", "9", "--epochs", "1", "--precision", "fp64", "--tail", "weighted",
                               "--batch-size", "2", "--spawn", "4", "--metrics", folder / "m{rank}"});
  ASSERT_EQ(finished.shellStatus(), 0) << finished.err;
  for (int rank = 0; rank < 4; ++rank) {
    const auto steps = stepsOf(contentsOf(folder / ("m" + std::to_string(rank))));
    ASSERT_EQ(steps.size(), 2u);
    EXPECT_TRUE(steps[0]["loss"].is_number());
    if (rank == 0) {
      EXPECT_NEAR(steps[1]["loss"].get<double>(), steps[1]["loss_mean"].get<double>(), 1e-12);
    } else {
      EXPECT_TRUE(steps[1]["loss"].is_null()) << rank;
    }
  }
}

TEST(Training, ManyBucketsAndRanks_StayBitIdentical) {
  const auto finished =
      train({"--spawn", "3", "--steps", "5", "--verify-ranks", "--bucket-cap-mb", "0.02", "--first-bucket-mb", "0.005",
             "--accumulate", "2", "--clip-norm", "0.5", "--dropout", "0.1"});
  const auto summary = summaryOf(finished);
  EXPECT_GT(records(finished.out)[3]["buckets"].get<int>(), 3);
}

TEST(Training, BucketsSegmentsAndViews_DoNotChangeTwoRanksResult) {
  const auto plain = digestOf(train({"--spawn", "2", "--steps", "4"}));
  EXPECT_EQ(plain, digestOf(train({"--spawn", "2", "--steps", "4", "--segment-bytes", "4096"})));
  EXPECT_EQ(plain, digestOf(train({"--spawn", "2", "--steps", "4", "--gradient-as-bucket-view"})));
  EXPECT_EQ(plain, digestOf(train({"--spawn", "2", "--steps", "4", "--bucket-cap-mb", "0.02", "--no-barrier"})));
}

TEST(Metrics, Steps_CarryEveryField) {
  const auto finished = train({"--spawn", "2", "--steps", "2"});
  const auto summary = summaryOf(finished);
  const auto step = records(finished.out).at(2);
  for (const char* field : {"loss", "t_step_s", "t_forward_s", "t_backward_s", "t_optimizer_s", "t_ar_s",
                            "t_ar_exposed_s", "tokens_per_s", "model_flops_per_s", "bytes_sent", "bytes_received"}) {
    EXPECT_TRUE(step.contains(field) && step[field].is_number()) << field;
    if (std::string(field) != "loss") {
      EXPECT_TRUE(summary["median"].contains(field) && summary["p99"].contains(field)) << field;
    }
  }
  // The kernel counted the ring's volume, 2 (N-1)/N of the gradient, plus a little.
  const auto gradient = step["gradient_bytes"].get<double>();
  EXPECT_EQ(step["bytes_source"], "tcp_info");
  EXPECT_GE(step["bytes_sent"].get<double>(), gradient);
  EXPECT_LT(step["bytes_sent"].get<double>(), gradient * 1.1);
  EXPECT_LE(step["t_ar_exposed_s"].get<double>(), step["t_ar_s"].get<double>());
  EXPECT_LE(step["t_ar_s"].get<double>(), step["t_step_s"].get<double>());
}

TEST(Checkpoint, ResumedRun_EndsBitIdentical) {
  const TemporaryFolder folder;
  const std::vector<std::string> common{"--spawn",           "3",     "--dropout",    "0.1", "--bucket-cap-mb", "0.02",
                                        "--first-bucket-mb", "0.005", "--batch-size", "4"};
  auto flags = [&](std::vector<std::string> more) {
    more.insert(more.begin(), common.begin(), common.end());
    return more;
  };
  const auto straight = digestOf(train(flags({"--steps", "40"})));
  digestOf(train(flags({"--steps", "36", "--checkpoint", folder / "c"})));
  EXPECT_EQ(straight, digestOf(train(flags({"--steps", "40", "--resume", folder / "c"}))));
}

TEST(Checkpoint, OtherOptions_AreRefused) {
  const TemporaryFolder folder;
  digestOf(train({"--steps", "2", "--checkpoint", folder / "c"}));
  expectRefused(train({"--steps", "4", "--resume", folder / "c", "--lr", "0.1"}), "lr: 0.1 here, 0.0003");
  expectRefused(train({"--steps", "2", "--resume", folder / "c"}), "has done 2 steps already");
  writeText(folder / "other", std::string(10'000, 'x'));
  expectRefused(train({"--steps", "4", "--resume", folder / "c", "--data", folder / "other"}), "text: ");
  expectRefused(train({"--steps", "4", "--resume", folder / "c", "--data", folder / "other", "--samples", "8"}),
                "give the same --data");
  writeText(folder / "cut", contentsOf(folder / "c").substr(0, 50'000));
  expectRefused(train({"--steps", "4", "--resume", folder / "cut"}), "truncated");
}

// A safetensors file whose header says another step.
std::string withStep(const std::string& file, const std::string& step) {
  uint64_t length = 0;
  std::memcpy(&length, file.data(), sizeof length);
  std::string header = file.substr(sizeof length, length);
  const std::string field = "\"step\":\"2\"";
  header.replace(header.find(field), field.size(), "\"step\":\"" + step + "\"");
  const uint64_t now = header.size();
  return std::string(reinterpret_cast<const char*>(&now), sizeof now) + header + file.substr(sizeof length + length);
}

TEST(Checkpoint, StepThatNoRunHas_IsRefused) {
  const TemporaryFolder folder;
  digestOf(train({"--steps", "2", "--checkpoint", folder / "c"}));
  writeText(folder / "same", withStep(contentsOf(folder / "c"), "2"));
  EXPECT_EQ(train({"--steps", "3", "--resume", folder / "same"}).shellStatus(), 0);
  for (const std::string step : {"18446744073709551615", "9223372036854775808", "-1", "x"}) {
    writeText(folder / "wrong", withStep(contentsOf(folder / "c"), step));
    expectRefused(train({"--steps", "4", "--resume", folder / "wrong"}), "step are unreadable");
  }
}

TEST(Checkpoint, OtherNumberOfRanks_IsRefusedWithTheWay) {
  const TemporaryFolder folder;
  digestOf(train({"--steps", "2", "--spawn", "2", "--checkpoint", folder / "c"}));
  expectRefused(train({"--steps", "4", "--resume", folder / "c"}), "--elastic MIN:MAX");
}

TEST(Outputs, AreOneFile_AreRefused) {
  const TemporaryFolder folder;
  digestOf(train({"--steps", "1", "--checkpoint", folder / "before"}));
  const std::string before = contentsOf(folder / "before");
  const std::vector<std::pair<Flags, std::string>> cases{
      {{"--checkpoint", folder / "c", "--save-model", folder / "./c"}, "--checkpoint and --save-model are one file"},
      {{"--checkpoint", folder / "c", "--trace", folder / "c"}, "--checkpoint and --trace are one file"},
      {{"--resume", folder / "before", "--save-model", folder / "before"}, "--resume and --save-model are one file"},
      {{"--resume", folder / "before", "--metrics", folder / "before"}, "--resume and --metrics are one file"},
      {{"--data", folder / "before", "--metrics", folder / "before"}, "--data and --metrics are one file"},
      {{"--weights", folder / "before", "--checkpoint", folder / "before"}, "--weights and --checkpoint are one file"}};
  for (const auto& [flags, reason] : cases) {
    expectRefused(train(Flags{"--steps", "2"} + flags), reason);
  }
  EXPECT_FALSE(std::filesystem::exists(folder / "c"));
  EXPECT_EQ(contentsOf(folder / "before"), before);
  EXPECT_EQ(train({"--steps", "1", "--metrics", "/dev/null", "--log-samples", "/dev/null"}).shellStatus(), 0);
}

TEST(Outputs, AreLinksToFiles_AreRefused) {
  const TemporaryFolder folder;
  writeText(folder / "file", "kept");
  std::filesystem::create_symlink(folder / "file", folder / "link");
  for (const std::string flag : {"--checkpoint", "--save-model", "--trace"}) {
    expectRefused(train({"--steps", "1", flag, folder / "link"}), "it is a symbolic link to a file: name the file");
  }
  EXPECT_TRUE(std::filesystem::is_symlink(folder / "link"));
  EXPECT_EQ(contentsOf(folder / "file"), "kept");
}

TEST(Optimizer, EpsilonOfZero_IsRefused) {  // where a gradient is 0, Adam's step would be 0 / 0
  expectRefused(train({"--steps", "1", "--epsilon", "0"}), "--epsilon");
}

TEST(Failure, RankKilled_EndsTheRunPromptly) {
  Program process = startTraining({"--spawn", "3", "--steps", "1000000", "--timeout", "300"});
  expectEndsWhenARankIsKilled(process, "\"step\":3");
}

TEST(Failure, Terminated_PassesTheSignalOn) {
  Program process = startTraining({"--spawn", "2", "--steps", "1000000"});
  ASSERT_TRUE(process.waitForOutput("\"step\":3", kLimit));
  ::kill(process.pid(), SIGTERM);
  EXPECT_EQ(process.finish(kLimit).shellStatus(), 128 + SIGTERM);
}

TEST(Failure, WorldSizesDiffer_EveryRankSaysSo) {
  const uint16_t port = freePort();
  Program first = startTraining({"--steps", "1"}, rankOf(0, 2, port));
  Program second = startTraining({"--steps", "1"}, rankOf(1, 3, port));
  const auto one = first.finish(kLimit), two = second.finish(kLimit);
  EXPECT_GT(one.shellStatus(), 0);
  EXPECT_GT(two.shellStatus(), 0);
  EXPECT_NE(one.err.find("world_size: "), std::string::npos) << one.err;
  EXPECT_NE(two.err.find("world_size: "), std::string::npos) << two.err;
}

TEST(Failure, OptionsDiffer_EveryRankNamesThem) {
  const Flags two{"--steps", "1", "--batch-size", "2"}, four{"--steps", "1", "--batch-size", "4"};
  expectRanksDisagree({two, four}, "batch_size: ");
  expectRanksDisagree({two, four, two}, "batch_size: ");
}

// All ranks gather a sharded model's checkpoint, so rank 0 must not be the only one that makes one.
TEST(Failure, CheckpointThatOneRankMakesAlone_IsNamed) {
  const TemporaryFolder folder;
  const Flags sharded{"--steps", "1", "--zero", "1"};
  expectRanksDisagree({sharded + Flags{"--checkpoint", folder / "c"}, sharded}, "zero_checkpoint: ");
}

TEST(Failure, RankMissing_IsNamedAtTheTimeout) {
  Program process = startTraining({"--steps", "1", "--rendezvous-timeout", "1"}, rankOf(0, 2, freePort()));
  expectRefused(process.finish(kLimit), "only 1 of 2 ranks came within 1 s; missing: 1");
}

TEST(Failure, NoRankZero_IsBounded) {
  Program process = startTraining({"--steps", "1", "--rendezvous-timeout", "1"}, rankOf(1, 2, freePort()));
  const auto finished = process.finish(kLimit);
  EXPECT_GT(finished.shellStatus(), 0);
  EXPECT_NE(finished.err.find("rank 1 cannot reach rank 0"), std::string::npos) << finished.err;
}

TEST(Failure, AgentsStoreThatDoesNotAnswer_IsBoundedAndTheWayOutNamed) {
  const uint16_t port = freePort();
  const FileDescriptor silent =
      socketOnPort(port, /*reuse=*/false);  // connections wait in its queue: as an agent of another PyTorch
  ASSERT_EQ(::listen(silent.get(), 4), 0);
  Environment environment = rankOf(1, 2, port);
  environment["TORCHELASTIC_USE_AGENT_STORE"] = "True";
  Program process = startTraining({"--steps", "1", "--rendezvous-timeout", "1"}, environment);
  const auto finished = process.finish(kLimit);
  EXPECT_EQ(finished.shellStatus(), 1);
  EXPECT_NE(finished.err.find("rank 1: cannot use the store of torchrun's agent"), std::string::npos) << finished.err;
  EXPECT_NE(finished.err.find("TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1"), std::string::npos) << finished.err;
}

// PyTorch 2.13's store does this with 1.13's `check`, if it comes in several segments: it takes it for `add`, answers
// with the sum, and closes the connection over the rest.
TEST(Failure, AgentsStoreThatMisunderstands_TheWayOutIsNamed) {
  const uint16_t port = freePort();
  const FileDescriptor listener = socketOnPort(port, /*reuse=*/false);
  ASSERT_EQ(::listen(listener.get(), 4), 0);
  std::thread agent([&] {
    const FileDescriptor connection(::accept(listener.get(), nullptr, nullptr));
    char question[256];
    const int64_t sum = 0;
    if (connection.get() >= 0 && ::recv(connection.get(), question, sizeof question, 0) > 0) {
      ::send(connection.get(), &sum, sizeof sum, MSG_NOSIGNAL);
    }
  });
  Environment environment = rankOf(0, 1, port);
  environment["TORCHELASTIC_USE_AGENT_STORE"] = "True";
  const auto finished = train({"--steps", "1", "--rendezvous-timeout", "5"}, environment);
  ::shutdown(listener.get(), SHUT_RDWR);  // if no one came
  agent.join();
  EXPECT_EQ(finished.shellStatus(), 1);
  EXPECT_NE(finished.err.find("TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1"), std::string::npos) << finished.err;
}

// Another program, or a stopped rank 0.
TEST(Failure, WhoListensOnMasterPortDoesNotAnswer_IsBounded) {
  const uint16_t port = freePort();
  const FileDescriptor silent = socketOnPort(port, /*reuse=*/false);
  ASSERT_EQ(::listen(silent.get(), 4), 0);
  const auto finished = train({"--steps", "1", "--rendezvous-timeout", "1"}, rankOf(1, 2, port));
  EXPECT_EQ(finished.shellStatus(), 1);
  EXPECT_NE(
      finished.err.find("rank 1 cannot reach rank 0 at MASTER_ADDR=127.0.0.1 MASTER_PORT=" + std::to_string(port)),
      std::string::npos)
      << finished.err;
  EXPECT_NE(finished.err.find("no answer"), std::string::npos) << finished.err;
}

// The others dial while rank 0 checks whether the port is free: a connection to that check would be closed under them.
TEST(Failure, RankZeroIsPreemptedWhereverItListens_AllMeet) {
  const auto finished = train({"--spawn", "4", "--steps", "1"}, withFailing("TEST_LISTEN_SECONDS", "1"));
  EXPECT_EQ(finished.shellStatus(), 0) << finished.err;
}

TEST(Failure, StderrCannotBeWritten_StatusSaysWhatWasWrong) {
  const std::string program = std::getenv("DDP_TRAIN");
  const int usage = std::system((program + " --nonsense 2> /dev/full").c_str());
  EXPECT_EQ(WEXITSTATUS(usage), 2);
  const int rank = std::system((program + " --model tiny --steps 1 --metrics /no/such/folder/m 2> /dev/full").c_str());
  EXPECT_GT(WEXITSTATUS(rank), 0);
  EXPECT_LE(WEXITSTATUS(rank), 2);
}

TEST(Failure, AgentsCountRestartsDifferently_TheWayOutIsNamed) {
  const uint16_t port = freePort();
  Program server = startTraining({"--steps", "1", "--rendezvous-timeout", "20"}, rankOf(0, 2, port));  // serves a store
  Environment environment = rankOf(1, 2, port);
  environment["TORCHELASTIC_USE_AGENT_STORE"] = "True";
  environment["TORCHELASTIC_RESTART_COUNT"] = "1";
  ProgramResult finished;
  for (int i = 0; i < 10 && finished.err.find("missing: 0; if torchrun") == std::string::npos; ++i) {
    finished =
        train({"--steps", "1", "--rendezvous-timeout", "2"}, environment);  // no answer before the server listens
  }
  EXPECT_NE(finished.err.find("only 1 of 2 ranks came within 2 s; missing: 0; if torchrun has restarted"),
            std::string::npos)
      << finished.err;
}

TEST(Failure, PortInUse_IsNamed) {
  const uint16_t port = freePort();
  const FileDescriptor taken = socketOnPort(port, /*reuse=*/false);
  ASSERT_EQ(::listen(taken.get(), 1), 0);
  Program process = startTraining({"--steps", "1"}, rankOf(0, 2, port));
  expectRefused(process.finish(kLimit), "cannot listen on MASTER_PORT=" + std::to_string(port));
}

TEST(BadInput, UnreadableData_IsRefusedOnce) {
  expectRefused(train({"--spawn", "3", "--data", "/no/such/text"}), "cannot read /no/such/text");
  expectRefused(train({"--data", "/"}), "/: a folder without shard-00000.safetensors");
  expectRefused(train({"--vocab", "/", "--merges", "/"}), "cannot read /");
  expectRefused(train({"--steps", "1", "--batch-size", "500"}), "400 samples do not fill one step");
  expectRefused(train({"--seq-length", "200"}), "has 128 positions");
}

TEST(BadInput, TailsThatDoNotGo_AreRefused) {
  expectRefused(train({"--tail", "half"}), "--tail: half not in {drop,pad,weighted}");
  expectRefused(train({"--spawn", "2", "--tail", "weighted", "--average", "local-sgd"}),
                "--tail weighted goes without --average");
  expectRefused(train({"--tail", "pad", "--elastic", "1:2", "--checkpoint", "/tmp/c"}),
                "--tail pad goes without --elastic");
}

TEST(BadInput, ForeignWeights_AreRefused) {
  const TemporaryFolder folder;
  writeText(folder / "w", "this is no model");
  expectRefused(train({"--weights", folder / "w"}), "not a safetensors file");
}

TEST(BadInput, UnknownTransport_IsRefusedOnce) {
  expectRefused(train({"--spawn", "2", "--plugin", "/no/such.so"}, {{"GLOO_DEVICE_TRANSPORT", "PIGEON"}}),
                "GLOO_DEVICE_TRANSPORT=PIGEON needs a plug-in that cannot be loaded");
  // A library that registers nothing.
  expectRefused(train({"--plugin", "libm.so.6"}, {{"GLOO_DEVICE_TRANSPORT", "PIGEON"}}),
                "GLOO_DEVICE_TRANSPORT=PIGEON: no such transport");
}

TEST(BadInput, CheckpointThatCannotBeWritten_IsRefusedBeforeTheFirstStep) {
  const TemporaryFolder folder;
  ASSERT_EQ(::mkfifo((folder / "pipe").c_str(), 0600), 0);
  for (const std::string& path : {folder / "missing/c", folder / "pipe", std::string("/")}) {
    expectRefused(train({"--steps", "1", "--metrics", folder / "m", "--checkpoint", path}), "cannot write " + path);
    EXPECT_FALSE(std::filesystem::exists(folder / "m")) << "steps were run";
  }
  EXPECT_TRUE(std::filesystem::is_fifo(folder / "pipe"));
}

TEST(BadInput, ModelThatCannotBeWritten_IsRefusedBeforeTheFirstStep) {
  const TemporaryFolder folder;
  expectRefused(train({"--steps", "1", "--metrics", folder / "m", "--save-model", folder / "missing/m"}),
                "cannot write " + (folder / "missing/m"));
  EXPECT_FALSE(std::filesystem::exists(folder / "m")) << "steps were run";
}

// Each rank writes its own file, on its own machine.
TEST(BadInput, RankFilesThatCannotBeWritten_AreRefusedBeforeTheFirstStep) {
  const TemporaryFolder folder;
  const uint16_t port = freePort();
  const auto flags = [&](const std::string& checkpoint, const std::string& metrics) {
    return std::vector<std::string>{
        "--steps",           "1",         "--average",     "gossip", "--rendezvous-timeout", "2", "--checkpoint",
        folder / checkpoint, "--metrics", folder / metrics};
  };
  Program first = startTraining(flags("c", "m0"), rankOf(0, 2, port));
  expectRefused(train(flags("missing/c", "m1"), rankOf(1, 2, port)), "cannot write " + (folder / "missing/c"));
  EXPECT_NE(first.finish(kLimit).shellStatus(), 0);
  EXPECT_FALSE(std::filesystem::exists(folder / "m0")) << "steps were run";
}

TEST(BadInput, NoNumber_IsRefused) {
  for (const std::string flag : {"--clip-norm", "--dropout", "--lr", "--timeout", "--target-loss"}) {
    expectRefused(train({"--steps", "1", flag, "nan"}), flag + " nan: no number");
  }
}

TEST(BadInput, EarlierResults_AreKept) {
  const TemporaryFolder folder;
  writeText(folder / "samples", "before");
  writeText(folder / "metrics", "before");
  expectRefused(
      train({"--data", folder / "missing", "--log-samples", folder / "samples", "--metrics", folder / "metrics"}),
      "missing");
  const uint16_t port = freePort();
  Program first = startTraining({"--steps", "1", "--batch-size", "2"}, rankOf(0, 2, port));
  expectRefused(train({"--steps", "1", "--batch-size", "4", "--metrics", folder / "metrics"}, rankOf(1, 2, port)),
                "batch_size: ");
  EXPECT_NE(first.finish(kLimit).shellStatus(), 0);
  EXPECT_EQ(contentsOf(folder / "samples") + contentsOf(folder / "metrics"), "beforebefore");
}

TEST(FullDisk, Metrics_EndTheRun) {
  expectRefused(train({"--steps", "2", "--metrics", "/dev/full"}), "cannot write /dev/full: No space left on device");
}

TEST(FullDisk, Checkpoint_KeepsTheOldOne) {
  const TemporaryFolder folder;
  digestOf(train({"--steps", "1", "--checkpoint", folder / "c"}));
  const std::string before = contentsOf(folder / "c");
  Program process = startTraining({"--steps", "2", "--checkpoint", folder / "c"}, {}, 100'000);
  expectRefused(process.finish(kLimit), "cannot write");
  EXPECT_EQ(contentsOf(folder / "c"), before);
  EXPECT_EQ(contentsOf(folder / "c" + ".tmp." + std::to_string(process.pid())), "");
}

TEST(Transport, DpdkAndTcp_EndWithTheSameDigest) {
  const char* plugin = std::getenv("DDP_TRAIN_PLUGIN");
  if (plugin == nullptr) {
    GTEST_SKIP() << "the plug-in or its DPDK transport is not part of this build";
  }
  const std::vector<std::string> flags{"--spawn", "2", "--steps", "6", "--verify-ranks", "--plugin", plugin};
  const auto tcp = summaryOf(train(flags));
  const auto dpdk = summaryOf(train(flags, {{"GLOO_DEVICE_TRANSPORT", "DPDK"}}));
  EXPECT_EQ(tcp["transport"], "TCP");
  EXPECT_EQ(dpdk["transport"], "DPDK");
  EXPECT_EQ(tcp["sha256"], dpdk["sha256"]);
}

TEST(Transport, BytesOverAnotherThanTheNamedOne_EndTheRunWithoutASummary) {
  const char* plugin = std::getenv("MISLABELLED_PLUGIN");
  if (plugin == nullptr) {
    GTEST_SKIP() << "the plug-in or its DPDK transport is not part of this build";
  }
  struct Fault {
    std::string named, used, said;
  };
  for (const auto& [named, used, said] :
       {Fault{"DPDK", "TCP", "DPDK was to carry 1 bytes at least, and carried 0"}, Fault{"TCP", "UDP", "came over UDP"},
        Fault{"DPDK", "UDP", "came over UDP"}}) {
    const TemporaryFolder folder;
    const auto result = train({"--spawn", "2", "--steps", "2", "--metrics", folder / "m", "--plugin", plugin},
                              {{"GLOO_DEVICE_TRANSPORT", named}, {"PLANTED_TRANSPORT", used}});
    EXPECT_NE(result.shellStatus(), 0) << named << " " << used;
    EXPECT_NE(result.err.find(said), std::string::npos) << result.err;
    EXPECT_EQ(contentsOf(folder / "m").find("\"summary\""), std::string::npos);
  }
}

}  // namespace
}  // namespace gloo_bypass::trainer::testing
