// Sums that each rank makes itself (--sums): what they are, and what does not change them.
#include <cmath>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/support/temporary_folder.h"
#include "tests/trainer/tiny_training.h"
#include "tests/trainer/training_results.h"
#include "trainer/distributed/compression/gathered_sums.h"

namespace gloo_bypass::trainer::testing {
namespace {

// All ranks' gradients of one parameter.
class AllRanks final : public Wire {
 public:
  explicit AllRanks(std::vector<at::Tensor> gradients) : gradients_(std::move(gradients)) {}
  int rank() const override { return 0; }
  int worldSize() const override { return static_cast<int>(gradients_.size()); }
  void sum(at::Tensor&) override { FAIL() << "nothing is summed on the way"; }
  std::vector<at::Tensor> gather(const at::Tensor& bytes) override {
    EXPECT_TRUE(at::equal(bytes, gradients_[0].view(at::kByte)));
    std::vector<at::Tensor> messages;
    for (const auto& one : gradients_) messages.push_back(one.view(at::kByte));
    return messages;
  }

 private:
  const std::vector<at::Tensor> gradients_;
};

// The mean that rank 0 ends with, of a bucket with two parameters.
at::Tensor meanOf(const std::vector<at::Tensor>& gradients, bool compensated) {
  AllRanks wire(gradients);
  const auto bucket = gradients[0].clone();
  const std::vector<GradientPart> parts{{0, bucket.slice(0, 0, 3)}, {1, bucket.slice(0, 3)}};
  GatheredSums(compensated).reduce(parts, 0, wire);
  return bucket;
}

std::vector<at::Tensor> gaussians(int64_t ranks, at::ScalarType type) {
  at::manual_seed(5);
  std::vector<at::Tensor> gradients;
  for (int64_t i = 0; i < ranks; ++i) {
    gradients.push_back((at::randn({4000}, at::kDouble) * at::randn({4000}, at::kDouble).mul(6).exp2()).to(type));
  }
  return gradients;
}

TEST(GatheredSums, Ordered_AddsInTheOrderOfTheRanks) {
  const auto gradients = gaussians(8, at::kFloat);
  auto expected = at::zeros_like(gradients[0]);
  for (const auto& one : gradients) expected += one;
  EXPECT_TRUE(at::equal(meanOf(gradients, false), expected / 8));
}

TEST(GatheredSums, Compensated_IsTheNearestFloat_WhichOrderedIsNot) {
  for (const auto type : {at::kFloat, at::kBFloat16, at::kHalf}) {
    const auto gradients = gaussians(8, type);
    auto exact = at::zeros_like(gradients[0], at::kDouble);
    for (const auto& one : gradients) exact += one.to(at::kDouble);
    const auto nearest = (exact.to(at::kFloat) / 8).to(type);
    EXPECT_TRUE(at::equal(meanOf(gradients, true), nearest));
    const auto differing = at::ne(meanOf(gradients, false), nearest).sum().item<int64_t>();
    EXPECT_EQ(differing > 400, type == at::kFloat) << differing;  // 16 bits are added in fp32
  }
}

TEST(GatheredSums, Fp64_KeepsWhatCancels) {
  const std::vector<at::Tensor> gradients{at::full({5}, 0x1p60, at::kDouble), at::full({5}, 1.0, at::kDouble),
                                          at::full({5}, -0x1p60, at::kDouble), at::full({5}, 0.0, at::kDouble)};
  EXPECT_TRUE(at::equal(meanOf(gradients, true), at::full({5}, 0.25, at::kDouble)));
  EXPECT_TRUE(at::equal(meanOf(gradients, false), at::full({5}, 0.0, at::kDouble)));
}

TEST(GatheredSums, WhatIsNotFinite_StaysSo) {
  const double infinity = std::numeric_limits<double>::infinity();
  for (const bool compensated : {false, true}) {
    const auto mean = meanOf({at::tensor({infinity, -infinity, infinity, std::nan(""), 3e38}).to(at::kFloat),
                              at::tensor({1.0, 1.0, -infinity, 1.0, 3e38}).to(at::kFloat)},
                             compensated);
    EXPECT_EQ(mean[0].item<double>(), infinity);
    EXPECT_EQ(mean[1].item<double>(), -infinity);
    EXPECT_TRUE(std::isnan(mean[2].item<double>()) && std::isnan(mean[3].item<double>()));
    EXPECT_EQ(mean[4].item<double>(), infinity);
  }
}

// With three ranks the place in a bucket and the segments decide where a sum begins, unless every rank adds itself.
TEST(Sums, BucketsSegmentsAndCollectives_ChangeNoBit) {
  const auto digests = [](const std::string& sums) {
    std::vector<std::string> found;
    for (const Flags& layout : {Flags{}, Flags{"--bucket-cap-mb", "0.03", "--first-bucket-mb", "0.01"},
                                Flags{"--gradient-as-bucket-view", "--bucket-cap-mb", "0.07"}}) {
      Flags flags{"--spawn", "3", "--batch-size", "2", "--steps", "3", "--verify-ranks", "--sums", sums};
      flags.insert(flags.end(), layout.begin(), layout.end());
      found.push_back(digestOf(train(flags)));
    }
    return found;
  };
  for (const std::string sums : {"ordered", "compensated"}) {
    const auto found = digests(sums);
    EXPECT_EQ(found[0], found[1]) << sums;
    EXPECT_EQ(found[0], found[2]) << sums;
  }
  const auto reduced = digests("reduced");
  EXPECT_NE(reduced[0], reduced[1]);  // or this test shows nothing
}

TEST(Sums, SixteenBitsWithALossScale_AllRanksLeaveOutTheSameSteps) {
  const Flags flags{"--spawn",
                    "2",
                    "--steps",
                    "4",
                    "--precision",
                    "fp16",
                    "--verify-ranks",
                    "--sums",
                    "ordered",
                    "--initial-loss-scale",
                    "16777216",
                    "--loss-scale-interval",
                    "1"};
  EXPECT_GT(summaryOf(train(flags))["skipped_steps"].get<int>(), 0);
}

TEST(Sums, ResumedRun_EndsBitIdentical_AndNotByOtherSums) {
  const TemporaryFolder folder;
  const Flags flags{"--spawn", "3", "--batch-size", "2", "--sums", "compensated"};
  const auto with = [&](Flags more) {
    more.insert(more.begin(), flags.begin(), flags.end());
    return train(more);
  };
  const auto straight = digestOf(with({"--steps", "4"}));
  digestOf(with({"--steps", "2", "--checkpoint", folder / "c"}));
  EXPECT_EQ(digestOf(with({"--steps", "4", "--resume", folder / "c"})), straight);
  const auto refused = train({"--spawn", "3", "--batch-size", "2", "--steps", "4", "--resume", folder / "c"});
  EXPECT_EQ(refused.shellStatus(), 2);
  EXPECT_NE(refused.err.find("sums: nothing here, \"compensated\" in the checkpoint"), std::string::npos)
      << refused.err;
}

TEST(Sums, WhatAddsOtherwise_IsRefused) {
  expectRefused(train({"--sums", "ordered", "--no-ddp"}), "none are with --no-ddp");
  expectRefused(train({"--sums", "ordered", "--compress", "topk"}),
                "--compress has a way of adding of its own: not with --sums ordered");
  expectRefused(train({"--sums", "compensated", "--average", "gossip"}),
                "--average has a way of adding of its own: not with --sums compensated");
  expectRefused(train({"--sums", "compensated", "--zero", "2"}), "a share of the sums");
  expectRefused(train({"--sums", "ordered", "--model-parallel", "gpipe"}),
                "--model-parallel gpipe goes without --sums ordered");
  expectRefused(train({"--sums", "ordered", "--segment-bytes", "4096"}), "makes none");
  expectRefused(train({"--sums", "sorted"}), "--sums");
}

}  // namespace
}  // namespace gloo_bypass::trainer::testing
