// Parameters and gradients in 16 bits, fp32 masters, loss scaling: the parts, and whole runs. DDP_TRAIN names the
// program.
#include <cmath>
#include <cstdlib>
#include <limits>
#include <memory>
#include <optional>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/support/temporary_folder.h"
#include "tests/trainer/tiny_training.h"
#include "tests/trainer/training_results.h"
#include "tools/common/error.h"
#include "trainer/files/safetensors.h"
#include "trainer/model/gpt2.h"
#include "trainer/model/precision/arithmetic.h"
#include "trainer/optimizer/gradient_sums.h"
#include "trainer/optimizer/loss_scaler.h"
#include "trainer/optimizer/master_weights.h"

namespace gloo_bypass::trainer::testing {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

TEST(LossScaler, Dynamic_HalvesAtOnceAndDoublesAfterTheInterval) {
  LossScaler scaler({.type = Precision::kFloat16, .lossScaleInterval = 3});
  EXPECT_EQ(scaler.scale(), 65536);
  scaler.update(true);
  EXPECT_EQ(scaler.scale(), 32768);
  scaler.update(false);
  scaler.update(false);
  scaler.update(true);  // the good steps before it count no more
  EXPECT_EQ(scaler.scale(), 16384);
  for (const double expected : {16384, 16384, 32768, 32768, 32768, 65536}) {
    scaler.update(false);
    EXPECT_EQ(scaler.scale(), expected);
  }
  EXPECT_EQ(scaler.skippedSteps(), 2);
}

TEST(LossScaler, Dynamic_NeverGrowsToInfinity) {
  LossScaler scaler({.type = Precision::kFloat16, .initialLossScale = 0x1p100, .lossScaleInterval = 1});
  for (int i = 0; i < 50; ++i) {
    scaler.update(false);
  }
  EXPECT_EQ(scaler.scale(), 0x1p127);
}

TEST(LossScaler, Constant_CountsButStays) {
  LossScaler scaler({.type = Precision::kBFloat16, .lossScale = "128", .lossScaleInterval = 1});
  scaler.update(true);
  EXPECT_EQ(scaler.scale(), 128);
  scaler.update(false);
  EXPECT_EQ(scaler.scale(), 128);
  EXPECT_EQ(scaler.skippedSteps(), 1);
}

TEST(LossScaler, Default_IsOnForFp16Only) {
  EXPECT_TRUE(LossScaler({.type = Precision::kFloat16}).isOn());
  EXPECT_FALSE(LossScaler({.type = Precision::kFloat16, .lossScale = "off"}).isOn());
  EXPECT_FALSE(LossScaler({.type = Precision::kBFloat16}).isOn());
  EXPECT_TRUE(LossScaler({.type = Precision::kBFloat16, .lossScale = "dynamic"}).isOn());
}

TEST(LossScaler, State_CarriesEverythingOver) {
  const PrecisionOptions options{.type = Precision::kFloat16, .lossScaleInterval = 2};
  LossScaler one(options), other(options);
  one.update(true);
  one.update(false);
  std::ranges::copy(one.state(), other.state().begin());
  other.update(false);  // the second good one
  EXPECT_EQ(other.scale(), 65536);
  EXPECT_EQ(other.skippedSteps(), 1);
}

class SixteenBits : public ::testing::TestWithParam<at::ScalarType> {
 protected:
  at::Tensor random(at::IntArrayRef shape) const { return at::randn(shape).to(GetParam()); }
};
INSTANTIATE_TEST_SUITE_P(Types, SixteenBits, ::testing::Values(at::kHalf, at::kBFloat16), [](const auto& info) {
  return info.param == at::kHalf ? std::string("fp16") : std::string("bf16");
});

TEST_P(SixteenBits, Sums_AreThoseOfFp32RoundedOnce) {
  at::manual_seed(1);
  const auto x = random({8, 300}), w = random({300, 5}), b = random({5});
  const auto product = arithmetic::addmm(b, x, w);
  EXPECT_EQ(product.scalar_type(), GetParam());
  EXPECT_TRUE(at::equal(product, at::addmm(b.to(at::kFloat), x.to(at::kFloat), w.to(at::kFloat)).to(GetParam())));
  // 4096 ones: neither type can count beyond 2048 one by one. Small products and large ones, which may use another
  // algorithm.
  for (const int64_t rows : {1, 8, 31, 64, 200}) {
    const auto ones = at::ones({rows, 4096}, GetParam()), zeros = at::zeros({rows}, GetParam());
    EXPECT_TRUE(arithmetic::mm(ones, ones.t()).eq(4096).all().item<bool>()) << rows;
    EXPECT_TRUE(arithmetic::addmm(zeros, ones, ones.t()).eq(4096).all().item<bool>()) << rows;
    const auto several = ones.expand({3, rows, 4096});
    EXPECT_TRUE(arithmetic::bmm(several, several.transpose(1, 2)).eq(4096).all().item<bool>()) << rows;
    EXPECT_TRUE(arithmetic::baddbmm(at::zeros({3, rows, rows}, GetParam()), several, several.transpose(1, 2), 0.5)
                    .eq(2048)
                    .all()
                    .item<bool>())
        << rows;
  }
}

TEST_P(SixteenBits, EveryOperator_HasAGradientInItsType) {
  at::manual_seed(2);
  const auto x = random({4, 8}).set_requires_grad(true), w = random({8, 8}).set_requires_grad(true);
  const auto b = random({8}).set_requires_grad(true);
  const auto ids = at::arange(4, at::kLong);
  auto y = arithmetic::layerNorm(arithmetic::addmm(b, x, w), b, b, 1e-5) + arithmetic::embedding(w, ids);
  y = arithmetic::dropout(arithmetic::gelu(arithmetic::softmax(arithmetic::mm(y, w))), 0.1);
  const auto z = y.view({2, 2, 8});
  const auto scores = arithmetic::baddbmm(at::zeros({2, 2, 2}, GetParam()), z, z.transpose(1, 2), 0.5);
  const auto loss = arithmetic::crossEntropy(arithmetic::bmm(scores, z).view({4, 8}), ids);
  EXPECT_EQ(loss.scalar_type(), at::kFloat);
  loss.backward();
  for (const auto& leaf : {x, w, b}) {
    ASSERT_TRUE(leaf.grad().defined());
    EXPECT_EQ(leaf.grad().scalar_type(), GetParam());
    EXPECT_GT(leaf.grad().abs().max().item<double>(), 0);
  }
}

TEST_P(SixteenBits, LargeProducts_AreFp32sWithinARounding) {
  at::manual_seed(4);
  const auto x = random({3, 70, 90}), y = random({3, 90, 80}),
             mask = at::full({70, 80}, -kInfinity, GetParam()).triu_(1);
  const auto product = arithmetic::baddbmm(mask.expand({3, 70, 80}), x, y, 0.125);
  const auto expected =
      at::baddbmm(mask.to(at::kFloat).expand({3, 70, 80}), x.to(at::kFloat), y.to(at::kFloat), 1, 0.125);
  EXPECT_EQ(product.scalar_type(), GetParam());
  EXPECT_TRUE(at::allclose(product.to(at::kFloat), expected, GetParam() == at::kHalf ? 0x1p-10 : 0x1p-7, 1e-5));
}

TEST(Arithmetic, FullPrecision_IsAtensOwnOperator) {
  at::manual_seed(3);
  for (const auto type : {at::kFloat, at::kDouble}) {
    const auto x = at::randn({8, 30}, type), w = at::randn({30, 5}, type), b = at::randn({5}, type);
    EXPECT_TRUE(at::equal(arithmetic::addmm(b, x, w), at::addmm(b, x, w)));
  }
}

// 1 and then many gradients below half a unit of the last place of 1, in both types.
TEST_P(SixteenBits, SumsOfMicroBatches_LoseNothingInFp32) {
  const auto gradientOf = [&](bool inFp32) {
    const auto parameter = at::zeros({3}, GetParam()).set_requires_grad(true);
    std::optional<GradientSums> sums;
    if (inFp32) {
      sums.emplace(std::vector<at::Tensor>{parameter});
    }
    constexpr int kSmall = 2048;
    for (int step = 0; step < 2; ++step) {  // the second one starts at zero again
      parameter.mutable_grad() = at::Tensor();
      for (int micro = 0; micro <= kSmall; ++micro) {
        if (sums) {
          sums->beginBackward(micro == kSmall);
        }
        (parameter * (micro == 0 ? 1.0 : 0x1p-12)).sum().backward();
        if (sums && micro < kSmall) {
          EXPECT_EQ(parameter.grad().abs().max().item<double>(), 0);
        }
      }
    }
    EXPECT_EQ(parameter.grad().scalar_type(), GetParam());
    return parameter.grad()[1].item<double>();
  };
  EXPECT_EQ(gradientOf(false), 1);
  EXPECT_EQ(gradientOf(true), 1.5);
}

TEST_P(SixteenBits, SumsOfMicroBatches_LeaveTheParameterWhenTheyEnd) {
  const auto parameter = at::zeros({1}, GetParam()).set_requires_grad(true);
  {
    GradientSums sums({parameter});
    sums.beginBackward(false);
    parameter.sum().backward();
  }
  parameter.sum().backward();
  EXPECT_EQ(parameter.grad().item<double>(), 1);
}

// A model of one parameter; a test sets its gradient.
class MasterWeights : public ::testing::Test {
 protected:
  MasterWeights() {
    options_.learningRate = 1e-4;
    options_.weightDecay = 0;
    options_.precision = {.type = Precision::kFloat16, .initialLossScale = 1024};
  }
  void make() {
    optimizer_ = std::make_unique<MasterWeightsAdamW>(std::vector<at::Tensor>{parameter_},
                                                      std::vector<at::Tensor>{master_}, options_);
    optimizer_->weightsChanged();
  }
  void stepWith(const std::vector<double>& gradient) {
    parameter_.mutable_grad() = at::tensor(gradient, at::kDouble).to(at::kHalf);
    optimizer_->step();
    optimizer_->clearGradients();
  }
  Options options_;
  at::Tensor parameter_ = at::zeros({2}, at::kHalf).set_requires_grad(true);
  at::Tensor master_ = at::tensor({1.0, -3.0}, at::kFloat).set_requires_grad(true);
  std::unique_ptr<MasterWeightsAdamW> optimizer_;
};

TEST_F(MasterWeights, UpdatesBelowThePrecision_AddUp) {
  make();
  EXPECT_EQ(parameter_[1].item<double>(), -3);
  for (int i = 0; i < 4; ++i) {
    stepWith({1024, 1024});
  }
  // Four steps of 1e-4 at 1, where fp16 is 4.9e-4 apart below and 9.8e-4 above: one of them alone changes nothing.
  EXPECT_NEAR(master_[0].item<double>(), 1 - 4e-4, 1e-6);
  EXPECT_EQ(parameter_[0].item<double>(), 1 - 0x1p-11);
  EXPECT_TRUE(at::equal(parameter_, master_.to(at::kHalf)));
}

TEST_F(MasterWeights, Scale_IsTakenOutOfGradientsAndNorm) {
  make();
  parameter_.mutable_grad() = at::tensor({3.0 * 1024, 4.0 * 1024}, at::kDouble).to(at::kHalf);
  EXPECT_NEAR(optimizer_->clipGradients(0.5), 5, 1e-5);
  optimizer_->step();
  // exp_avg is 0.1 of the clipped gradient, (0.3, 0.4).
  EXPECT_NEAR(optimizer_->firstMoments()[0][0].item<double>(), 0.03, 1e-6);
  EXPECT_NEAR(optimizer_->firstMoments()[0][1].item<double>(), 0.04, 1e-6);
  EXPECT_NEAR(optimizer_->scaled(at::ones({1})).item<double>(), 1024, 0);
}

TEST_F(MasterWeights, InfiniteGradient_LeavesTheStepOut) {
  for (const double bad : {kInfinity, -kInfinity, std::nan("")}) {
    master_.detach().copy_(at::tensor({1.0, -3.0}));
    make();
    stepWith({1024, bad});
    EXPECT_EQ(master_[0].item<double>(), 1);
    EXPECT_EQ(optimizer_->firstMoments()[0].abs().max().item<double>(), 0);
    nlohmann::json record;
    optimizer_->addMetrics(record);
    EXPECT_EQ(record["loss_scale"], 1024);  // the step's scale
    EXPECT_EQ(record["skipped_steps"], 1);
    EXPECT_EQ(optimizer_->scaled(at::ones({1})).item<double>(), 512);
    // Adam's first step is of the full rate: the one left out does not count.
    stepWith({512, 512});
    EXPECT_NEAR(master_[0].item<double>(), 1 - 1e-4, 1e-6);
    optimizer_->addMetrics(record);
    EXPECT_EQ(record["loss_scale"], 512);
  }
}

TEST_F(MasterWeights, ScaleOff_TakesGradientsAsTheyAre) {
  options_.precision.lossScale = "off";
  make();
  stepWith({1, std::nan("")});
  EXPECT_NEAR(master_[0].item<double>(), 1 - 1e-4, 1e-6);
  EXPECT_TRUE(std::isnan(master_[1].item<double>()));
  nlohmann::json record = nlohmann::json::object();
  optimizer_->addMetrics(record);
  EXPECT_TRUE(record.empty());
  EXPECT_TRUE(optimizer_->scalerState().empty());
}

TEST(Precision, SixteenBits_HalveTheGradientsBytes) {
  const auto bytes = [](const char* precision) {
    return stepsOf(train({"--steps", "2", "--spawn", "2", "--precision", precision}).out)
        .at(1)["gradient_bytes"]
        .get<int64_t>();
  };
  const auto whole = bytes("fp32");
  EXPECT_GT(whole, 0);
  EXPECT_EQ(bytes("bf16") * 2, whole);
  EXPECT_EQ(bytes("fp16") * 2, whole);
}

TEST(Precision, Losses_FollowThoseOfFp32) {
  const auto losses = [](const char* precision) {
    std::vector<double> values;
    for (const auto& step : stepsOf(train({"--steps", "20", "--lr", "0.003", "--precision", precision}).out)) {
      values.push_back(step["loss"].get<double>());
    }
    return values;
  };
  const auto fp32 = losses("fp32"), bf16 = losses("bf16"), fp16 = losses("fp16");
  ASSERT_EQ(fp32.size(), 20u);
  ASSERT_EQ(bf16.size(), 20u);
  ASSERT_EQ(fp16.size(), 20u);
  EXPECT_LT(fp32.back(), fp32.front() - 1);
  for (size_t i = 0; i < fp32.size(); ++i) {
    EXPECT_NEAR(fp16[i], fp32[i], 0.003) << i;
    EXPECT_NEAR(bf16[i], fp32[i], 0.03) << i;
  }
  EXPECT_NE(fp16, fp32);
}

TEST(Precision, BucketsAndSegments_DoNotChangeTwoRanksResult) {
  for (const char* precision : {"bf16", "fp16"}) {
    const auto digest = [&](std::vector<std::string> flags) {
      flags.insert(flags.begin(), {"--spawn", "2", "--steps", "3", "--verify-ranks", "--precision", precision});
      return digestOf(train(flags));
    };
    const auto plain = digest({});
    EXPECT_EQ(plain, digest({"--segment-bytes", "4096"})) << precision;
    EXPECT_EQ(plain, digest({"--gradient-as-bucket-view", "--bucket-cap-mb", "0.01"})) << precision;
  }
}

TEST(Precision, Overflow_SkipsTheSameStepsOnEveryRank) {
  const TemporaryFolder folder;
  // The scale doubles after every good step: it overflows, again and again.
  EXPECT_EQ(train({"--spawn", "3", "--batch-size", "2", "--steps", "14", "--precision", "fp16", "--initial-loss-scale",
                   "2097152", "--loss-scale-interval", "1", "--clip-norm", "1", "--verify-ranks", "--metrics",
                   folder / "m{rank}"})
                .shellStatus(),
            0);
  const auto first = stepsOf(contentsOf(folder / "m0"));
  ASSERT_EQ(first.size(), 14u);
  double scale = 2097152;
  int64_t skipped = 0;
  for (size_t i = 0; i < first.size(); ++i) {
    EXPECT_EQ(first[i]["loss_scale"], scale) << i;
    const bool wasSkipped = first[i]["skipped_steps"] != skipped;
    EXPECT_EQ(i > 0 && first[i]["sha256"] == first[i - 1]["sha256"], i > 0 && wasSkipped) << i;
    scale *= wasSkipped ? 0.5 : 2;
    skipped += wasSkipped;
  }
  EXPECT_GT(skipped, 2);
  EXPECT_LT(skipped, 12);
  for (const char* rank : {"m1", "m2"}) {
    const auto steps = stepsOf(contentsOf(folder / rank));
    ASSERT_EQ(steps.size(), first.size());
    for (size_t i = 0; i < steps.size(); ++i) {
      for (const char* field : {"loss_scale", "skipped_steps", "sha256"}) {
        EXPECT_EQ(steps[i][field], first[i][field]) << rank << " " << i;
      }
    }
  }
}

TEST(Precision, ResumedRun_EndsBitIdentical) {
  const TemporaryFolder folder;
  for (const char* precision : {"fp16", "bf16"}) {
    const auto run = [&](std::vector<std::string> more) {
      more.insert(more.begin(), {"--spawn", "2", "--precision", precision, "--dropout", "0.1", "--loss-scale",
                                 "dynamic", "--initial-loss-scale",
                                 precision == std::string("fp16") ? "1048576" : "65536", "--loss-scale-interval", "4"});
      return summaryOf(train(more));
    };
    const auto straight = run({"--steps", "12", "--checkpoint", folder / "straight"});
    run({"--steps", "7", "--checkpoint", folder / "part"});
    const auto resumed = run({"--steps", "12", "--resume", folder / "part", "--checkpoint", folder / "resumed"});
    EXPECT_EQ(straight["sha256"], resumed["sha256"]);
    EXPECT_EQ(straight["skipped_steps"], resumed["skipped_steps"]);
    EXPECT_EQ(straight["skipped_steps"].get<int>() > 0, precision == std::string("fp16"));
    // Masters, moments and the scale too.
    EXPECT_TRUE(contentsOf(folder / "straight") == contentsOf(folder / "resumed")) << precision;
  }
}

at::Tensor read(const SafetensorsFile& file, const std::string& name, at::ScalarType type) {
  const auto& stored = file.tensors().at(name);
  auto tensor = at::empty(stored.shape, type);
  file.read(stored, 0, {static_cast<std::byte*>(tensor.data_ptr()), tensor.nbytes()});
  return tensor;
}

TEST(Precision, Checkpoint_HoldsMastersAndTheModelFileTheirRoundings) {
  const TemporaryFolder folder;
  digestOf(train({"--steps", "3", "--precision", "bf16", "--checkpoint", folder / "c", "--save-model", folder / "m"}));
  const SafetensorsFile checkpoint(folder / "c"), model(folder / "m");
  int64_t differing = 0;
  for (const auto& [name, view] : model.tensors()) {
    EXPECT_EQ(view.dtype, "BF16");
    const std::string master = "model." + name.substr(std::string("transformer.").size());
    EXPECT_EQ(checkpoint.tensors().at(master).dtype, "F32");
    const auto rounded = read(model, name, at::kBFloat16), whole = read(checkpoint, master, at::kFloat);
    EXPECT_TRUE(at::equal(rounded, whole.to(at::kBFloat16))) << name;
    differing += at::ne(rounded.to(at::kFloat), whole).sum().item<int64_t>();
  }
  EXPECT_GT(differing, 1000);
}

TEST(Precision, Weights_OfAFileAreTheMasters) {
  const TemporaryFolder folder;
  digestOf(train({"--steps", "1", "--save-model", folder / "m"}));
  digestOf(train(
      {"--steps", "1", "--lr", "0", "--precision", "fp16", "--weights", folder / "m", "--checkpoint", folder / "c"}));
  const SafetensorsFile model(folder / "m"), checkpoint(folder / "c");
  for (const auto& [name, view] : model.tensors()) {
    EXPECT_TRUE(at::equal(read(model, name, at::kFloat),
                          read(checkpoint, "model." + name.substr(std::string("transformer.").size()), at::kFloat)))
        << name;
  }
}

// The first moments after a step are a tenth of the gradients.
TEST(Precision, MicroBatchesInFp32_AreNearerToFp32s) {
  const TemporaryFolder folder;
  const auto run = [&](std::vector<std::string> flags, const std::string& name) {
    flags.insert(flags.begin(), {"--spawn", "2", "--steps", "1", "--batch-size", "1", "--accumulate", "32",
                                 "--verify-ranks", "--checkpoint", folder / name});
    digestOf(train(flags));
    return SafetensorsFile(folder / name);
  };
  const auto whole = run({}, "whole"), halves = run({"--precision", "bf16"}, "halves"),
             summed = run({"--precision", "bf16", "--accumulate-fp32"}, "summed"),
             inPlace = run({"--precision", "bf16", "--accumulate-fp32", "--gradient-as-bucket-view"}, "in-place"),
             again = run({"--precision", "bf16", "--accumulate-fp32", "--activation-checkpointing"}, "again");
  double lost = 0, left = 0;
  for (const auto& [name, view] : whole.tensors()) {
    if (!name.starts_with("exp_avg.")) {
      continue;
    }
    const auto expected = read(whole, name, at::kFloat);
    lost += (read(halves, name, at::kFloat) - expected).square().sum().item<double>();
    left += (read(summed, name, at::kFloat) - expected).square().sum().item<double>();
    EXPECT_TRUE(at::equal(read(summed, name, at::kFloat), read(inPlace, name, at::kFloat))) << name;
    EXPECT_TRUE(at::equal(read(summed, name, at::kFloat), read(again, name, at::kFloat))) << name;
  }
  EXPECT_GT(lost, 0);
  EXPECT_LT(left, lost / 2);
}

TEST(Precision, MicroBatchesInFp32_ResumeAndCountTheirBytes) {
  const TemporaryFolder folder;
  const auto run = [&](std::vector<std::string> more) {
    more.insert(more.begin(), {"--precision", "fp16", "--accumulate", "3", "--batch-size", "2", "--memory-metrics"});
    return train(more);
  };
  const auto gradientBytes = [](const ProgramResult& finished) {
    return stepsOf(finished.out).at(0)["gradient_bytes_held"].get<int64_t>();
  };
  const auto plain = run({"--steps", "2"});
  const auto straight = run({"--steps", "4", "--accumulate-fp32"});
  EXPECT_EQ(gradientBytes(straight), 3 * gradientBytes(plain));
  digestOf(run({"--steps", "2", "--accumulate-fp32", "--checkpoint", folder / "part"}));
  EXPECT_EQ(digestOf(run({"--steps", "4", "--accumulate-fp32", "--resume", folder / "part"})), digestOf(straight));
  expectRefused(run({"--steps", "4", "--resume", folder / "part"}), "accumulate_fp32");
}

TEST(Precision, OneRank_EqualsTheLoopWithoutDdp) {
  for (const char* precision : {"bf16", "fp16"}) {
    EXPECT_EQ(digestOf(train({"--steps", "4", "--precision", precision})),
              digestOf(train({"--steps", "4", "--precision", precision, "--no-ddp"})));
  }
}

TEST(Precision, MeasuredPeak_Exists) {
  const auto steps = stepsOf(train({"--steps", "1", "--precision", "fp16", "--measure-peak"}).out);
  ASSERT_EQ(steps.size(), 1u);
  EXPECT_GT(steps[0]["mfu"].get<double>(), 0);
}

TEST(ArithmeticPerf, Report_HasEveryTypeAndNamesWhatIsMissing) {
  const TemporaryFolder folder;
  const auto finished = runProgram(std::getenv("ARITHMETIC_PERF"), {"--gemm", "16x32x64", "--rounds", "3",
                                                                    "--loop-passes", "1000", "--json", folder / "r"});
  ASSERT_EQ(finished.shellStatus(), 0) << finished.err;
  const auto report = nlohmann::json::parse(contentsOf(folder / "r"));
  ASSERT_EQ(report["gemm"].size(), 6u);  // each type, and the 16-bit ones as ddp_train computes
  for (const auto& product : report["gemm"]) {
    if (product.contains("fault")) {
      EXPECT_EQ(product["kernel"], "libtorch");
      EXPECT_TRUE(product["gflop_s"].is_null());
      continue;
    }
    EXPECT_EQ(product["rounds"], 3);
    EXPECT_NEAR(product["gflop_s"].get<double>() * product["p50_s"].get<double>() * 1e9, 2 * 16 * 32 * 64, 1e-3);
    EXPECT_LE(product["p50_s"].get<double>(), product["p99_s"].get<double>());
  }
  ASSERT_EQ(report["loop"].size(), 4u);
  EXPECT_EQ(report["loop"][0]["published_s"], 9.95);
  EXPECT_NEAR(report["loop"][1]["seconds_for_published_passes"].get<double>(),
              report["loop"][1]["p50_s"].get<double>() * 1.15e6, 1e-6);
}

TEST(ArithmeticPerf, BadOptions_AreRefused) {
  for (const char* size : {"16x32", "16x32x64x1", "0x1x1", "16,32,64", "axbxc", "16x32x"}) {
    const auto finished = runProgram(std::getenv("ARITHMETIC_PERF"), {"--gemm", size});
    expectRefused(finished, "not three numbers");
    EXPECT_EQ(finished.shellStatus(), kExitUsage);
  }
  expectRefused(runProgram(std::getenv("ARITHMETIC_PERF"), {"--json", "/no/such/folder/r"}), "--json");
}

TEST(Precision, BadOptions_AreRefused) {
  const auto refuse = [](const std::vector<std::string>& flags, const std::string& reason) {
    const auto finished = train(flags);
    expectRefused(finished, reason);
    EXPECT_EQ(finished.shellStatus(), kExitUsage);
  };
  refuse({"--precision", "fp8"}, "--precision");
  refuse({"--loss-scale", "4"}, "--loss-scale 4 is for --precision bf16 and fp16, not for fp32");
  for (const char* scale : {"-1", "0", "1e-50", "nan", "inf", "8x", "often"}) {
    refuse({"--precision", "fp16", std::string("--loss-scale=") + scale}, "neither dynamic nor off nor a number");
  }
  const TemporaryFolder folder;
  digestOf(train({"--steps", "2", "--precision", "fp16", "--checkpoint", folder / "c"}));
  refuse({"--steps", "3", "--precision", "bf16", "--resume", folder / "c"}, "in the checkpoint");
  refuse({"--steps", "3", "--precision", "fp16", "--loss-scale", "1024", "--resume", folder / "c"},
         "loss_scale: \"1024\" here, \"dynamic\" in the checkpoint");
}

}  // namespace
}  // namespace gloo_bypass::trainer::testing
