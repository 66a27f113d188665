// Steps that do not use all parameters, and what c10d's reducer makes of them: LayerDrop, --find-unused-parameters and
// --static-graph. DDP_TRAIN names the program.
#include <algorithm>
#include <array>
#include <map>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include "tests/support/temporary_folder.h"
#include "tests/trainer/tensor_files.h"
#include "tests/trainer/tiny_training.h"
#include "tests/trainer/training_results.h"
#include "trainer/checkpoint/weights.h"
#include "trainer/data/batches.h"
#include "trainer/distributed/held_model.h"
#include "trainer/distributed/parallelism.h"
#include "trainer/model/layer_drop.h"

namespace gloo_bypass::trainer::testing {
namespace {

const Flags kDropping{"--layer-drop", "0.4", "--find-unused-parameters"};

TEST(LayerDrop, LeavesOutSoManyBlocks) {
  LayerDrop drop(0.3);
  int leftOut = 0;
  constexpr int kDraws = 10'000;
  for (uint64_t seed = 0; seed < kDraws; ++seed) {
    drop.seed(dropoutSeed(1, 0, static_cast<int64_t>(seed)));
    leftOut += drop.leavesOut(1) ? 1 : 0;
  }
  EXPECT_NEAR(leftOut, 0.3 * kDraws, 0.02 * kDraws);  // four standard deviations
  LayerDrop none(0);
  EXPECT_FALSE(none.leavesOut(1));
}

// Blocks of tiny, as units 1 and 2.
uint64_t seedThatLeavesOutTheFirstBlockOnly(LayerDrop& drop) {
  uint64_t seed = 0;
  do {
    drop.seed(++seed);
  } while (!drop.leavesOut(1) || drop.leavesOut(2));
  return seed;
}

TEST(LayerDrop, ABlockLeftOut_HasNoGradient_AndEvaluationsUseIt) {
  Gpt2 model(Gpt2Config::of("tiny"), at::kDouble);
  model.initialize(1);
  const auto ids = at::arange(8).view({2, 4});
  const auto whole = model.loss(ids, ids, 0).item<double>();
  LayerDrop drop(0.5);
  seedThatLeavesOutTheFirstBlockOnly(drop);
  model.runPartsBy(&drop);
  model.loss(ids, ids, 0).backward();
  for (const auto& [name, parameter] : model.named()) {
    EXPECT_EQ(parameter.grad().defined(), !name.starts_with("h.0.")) << name;
  }
  const at::NoGradGuard noGrad;
  EXPECT_EQ(model.loss(ids, ids, 0).item<double>(), whole);
}

Options optionsOf(const Flags& flags) {
  std::vector<const char*> words{"ddp_train"};
  for (const auto& flag : flags) words.push_back(flag.c_str());
  return std::get<Options>(parseOptions(static_cast<int>(words.size()), words.data()));
}

// What two ranks come to, each with samples and blocks of its own, computed by one after the other. How often neither,
// one and both of them left a block out.
std::array<int, 3> trainAsTwoRanks(const Options& options, const std::string& path) {
  constexpr int kRanks = 2;
  HeldModel held(options, RankEnvironment{});
  held.model.initialize(options.seed);
  Batches batches[kRanks]{{options, 0, kRanks}, {options, 1, kRanks}};
  std::array<int, 3> leftOut{};
  LayerDrop drop(options.layerDrop);
  for (int64_t step = 0; step < options.steps; ++step) {
    std::array<int, 2> ofBlocks{};
    for (int rank = 0; rank < kRanks; ++rank) {
      drop.seed(dropoutSeed(options.seed, rank, step));
      for (size_t block = 0; block < ofBlocks.size(); ++block) ofBlocks[block] += drop.leavesOut(1 + block) ? 1 : 0;
      held.seedForward(dropoutSeed(options.seed, rank, step));
      const auto batch = batches[rank].of(step, /*micro=*/0);
      (held.model.loss(batch.ids, batch.targets, 0) / kRanks).backward();
    }
    for (const int ranks : ofBlocks) ++leftOut[static_cast<size_t>(ranks)];
    held.optimizer->step();
    held.optimizer->clearGradients();
  }
  Parallelism alone(*held.optimizer);
  saveWeights(path, held.model, alone);
  return leftOut;
}

// A step may leave a block out at one rank, or at both.
TEST(UnusedParameters, TwoRanks_HaveTheMeanOfTheirGradients) {
  const TemporaryFolder folder;
  const Flags flags = kDropping + Flags{"--steps", "12", "--precision", "fp64", "--lr", "1e-2"};
  const Flags asTrainDoes{"--model", "tiny", "--seq-length", "16", "--data", std::getenv("SAMPLE_TEXT")};
  const auto leftOut = trainAsTwoRanks(optionsOf(flags + asTrainDoes), folder / "expected");
  EXPECT_GT(*std::min_element(leftOut.begin(), leftOut.end()), 0);
  digestOf(train(flags + Flags{"--spawn", "2", "--verify-ranks", "--save-model", folder / "found"}));
  EXPECT_LT(largestDifference(folder / "expected", folder / "found"), 1e-9);
}

// Every parameter has its own number of AdamW's steps.
TEST(UnusedParameters, Resumed_HasTheBitsOfAStraightRun) {
  const TemporaryFolder folder;
  const Flags common = kDropping + Flags{"--spawn", "2", "--lr", "1e-2"};
  const auto straight = digestOf(train(common + Flags{"--steps", "9"}));
  digestOf(train(common + Flags{"--steps", "5", "--checkpoint", folder / "c"}));
  EXPECT_EQ(digestOf(train(common + Flags{"--steps", "9", "--resume", folder / "c"})), straight);
}

// The ranks say which parameters they used: that is no gradient.
TEST(UnusedParameters, GradientBytesAreThoseOfTheModel_OverEveryPath) {
  const auto plain = stepsOf(train({"--spawn", "2", "--steps", "3"}).out);
  const Flags flags = kDropping + Flags{"--spawn", "2", "--steps", "6"};
  const auto dropping = train(flags);
  const auto steps = stepsOf(dropping.out);
  EXPECT_EQ(steps[1]["gradient_bytes"], plain[1]["gradient_bytes"]);
  EXPECT_GT(bytesOfAStep(steps), bytesOfAStep(plain));
  if (const char* plugin = std::getenv("DDP_TRAIN_PLUGIN")) {
    const Flags dpdk{"--plugin", plugin};
    for (const Flags& path : {dpdk, dpdk + Flags{"--collectives", "own"}}) {
      EXPECT_EQ(digestOf(train(flags + path, {{"GLOO_DEVICE_TRANSPORT", "DPDK"}})), digestOf(dropping));
    }
  }
}

const Flags kManyBuckets{"--bucket-cap-mb", "0.02", "--first-bucket-mb", "0.005"};

// Of two ranks the order of additions is the same wherever buckets are cut.
TEST(StaticGraph, OfTwoRanks_HasTheBitsOfAnyOther) {
  for (const Flags& more : {Flags{}, Flags{"--gradient-as-bucket-view"}, Flags{"--activation-checkpointing"},
                            Flags{"--compress", "topk"}, Flags{"--sums", "ordered"}}) {
    const Flags flags = kManyBuckets + Flags{"--spawn", "2", "--steps", "4", "--lr", "1e-2"} + more;
    EXPECT_EQ(digestOf(train(flags + Flags{"--static-graph"})), digestOf(train(flags)))
        << ::testing::PrintToString(more);
  }
}

// Of three it is not: a resumed run must cut them where the straight one did.
TEST(StaticGraph, Resumed_HasTheBitsOfAStraightRun) {
  const TemporaryFolder folder;
  const Flags common = kManyBuckets + Flags{"--spawn", "3", "--batch-size", "2", "--lr", "1e-2", "--static-graph"};
  const auto straight = digestOf(train(common + Flags{"--steps", "5"}));
  for (const std::string done : {"1", "3"}) {
    digestOf(train(common + Flags{"--steps", done, "--checkpoint", folder / "c"}));
    EXPECT_EQ(digestOf(train(common + Flags{"--steps", "5", "--resume", folder / "c"})), straight) << done;
  }
}

// The first step's all-reduces begin when its backward has ended, the later ones' beside it.
TEST(StaticGraph, FirstStep_ReducesBehindBackward) {
  const TemporaryFolder folder;
  digestOf(
      train(kManyBuckets + Flags{"--spawn", "2", "--steps", "3", "--static-graph", "--trace", folder / "trace.json"}));
  const auto trace = nlohmann::json::parse(contentsOf(folder / "trace.json"));
  std::map<int, double> firstReduce, lastReady;  // of rank 0's steps; microseconds
  for (const auto& event : trace["traceEvents"]) {
    const auto name = event["name"].get<std::string>();
    const bool isReduce = name == "gloo:all_reduce", isReady = name.ends_with(" gradients");
    if (event["pid"] != 0 || !(isReduce || isReady)) continue;
    const int step = event["args"]["step"].get<int>();
    const auto begin = event["ts"].get<double>();
    if (isReduce) firstReduce[step] = std::min(begin, firstReduce.try_emplace(step, begin).first->second);
    if (isReady) lastReady[step] = std::max(begin, lastReady[step]);
  }
  EXPECT_GT(firstReduce.at(1), lastReady.at(1));
  EXPECT_LT(firstReduce.at(2), lastReady.at(2));
  EXPECT_LT(firstReduce.at(3), lastReady.at(3));
}

TEST(UnusedParameters, WhatCannotBe_IsRefused) {
  const std::vector<std::pair<Flags, std::string>> all{
      {{"--spawn", "2", "--layer-drop", "0.1"}, "give --find-unused-parameters"},
      {{"--find-unused-parameters", "--static-graph"}, "give one of them"},
      {{"--static-graph", "--no-ddp"}, "without --no-ddp"},
      {kDropping + Flags{"--accumulate", "2"}, "without --accumulate"},
      {{"--static-graph", "--accumulate", "2"}, "without --accumulate"},
      {kDropping + Flags{"--sums", "ordered"}, "without --sums"},
      {{"--find-unused-parameters", "--compress", "sign"}, "without --compress"},
      {{"--layer-drop", "0.1", "--zero", "1"}, "without --zero"},
      {{"--find-unused-parameters", "--zero", "1"}, "--zero"},
      {{"--static-graph", "--average", "diloco"}, "--average"},
      {{"--static-graph", "--model-parallel", "tensor"}, "--model-parallel"},
      {kDropping + Flags{"--precision", "bf16"}, "not with bf16"},
      {kDropping + Flags{"--compress", "sign"}, "without --compress"},
      {{"--layer-drop", "1"}, "--layer-drop"}};
  for (const auto& [flags, reason] : all) {
    const auto finished = train(Flags{"--steps", "1"} + flags);
    EXPECT_EQ(finished.shellStatus(), 2) << reason;
    EXPECT_NE(finished.err.find(reason), std::string::npos) << finished.err;
  }
}

// One rank alone needs no reducer, and may leave blocks out all the same.
TEST(UnusedParameters, OneRankAlone_MayDropLayers) {
  digestOf(train({"--no-ddp", "--layer-drop", "0.4", "--steps", "6", "--clip-norm", "1"}));
}

}  // namespace
}  // namespace gloo_bypass::trainer::testing
