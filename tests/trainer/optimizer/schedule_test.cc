// The learning rate of every step, and runs that end at a loss. DDP_TRAIN names the program.
#include <cmath>
#include <filesystem>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/support/temporary_folder.h"
#include "tests/trainer/tiny_training.h"
#include "tests/trainer/training_results.h"
#include "tools/common/error.h"
#include "trainer/metrics/metrics.h"
#include "trainer/metrics/target_loss.h"
#include "trainer/optimizer/schedule.h"

namespace gloo_bypass::trainer::testing {
namespace {

constexpr double kRate = 0.5;

Schedule scheduleOf(ScheduleShape shape, int64_t warmup, double minimum, int64_t runSteps) {
  return {{.shape = shape, .warmupSteps = warmup, .minimumRatio = minimum}, kRate, runSteps, 1};
}

TEST(Schedule, Warmup_GrowsLinearlyFromZero) {
  for (const auto shape : {ScheduleShape::kConstant, ScheduleShape::kLinear, ScheduleShape::kCosine}) {
    const auto schedule = scheduleOf(shape, 4, 0.1, 12);
    for (int64_t step = 0; step <= 4; ++step) {
      EXPECT_DOUBLE_EQ(schedule.rateOf(step), kRate * static_cast<double>(step) / 4);
    }
  }
}

TEST(Schedule, Decay_EndsAtTheMinimumAndStaysThere) {
  const auto linear = scheduleOf(ScheduleShape::kLinear, 2, 0.2, 12),
             cosine = scheduleOf(ScheduleShape::kCosine, 2, 0.2, 12);
  for (const auto& schedule : {linear, cosine}) {
    EXPECT_DOUBLE_EQ(schedule.rateOf(2), kRate);
    EXPECT_DOUBLE_EQ(schedule.rateOf(7), kRate * 0.6);  // half way: both have lost half of what they lose
    EXPECT_DOUBLE_EQ(schedule.rateOf(12), kRate * 0.2);
    EXPECT_DOUBLE_EQ(schedule.rateOf(1000), kRate * 0.2);
  }
  EXPECT_DOUBLE_EQ(linear.rateOf(4), kRate * (0.2 + 0.8 * 0.8));
  EXPECT_DOUBLE_EQ(cosine.rateOf(4), kRate * (0.2 + 0.8 * 0.5 * (1 + std::cos(std::acos(-1.0) / 5))));
}

TEST(Schedule, OwnLength_CountsInsteadOfTheRuns) {
  const Schedule schedule({.shape = ScheduleShape::kLinear, .steps = 10}, kRate, 5, 1);
  EXPECT_DOUBLE_EQ(schedule.rateOf(5), kRate / 2);
}

TEST(Schedule, BatchScaling_FollowsItsRule) {
  const auto rateWith = [](RateScaling scaling) {
    return Schedule({.scaling = scaling, .baseBatch = 16}, kRate, 1, 64).rateOf(0);
  };
  EXPECT_DOUBLE_EQ(rateWith(RateScaling::kNone), kRate);
  EXPECT_DOUBLE_EQ(rateWith(RateScaling::kLinear), kRate * 4);
  EXPECT_DOUBLE_EQ(rateWith(RateScaling::kSquareRoot), kRate * 2);
}

TEST(Schedule, WarmupThatLeavesNoStepToDecay_IsRefused) {
  EXPECT_THROW(scheduleOf(ScheduleShape::kCosine, 12, 0, 12), UsageError);
  EXPECT_NO_THROW(scheduleOf(ScheduleShape::kCosine, 11, 0, 12));
  EXPECT_NO_THROW(scheduleOf(ScheduleShape::kConstant, 100, 0, 12));
}

TEST(Schedule, Scaling_TakesTheBatchOfAllRanksAndMicroBatches) {
  const auto steps = stepsOf(train({"--spawn", "2", "--steps", "1", "--batch-size", "2", "--accumulate", "3", "--lr",
                                    "0.001", "--lr-scaling", "linear", "--lr-base-batch", "6"})
                                 .out);
  ASSERT_EQ(steps.size(), 1u);
  EXPECT_DOUBLE_EQ(steps[0]["learning_rate"].get<double>(), 0.002);
}

TEST(Schedule, ConstantRate_TrainsAsWithoutSchedule) {
  const auto plain = train({"--steps", "4", "--lr", "0.001"});
  EXPECT_EQ(digestOf(plain), digestOf(train({"--steps", "4", "--lr", "0.002", "--lr-scaling", "linear",
                                             "--lr-base-batch", "16"})));  // batch 8
  EXPECT_FALSE(stepsOf(plain.out)[0].contains("learning_rate"));
}

TEST(Schedule, RunInTwoParts_EndsBitIdentical) {
  const TemporaryFolder folder;
  const std::vector<std::string> common{"--spawn",        "2", "--lr",           "0.003", "--schedule",       "cosine",
                                        "--warmup-steps", "3", "--min-lr-ratio", "0.1",   "--schedule-steps", "14"};
  const auto run = [&](std::vector<std::string> more) {
    more.insert(more.begin(), common.begin(), common.end());
    return train(more);
  };
  const auto straight = run({"--steps", "16"});
  digestOf(run({"--steps", "9", "--checkpoint", folder / "c"}));
  const auto resumed = run({"--steps", "16", "--resume", folder / "c"});
  EXPECT_EQ(digestOf(straight), digestOf(resumed));
  const auto all = stepsOf(straight.out), rest = stepsOf(resumed.out);
  ASSERT_EQ(all.size(), 16u);
  ASSERT_EQ(rest.size(), 7u);
  for (size_t i = 0; i < rest.size(); ++i) {
    EXPECT_EQ(rest[i]["learning_rate"], all[i + 9]["learning_rate"]);
  }
}

TEST(Schedule, ResumedUnderAnother_IsRefused) {
  const TemporaryFolder folder;
  digestOf(train({"--steps", "2", "--schedule", "linear", "--checkpoint", folder / "c"}));
  expectRefused(train({"--steps", "4", "--schedule", "linear", "--resume", folder / "c"}),
                "schedule_steps: 4 here, 2 in the checkpoint");
  expectRefused(train({"--steps", "4", "--schedule", "cosine", "--schedule-steps", "2", "--resume", folder / "c"}),
                "schedule: \"cosine\" here, \"linear\" in the checkpoint");
  expectRefused(train({"--steps", "4", "--resume", folder / "c"}), "nothing here");
  digestOf(train({"--steps", "2", "--checkpoint", folder / "plain"}));
  expectRefused(train({"--steps", "4", "--warmup-steps", "1", "--resume", folder / "plain"}),
                "nothing in the checkpoint");
}

TEST(Schedule, BadOptions_AreRefused) {
  const auto refuse = [](const std::vector<std::string>& flags, const std::string& reason) {
    const auto finished = train(flags);
    expectRefused(finished, reason);
    EXPECT_EQ(finished.shellStatus(), kExitUsage);
  };
  refuse({"--lr-scaling", "sqrt"}, "--lr-scaling needs --lr-base-batch");
  refuse({"--lr-base-batch", "8"}, "--lr-base-batch means nothing");
  refuse({"--min-lr-ratio", "0.5"}, "--min-lr-ratio is for --schedule linear and cosine");
  refuse({"--schedule", "step"}, "--schedule");
  refuse({"--steps", "3", "--schedule", "linear", "--warmup-steps", "3"}, "--warmup-steps 3: the schedule has 3 steps");
}

StepMetrics stepWith(double meanLoss) {
  StepMetrics metrics;
  metrics.loss = 100;  // this rank's, which must not count
  metrics.meanLoss = meanLoss;
  metrics.stepSeconds = 0.5;
  metrics.tokens = 10;
  metrics.bytesSent = 7;
  return metrics;
}

TEST(TargetLoss, MeanOfTheWindow_Decides) {
  TargetLoss target({.loss = 2, .window = 2});
  EXPECT_FALSE(target.isReachedBy(stepWith(1)));  // the window is not full
  EXPECT_FALSE(target.isReachedBy(stepWith(4)));
  EXPECT_FALSE(target.isReachedBy(stepWith(1)));
  EXPECT_TRUE(target.isReachedBy(stepWith(3)));  // (1 + 3) / 2
  nlohmann::json summary;
  target.addSummary(summary);
  EXPECT_EQ(summary["steps_to_target"], 4);
  EXPECT_EQ(summary["tokens_to_target"], 40);
  EXPECT_EQ(summary["bytes_to_target"], 28);
  EXPECT_DOUBLE_EQ(summary["seconds_to_target"].get<double>(), 2);
}

TEST(TargetLoss, LossThatIsNoNumber_IsNotReached) {
  TargetLoss target({.loss = 2});
  EXPECT_FALSE(target.isReachedBy(stepWith(std::nan(""))));
  EXPECT_TRUE(target.isReachedBy(stepWith(1)));
}

TEST(TargetLoss, NoTarget_SaysNothing) {
  TargetLoss target({});
  EXPECT_FALSE(target.isReachedBy(stepWith(-1)));
  nlohmann::json summary = nlohmann::json::object();
  target.addSummary(summary);
  EXPECT_TRUE(summary.empty());
  EXPECT_EQ(target.shortfall(), "");
}

const std::vector<std::string> kToTarget{"--spawn",       "3",     "--batch-size",    "2",
                                         "--lr",          "0.003", "--steps",         "60",
                                         "--target-loss", "5.6",   "--target-window", "3"};

TEST(TargetLoss, AllRanks_EndAtTheFirstStepThatReachesIt) {
  const TemporaryFolder folder;
  auto flags = kToTarget;
  flags.insert(flags.end(), {"--metrics", folder / "m{rank}", "--checkpoint", folder / "c"});
  EXPECT_EQ(train(flags).shellStatus(), 0);
  const auto steps = stepsOf(contentsOf(folder / "m0"));
  ASSERT_GT(steps.size(), 3u);
  ASSERT_LT(steps.size(), 60u);
  uint64_t bytes = 0;
  for (size_t i = 2; i < steps.size(); ++i) {
    double sum = 0;
    for (size_t j = i - 2; j <= i; ++j) {
      sum += steps[j]["loss_mean"].get<double>();
    }
    EXPECT_EQ(sum / 3 <= 5.6, i + 1 == steps.size()) << i;
  }
  for (const auto& step : steps) {
    bytes += step["bytes_sent"].get<uint64_t>();
  }
  const auto summary = records(contentsOf(folder / "m0")).back();
  EXPECT_EQ(summary["steps_to_target"], steps.size());
  EXPECT_EQ(summary["tokens_to_target"], steps.size() * 3 * 2 * 16);
  EXPECT_EQ(summary["bytes_to_target"], bytes);
  for (const char* rank : {"m1", "m2"}) {
    EXPECT_EQ(stepsOf(contentsOf(folder / rank)).size(), steps.size());
  }
  EXPECT_TRUE(std::filesystem::exists(folder / "c"));
}

TEST(TargetLoss, ResumedRun_EndsAtTheSameStep) {
  const TemporaryFolder folder;
  const auto straight = summaryOf(train(kToTarget));
  const auto last = straight["steps_to_target"].get<int64_t>();
  auto first = kToTarget, second = kToTarget;
  // One step before the end: without the losses of the first part the window would fill two steps later.
  first.insert(first.end(), {"--steps", std::to_string(last - 1), "--checkpoint", folder / "c"});
  second.insert(second.end(), {"--resume", folder / "c"});
  EXPECT_TRUE(summaryOf(train(first))["steps_to_target"].is_null());
  const auto resumed = summaryOf(train(second));
  EXPECT_EQ(resumed["steps_to_target"], last);
  EXPECT_EQ(resumed["tokens_to_target"], straight["tokens_to_target"]);
  EXPECT_EQ(resumed["sha256"], straight["sha256"]);
}

// As after the loss of a rank behind the last step: the checkpoint exists, the end was not recorded.
TEST(TargetLoss, ElasticRunThatHadReachedIt_TrainsNoFurther) {
  const TemporaryFolder folder;
  auto flags = kToTarget;
  flags.insert(flags.end(), {"--elastic", "3:3", "--checkpoint", folder / "c"});
  const auto once = summaryOf(train(flags));
  const auto checkpoint = contentsOf(folder / "c");
  const auto again = summaryOf(train(flags));
  EXPECT_EQ(again["steps_to_target"], once["steps_to_target"]);
  EXPECT_EQ(again["sha256"], once["sha256"]);
  EXPECT_EQ(contentsOf(folder / "c"), checkpoint);
}

TEST(TargetLoss, ResumedWhereItWasReached_IsRefused) {
  const TemporaryFolder folder;
  auto first = kToTarget, second = kToTarget;
  first.insert(first.end(), {"--checkpoint", folder / "c"});
  second.insert(second.end(), {"--resume", folder / "c"});
  summaryOf(train(first));
  const auto finished = train(second);
  EXPECT_NE(finished.shellStatus(), 0);
  EXPECT_NE(finished.err.find("has reached the loss of 5.6 already"), std::string::npos) << finished.err;
}

TEST(TargetLoss, NotReached_IsSaidWithStatusZero) {
  const auto finished = train({"--steps", "3", "--target-loss", "0.5"});
  const auto summary = summaryOf(finished);
  EXPECT_EQ(summary["target_loss"], 0.5);
  EXPECT_TRUE(summary["steps_to_target"].is_null() && summary["bytes_to_target"].is_null());
  EXPECT_NE(finished.err.find("the loss of 0.5 was not reached in 3 steps: the mean of the last 1 is"),
            std::string::npos);
}

TEST(TargetLoss, UnknownMean_IsRefused) {
  const auto finished = train({"--target-loss", "1", "--no-barrier"});
  expectRefused(finished, "--target-loss needs the mean over ranks");
  EXPECT_EQ(finished.shellStatus(), kExitUsage);
  expectRefused(train({"--target-window", "5"}), "--target-window means nothing");
}

}  // namespace
}  // namespace gloo_bypass::trainer::testing
