// Loss and perplexity on a text that is not trained on: real ranks. DDP_TRAIN names the program.
#include <cmath>
#include <filesystem>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/support/temporary_folder.h"
#include "tests/trainer/tiny_training.h"
#include "tests/trainer/training_results.h"

namespace gloo_bypass::trainer::testing {
namespace {

constexpr int kSeqLength = 16;  // of startTraining()
const Flags kStandStill{"--lr", "0", "--weight-decay", "0"};

// A text of `samples` samples, each byte a token.
std::string text(int samples) {
  std::string text;
  for (int i = 0; i < samples * kSeqLength + 1; ++i) {
    text += static_cast<char>('a' + (i * i + i / 7) % 26);
  }
  return text;
}

class Evaluation : public ::testing::Test {
 protected:
  // The last record of one run; also checks that the summary agrees with it.
  nlohmann::json lastOf(const std::vector<std::string>& flags) {
    const auto finished = train(flags);
    const auto summary = summaryOf(finished);
    const auto all = records(finished.out, "evaluation");
    EXPECT_FALSE(all.empty());
    if (all.empty()) {
      return {};
    }
    for (const char* key : {"eval_loss", "eval_perplexity", "eval_samples", "eval_tokens"}) {
      EXPECT_EQ(summary[key], all.back()[key]) << key;
    }
    EXPECT_DOUBLE_EQ(all.back()["eval_perplexity"].get<double>(), std::exp(all.back()["eval_loss"].get<double>()));
    return all.back();
  }
  std::string file(const std::string& name, const std::string& content) {
    writeText(folder_ / name, content);
    return folder_ / name;
  }
  TemporaryFolder folder_;
};

// A training step that has the whole text as its batch has the same mean as loss, computed in another way.
TEST_F(Evaluation, OfAText_IsTheMeanOverItsTokens) {
  const auto path = file("t", text(7));
  const auto common = Flags{"--steps", "1", "--precision", "fp64"} + kStandStill;
  const auto step = stepsOf(train(common + Flags{"--data", path, "--batch-size", "7"}).out).at(0);
  const auto evaluation = lastOf(common + Flags{"--eval-data", path, "--batch-size", "2"});
  EXPECT_NEAR(evaluation["eval_loss"].get<double>(), step["loss"].get<double>(), 1e-12);
  EXPECT_EQ(evaluation["eval_samples"], 7);
  EXPECT_EQ(evaluation["eval_tokens"], 7 * kSeqLength);
}

TEST_F(Evaluation, OfPassages_CountsNoPadding) {
  const auto path = file("t", "a line\nanother, longer line\n\nab\nwhat is the fourth line\nxyz\n");
  const auto common = Flags{"--steps", "1", "--precision", "fp64", "--passages", "lines"} + kStandStill;
  const auto step = stepsOf(train(common + Flags{"--data", path, "--batch-size", "5"}).out).at(0);
  const auto evaluation =
      lastOf(common + Flags{"--data", path, "--batch-size", "1", "--eval-data", path, "--spawn", "2"});
  EXPECT_NEAR(evaluation["eval_loss"].get<double>(), step["loss"].get<double>(), 1e-12);
  EXPECT_EQ(evaluation["eval_tokens"], 5 + 16 + 1 + 16 + 2);
  EXPECT_EQ(step["tokens"], evaluation["eval_tokens"]);
}

// Shares of 7, 4 and 3, 3, 2 and 2, and none for the last rank of eight.
TEST_F(Evaluation, AnyNumberOfRanks_HasTheSameLoss) {
  const auto flags =
      Flags{"--eval-samples", "7", "--steps", "1", "--batch-size", "2", "--precision", "fp64"} + kStandStill;
  const auto one = lastOf(flags)["eval_loss"].get<double>();
  for (const char* ranks : {"2", "3", "8"}) {
    const auto some = lastOf(flags + Flags{"--spawn", ranks});
    EXPECT_NEAR(some["eval_loss"].get<double>(), one, 1e-12) << ranks;
    EXPECT_EQ(some["eval_tokens"], 7 * kSeqLength) << ranks;
  }
}

TEST_F(Evaluation, HeldOutSamples_AreTheTextsLastAndNotTrainedOn) {
  const auto whole = text(20);
  const auto path = file("whole", whole), rest = file("rest", whole.substr(0, 15 * kSeqLength + 1));
  const auto last = file("last", whole.substr(15 * kSeqLength));
  const std::vector<std::string> flags{"--epochs", "3", "--batch-size", "3"};
  const auto held = train(flags + Flags{"--data", path, "--eval-samples", "5"});
  const auto apart = train(flags + Flags{"--data", rest, "--eval-data", last});
  EXPECT_EQ(digestOf(held), digestOf(apart));
  ASSERT_EQ(records(held.out, "evaluation").size(), 1u);
  ASSERT_EQ(records(apart.out, "evaluation").size(), 1u);
  EXPECT_EQ(records(held.out, "evaluation")[0]["eval_loss"], records(apart.out, "evaluation")[0]["eval_loss"]);
  EXPECT_EQ(stepsOf(held.out).size(), 15u);
}

TEST_F(Evaluation, EveryWayOfTraining_IsNotChanged) {
  const auto path = file("t", text(5));
  const std::vector<std::vector<std::string>> ways{{},
                                                   {"--zero", "2"},
                                                   {"--zero", "3", "--activation-checkpointing"},
                                                   {"--average", "local-sgd", "--inner-steps", "2"},
                                                   {"--compress", "topk"},
                                                   {"--precision", "bf16"},
                                                   {"--no-barrier"},
                                                   {"--accumulate", "2"}};
  for (const auto& way : ways) {
    const auto flags = Flags{"--spawn", "2", "--steps", "4", "--dropout", "0.1"} + way;
    const auto finished = train(flags + Flags{"--eval-data", path, "--eval-every", "1"});
    const std::string name = way.empty() ? "plain" : way.front() + " " + way.back();
    EXPECT_EQ(digestOf(finished), digestOf(train(flags))) << name;
    const auto all = records(finished.out, "evaluation");
    ASSERT_EQ(all.size(), 4u) << name;
    for (size_t i = 0; i < all.size(); ++i) {
      EXPECT_EQ(all[i]["step"], i + 1) << name;
    }
    EXPECT_LT(all.back()["eval_loss"].get<double>(), 7) << name;  // ln 512 = 6.2 before training
  }
}

// Also where the run ends early, at the step that reached its target.
TEST_F(Evaluation, LearnedText_HasALowerLoss) {
  const auto path = file("t", text(8));
  const auto finished = train({"--data", path, "--eval-data", path, "--eval-every", "5", "--steps", "1000", "--lr",
                               "0.01", "--batch-size", "8", "--target-loss", "3"});
  const auto steps = stepsOf(finished.out).size();
  const auto all = records(finished.out, "evaluation");
  ASSERT_GE(all.size(), 2u);
  EXPECT_LT(steps, 1000u);
  EXPECT_EQ(all.back()["step"], steps);
  EXPECT_LT(all.back()["eval_loss"].get<double>(), all.front()["eval_loss"].get<double>());
}

TEST_F(Evaluation, ResumedRun_EndsWithTheSameLoss) {
  const std::vector<std::string> flags{"--eval-samples", "9", "--spawn", "2"};
  const auto whole = lastOf(flags + Flags{"--steps", "4"});
  train(flags + Flags{"--steps", "2", "--checkpoint", folder_ / "c"});
  EXPECT_EQ(lastOf(flags + Flags{"--steps", "4", "--resume", folder_ / "c"})["eval_loss"], whole["eval_loss"]);
  expectRefused(train({"--eval-samples", "3", "--steps", "4", "--resume", folder_ / "c"}), "corpus_samples");
}

TEST_F(Evaluation, BadInput_IsRefused) {
  expectRefused(train({"--eval-every", "3"}), "--eval-every needs text to evaluate on");
  expectRefused(train({"--eval-samples", "3", "--eval-data", "x"}), "--eval-samples excludes --eval-data");
  expectRefused(train({"--eval-samples", "400"}), "none would be left to train on");
  expectRefused(train({"--eval-samples", "395", "--spawn", "2"}), "5 samples do not fill one step");
  expectRefused(train({"--eval-data", folder_ / "missing", "--spawn", "2"}), "cannot read " + (folder_ / "missing"));
  expectRefused(train({"--eval-data", file("short", "abc")}), "too few for one sample");
}

}  // namespace
}  // namespace gloo_bypass::trainer::testing
