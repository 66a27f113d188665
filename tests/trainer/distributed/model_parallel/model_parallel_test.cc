// Ranks that share one model, as users run them: the same numbers as one rank with the same samples, and as many bytes
// as the papers say. DDP_TRAIN names the program.
#include <algorithm>
#include <csignal>
#include <fstream>
#include <map>
#include <numeric>

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/support/temporary_folder.h"
#include "tests/trainer/tensor_files.h"
#include "tests/trainer/tiny_training.h"
#include "tests/trainer/training_results.h"
#include "tools/common/free_port.h"
#include "trainer/config/choices.h"
#include "trainer/distributed/model_parallel/pipeline.h"
#include "trainer/model/gpt2.h"
#include "trainer/model/model_share.h"

namespace gloo_bypass::trainer::testing {
namespace {

Flags shared(const std::string& method, int ranks) {
  return {"--spawn", std::to_string(ranks), "--model-parallel", method};
}

// `copies` of the model, each shared by so many ranks.
Flags copiesOf(const std::string& method, int parts, int copies) {
  return shared(method, parts * copies) + Flags{"--model-ranks", std::to_string(parts)};
}

// Four blocks instead of tiny's two, and heads that three ranks can share.
std::string fourBlocks(const TemporaryFolder& folder) {
  std::ofstream(folder / "config.json") << nlohmann::json{{"model_type", "gpt2"}, {"n_layer", 4},
                                                          {"n_embd", 24},         {"n_head", 12},
                                                          {"vocab_size", 512},    {"n_positions", 128}};
  return folder / "config.json";
}

constexpr ModelParallelism kMethods[] = {ModelParallelism::kTensor, ModelParallelism::kGpipe, ModelParallelism::k1F1B};

TEST(ModelShare, RanksTogether_HoldEachElementOnce) {
  const Gpt2Config config{.layers = 5, .hidden = 24, .heads = 12, .vocabulary = 31, .positions = 7};
  for (const auto method : kMethods) {
    for (const int ranks : {1, 2, 3, 4}) {
      int64_t elements = 0;
      for (const auto& parameter : config.parameters()) {
        auto held = at::zeros(parameter.sizes, at::kInt);
        for (int rank = 0; rank < ranks; ++rank) {
          const auto piece = ModelShare(method, rank, ranks, config).of(parameter);
          EXPECT_EQ(piece.elements(),
                    std::accumulate(piece.sizes.begin(), piece.sizes.end(), int64_t{1}, std::multiplies<>()));
          if (!piece.isCopy && piece.length > 0) {
            held.view({piece.outer, piece.extent, piece.inner}).narrow(1, piece.begin, piece.length).add_(1);
          }
        }
        EXPECT_TRUE(held.eq(1).all().item<bool>())
            << nameOf(kModelParallelisms, method) << ", " << ranks << " ranks: " << parameter.name;
        elements += held.numel();
      }
      EXPECT_EQ(elements, config.parameterCount());
    }
  }
}

TEST(ModelShare, None_IsEverythingAtEachRank) {
  const Gpt2Config config{.layers = 2, .hidden = 24, .heads = 12, .vocabulary = 31, .positions = 7};
  for (const auto& parameter : config.parameters()) {
    const auto piece = ModelShare(ModelParallelism::kNone, 1, 3, config).of(parameter);
    EXPECT_TRUE(piece.isWhole() && !piece.isCopy) << parameter.name;
    EXPECT_EQ(piece.sizes, parameter.sizes) << parameter.name;
  }
}

// Query, key and value of the same heads.
TEST(ModelShare, Tensor_CutsAttentionByHeads) {
  const Gpt2Config config{.layers = 1, .hidden = 4, .heads = 2, .vocabulary = 8, .positions = 2};
  const auto piece = ModelShare(ModelParallelism::kTensor, 1, 2, config).of({"h.0.attn.c_attn.bias", {12}});
  const auto held = at::arange(12)
                        .view({piece.outer, piece.extent, piece.inner})
                        .narrow(1, piece.begin, piece.length)
                        .reshape(piece.sizes);
  EXPECT_TRUE(held.equal(at::tensor({2, 3, 6, 7, 10, 11}, at::kLong)));
}

// Shoeybi et al. 2019, figure 8: consecutive ranks share a copy.
TEST(MeshPlace, ConsecutiveRanksShareACopy) {
  const auto written = [](int64_t parts, int worldSize) {
    std::string text;
    for (int rank = 0; rank < worldSize; ++rank) {
      const MeshPlace place =
          ModelParallelOptions{.method = ModelParallelism::kTensor, .ranks = parts}.placeOf(rank, worldSize);
      EXPECT_EQ(place.copies * place.parts, worldSize);
      text += std::to_string(place.copy) + "." + std::to_string(place.part) + " ";
    }
    return text;
  };
  EXPECT_EQ(written(2, 6), "0.0 0.1 1.0 1.1 2.0 2.1 ");
  EXPECT_EQ(written(0, 3), "0.0 0.1 0.2 ");
  EXPECT_EQ(written(1, 2), "0.0 1.0 ");
  const MeshPlace alone = ModelParallelOptions{}.placeOf(1, 2);  // every rank has a copy of its own
  EXPECT_EQ(alone.copy, 1);
  EXPECT_EQ(alone.copies, 2);
}

std::string written(const std::vector<Pass>& passes) {
  std::string text;
  for (const auto& [kind, micro] : passes) {
    text += kind == Pass::Kind::kForward ? 'F' : 'B';
    text += std::to_string(micro) + " ";
  }
  return text;
}

// Narayanan et al. 2021, figure 3 and 4.
TEST(PipelinePasses, AreThePapers) {
  EXPECT_EQ(written(pipelinePasses(ModelParallelism::kGpipe, 1, 4, 3)), "F0 F1 F2 B0 B1 B2 ");
  EXPECT_EQ(written(pipelinePasses(ModelParallelism::k1F1B, 3, 4, 3)), "F0 B0 F1 B1 F2 B2 ");
  EXPECT_EQ(written(pipelinePasses(ModelParallelism::k1F1B, 1, 4, 4)), "F0 F1 F2 B0 F3 B1 B2 B3 ");
  EXPECT_EQ(written(pipelinePasses(ModelParallelism::k1F1B, 0, 4, 2)), "F0 F1 B0 B1 ");  // fewer than fill the pipeline
}

TEST(PipelinePasses, KeepAtMostSoManyActivations) {
  for (const auto method : {ModelParallelism::kGpipe, ModelParallelism::k1F1B}) {
    for (int rank = 0; rank < 4; ++rank) {
      int64_t kept = 0, most = 0;
      for (const auto& pass : pipelinePasses(method, rank, 4, 8)) {
        kept += pass.kind == Pass::Kind::kForward ? 1 : -1;
        most = std::max(most, kept);
      }
      EXPECT_EQ(kept, 0);
      EXPECT_EQ(most, method == ModelParallelism::kGpipe ? 8 : 4 - rank);
    }
  }
}

// Losses, norms, evaluation and weights, over accumulation and clipping.
void expectTheSame(const Flags& common, const Flags& plain, const std::vector<Flags>& others) {
  const TemporaryFolder folder;
  const Flags all =
      common + Flags{"--steps",     "4",   "--precision",    "fp64", "--batch-size", "2",    "--accumulate",  "3",
                     "--clip-norm", "0.5", "--eval-samples", "5",    "--lr",         "1e-2", "--verify-ranks"};
  const auto expected = train(all + plain + Flags{"--save-model", folder / "expected"});
  const auto steps = stepsOf(expected.out);
  for (const Flags& flags : others) {
    SCOPED_TRACE(::testing::PrintToString(flags));
    const auto found = train(all + flags + Flags{"--save-model", folder / "found"});
    const auto summary = summaryOf(found);
    EXPECT_NEAR(summary["eval_loss"].get<double>(), summaryOf(expected)["eval_loss"].get<double>(), 1e-9);
    EXPECT_EQ(summary["eval_tokens"].get<int64_t>(), summaryOf(expected)["eval_tokens"].get<int64_t>());
    EXPECT_LT(largestDifference(folder / "expected", folder / "found"), 1e-9);
    const auto theirs = stepsOf(found.out);
    ASSERT_EQ(theirs.size(), steps.size());
    for (size_t i = 0; i < steps.size(); ++i) {
      for (const char* field : {"loss", "loss_mean", "gradient_norm"}) {
        EXPECT_NEAR(theirs[i][field].get<double>(), steps[i][field].get<double>(), 1e-9) << field;
      }
      EXPECT_EQ(theirs[i]["tokens"].get<int64_t>(), steps[i]["tokens"].get<int64_t>());
    }
  }
}

// One rank with the same samples.
TEST(ModelParallel, FollowsOneRank) {
  const TemporaryFolder folder;
  expectTheSame({"--model-config", fourBlocks(folder)}, {},
                {shared("tensor", 2), shared("tensor", 3), shared("gpipe", 2), shared("gpipe", 3), shared("1f1b", 3),
                 shared("1f1b", 4), shared("1f1b", 1)});
}

// As many ranks with a copy each; with the tail of an epoch, of which the second copy has fewer samples.
TEST(Copies, FollowDataParallelism) {
  const TemporaryFolder folder;
  const Flags model{"--model-config", fourBlocks(folder)};
  expectTheSame(model, {"--spawn", "2"}, {copiesOf("tensor", 2, 2), copiesOf("gpipe", 2, 2), copiesOf("1f1b", 2, 2)});
  expectTheSame(model, {"--spawn", "3"}, {copiesOf("1f1b", 2, 3)});
  expectTheSame(model + Flags{"--samples", "26", "--tail", "weighted"}, {"--spawn", "2"}, {copiesOf("tensor", 2, 2)});
}

TEST(Copies, OfOnePart_HaveDataParallelismsBits) {
  const Flags common{"--steps", "3", "--lr", "1e-2", "--accumulate", "2"};
  const auto plain = digestOf(train(common + Flags{"--spawn", "2"}));
  for (const std::string method : {"tensor", "1f1b"}) {
    EXPECT_EQ(digestOf(train(common + copiesOf(method, 1, 2))), plain) << method;
  }
}

// With one micro-batch the order of additions is the same.
TEST(Pipeline, OneMicroBatch_HasOneRanksBits) {
  const Flags common{"--steps", "3", "--lr", "1e-2"};
  const auto alone = digestOf(train(common));
  for (const std::string method : {"gpipe", "1f1b"}) {
    EXPECT_EQ(digestOf(train(common + shared(method, 2))), alone);
    EXPECT_EQ(digestOf(train(common + shared(method, 2) + Flags{"--activation-checkpointing"})), alone);
  }
}

TEST(Pipeline, SchedulesAgreeBitForBit_AndOneHoldsLess) {
  const Flags common{"--steps", "3", "--accumulate", "6", "--dropout", "0.1", "--memory-metrics"};
  const auto gpipe = train(common + shared("gpipe", 2)), oneByOne = train(common + shared("1f1b", 2));
  EXPECT_EQ(digestOf(gpipe), digestOf(oneByOne));
  EXPECT_LT(stepsOf(oneByOne.out).back()["peak_tensor_bytes"].get<double>(),
            0.6 * stepsOf(gpipe.out).back()["peak_tensor_bytes"].get<double>());
}

TEST(ModelParallel, CheckpointsContinue_OnOneRankAndBack) {
  const TemporaryFolder folder;
  const Flags common{"--precision", "fp64", "--batch-size", "2", "--accumulate", "2", "--lr", "1e-2"};
  digestOf(train(common + Flags{"--steps", "4", "--checkpoint", folder / "straight"}));
  for (const std::string method : {"tensor", "gpipe", "1f1b"}) {
    SCOPED_TRACE(method);
    digestOf(train(common + shared(method, 2) + Flags{"--steps", "2", "--checkpoint", folder / "c"}));
    digestOf(train(common + Flags{"--steps", "4", "--resume", folder / "c", "--checkpoint", folder / "alone"}));
    EXPECT_LT(largestDifference(folder / "straight", folder / "alone"), 1e-9);
    digestOf(train(common + Flags{"--steps", "2", "--checkpoint", folder / "c"}));
    digestOf(train(common + shared(method, 2) +
                   Flags{"--steps", "4", "--resume", folder / "c", "--checkpoint", folder / "together"}));
    EXPECT_LT(largestDifference(folder / "straight", folder / "together"), 1e-9);
  }
}

TEST(Copies, Checkpoints_ContinueWithDataParallelismAndBack) {
  const TemporaryFolder folder;
  const Flags common{"--precision", "fp64", "--batch-size", "2", "--accumulate", "2", "--lr", "1e-2"};
  const Flags plain{"--spawn", "2"}, first{"--steps", "2", "--checkpoint", folder / "c"},
      rest{"--steps", "4", "--resume", folder / "c", "--checkpoint", folder / "end"};
  digestOf(train(common + plain + Flags{"--steps", "4", "--checkpoint", folder / "straight"}));
  for (const std::string method : {"tensor", "1f1b"}) {
    SCOPED_TRACE(method);
    digestOf(train(common + copiesOf(method, 2, 2) + first));
    digestOf(train(common + plain + rest));
    EXPECT_LT(largestDifference(folder / "straight", folder / "end"), 1e-9);
    digestOf(train(common + plain + first));
    digestOf(train(common + copiesOf(method, 2, 2) + rest));
    EXPECT_LT(largestDifference(folder / "straight", folder / "end"), 1e-9);
  }
}

TEST(ModelParallel, Resumed_HasTheBitsOfAStraightRun) {
  const TemporaryFolder folder;
  const Flags common{"--accumulate", "2", "--batch-size", "2"};
  for (const Flags& ranks :
       {shared("tensor", 2), shared("1f1b", 2), copiesOf("tensor", 2, 2), copiesOf("1f1b", 2, 2)}) {
    const auto straight = digestOf(train(common + ranks + Flags{"--steps", "4"}));
    digestOf(train(common + ranks + Flags{"--steps", "2", "--checkpoint", folder / "c"}));
    EXPECT_EQ(digestOf(train(common + ranks + Flags{"--steps", "4", "--resume", folder / "c"})), straight)
        << ::testing::PrintToString(ranks);
  }
}

TEST(ModelParallel, WeightsFile_IsReadAndWritten) {
  const TemporaryFolder folder;
  digestOf(train({"--steps", "1", "--lr", "0", "--save-model", folder / "start"}));
  for (const std::string method : {"tensor", "gpipe"}) {
    digestOf(train(Flags{"--steps", "1", "--lr", "0", "--seed", "7", "--weights", folder / "start", "--save-model",
                         folder / "end"} +
                   shared(method, 2)));
    EXPECT_TRUE(contentsOf(folder / "start") == contentsOf(folder / "end")) << method;
  }
}

// Rank 0 of a pipeline sends M activations and the embedding's gradient; a ring of N sends 2 (N-1)/N of each of 4 sums
// a block.
TEST(ModelParallel, SendsTheBytesOfTheFormula) {
  constexpr int64_t kMicros = 3, kActivations = 16 * 16 * 32 * 4, kEmbedding = 512 * 32 * 4, kBlocks = 2;
  const Flags common{"--steps", "5", "--batch-size", "16", "--accumulate", std::to_string(kMicros)};
  struct Expected {
    int ranks;
    int64_t handedOver;
    double sent;
  };
  const double sums = static_cast<double>(4 * kBlocks * kMicros * kActivations);
  const int64_t passed = kMicros * kActivations + kEmbedding;
  const std::vector<std::pair<std::string, Expected>> all{{"gpipe", {2, passed, static_cast<double>(passed)}},
                                                          {"1f1b", {2, passed, static_cast<double>(passed)}},
                                                          {"tensor", {2, static_cast<int64_t>(sums), sums}},
                                                          {"tensor", {4, static_cast<int64_t>(sums), 1.5 * sums}}};
  for (const auto& [method, expected] : all) {
    const auto steps = stepsOf(train(common + shared(method, expected.ranks)).out);
    ASSERT_EQ(steps.size(), 5u) << method;
    EXPECT_EQ(steps[1]["exchanged_bytes"].get<int64_t>(), expected.handedOver) << method;
    EXPECT_NEAR(bytesOfAStep(steps), expected.sent, 0.1 * expected.sent) << method;  // headers, barrier
    EXPECT_GT(steps[1]["t_wait_s"].get<double>(), 0) << method;
  }
}

// A rank's gradients pass the reducer of those with the same part, its activations the ranks of the same copy.
TEST(Copies, SendTheBytesOfBoth) {
  constexpr int64_t kMicros = 3, kActivations = 16 * 16 * 32 * 4, kEmbedding = 512 * 32 * 4, kBlocks = 2, kCopies = 3;
  const Flags common{"--steps", "5", "--batch-size", "16", "--accumulate", std::to_string(kMicros)};
  const auto config = Gpt2Config::of("tiny");
  for (const auto& [method, type, handedOver] :
       {std::tuple("tensor", ModelParallelism::kTensor, 4 * kBlocks * kMicros * kActivations),
        {"1f1b", ModelParallelism::k1F1B, kMicros * kActivations + kEmbedding}}) {
    SCOPED_TRACE(method);
    const auto steps = stepsOf(train(common + copiesOf(method, 2, kCopies)).out);
    ASSERT_EQ(steps.size(), 5u);
    const int64_t gradients = ModelShare(type, 0, 2, config).elements(config) * 4;
    EXPECT_EQ(steps[1]["gradient_bytes"].get<int64_t>(), gradients);
    EXPECT_GT(steps[1]["buckets"].get<int64_t>(), 0);
    EXPECT_EQ(steps[1]["exchanged_bytes"].get<int64_t>(), handedOver);
    const double sent =
        static_cast<double>(handedOver) + 2.0 * (kCopies - 1) / kCopies * static_cast<double>(gradients);
    EXPECT_NEAR(bytesOfAStep(steps), sent, 0.1 * sent);
  }
}

// With when each bucket's gradients were ready, of ranks that hold a part of the model.
TEST(Copies, Trace_HasTheirBuckets) {
  const TemporaryFolder folder;
  digestOf(
      train(Flags{"--steps", "3", "--accumulate", "2", "--trace", folder / "trace.json"} + copiesOf("1f1b", 2, 2)));
  const auto trace = nlohmann::json::parse(contentsOf(folder / "trace.json"));
  std::map<std::string, int> spans;
  for (const auto& event : trace["traceEvents"]) {
    ++spans[event["name"].get<std::string>()];
  }
  constexpr int kRanksTimesSteps = 4 * 3;
  EXPECT_EQ(spans["bucket 0 gradients"], kRanksTimesSteps);
  EXPECT_EQ(spans["gloo:all_reduce"], kRanksTimesSteps);
  EXPECT_GT(spans["waiting for ranks"], 0);
}

TEST(ModelParallel, RankIsKilled_TheOtherEndsAndSaysSo) {
  for (const std::string method : {"tensor", "1f1b"}) {
    const uint16_t port = freePort();
    const Flags flags{"--steps", "1000000", "--timeout", "20", "--accumulate", "2", "--model-parallel", method};
    Program first = startTraining(flags, rankOf(0, 2, port)), second = startTraining(flags, rankOf(1, 2, port));
    ASSERT_TRUE(first.waitForOutput("\"step\":3,", kLimit)) << method;
    ASSERT_EQ(::kill(second.pid(), SIGKILL), 0);
    const auto finished = first.finish(kLimit);
    EXPECT_EQ(finished.shellStatus(), 1) << finished.err;
    EXPECT_NE(finished.err.find("rank 0: "), std::string::npos) << finished.err;
    second.finish(kLimit);
  }
}

// Its own copy waits for its activations, the other one for its gradients.
TEST(Copies, RankIsKilled_AllEnd) {
  Program run =
      startTraining(Flags{"--steps", "1000000", "--timeout", "20", "--metrics", "-"} + copiesOf("tensor", 2, 2));
  expectEndsWhenARankIsKilled(run, "\"step\":3,");
}

TEST(ModelParallel, WhatCannotBe_IsRefusedBeforeAnyRankStarts) {
  const std::vector<std::pair<Flags, std::string>> all{
      {shared("tensor", 3), "3 ranks cannot share 4 attention heads"},
      {shared("gpipe", 3), "3 ranks, but 2 blocks"},
      {shared("1f1b", 2) + Flags{"--zero", "1"}, "goes without --zero"},
      {shared("1f1b", 2) + Flags{"--tail", "weighted"}, "--tail drop"},
      {shared("tensor", 2) + Flags{"--dropout", "0.1"}, "without --dropout"},
      {shared("tensor", 2) + Flags{"--precision", "bf16"}, "not with --precision"},
      {shared("gpipe", 2) + Flags{"--segment-bytes", "4096"}, "--segment-bytes"},
      {shared("tensor", 3) + Flags{"--model-ranks", "2"}, "3 ranks are no multiple"},
      {shared("tensor", 2) + Flags{"--model-ranks", "4"}, "2 ranks are no multiple"},
      {{"--spawn", "2", "--model-ranks", "2"}, "--model-ranks needs --model-parallel"},
      {{"--model-parallel", "tensor", "--no-ddp"}, "--no-ddp"},
      {{"--model-parallel", "diagonal"}, "diagonal"}};
  for (const auto& [flags, reason] : all) {
    const auto finished = train(Flags{"--steps", "1"} + flags);
    EXPECT_EQ(finished.shellStatus(), 2) << reason;
    EXPECT_NE(finished.err.find(reason), std::string::npos) << finished.err;
  }
}

// The bypass path has the same numbers.
TEST(ModelParallel, OverDpdk_HasTcpsBits) {
  const char* plugin = std::getenv("DDP_TRAIN_PLUGIN");
  if (plugin == nullptr) {
    GTEST_SKIP() << "built without DPDK";
  }
  const Flags dpdk{"--plugin", plugin}, own = dpdk + Flags{"--collectives", "own"};
  for (const auto& [ranks, path] : {std::pair(shared("tensor", 2), dpdk),
                                    {shared("1f1b", 2), dpdk},
                                    {copiesOf("tensor", 2, 2), own},
                                    {copiesOf("1f1b", 2, 2), dpdk}}) {
    const Flags flags = Flags{"--steps", "3", "--accumulate", "3"} + ranks;
    EXPECT_EQ(digestOf(train(flags + path, {{"GLOO_DEVICE_TRANSPORT", "DPDK"}})), digestOf(train(flags)))
        << ::testing::PrintToString(ranks);
  }
}

}  // namespace
}  // namespace gloo_bypass::trainer::testing
