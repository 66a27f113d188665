// ZeRO's stages and activation checkpointing, as users run them: the same numbers as without, in less memory, and as
// many bytes as the paper says. Everything runs the tiny model; DDP_TRAIN names the program.
#include <algorithm>
#include <functional>
#include <future>
#include <limits>
#include <map>
#include <span>

#include <ATen/ATen.h>
#include <c10/core/CPUAllocator.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/support/temporary_folder.h"
#include "tests/trainer/tensor_files.h"
#include "tests/trainer/tiny_training.h"
#include "tests/trainer/training_results.h"
#include "tools/common/free_port.h"
#include "trainer/distributed/group_communicator.h"
#include "trainer/distributed/sharding/flat_unit.h"
#include "trainer/distributed/sharding/sharded_parallel.h"
#include "trainer/distributed/sharding/unit_gather.h"
#include "trainer/model/activation_checkpointing.h"
#include "trainer/model/gpt2.h"
#include "trainer/model/tensor_memory.h"
#include "trainer/optimizer/master_weights.h"

namespace gloo_bypass::trainer::testing {
namespace {

Flags zero(int stage) { return {"--zero", std::to_string(stage)}; }

TEST(Zero, TwoRanks_WriteDdpsCheckpointBitForBit) {
  const TemporaryFolder folder;
  const Flags common{"--spawn", "2", "--steps", "4", "--dropout", "0.1", "--bucket-cap-mb", "0.02", "--verify-ranks"};
  digestOf(train(common + Flags{"--checkpoint", folder / "ddp"}));
  for (int stage = 1; stage <= 3; ++stage) {
    digestOf(train(common + zero(stage) + Flags{"--checkpoint", folder / "zero"}));
    EXPECT_TRUE(contentsOf(folder / "ddp") == contentsOf(folder / "zero")) << "stage " << stage;
  }
}

// Each rank has the masters of its shards, and all leave out the steps in which any rank's gradient is not finite.
TEST(Zero, SixteenBits_WriteDdpsCheckpointBitForBit) {
  const TemporaryFolder folder;
  const std::vector<Flags> precisions{
      {"--precision", "bf16"},
      {"--precision", "fp16", "--initial-loss-scale", "2097152", "--loss-scale-interval", "1"}};
  for (const auto& precision : precisions) {
    const Flags common = precision + Flags{"--spawn",         "2",    "--steps",       "6", "--accumulate", "2",
                                           "--bucket-cap-mb", "0.02", "--verify-ranks"};
    const auto ddp = train(common + Flags{"--checkpoint", folder / "ddp"});
    const auto sharded = train(common + zero(1) + Flags{"--checkpoint", folder / "zero"});
    EXPECT_EQ(digestOf(ddp), digestOf(sharded)) << precision[1];
    EXPECT_TRUE(contentsOf(folder / "ddp") == contentsOf(folder / "zero")) << precision[1];
    const auto skipped = [](const ProgramResult& finished) { return summaryOf(finished).value("skipped_steps", 0); };
    EXPECT_EQ(skipped(ddp), skipped(sharded));
    EXPECT_EQ(skipped(ddp) > 0, precision[1] == "fp16");
  }
}

// Three ranks: shares need padding. One rank: nothing to share.
TEST(Zero, SixteenBits_OfOneAndThreeRanks_AgreeBetweenStages) {
  for (const std::string ranks : {"1", "3"}) {
    const Flags common{"--spawn",      ranks, "--steps",     "3",   "--precision",   "bf16",
                       "--batch-size", "2",   "--clip-norm", "0.5", "--verify-ranks"};
    const auto first = digestOf(train(common + zero(1)));
    EXPECT_EQ(first, digestOf(train(common + zero(3)))) << ranks << " ranks";
  }
}

// Stages 2 and 3 reduce every micro-batch, so that rounding differs from DDP's with several: here there is one.
TEST(Zero, SixteenBits_AllStagesAreTheSame_AndContinueEachOther) {
  const TemporaryFolder folder;
  for (const std::string precision : {"bf16", "fp16"}) {
    const Flags common{"--spawn",       "2",       "--precision",          precision,
                       "--loss-scale",  "dynamic", "--initial-loss-scale", "1048576",
                       "--verify-ranks"};
    const auto ddp = digestOf(train(common + Flags{"--steps", "4", "--save-model", folder / "ddp"}));
    digestOf(train(common + Flags{"--steps", "2", "--checkpoint", folder / "half"}));
    for (int stage = 1; stage <= 3; ++stage) {
      const auto flags = common + zero(stage) + Flags{"--steps", "4", "--save-model", folder / "zero"};
      EXPECT_EQ(ddp, digestOf(train(flags))) << precision << ", stage " << stage;
      EXPECT_TRUE(contentsOf(folder / "ddp") == contentsOf(folder / "zero")) << precision << ", stage " << stage;
      EXPECT_EQ(ddp, digestOf(train(flags + Flags{"--resume", folder / "half"}))) << precision << ", stage " << stage;
    }
  }
}

TEST(Zero, MemoryInSixteenBits_IsThePapers) {
  const auto parameters = static_cast<double>(Gpt2(Gpt2Config::of("tiny"), at::kFloat).parameterCount());
  for (int stage = 1; stage <= 3; ++stage) {
    const auto steps = stepsOf(
        train(Flags{"--spawn", "2", "--steps", "2", "--memory-metrics", "--precision", "bf16"} + zero(stage)).out);
    ASSERT_EQ(steps.size(), 2u);
    const auto expectAbout = [&](const char* name, double expected) {
      EXPECT_GE(steps[1][name].get<double>(), expected) << name << ", stage " << stage;
      EXPECT_LE(steps[1][name].get<double>(), expected * 1.01) << name << ", stage " << stage;
    };
    expectAbout("parameter_bytes", parameters * (stage == 3 ? 1 : 2));
    expectAbout("gradient_bytes_held", parameters * (stage >= 2 ? 1 : 2));
    expectAbout("optimizer_bytes", parameters * 12 / 2);
  }
}

TEST(Zero, OneRank_EqualsTheLoopWithoutDdp) {
  const auto plain = digestOf(train({"--steps", "3", "--no-ddp"}));
  for (int stage = 1; stage <= 3; ++stage) {
    EXPECT_EQ(plain, digestOf(train(Flags{"--steps", "3"} + zero(stage)))) << "stage " << stage;
  }
}

// Three ranks: shares need padding, and the ring adds in another order than the owners do.
TEST(Zero, ThreeRanks_StagesAgreeAndFollowDdp) {
  const TemporaryFolder folder;
  const Flags common{"--spawn", "3", "--steps", "5", "--precision", "fp64", "--batch-size", "2", "--clip-norm", "0.5"};
  const auto ddp = summaryOf(train(common + Flags{"--save-model", folder / "ddp"}));
  std::map<int, std::string> digests;
  for (int stage = 1; stage <= 3; ++stage) {
    digests[stage] = digestOf(train(common + zero(stage) + Flags{"--verify-ranks", "--save-model", folder / "zero"}));
    EXPECT_LT(largestDifference(folder / "ddp", folder / "zero"), 1e-12) << "stage " << stage;
  }
  EXPECT_EQ(digests[1], digests[2]);
  EXPECT_EQ(digests[1], digests[3]);
}

TEST(Zero, Accumulation_FollowsDdp) {
  const TemporaryFolder folder;
  const Flags common{"--spawn", "2", "--steps", "3", "--precision", "fp64", "--batch-size", "2", "--accumulate", "3"};
  const auto ddp = digestOf(train(common + Flags{"--save-model", folder / "ddp"}));
  // Stage 1 reduces once a step, as DDP does; 2 and 3 add reduced micro-batches.
  EXPECT_EQ(ddp, digestOf(train(common + zero(1))));
  const auto two = digestOf(train(common + zero(2) + Flags{"--save-model", folder / "zero"}));
  EXPECT_LT(largestDifference(folder / "ddp", folder / "zero"), 1e-12);
  EXPECT_EQ(two, digestOf(train(common + zero(3))));
}

TEST(Zero, Clipping_ReportsDdpsNorm) {
  const Flags common{"--spawn", "2", "--steps", "2", "--precision", "fp64", "--clip-norm", "0.01"};
  const auto ddp = stepsOf(train(common).out), sharded = stepsOf(train(common + zero(3)).out);
  ASSERT_EQ(ddp.size(), 2u);
  ASSERT_EQ(sharded.size(), 2u);
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_NEAR(ddp[i]["gradient_norm"].get<double>(), sharded[i]["gradient_norm"].get<double>(), 1e-12);
    EXPECT_GT(sharded[i]["gradient_norm"].get<double>(), 0.01);
  }
}

TEST(Zero, Checkpoints_ContinueUnderAnyStageBitForBit) {
  const TemporaryFolder folder;
  const Flags common{"--spawn", "2", "--dropout", "0.1", "--bucket-cap-mb", "0.05"};
  const auto straight = digestOf(train(common + Flags{"--steps", "6"}));
  for (const auto& [first, second] : std::map<int, int>{{0, 3}, {1, 2}, {3, 0}}) {
    digestOf(train(common + zero(first) + Flags{"--steps", "4", "--checkpoint", folder / "c"}));
    EXPECT_EQ(straight, digestOf(train(common + zero(second) + Flags{"--steps", "6", "--resume", folder / "c"})))
        << first << " to " << second;
  }
}

TEST(Zero, ThreeRanksResumed_EndBitIdentical) {
  const TemporaryFolder folder;
  const Flags common = Flags{"--spawn", "3", "--dropout", "0.1", "--batch-size", "4"} + zero(3);
  const auto straight = digestOf(train(common + Flags{"--steps", "5"}));
  digestOf(train(common + Flags{"--steps", "3", "--checkpoint", folder / "c"}));
  EXPECT_EQ(straight, digestOf(train(common + Flags{"--steps", "5", "--resume", folder / "c"})));
}

TEST(Zero, WeightsFile_IsReadAndWritten) {
  const TemporaryFolder folder;
  digestOf(train({"--steps", "1", "--lr", "0", "--save-model", folder / "start"}));
  const Flags common{"--spawn", "2", "--steps", "2", "--seed", "7", "--weights", folder / "start", "--save-model"};
  const auto ddp = digestOf(train(common + Flags{folder / "ddp"}));
  EXPECT_EQ(ddp, digestOf(train(common + Flags{folder / "zero"} + zero(3))));
  EXPECT_TRUE(contentsOf(folder / "ddp") == contentsOf(folder / "zero"));
}

// Rajbhandari et al. 2020, figure 1 and section 7: 4 + 4 + 8 bytes a parameter in fp32, and what a rank sends.
TEST(Zero, MemoryAndBytes_AreThePapers) {
  const auto parameters = Gpt2(Gpt2Config::of("tiny"), at::kFloat).parameterCount();
  const auto size = 4 * static_cast<double>(parameters);
  for (const int ranks : {2, 4}) {
    for (int stage = 0; stage <= 3; ++stage) {
      const auto steps = stepsOf(
          train(Flags{"--spawn", std::to_string(ranks), "--steps", "4", "--memory-metrics", "--batch-size", "2"} +
                zero(stage))
              .out);
      ASSERT_EQ(steps.size(), 4u);
      const auto field = [&](const char* name) { return steps[1][name].get<double>(); };
      const std::string where = std::to_string(ranks) + " ranks, stage " + std::to_string(stage);
      const double share = 1.0 / ranks, padding = 1.01;  // units are rounded up to 16 elements a rank
      const auto expectAbout = [&](const char* name, double expected) {
        EXPECT_GE(field(name), expected) << where << ", " << name;
        EXPECT_LE(field(name), expected * padding) << where << ", " << name;
      };
      expectAbout("parameter_bytes", size * (stage >= 3 ? share : 1));
      expectAbout("gradient_bytes_held", size * (stage >= 2 ? share : 1));
      expectAbout("optimizer_bytes", 2 * size * (stage >= 1 ? share : 1));
      const double volume = (stage == 3 ? 3 : 2) * (ranks - 1) * share * size, headers = 1.05;
      EXPECT_GE(bytesOfAStep(steps), volume) << where;
      EXPECT_LE(bytesOfAStep(steps), volume * headers) << where;
      EXPECT_GT(field("t_ar_s"), 0) << where;
      EXPECT_GT(field("buckets"), 0) << where;
    }
  }
}

TEST(Zero, PeakOfTensors_FallsWithEveryStage) {
  double above = 1e18;
  for (int stage = 0; stage <= 3; ++stage) {
    // Small activations, so that the model's state dominates; stages 1 and 2 differ between micro-batches only.
    const auto finished = train(Flags{"--spawn", "2", "--steps", "2", "--memory-metrics", "--batch-size", "1",
                                      "--seq-length", "4", "--accumulate", "2", "--bucket-cap-mb", "0.01"} +
                                zero(stage));
    const auto steps = stepsOf(finished.out);
    ASSERT_EQ(steps.size(), 2u) << finished.err;
    const auto peak = steps[1]["peak_tensor_bytes"].get<double>();
    EXPECT_LT(peak, above) << "stage " << stage;
    above = peak;
  }
}

TEST(Zero, PlainTraining_HasNoNewFields) {
  const auto step = stepsOf(train({"--steps", "1"}).out).at(0);
  for (const char* name : {"parameter_bytes", "gradient_bytes_held", "optimizer_bytes", "peak_tensor_bytes"}) {
    EXPECT_FALSE(step.contains(name)) << name;
  }
}

TEST(Zero, WhatItCannotBeWith_IsRefused) {
  const std::vector<std::pair<Flags, std::string>> cases{
      {{"--no-ddp"}, "not with --no-ddp"},
      {{"--gradient-as-bucket-view"}, "--gradient-as-bucket-view has no effect with --zero"},
      {{"--segment-bytes", "4096"}, "--segment-bytes has no effect with --zero"},
      {{"--precision", "bf16", "--accumulate", "2", "--accumulate-fp32"}, "--accumulate-fp32 sums whole gradients"},
      {{"--compress", "topk"}, "--compress replaces all-reduces"},
      {{"--average", "local-sgd"}, "--average has ranks with models"}};
  for (const auto& [flags, reason] : cases) {
    const auto finished = train(flags + zero(1));
    expectRefused(finished, reason);
    EXPECT_EQ(finished.shellStatus(), 2);
  }
}

TEST(Zero, RanksWithOtherStages_AreRefused) {
  expectRanksDisagree({Flags{"--steps", "1"} + zero(1), Flags{"--steps", "1"} + zero(3)}, "zero: ");
}

TEST(Memory, TooLittle_IsSaidBeforeAnyRankStarts) {
  const auto finished = train({"--model", "distilgpt2", "--spawn", "1024", "--steps", "1"});  // 1.7 TB
  expectRefused(finished, "1024 ranks of 1024 need 1677.6 GB for parameters, gradients and moments");
  EXPECT_EQ(finished.shellStatus(), 2);
  expectRefused(train({"--model", "distilgpt2", "--elastic", "1:1024", "--checkpoint", "c"}),
                "1024 ranks of 1024 need 1677.6 GB");
}

TEST(Memory, TooLittle_AdvisesOnlyWhatHelps) {
  const auto advice = [](int ranks, int ranksHere, const auto& change) {
    Options options;
    options.modelSizes = Gpt2Config{.layers = 1000, .hidden = 100'000, .heads = 1, .vocabulary = 1, .positions = 1};
    change(options);
    try {
      checkMemory(options, ranks, ranksHere);
    } catch (const UsageError& error) {
      const std::string text = error.what();
      return text.substr(text.find("available: ") + 11);
    }
    return std::string("enough");  // for 2 PB
  };
  const auto nothing = [](Options&) {};
  EXPECT_EQ(advice(1, 1, nothing), "a smaller --model");
  EXPECT_EQ(advice(2, 1, nothing), "a smaller --model, or --zero 1");
  EXPECT_EQ(advice(2, 2, nothing), "fewer ranks, a smaller --model, or --zero 1");
  EXPECT_EQ(advice(2, 1, [](Options& o) { o.sharding.zero = 3; }), "a smaller --model");
  EXPECT_EQ(advice(2, 1, [](Options& o) { o.firstBucketMb = 2; }), "a smaller --model");
}

// On processors that multiply bf16 in hardware the library there takes its buffers from the observed allocator.
TEST(Memory, MetricsInSixteenBits_HaveTheMasters) {
  const auto parameters = Gpt2(Gpt2Config::of("tiny"), at::kFloat).parameterCount();
  const auto finished = train({"--steps", "2", "--memory-metrics", "--precision", "bf16"});
  const auto steps = stepsOf(finished.out);
  ASSERT_EQ(steps.size(), 2u) << finished.err;
  EXPECT_EQ(steps[1]["parameter_bytes"], 2 * parameters);
  EXPECT_EQ(steps[1]["gradient_bytes_held"], 2 * parameters);
  EXPECT_EQ(steps[1]["optimizer_bytes"], 12 * parameters);
  EXPECT_GT(steps[1]["peak_tensor_bytes"], 16 * parameters);
}

TEST(Memory, Formula_IsThePapers) {
  Options options;
  options.model = "distilgpt2";
  const int64_t parameters = 81'912'576;
  const int64_t shares[] = {16 * parameters, (4 + 4 + 8 / 4) * parameters, (4 + (4 + 8) / 4) * parameters,
                            16 * parameters / 4};
  for (int stage = 0; stage <= 3; ++stage) {
    options.sharding.zero = stage;
    EXPECT_EQ(modelStateBytes(options, 4), shares[stage]) << "stage " << stage;
  }
  for (const std::string kind : {"tiny", "distilgpt2"}) {
    EXPECT_EQ(Gpt2Config::of(kind).parameterCount(), Gpt2(Gpt2Config::of(kind), at::kFloat).parameterCount());
  }
}

TEST(Memory, OfTheReduction_IsCountedToo) {
  const int64_t parameters = 81'912'576;
  const auto bytesOf = [](int ranks, const auto& change) {
    Options options;
    options.model = "distilgpt2";
    change(options);
    return reductionBytes(options, ranks);
  };
  EXPECT_EQ(bytesOf(1, [](Options&) {}), 0);
  EXPECT_EQ(bytesOf(2, [](Options&) {}), 4 * parameters);
  EXPECT_EQ(bytesOf(2, [](Options& o) { o.gradientAsBucketView = true; }), 0);
  EXPECT_EQ(bytesOf(2, [](Options& o) { o.averaging.method = AveragingMethod::kDiLoCo; }), 0);
  EXPECT_EQ(bytesOf(2, [](Options& o) { o.precision.type = Precision::kBFloat16; }), (2 + 4) * parameters);
  EXPECT_EQ(bytesOf(2, [](Options& o) { o.sharding.zero = 1; }), 0);
}

TEST(Memory, BeforeAModelIsShared_IsCountedToo) {
  const int64_t parameters = 81'912'576;
  Options options;
  options.model = "distilgpt2";
  EXPECT_EQ(unshardedBytes(options), 0);
  options.sharding.zero = 3;
  EXPECT_EQ(unshardedBytes(options), 4 * parameters);
  options.precision.type = Precision::kBFloat16;
  EXPECT_EQ(unshardedBytes(options), (2 + 4) * parameters);
}

TEST(Memory, OfTechniques_IsCountedToo) {
  const int64_t parameters = 81'912'576;
  const auto bytesOf = [](const auto& change) {
    Options options;
    options.model = "distilgpt2";
    change(options);
    return techniqueStateBytes(options, 2);
  };
  EXPECT_EQ(bytesOf([](Options&) {}), 0);
  EXPECT_EQ(bytesOf([](Options& o) { o.averaging.method = AveragingMethod::kDiLoCo; }), 8 * parameters);
  EXPECT_EQ(bytesOf([](Options& o) { o.compression.method = CompressionMethod::kTopK; }), 4 * parameters);
  EXPECT_EQ(bytesOf([](Options& o) { o.compression.method = CompressionMethod::kQsgd; }), 0);
  EXPECT_EQ(bytesOf([](Options& o) { o.precision.sumsInFp32 = true; }), 4 * parameters);
}

TEST(FlatUnit, ReleasedAndFilledAgain_ParametersSeeTheNewValues) {
  const auto parameter = at::arange(10, at::kFloat).set_requires_grad(true);
  FlatUnit unit({parameter}, 1, 2, /*ownShard=*/true);
  EXPECT_EQ(unit.shardElements(), 16);
  EXPECT_EQ(parameter[9].item<float>(), 9);
  unit.release();
  EXPECT_EQ(unit.heldBytes(), 16 * 4);
  unit.materialize();
  EXPECT_EQ(unit.heldBytes(), 16 * 4 + 32 * 4);
  unit.whole().detach().fill_(5);
  EXPECT_TRUE(parameter.detach().equal(at::full({10}, 5, at::kFloat)));
  unit.fillShard();
  EXPECT_EQ(unit.shard()[15].item<float>(), 5);
}

// Two ranks in this process, each on its own thread, with a communicator.
void asTwoRanks(const std::function<void(GroupCommunicator&)>& program) {
  const uint16_t port = freePort();
  const auto run = [port, &program](int rank) {
    GroupCommunicator communicator(RankEnvironment{.rank = rank, .worldSize = 2, .launched = true, .masterPort = port},
                                   Options{}, nlohmann::json::object());
    program(communicator);
    communicator.barrier();
  };
  auto second = std::async(std::launch::async, run, 1);
  run(0);
  second.get();
}

TEST(UnitGather, Finished_HasAllRanksValues) {
  asTwoRanks([](GroupCommunicator& communicator) {
    const int rank = communicator.rank();
    FlatUnit unit({at::full({64}, static_cast<float>(rank + 1), at::kFloat)}, rank, 2, /*ownShard=*/true);
    unit.release();
    UnitGather gather(communicator, unit, {{0, 16}, {16, 32}});
    gather.finish();
    EXPECT_TRUE(unit.whole().detach().equal(at::cat({at::full({32}, 1.0F), at::full({32}, 2.0F)})));
  });
}

// Around what another runner runs: whether the unit that comes next has its memory, as one that is being gathered.
class Watching final : public PartRunner {
 public:
  Watching(PartRunner& inner, const std::vector<FlatUnit>& units) : inner_(inner), units_(units) {}

  at::Tensor run(ForwardPart part, size_t unit, const at::Tensor& x, const PartComputation& compute) override {
    auto output = inner_.run(part, unit, x, [&](const at::Tensor& input) {
      if (part != ForwardPart::kHead) {
        forward.push_back(units_[(unit + 1) % units_.size()].isWhole());
      }
      return compute(input);
    });
    if (part == ForwardPart::kBlock) {
      output.register_hook([this, unit](const at::Tensor&) {
        backward.push_back(unit == 1 || units_[unit - 1].isWhole());
        heads.push_back(units_[0].isWhole());
      });
    }
    return output;
  }

  std::vector<bool> forward, backward, heads;

 private:
  PartRunner& inner_;
  const std::vector<FlatUnit>& units_;
};

TEST(Zero, StageThree_GathersTheNextUnitBesideEachOfForwardAndBackward) {
  asTwoRanks([](GroupCommunicator& communicator) {
    Options options;
    options.sharding.zero = 3;
    Gpt2 model(Gpt2Config::of("tiny"), at::kFloat);
    model.initialize(1);
    auto units = layOutUnits(model, 3, communicator.rank(), 2);
    AdamW optimizer(shardsOf(units), options);
    ShardedParallel parallel(model, model, optimizer, units, communicator, options);
    Watching watching(*model.partRunner(), units);
    model.runPartsBy(&watching);
    const auto ids = at::zeros({1, 4}, at::kLong);
    const auto loss = model.loss(ids, ids, 0.0);
    parallel.beforeBackward(/*synchronise=*/true, loss);
    loss.backward();
    EXPECT_EQ(watching.forward, std::vector<bool>(units.size(), true));
    EXPECT_EQ(watching.backward, std::vector<bool>(units.size() - 1, true));
    EXPECT_EQ(watching.heads, std::vector<bool>(units.size() - 1, false));
    for (const auto& unit : units) {
      EXPECT_FALSE(unit.isWhole());
    }
  });
}

// Only rank 1's shard has an infinity: neither rank makes the step, and both halve the scale.
TEST(Zero, InfinityInOneShard_LeavesTheStepOutOnAllRanks) {
  asTwoRanks([](GroupCommunicator& communicator) {
    Options options;
    options.sharding.zero = 2;
    options.precision.type = Precision::kFloat16;
    Gpt2 model(Gpt2Config::of("tiny"), at::kHalf);
    Gpt2 weights = mastersOf(model);
    weights.initialize(1);
    auto units = layOutUnits(model, 2, communicator.rank(), 2);
    const auto optimizer = makeOptimizer(shardsOf(units), mastersOf(shardsOf(units)), options);
    ShardedParallel parallel(model, weights, *optimizer, units, communicator, options);
    const auto before = optimizer->parameters()[0].detach().clone();
    for (const bool hasInfinity : {true, false}) {
      for (auto& unit : units) {
        auto shard = unit.shard();
        shard.mutable_grad() = at::ones_like(shard.detach());
      }
      if (hasInfinity && communicator.rank() == 1) {
        units[1].shard().grad()[3] = std::numeric_limits<float>::infinity();
      }
      parallel.updateParameters();
      EXPECT_EQ(optimizer->stepsLeftOut(), hasInfinity ? 1 : 0);
      EXPECT_EQ(optimizer->parameters()[0].detach().equal(before), hasInfinity);
    }
  });
}

// oneDNN's way to take and give back buffers, beside the usual one.
TEST(ObservedCpuAllocator, RawBlocks_AreCountedAndGivenBack) {
  countTensorBytes();
  const auto live = [] {
    resetPeakTensorBytes();
    return peakTensorBytes().value();
  };
  const int64_t before = live();
  void* block = c10::GetCPUAllocator()->raw_allocate(4096);
  EXPECT_EQ(live(), before + 4096);
  c10::GetCPUAllocator()->raw_deallocate(block);
  EXPECT_EQ(live(), before);
  {
    const auto tensor = at::empty({16}, at::kFloat), none = at::empty({0}, at::kFloat);
    EXPECT_EQ(live(), before + 64);
  }
  EXPECT_EQ(live(), before);
}

TEST(ActivationCheckpointing, SameBits_AsWithout) {
  const Flags common{"--steps", "3", "--dropout", "0.1", "--verify-ranks"};
  const Flags sharded = common + Flags{"--spawn", "2", "--bucket-cap-mb", "0.02"},
              ranks = sharded + Flags{"--first-bucket-mb", "0.005"};
  const auto one = digestOf(train(common + Flags{"--no-ddp"})), two = digestOf(train(ranks));
  for (const Flags& checkpointing : {Flags{"--activation-checkpointing"}, Flags{"--selective-checkpointing"}}) {
    EXPECT_EQ(one, digestOf(train(common + checkpointing + Flags{"--no-ddp"})));
    EXPECT_EQ(two, digestOf(train(ranks + checkpointing)));
    EXPECT_EQ(two, digestOf(train(sharded + checkpointing + zero(3))));
    EXPECT_EQ(two, digestOf(train(sharded + checkpointing + zero(2))));
  }
}

// No second gather: the recomputation has the parameters that backward gathers anyway.
TEST(ActivationCheckpointing, WithStageThree_SendsTheSameBytes) {
  const Flags common = Flags{"--spawn", "2", "--steps", "5"} + zero(3);
  const auto without = stepsOf(train(common).out),
             with = stepsOf(train(common + Flags{"--activation-checkpointing"}).out);
  ASSERT_EQ(without.size(), 5u);
  ASSERT_EQ(with.size(), 5u);
  EXPECT_NEAR(bytesOfAStep(with), bytesOfAStep(without), 1000);
}

// The sum of what forward keeps, measured: memory after forward less memory before.
TEST(ActivationCheckpointing, Forward_KeepsABlocksInputOnly) {
  countTensorBytes();
  const Gpt2Config config{.layers = 6, .hidden = 32, .heads = 4, .vocabulary = 64, .positions = 32};
  Gpt2 model(config, at::kFloat);
  model.initialize(1);
  const auto ids = at::zeros({8, 32}, at::kLong);
  const auto keptBytes = [&](bool wanted, bool attention = false) {
    model.checkpointActivations(wanted);
    model.checkpointAttention(attention);
    resetPeakTensorBytes();
    const int64_t before = *peakTensorBytes();
    const auto loss = model.loss(ids, ids, 0.1);
    resetPeakTensorBytes();
    return *peakTensorBytes() - before;
  };
  const int64_t all = keptBytes(false), inputs = keptBytes(true);
  const int64_t input = 8 * 32 * 32 * 4;  // (BT, C), fp32
  EXPECT_LT(inputs, all / 4);
  EXPECT_GE(inputs, config.layers * input);
  EXPECT_GT(all, config.layers * 20 * input);
  // Of each pair of tokens: softmax and dropout keep a number each, at least. The queries', keys' and values' copies
  // go, too.
  const int64_t pairs = 8 * 4 * 32 * 32 * 4;
  EXPECT_LE(keptBytes(false, true), all - config.layers * (2 * pairs + 3 * input));
}

TEST(ActivationCheckpointing, RandomNumbers_AreDrawnAgainAndNoneIsLost) {
  const auto weight = at::ones({50}, at::kFloat).set_requires_grad(true);
  int runs = 0;
  std::vector<at::Tensor> drawn;
  const auto compute = [&](const at::Tensor& x) {
    ++runs;
    drawn.push_back(at::rand({50}));
    return x * weight * drawn.back();
  };
  at::manual_seed(3);
  const auto x = at::ones({50}, at::kFloat).set_requires_grad(true);
  const auto y = checkpointed(compute, x, {weight});
  const auto between = at::rand({5});
  y.sum().backward();
  const auto after = at::rand({5});
  ASSERT_EQ(runs, 2);
  EXPECT_TRUE(drawn[0].equal(drawn[1]));
  EXPECT_TRUE(weight.grad().equal(drawn[0]));
  EXPECT_TRUE(x.grad().equal(drawn[0]));
  at::manual_seed(3);
  at::rand({50});
  EXPECT_TRUE(at::rand({5}).equal(between));
  EXPECT_TRUE(at::rand({5}).equal(after));  // the recomputation drew none of its own
}

}  // namespace
}  // namespace gloo_bypass::trainer::testing
