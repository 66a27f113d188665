// Gradient compression: bit streams, codecs, and real ranks under each method. compression_reference.py compares
// trajectories with PyTorch's hooks and with references written from the papers.
#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/support/temporary_folder.h"
#include "tests/trainer/tiny_training.h"
#include "tests/trainer/training_results.h"
#include "tools/common/error.h"
#include "trainer/config/choices.h"
#include "trainer/config/options.h"
#include "trainer/distributed/compression/bit_stream.h"
#include "trainer/distributed/compression/codec.h"
#include "trainer/distributed/compression/compressor.h"
#include "trainer/distributed/compression/kept_count.h"
#include "trainer/distributed/compression/wire_bytes.h"
#include "trainer/distributed/data_parallel.h"
#include "trainer/distributed/held_model.h"

namespace gloo_bypass::trainer::testing {
namespace {

using Json = nlohmann::json;
const double kNan = std::numeric_limits<double>::quiet_NaN();
const double kInfinity = std::numeric_limits<double>::infinity();

TEST(BitStream, CodesOfEveryWidthAndNumber_ComeBack) {
  std::mt19937 random(3);
  for (unsigned width = 1; width <= 32; ++width) {
    for (size_t count = 0; count < 40; ++count) {
      std::vector<uint32_t> codes(count);
      for (auto& code : codes) code = static_cast<uint32_t>(random()) >> (32 - width);
      std::vector<std::byte> bytes(static_cast<size_t>(bytesOfBits(static_cast<int64_t>(count * width))));
      BitWriter writer(bytes);
      for (const auto code : codes) writer.put(code, width);
      writer.finish();
      for (size_t i = 0; i < count; ++i) ASSERT_EQ(codeAt(bytes, i, width), codes[i]) << width << " bits, " << count;
    }
  }
}

TEST(BitStream, AfterTheEnd_ZerosAreRead) {
  const std::vector<std::byte> bytes{std::byte{0xff}};
  EXPECT_EQ(codeAt(bytes, 0, 12), 0xffu);
  EXPECT_EQ(codeAt(bytes, 1, 12), 0u);
  EXPECT_EQ(codeAt(bytes, 1'000'000, 32), 0u);
}

at::Tensor gaussian(int64_t count, at::ScalarType type = at::kFloat) {
  at::manual_seed(7);
  return at::randn({count}, type);
}

// The values that a code decodes to.
at::Tensor throughCode(const Codec& codec, const at::Tensor& values, int64_t draw = 0) {
  std::vector<std::byte> code(static_cast<size_t>(codec.codeBytes(values.numel(), values.element_size())));
  codec.encode(values, code, {.seed = 1, .step = draw, .rank = 0, .parameter = 0});
  auto decoded = at::zeros_like(values);
  codec.addDecoded(code, 1, decoded);
  return decoded;
}

std::vector<std::unique_ptr<Codec>> allCodecs() {
  std::vector<std::unique_ptr<Codec>> all;
  all.push_back(makeTopKCodec(0.1));
  all.push_back(makeTopKCodec(0.1, /*halves=*/true));
  all.push_back(makeSignCodec());
  all.push_back(makeTernGradCodec());
  all.push_back(makeQsgdCodec(7));
  return all;
}

TEST(Codec, OddLengthsAndZeros_StayZero) {
  for (const auto& codec : allCodecs()) {
    for (const int64_t count : {1, 7, 511, 512, 513, 1031}) {
      for (const auto type : {at::kFloat, at::kDouble}) {
        EXPECT_EQ(throughCode(*codec, at::zeros({count}, type)).abs().max().item<double>(), 0) << count;
      }
    }
  }
}

TEST(Codec, NotFiniteGradient_IsNotHidden) {
  const auto codecs = allCodecs();
  for (size_t method = 0; method < codecs.size(); ++method) {
    for (const double bad : {kNan, kInfinity, -kInfinity}) {
      for (const int64_t at : {0, 700, 1030}) {
        auto values = gaussian(1031);
        values[at] = bad;
        EXPECT_FALSE(throughCode(*codecs[method], values)[at].isfinite().item<bool>())
            << method << ": " << bad << " at " << at;
      }
    }
  }
}

// A hostile peer: decoding touches nothing outside the tensor.
TEST(Codec, AnyBytes_AreDecodedWithinTheTensor) {
  std::mt19937 random(5);
  for (const auto& codec : allCodecs()) {
    for (int round = 0; round < 50; ++round) {
      std::vector<std::byte> code(static_cast<size_t>(codec->codeBytes(100, 4)));
      for (auto& byte : code) byte = static_cast<std::byte>(random());
      auto around = at::zeros({300});
      auto middle = around.narrow(0, 100, 100);
      codec->addDecoded(code, 1, middle);
      EXPECT_EQ(around.narrow(0, 0, 100).count_nonzero().item<int64_t>() +
                    around.narrow(0, 200, 100).count_nonzero().item<int64_t>(),
                0);
    }
  }
}

TEST(TopK, LargestMagnitudes_ArriveExactlyAndNothingElse) {
  const auto values = gaussian(1000, at::kDouble);
  const auto decoded = throughCode(*makeTopKCodec(0.05), values);
  const auto threshold = std::get<0>(values.abs().sort(0, true))[49];
  EXPECT_TRUE(decoded.equal(values.where(values.abs() >= threshold, at::zeros_like(values))));
  EXPECT_EQ(decoded.count_nonzero().item<int64_t>(), 50);
}

// More elements than the sample by which the threshold is guessed, and distributions that mislead it.
TEST(TopK, LargeTensors_AreChosenFromExactly) {
  constexpr int64_t kCount = 200'003, kKept = 2'000;
  const auto flat = gaussian(kCount);
  auto oneBlock = at::zeros({kCount}), fewOfMany = at::zeros({kCount});
  oneBlock.narrow(0, 50'000, kKept + 500).copy_(flat.narrow(0, 0, kKept + 500));
  fewOfMany.index_put_({at::arange(100) * 1999}, at::ones({100}));
  for (const auto& values : {flat, flat.pow(9), oneBlock, fewOfMany, at::ones({kCount}), at::zeros({kCount})}) {
    const auto decoded = throughCode(*makeTopKCodec(0.01), values);
    const auto threshold = std::get<0>(values.abs().topk(kKept)).min();
    EXPECT_TRUE(decoded.masked_select(values.abs() > threshold).equal(values.masked_select(values.abs() > threshold)));
    EXPECT_EQ((decoded != 0).sum().item<int64_t>(), std::min<int64_t>(kKept, values.count_nonzero().item<int64_t>()));
  }
}

TEST(TopK, EqualMagnitudes_TheFirstAreSent) {
  const auto decoded = throughCode(*makeTopKCodec(0.01), at::full({100'000}, -3.0));
  EXPECT_TRUE(decoded.equal(at::cat({at::full({1'000}, -3.0), at::zeros({99'000})})));
}

TEST(TopK, ValuesInFp16_AreRoundedAndBounded) {
  const auto values = at::tensor(at::ArrayRef<double>{1e6, -0.1, 3.0, -1e300, 1e-9}, at::kDouble);
  const auto expected =
      at::tensor(at::ArrayRef<double>{65504, at::tensor(-0.1).to(at::kHalf).item<double>(), 3, -65504, 0}, at::kDouble);
  EXPECT_TRUE(throughCode(*makeTopKCodec(1, /*halves=*/true), values).equal(expected.to(at::kDouble)));
  EXPECT_EQ(makeTopKCodec(0.01, true)->codeBytes(1000, 4), 60);
}

TEST(TopK, TinyTensorsAndTheWholeOne_KeepAtLeastOneElement) {
  EXPECT_EQ(keptCount(3, 0.01), 1);
  EXPECT_EQ(keptCount(1000, 0.01), 10);
  EXPECT_EQ(keptCount(7, 1.0), 7);
  const auto values = gaussian(33);
  EXPECT_TRUE(throughCode(*makeTopKCodec(1.0), values).equal(values));
}

TEST(Sign, Code_IsTheMeanMagnitudeWithEachSign) {
  const auto values = at::tensor(at::ArrayRef<double>{1.5, -0.5, 0.0, -2.0, 4.0}, at::kDouble);
  const auto expected = at::tensor(at::ArrayRef<double>{1.6, -1.6, 1.6, -1.6, 1.6}, at::kDouble);
  EXPECT_TRUE(throughCode(*makeSignCodec(), values).allclose(expected, 1e-15, 0));
}

// An element is one of two neighbouring levels, `width` apart. The mean over many draws equals it within Bernstein's
// bound; a correct codec exceeds that at any of the elements with a probability of 1e-6.
void expectUnbiased(const Codec& codec, const at::Tensor& values, const at::Tensor& width) {
  constexpr int kDraws = 4000;
  auto sum = at::zeros_like(values);
  for (int draw = 0; draw < kDraws; ++draw) sum += throughCode(codec, values, draw);
  const auto fraction = (values.abs() / width).frac();
  const auto variance = fraction * (1 - fraction) * width.square();
  const double log = std::log(2.0 * static_cast<double>(values.numel()) / 1e-6);
  const auto bound = (variance * (2 * log / kDraws)).sqrt() + width * (2 * log / (3 * kDraws));
  EXPECT_LT(((sum / kDraws - values).abs() / bound).max().item<double>(), 1);
  EXPECT_LT((bound / width).max().item<double>(), 0.1) << "a bound that excludes nothing";
}

TEST(TernGrad, MeanOverDraws_IsTheGradient) {
  const auto values = gaussian(600, at::kDouble);
  expectUnbiased(*makeTernGradCodec(), values, at::full_like(values, values.abs().max().item<double>()));
}

TEST(Qsgd, MeanOverDraws_IsTheGradient) {
  const auto values = gaussian(600, at::kDouble);
  for (const int levels : {1, 7, 127}) {
    auto width = at::empty_like(values);
    width.slice(0, 0, 512).fill_(values.slice(0, 0, 512).norm() / levels);
    width.slice(0, 512).fill_(values.slice(0, 512).norm() / levels);
    expectUnbiased(*makeQsgdCodec(levels), values, width);
  }
}

// The scale's inverse is no number then.
TEST(Codec, ScalesNextToZero_GiveNoMoreThanTheScale) {
  for (const auto& codec : allCodecs()) {
    auto values = at::full({1031}, 1e-40F);
    values[7] = 2e-40F;
    EXPECT_LE(throughCode(*codec, values).abs().max().item<float>(), 3e-40F);
  }
}

TEST(TernGrad, Code_HasThreeValues) {
  const auto values = gaussian(1000);
  const auto scaled = throughCode(*makeTernGradCodec(), values) / values.abs().max();
  EXPECT_TRUE((scaled.abs() * (scaled.abs() - 1)).equal(at::zeros_like(scaled)));
}

TEST(Qsgd, EachElement_MovesLessThanOneLevel) {
  const auto values = gaussian(700, at::kDouble);
  const auto error = (throughCode(*makeQsgdCodec(7), values) - values).abs();
  EXPECT_LT(error.slice(0, 0, 512).max().item<double>(), values.slice(0, 0, 512).norm().item<double>() / 7);
  EXPECT_LT(error.slice(0, 512).max().item<double>(), values.slice(0, 512).norm().item<double>() / 7);
}

// Against 4 bytes an element. Top 1 % with 64-bit indices would be 33, as often quoted; 32 bits are enough for any
// tensor.
TEST(Codec, Ratios_AreTheFormulas) {
  constexpr int64_t kElements = 1'000'000;
  const auto ratio = [](const std::unique_ptr<Codec>& codec) {
    return 4.0 * kElements / static_cast<double>(codec->codeBytes(kElements, 4));
  };
  EXPECT_NEAR(ratio(makeTopKCodec(0.01)), 50, 1e-9);
  EXPECT_NEAR(ratio(makeSignCodec()), 32, 0.01);
  EXPECT_NEAR(ratio(makeTernGradCodec()), 16, 0.01);
  EXPECT_NEAR(ratio(makeQsgdCodec(7)), 32 / (4 + 32.0 / 512), 0.01);
  EXPECT_NEAR(ratio(makeQsgdCodec(8)), 32 / (5 + 32.0 / 512), 0.01);
}

// ---- compressors, of a single rank ----

class OneRank final : public Wire {
 public:
  int rank() const override { return 0; }
  int worldSize() const override { return 1; }
  void sum(at::Tensor&) override {}
  std::vector<at::Tensor> gather(const at::Tensor& bytes) override { return {bytes}; }
};

CompressionOptions optionsOf(CompressionMethod method, double ratio, bool feedback) {
  CompressionOptions options;
  options.method = method;
  options.ratio = ratio;
  options.rank = 2;
  options.errorFeedback = feedback;
  return options;
}

// The result for a gradient when there is only one rank.
at::Tensor reduced(Compressor& compressor, const at::Tensor& gradient, int64_t step) {
  OneRank wire;
  const std::vector<GradientPart> parts{{0, gradient.clone()}};
  compressor.reduce(parts, step, wire);
  return parts[0].gradient;
}

TEST(ErrorFeedback, ConstantGradient_ArrivesInFullAfterSomeSteps) {
  const auto gradient = gaussian(300, at::kDouble).view({20, 15});
  for (const auto method : {CompressionMethod::kTopK, CompressionMethod::kSign, CompressionMethod::kPowerSgd,
                            CompressionMethod::kRandomK}) {
    for (const bool feedback : {true, false}) {
      if (!feedback && method == CompressionMethod::kRandomK) continue;  // unbiased then: below
      const auto compressor = makeCompressor(optionsOf(method, 0.1, feedback), {{"w", gradient}}, 1);
      constexpr int kSteps = 400;
      auto sum = at::zeros_like(gradient);
      for (int step = 0; step < kSteps; ++step) sum += reduced(*compressor, gradient, step);
      const double left = ((sum / kSteps - gradient).norm() / gradient.norm()).item<double>();
      EXPECT_TRUE(feedback ? left < 0.1 : left > 0.3) << static_cast<int>(method) << ": " << left;
    }
  }
}

// What fp16 rounds off, or cannot hold, is sent later.
TEST(ErrorFeedback, ValuesInFp16_ArriveInFull) {
  const auto gradient = at::tensor(at::ArrayRef<double>{1.0001, 1e5, -3e-8, 0.25}, at::kDouble);
  auto options = optionsOf(CompressionMethod::kTopK, 1, true);
  options.values = CompressedValues::kFp16;
  const auto compressor = makeCompressor(options, {{"w", gradient}}, 1);
  constexpr int kSteps = 1000;
  auto sum = at::zeros_like(gradient);
  for (int step = 0; step < kSteps; ++step) sum += reduced(*compressor, gradient, step);
  // What is left is a step's rounding, and of the second what its bound has held back.
  EXPECT_TRUE((sum / kSteps)
                  .index_select(0, at::tensor({0, 2, 3}))
                  .allclose(gradient.index_select(0, at::tensor({0, 2, 3})), 1e-5, 1e-10));
  EXPECT_DOUBLE_EQ((sum / kSteps)[1].item<double>(), 65504);
}

// Nothing is rounded where all elements are sent as they are.
TEST(Compressor, ThatLeavesNothingOut_GivesTheGradient) {
  const auto gradient = gaussian(300).view({20, 15});
  for (const auto method : {CompressionMethod::kTopK, CompressionMethod::kRandomK}) {
    for (const bool feedback : {true, false}) {
      const auto compressor = makeCompressor(optionsOf(method, 1, feedback), {{"w", gradient}}, 1);
      for (int step = 0; step < 3; ++step) EXPECT_TRUE(reduced(*compressor, gradient, step).equal(gradient));
    }
  }
}

TEST(RandomK, WithoutErrorFeedback_MeanOverStepsIsTheGradient) {
  const auto gradient = gaussian(42, at::kDouble);
  const auto randomK = makeCompressor(optionsOf(CompressionMethod::kRandomK, 0.25, false), {{"w", gradient}}, 1);
  constexpr int kSteps = 4000;
  auto sum = at::zeros_like(gradient);
  for (int step = 0; step < kSteps; ++step) {
    const auto sent = reduced(*randomK, gradient, step);
    ASSERT_EQ(sent.count_nonzero().item<int64_t>(), 10);
    sum += sent;
  }
  const double deviations =
      5 * std::sqrt(4.0 / kSteps);  // n v with probability 1/n, n 4 or 5: a variance of at most 4 v^2
  EXPECT_LT(((sum / kSteps - gradient).abs() / gradient.abs()).max().item<double>(), deviations);
}

TEST(NotFiniteGradient, OfRandomKAndPowerSgd_IsNotHidden) {
  const auto clean = gaussian(300).view({20, 15});
  for (const double bad : {kNan, kInfinity}) {
    for (const auto method : {CompressionMethod::kRandomK, CompressionMethod::kPowerSgd}) {
      const auto compressor = makeCompressor(optionsOf(method, 0.01, true), {{"w", clean}}, 1);
      auto gradient = clean.clone();
      gradient[3][4] = bad;
      EXPECT_FALSE(reduced(*compressor, gradient, 0).isfinite().all().item<bool>()) << bad;
    }
  }
}

// ---- real ranks ----

std::vector<Json> recordsOf(const std::vector<std::string>& flags) {
  const auto finished = train(flags);
  summaryOf(finished);
  return records(finished.out);
}

std::string digestOf(const std::vector<std::string>& flags) { return recordsOf(flags).back().value("sha256", "none"); }

class Compression : public ::testing::TestWithParam<const char*> {
 protected:
  // Two steps of PowerSGD's warm-up are in each run.
  std::vector<std::string> method() const {
    const std::string name = GetParam();
    return std::vector<std::string>{"--compress", name} +
           (name == "powersgd" ? std::vector<std::string>{"--compress-warmup", "2"} : std::vector<std::string>{});
  }
};
INSTANTIATE_TEST_SUITE_P(Methods, Compression,
                         ::testing::Values("fp16", "bf16", "topk", "randomk", "sign", "terngrad", "qsgd", "powersgd"),
                         [](const auto& method) { return std::string(method.param); });

const std::vector<std::string> kManyBuckets{
    "--spawn",      "3", "--batch-size", "2",   "--bucket-cap-mb", "0.02", "--first-bucket-mb", "0.005",
    "--accumulate", "2", "--clip-norm",  "0.5", "--dropout",       "0.1"};

TEST_P(Compression, RunThatResumes_EndsBitIdenticalOnAllRanks) {
  const TemporaryFolder folder;
  const auto flags = kManyBuckets + method() + std::vector<std::string>{"--verify-ranks"};
  const auto straight = recordsOf(flags + std::vector<std::string>{"--steps", "7"});
  const std::string name = GetParam();
  if (name != "fp16" && name != "bf16" &&
      name != "qsgd") {  // no state and no randomness, or terngrad's: for the test's time
    recordsOf(flags + std::vector<std::string>{"--steps", "4", "--checkpoint", folder / "c"});
    EXPECT_EQ(straight.back()["sha256"],
              digestOf(flags + std::vector<std::string>{"--steps", "7", "--resume", folder / "c"}));
  }
  const auto step = straight.at(5);
  EXPECT_GT(step["buckets"].get<int>(), 3);
  EXPECT_EQ(step["gradient_bytes"].get<int64_t>(), 4 * straight[0]["parameters"].get<int64_t>());
  EXPECT_LE(step["t_ar_exposed_s"].get<double>(), step["t_ar_s"].get<double>());
  EXPECT_LE(step["t_ar_s"].get<double>(), step["t_step_s"].get<double>());
  EXPECT_NEAR(step["compression_ratio"].get<double>(),
              step["gradient_bytes"].get<double>() / step["compressed_bytes"].get<double>(), 1e-9);
  EXPECT_GT(step["compression_ratio"].get<double>(), 1.1);
  EXPECT_GT(step["t_compress_s"].get<double>(), 0);
  EXPECT_GT(step["t_decompress_s"].get<double>(), 0);
}

// Two ranks reduce what is sent as it is, in one bucket, to the same bits as the plain all-reduce.
TEST(Training, WarmUp_EqualsPlainDdp) {
  const std::vector<std::string> two{"--spawn", "2", "--steps", "4"};
  const auto plain = digestOf(two);
  EXPECT_EQ(plain, digestOf(two + std::vector<std::string>{"--compress", "sign", "--compress-warmup", "4"}));
  EXPECT_NE(plain, digestOf(two + std::vector<std::string>{"--compress", "sign", "--compress-warmup", "3"}));
}

// Masters are in fp32. Fp16's loss scale leaves steps out before and after the checkpoint.
TEST(Training, SixteenBits_ResumeBitIdentical) {
  for (const auto& flags : {std::vector<std::string>{"--compress-values", "fp16"},
                            std::vector<std::string>{"--precision", "bf16", "--clip-norm", "1"},
                            std::vector<std::string>{"--precision", "fp16", "--initial-loss-scale", "2097152",
                                                     "--loss-scale-interval", "1"}}) {
    const TemporaryFolder folder;
    const auto run = flags + std::vector<std::string>{"--spawn", "2", "--compress", "topk", "--verify-ranks"};
    const auto records = recordsOf(run + std::vector<std::string>{"--steps", "8"});
    const auto& straight = records.back();
    if (straight.contains("loss_scale")) {
      EXPECT_GT(records.at(4)["skipped_steps"], 0);  // of step 4
      EXPECT_GT(straight["skipped_steps"], records.at(4)["skipped_steps"]);
    }
    recordsOf(run + std::vector<std::string>{"--steps", "4", "--checkpoint", folder / "c"});
    EXPECT_EQ(straight["sha256"], digestOf(run + std::vector<std::string>{"--steps", "8", "--resume", folder / "c"}));
  }
}

RankState copyOf(const RankState& state) {
  RankState copy;
  for (const auto& [name, tensor] : state) copy.emplace_back(name, tensor.clone());
  return copy;
}

// What is owed is in the units of the gradients, which the scale multiplies.
TEST(LossScale, StepLeftOut_LeavesNoTraceInWhatIsKept) {
  for (const auto method : {CompressionMethod::kTopK, CompressionMethod::kRandomK, CompressionMethod::kSign,
                            CompressionMethod::kPowerSgd}) {
    SCOPED_TRACE(nameOf(kCompressions, method));
    Options options;
    options.model = "tiny";
    options.precision = {.type = Precision::kFloat16, .lossScale = "dynamic", .initialLossScale = 1024};
    options.compression = {.method = method, .warmupSteps = 0};
    HeldModel held(options, RankEnvironment{});
    held.weights.initialize(1);
    held.optimizer->weightsChanged();
    GroupCommunicator communicator(RankEnvironment{}, options, nlohmann::json::object());
    DataParallel parallel(held.model, *held.optimizer, communicator, options);
    const auto ids = at::arange(16).view({2, 8});
    const auto train = [&](int64_t step, double factor) {
      parallel.beginStep(step);
      parallel.beforeForward(/*synchronise=*/true);
      const auto loss = held.model.loss(ids, ids, 0);
      parallel.beforeBackward(/*synchronise=*/true, loss);
      (held.optimizer->scaled(loss) * factor).backward();
      parallel.updateParameters();
    };
    train(0, 1);
    train(1, 1);
    ASSERT_EQ(held.optimizer->stepsLeftOut(), 0);
    const auto before = copyOf(parallel.rankState());
    train(2, std::numeric_limits<double>::infinity());
    ASSERT_EQ(held.optimizer->stepsLeftOut(), 1);
    ASSERT_EQ(held.optimizer->lossScale(), 512);
    const auto after = parallel.rankState();
    ASSERT_FALSE(before.empty());
    double owed = 0;
    for (size_t i = 0; i < before.size(); ++i) {
      const auto& [name, tensor] = before[i];
      const bool isOwed = name.starts_with("residual.");
      EXPECT_TRUE(after[i].second.equal(isOwed ? tensor / 2 : tensor)) << name;
      owed += isOwed ? tensor.abs().sum().item<double>() : 0;
    }
    EXPECT_GT(owed, 0);
  }
}

TEST(Training, Buckets_DoNotChangeWhatIsLeftOut) {
  const std::vector<std::string> two{"--spawn", "2", "--steps", "4", "--compress", "topk"};
  const auto one = digestOf(two);
  EXPECT_EQ(one, digestOf(two + std::vector<std::string>{"--bucket-cap-mb", "0.02", "--first-bucket-mb", "0.005"}));
  EXPECT_EQ(one, digestOf(two + std::vector<std::string>{"--gradient-as-bucket-view", "--no-barrier"}));
  EXPECT_NE(one, digestOf(two + std::vector<std::string>{"--no-error-feedback"}));
}

TEST(Training, SegmentsOfCasts_DoNotChangeTwoRanksResult) {
  for (const char* method : {"fp16", "bf16"}) {
    const std::vector<std::string> two{"--spawn", "2", "--steps", "3", "--compress", method};
    EXPECT_EQ(digestOf(two), digestOf(two + std::vector<std::string>{"--segment-bytes", "4096"})) << method;
  }
}

// A ring's all-reduce sends 2 (N-1)/N of its bytes a rank, an all-gather N-1 times its own.
TEST(Metrics, CompressedRuns_SendWhatTheFormulasSay) {
  struct Case {
    const char* method;
    double ratio, timesSent;
  };
  for (const auto& [method, ratio, timesSent] : {Case{"fp16", 2, 4.0 / 3}, Case{"topk", 50, 2}, Case{"sign", 32, 2}}) {
    const auto records = recordsOf({"--spawn", "3", "--steps", "5", "--compress", method});
    const auto& step = records.at(3);
    EXPECT_NEAR(step["compression_ratio"].get<double>(), ratio, 0.05 * ratio)
        << method;  // small tensors send a bit more
    const auto expected = step["compressed_bytes"].get<double>() * timesSent;
    const double sent = bytesOfAStep({records.begin() + 1, records.end() - 1});
    EXPECT_GE(sent, 0.97 * expected) << method;
    EXPECT_LT(sent, 1.15 * expected + 4096) << method;
  }
}

TEST(Metrics, PlainRuns_HaveNoCompressionFields) {
  const auto records = recordsOf({"--spawn", "2", "--steps", "2"});
  for (const char* field : {"compressed_bytes", "compression_ratio", "t_compress_s", "t_decompress_s"}) {
    EXPECT_FALSE(records.at(2).contains(field)) << field;
  }
  EXPECT_FALSE(records[0]["options"].contains("compression"));
}

TEST(StepMarkers, CompressedBuckets_AreMarkedOnceAStep) {
  const auto summary = recordsOf({"--spawn", "2", "--steps", "3", "--compress", "powersgd", "--compress-warmup", "1",
                                  "--bucket-cap-mb", "0.02", "--step-markers", "127.0.0.1"})
                           .back();
  EXPECT_EQ(summary["step_markers"]["sent"], 6) << summary["step_markers"];
}

void expectRefused(const std::vector<const char*>& flags, const std::string& reason) {
  std::vector<const char*> arguments{"ddp_train"};
  arguments.insert(arguments.end(), flags.begin(), flags.end());
  try {
    parseOptions(static_cast<int>(arguments.size()), arguments.data());
    ADD_FAILURE() << "accepted: " << reason;
  } catch (const UsageError& error) {
    EXPECT_NE(std::string(error.what()).find(reason), std::string::npos) << error.what();
  }
}

void expectUsageError(const std::vector<std::string>& flags, const std::string& reason) {
  const auto finished = train(flags);
  EXPECT_EQ(finished.shellStatus(), 2) << reason;
  EXPECT_NE(finished.err.find(reason), std::string::npos) << finished.err;
  EXPECT_EQ(std::count(finished.err.begin(), finished.err.end(), '\n'), 1) << finished.err;
}

TEST(BadInput, CompressionOptions_AreRefused) {
  expectRefused({"--compress", "zip"}, "--compress");
  for (const char* ratio : {"0", "1.01", "-1", "nan"}) {
    expectRefused({"--compress", "topk", "--compress-ratio", ratio}, "--compress-ratio");
  }
  expectRefused({"--compress", "qsgd", "--compress-levels", "32768"}, "--compress-levels");
  expectRefused({"--compress", "powersgd", "--compress-rank", "0"}, "--compress-rank");
  expectUsageError({"--compress", "sign", "--no-ddp"}, "nothing is sent with --no-ddp");
  expectRefused({"--compress", "sign", "--compress-ratio", "0.1"}, "is for --compress topk and randomk, not for sign");
  expectRefused({"--compress", "qsgd", "--no-error-feedback"}, "qsgd has none");
  expectRefused({"--compress-warmup", "3"}, "needs --compress METHOD");
  expectRefused({"--compress", "sign", "--compress-values", "fp16"}, "is for --compress topk, not for sign");
  expectRefused({"--compress", "bf16", "--precision", "bf16"}, "sends 16 bits an element");
}

TEST(BadInput, RatiosAndRanksThatSaveNothing_AreRefused) {
  const std::vector<std::string> two{"--steps", "1", "--spawn", "2", "--compress"};
  expectUsageError(two + std::vector<std::string>{"topk", "--compress-ratio", "0.5"}, "lower --compress-ratio");
  expectUsageError(two + std::vector<std::string>{"randomk", "--compress-ratio", "1"}, "lower --compress-ratio");
  expectUsageError(two + std::vector<std::string>{"randomk", "--compress-ratio", "0.5", "--precision", "bf16"},
                   "lower --compress-ratio");
  expectUsageError(two + std::vector<std::string>{"powersgd", "--compress-rank", "1024"}, "lower --compress-rank");
}

// Four bytes of index and four of value; gathered, each of N ranks sends N/2 times as much of it as of an all-reduce.
TEST(WireShare, IsTheFormula) {
  const std::vector<ParameterShape> parameters{{"w", {1000, 1000}}, {"b", {1000}}};
  auto options = optionsOf(CompressionMethod::kTopK, 0.01, true);
  EXPECT_NEAR(wireShare(options, parameters, 4, 2), 0.02, 1e-6);
  EXPECT_NEAR(wireShare(options, parameters, 4, 8), 0.08, 1e-6);
  options.values = CompressedValues::kFp16;
  EXPECT_NEAR(wireShare(options, parameters, 4, 2), 0.015, 1e-6);
  EXPECT_NEAR(wireShare(options, parameters, 2, 2), 0.03, 1e-6);
  EXPECT_NEAR(wireShare(optionsOf(CompressionMethod::kRandomK, 0.01, true), parameters, 4, 8), 0.01, 1e-6);
  EXPECT_NEAR(wireShare(optionsOf(CompressionMethod::kRandomK, 0.01, true), parameters, 2, 8), 0.02, 1e-6);
  EXPECT_NEAR(wireShare(optionsOf(CompressionMethod::kSign, 1, true), parameters, 4, 64), 1, 0.01);
  EXPECT_NEAR(wireShare(optionsOf(CompressionMethod::kPowerSgd, 1, true), parameters, 4, 8), 5.0 / 1001, 1e-9);
}

TEST(BadInput, CheckpointOfAnotherCompression_IsRefused) {
  const TemporaryFolder folder;
  recordsOf({"--steps", "1", "--compress", "topk", "--checkpoint", folder / "c"});
  expectUsageError({"--steps", "2", "--resume", folder / "c"}, "compression: nothing here");
  expectUsageError({"--steps", "2", "--resume", folder / "c", "--compress", "sign"}, "\"method\":\"sign\"");
}

TEST(Failure, OnlyOneRankCompresses_EveryRankSaysSo) {
  expectRanksDisagree({{"--steps", "1", "--compress", "topk"}, {"--steps", "1"}}, "compression: ");
}

}  // namespace
}  // namespace gloo_bypass::trainer::testing
