// Runs that diverge end with a status that says so and spoil no file; files of such runs are refused. DDP_TRAIN names
// the program.
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/support/temporary_folder.h"
#include "tests/trainer/tensor_files.h"
#include "tests/trainer/tiny_training.h"
#include "tests/trainer/training_results.h"
#include "trainer/checkpoint/weights.h"
#include "trainer/distributed/parallelism.h"
#include "trainer/files/finite.h"
#include "trainer/files/safetensors.h"
#include "trainer/model/gpt2.h"

namespace gloo_bypass::trainer::testing {
namespace {

int linesWith(const std::string& text, const std::string& wanted) {
  std::istringstream stream(text);
  int lines = 0;
  for (std::string line; std::getline(stream, line);) {
    lines += line.find(wanted) != std::string::npos ? 1 : 0;
  }
  return lines;
}

// GPT-2's id of a printable byte.
int64_t tokenOf(char c) { return c - '!'; }

class Divergence : public ::testing::Test {
 protected:
  // The tiny model as --weights reads it, changed.
  std::string weights(const std::function<void(std::map<std::string, at::Tensor>&)>& change) {
    const at::NoGradGuard noGrad;
    Gpt2 model(Gpt2Config::of("tiny"), at::kFloat);
    model.initialize(0);
    std::map<std::string, at::Tensor> byName(model.named().begin(), model.named().end());
    change(byName);
    AdamW optimizer(model.parameters(), Options());
    Parallelism state(optimizer);
    saveWeights(folder_ / "weights", model, state);
    return folder_ / "weights";
  }

  // No loss for a sample with a Z, a finite one and finite gradients for others.
  std::string weightsThatBreakAtZ() {
    return weights([](auto& tensors) {
      tensors["ln_f.weight"][0] = 0;
      tensors["ln_f.bias"][0] = 1;
      tensors["wte.weight"].select(1, 0).zero_();
      tensors["wte.weight"][tokenOf('Z')][0] = std::numeric_limits<float>::lowest();
    });
  }

  // Parameters that overflow in the optimiser's first step with --lr 1 --weight-decay 1000, where the loss of 16 tokens
  // does not show it.
  std::string weightsThatOverflowUnseen() {
    return weights([](auto& tensors) { tensors["wpe.weight"][127].fill_(1e38); });
  }

  // A file with a NaN as the first or the last number of its tensors' data.
  std::string withNan(const std::string& path, bool last) {
    std::string bytes = contentsOf(path);
    uint64_t header = 0;
    std::memcpy(&header, bytes.data(), sizeof header);
    const float bad = std::nanf("");
    std::memcpy(bytes.data() + (last ? bytes.size() - sizeof bad : 8 + header), &bad, sizeof bad);
    writeText(path + ".nan", bytes);
    return path + ".nan";
  }

  std::string text(const std::string& contents) {
    writeText(folder_ / "text", contents);
    return folder_ / "text";
  }

  TemporaryFolder folder_;
  const std::string checkpoint_ = folder_ / "c", metrics_ = folder_ / "m.jsonl", model_ = folder_ / "model";
};

// Ways for ranks to train one model.
const std::map<std::string, Flags> kWays{
    {"Alone", {}},
    {"NoDdp", {"--no-ddp"}},
    {"Ranks", {"--spawn", "2"}},
    {"NoBarrier", {"--spawn", "2", "--no-barrier"}},
    {"Zero1", {"--spawn", "2", "--zero", "1"}},
    {"Zero3", {"--spawn", "2", "--zero", "3"}},
    {"Tensor", {"--spawn", "2", "--model-parallel", "tensor"}},
    {"Pipeline", {"--spawn", "2", "--model-parallel", "1f1b", "--accumulate", "2"}},
    {"PipelineNoBarrier", {"--spawn", "2", "--model-parallel", "gpipe", "--accumulate", "2", "--no-barrier"}},
    {"LocalSgd", {"--spawn", "2", "--average", "local-sgd", "--inner-steps", "3"}},
    {"DiLoCo", {"--spawn", "2", "--average", "diloco", "--inner-steps", "3"}},
    {"Gossip", {"--spawn", "2", "--average", "gossip"}},
    {"Central", {"--spawn", "2", "--average", "central"}},
    {"Asynchronous", {"--spawn", "2", "--average", "asynchronous"}},
    {"TopK", {"--spawn", "2", "--compress", "topk"}},
    {"Bf16", {"--spawn", "2", "--precision", "bf16"}},
    {"Fp16", {"--spawn", "2", "--precision", "fp16"}},
    {"Elastic", {"--elastic", "1:2"}}};

class Way : public Divergence, public ::testing::WithParamInterface<std::string> {
 protected:
  Flags way() const { return kWays.at(GetParam()); }
};

TEST_P(Way, LossThatIsNoNumber_EndsWithStatus1AndSpoilsNothing) {
  writeText(model_, "an earlier model");
  const Flags files{"--checkpoint", checkpoint_, "--checkpoint-every", "1",
                    "--metrics",    metrics_,    "--save-model",       model_};
  const auto finished = train(way() + Flags{"--steps", "30", "--lr", "1000"} + files);
  EXPECT_EQ(finished.exitStatus, 1) << finished.err;
  EXPECT_GE(linesWith(finished.err, "the run has diverged"), 1) << finished.err;
  EXPECT_EQ(finished.err.find("restart 1"), std::string::npos) << finished.err;
  EXPECT_EQ(contentsOf(model_), "an earlier model");
  EXPECT_FALSE(stepsOf(contentsOf(metrics_)).empty());
  for (const auto& entry : std::filesystem::directory_iterator(folder_.path)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with("c") && !name.ends_with(".starts")) {  // checkpoints, and what ranks keep beside them
      const SafetensorsFile file(entry.path());
      for (const auto& [tensor, stored] : file.tensors()) {
        EXPECT_EQ(firstNotFinite(stored.dtype, bytesOf(file, stored)), "") << name << ": " << tensor;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, Way, ::testing::ValuesIn([] {
                           std::vector<std::string> names;
                           for (const auto& [name, flags] : kWays) names.push_back(name);
                           return names;
                         }()),
                         [](const auto& info) { return info.param; });

TEST_F(Divergence, OneRankAloneSeesIt_AllEndWithStatus1) {
  const Flags common{"--spawn",      "2",        "--weights", weightsThatBreakAtZ(),
                     "--batch-size", "1",        "--steps",   "1",
                     "--samples",    "2",        "--data",    text("the quick brown a lazy dogs ZZ. a"),
                     "--checkpoint", checkpoint_};
  const auto together = train(common);
  EXPECT_EQ(together.exitStatus, 1) << together.err;
  EXPECT_EQ(linesWith(together.err, "step 1: the loss is nan: the run has diverged"), 1) << together.err;
  EXPECT_EQ(linesWith(together.err, "step 1: the mean over ranks of the loss is nan, this rank's is "), 1)
      << together.err;
  EXPECT_FALSE(std::filesystem::exists(checkpoint_));
  for (const Flags& way :
       {Flags{"--no-barrier"}, Flags{"--average", "local-sgd"}, Flags{"--average", "asynchronous"}}) {
    const auto finished = train(common + way);
    EXPECT_EQ(finished.exitStatus, 1) << finished.err;
    EXPECT_GE(linesWith(finished.err, "the loss is nan: the run has diverged"), 1) << finished.err;
    EXPECT_FALSE(std::filesystem::exists(checkpoint_));
  }
}

TEST_F(Divergence, ParametersThatNoLossShows_ReplaceNoCheckpointAndNoModel) {
  ASSERT_EQ(train({"--steps", "2", "--checkpoint", checkpoint_, "--save-model", model_}).exitStatus, 0);
  const std::string checkpoint = contentsOf(checkpoint_), model = contentsOf(model_);
  const Flags spoiling{"--weights", weightsThatOverflowUnseen(), "--steps", "1", "--lr", "1", "--weight-decay", "1000"};
  for (const Flags& way :
       {Flags{}, Flags{"--spawn", "2"}, Flags{"--spawn", "2", "--zero", "2"},
        Flags{"--spawn", "2", "--model-parallel", "tensor"}, Flags{"--spawn", "2", "--average", "local-sgd"}}) {
    for (const Flags& file : {Flags{"--checkpoint", checkpoint_}, Flags{"--save-model", model_}}) {
      const auto finished = train(spoiling + way + file);
      EXPECT_EQ(finished.exitStatus, 1) << finished.err;
      EXPECT_GE(linesWith(finished.err, "wpe.weight holds -inf at element 4064: the run has diverged"), 1)
          << finished.err;
    }
    EXPECT_EQ(contentsOf(checkpoint_), checkpoint);
    EXPECT_EQ(contentsOf(model_), model);
  }
  // Also without a file: the summary would report invalid parameters.
  const auto finished = train(spoiling + Flags{"--metrics", metrics_});
  expectRefused(finished, "wpe.weight holds -inf at element 4064");
  EXPECT_EQ(finished.exitStatus, 1);
  EXPECT_EQ(stepsOf(contentsOf(metrics_)).size(), 1u);
}

TEST_F(Divergence, EvaluationWithoutALoss_EndsWithStatus1AndItsRecord) {
  writeText(folder_ / "eval", "the quick brown a lazy dogs ZZ. a");
  const Flags common{"--weights",    weightsThatBreakAtZ(),
                     "--steps",      "2",
                     "--lr",         "0",
                     "--eval-data",  folder_ / "eval",
                     "--batch-size", "1",
                     "--spawn",      "2",
                     "--metrics",    metrics_,
                     "--save-model", model_,
                     "--checkpoint", checkpoint_};
  const auto atEnd = train(common);
  EXPECT_EQ(atEnd.exitStatus, 1) << atEnd.err;
  EXPECT_EQ(linesWith(atEnd.err, "step 2: the loss on samples not trained on is nan: the run has diverged"), 2)
      << atEnd.err;
  EXPECT_TRUE(std::filesystem::exists(model_)) << "its parameters are numbers";
  const auto last = records(contentsOf(metrics_)).back();
  ASSERT_EQ(last["event"], "evaluation");
  EXPECT_TRUE(last["eval_loss"].is_null());
  std::filesystem::remove(checkpoint_);
  const auto onTheWay = train(common + Flags{"--eval-every", "1"});
  EXPECT_EQ(onTheWay.exitStatus, 1) << onTheWay.err;
  EXPECT_EQ(linesWith(onTheWay.err, "step 1: the loss on samples not trained on is nan: the run has diverged"), 2)
      << onTheWay.err;
  EXPECT_FALSE(std::filesystem::exists(checkpoint_));
}

TEST_F(Divergence, TracedRun_KeepsItsTrace) {
  const std::string trace = folder_ / "trace.json";
  EXPECT_EQ(train({"--spawn", "2", "--steps", "30", "--lr", "1000", "--trace", trace}).exitStatus, 1);
  EXPECT_FALSE(nlohmann::json::parse(contentsOf(trace))["traceEvents"].empty());
}

TEST_F(Divergence, LossScaling_StillLeavesStepsOut) {
  const auto finished =
      train({"--precision", "fp16", "--initial-loss-scale", "1e20", "--steps", "70", "--metrics", "-"});
  const auto summary = summaryOf(finished);
  EXPECT_GT(summary["skipped_steps"].get<int>(), 40);
  EXPECT_LT(summary["skipped_steps"].get<int>(), 70);
}

TEST_F(Divergence, ConstantLossScaleThatAlwaysOverflows_EndsWithStatus1) {
  const auto finished =
      train({"--precision", "fp16", "--loss-scale", "1e20", "--steps", "200", "--checkpoint", checkpoint_});
  expectRefused(finished, "step 129: gradients were not finite in 129 steps in a row, whatever the loss scale");
  EXPECT_EQ(finished.exitStatus, 1);
  EXPECT_FALSE(std::filesystem::exists(checkpoint_));
}

TEST_F(Divergence, FilesWithValuesThatAreNoNumbers_AreRefusedByNameOfTheTensor) {
  ASSERT_EQ(train({"--steps", "2", "--checkpoint", checkpoint_, "--save-model", model_}).exitStatus, 0);
  const auto refused = [&](const Flags& flags, const std::string& reason) {
    const auto finished = train(flags + Flags{"--steps", "3"});
    expectRefused(finished, reason);
    EXPECT_EQ(finished.exitStatus, 2);
  };
  const std::string last = withNan(checkpoint_, /*last=*/true);
  refused({"--resume", last}, last + ": tensor model.wte.weight holds nan at element 16383");
  const std::string first = withNan(checkpoint_, /*last=*/false);
  refused({"--resume", first}, first + ": tensor exp_avg.h.0.attn.c_attn.bias holds nan at element 0");
  const std::string model = withNan(model_, /*last=*/true);
  refused({"--weights", model}, model + ": tensor wte.weight holds nan at element 16383");
  std::filesystem::rename(first, checkpoint_);
  const auto elastic = train({"--elastic", "1:1", "--checkpoint", checkpoint_, "--steps", "3"});
  EXPECT_EQ(elastic.exitStatus, 2) << elastic.err;
  EXPECT_EQ(linesWith(elastic.err, "tensor exp_avg.h.0.attn.c_attn.bias holds nan at element 0"), 1) << elastic.err;
}

TEST_F(Divergence, WeightsThatOverflowInThisPrecision_AreRefused) {
  const at::NoGradGuard noGrad;
  Gpt2 model(Gpt2Config::of("tiny"), at::kDouble);
  model.initialize(0);
  model.named().back().second[3] = 1e300;
  AdamW optimizer(model.parameters(), Options());
  Parallelism state(optimizer);
  saveWeights(model_, model, state);
  expectRefused(train({"--weights", model_, "--steps", "1"}), ": tensor ln_f.bias holds inf at element 3");
  EXPECT_EQ(train({"--weights", model_, "--steps", "1", "--precision", "fp64"}).exitStatus, 0);
}

TEST_F(Divergence, RanksOwnFileWithANan_IsRefusedByNameOfTheTensor) {
  const Flags way{"--spawn", "2", "--average", "local-sgd", "--inner-steps", "5"};
  ASSERT_EQ(train(way + Flags{"--steps", "2", "--checkpoint", checkpoint_}).exitStatus, 0);
  std::filesystem::rename(withNan(checkpoint_ + ".step2.rank1", /*last=*/true), checkpoint_ + ".step2.rank1");
  const auto finished = train(way + Flags{"--steps", "3", "--resume", checkpoint_});
  EXPECT_GT(finished.exitStatus, 0) << finished.err;
  EXPECT_EQ(linesWith(finished.err, checkpoint_ + ".step2.rank1: tensor model.wte.weight holds nan at element 16383"),
            1)
      << finished.err;
}

}  // namespace
}  // namespace gloo_bypass::trainer::testing
