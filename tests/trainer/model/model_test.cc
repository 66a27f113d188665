#include <cmath>
#include <functional>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tests/support/temporary_folder.h"
#include "tools/common/error.h"
#include "trainer/checkpoint/weights.h"
#include "trainer/files/safetensors.h"
#include "trainer/model/gpt2.h"
#include "trainer/optimizer/optimizer.h"

namespace gloo_bypass::trainer {
namespace {

Gpt2 tiny(at::ScalarType type = at::kFloat) { return Gpt2(Gpt2Config::of("tiny"), type); }

std::string digest(const Gpt2& model) {
  AdamW optimizer(model.parameters(), Options());
  Parallelism state(optimizer);
  return parameterDigest(model, state);
}

std::string messageOf(const std::function<void()>& action) {
  try {
    action();
  } catch (const ProgramError& error) {
    return error.what();
  }
  return "";
}

void expectMessage(const std::function<void()>& action, const std::string& part) {
  const std::string message = messageOf(action);
  EXPECT_NE(message.find(part), std::string::npos) << "message: " << message;
}

// One step of training on fixed data.
void trainOnce(Gpt2& model, AdamW& optimizer, int seed) {
  at::manual_seed(static_cast<uint64_t>(seed));
  const auto ids = at::randint(0, 512, {2, 16}, at::kLong), targets = at::randint(0, 512, {2, 16}, at::kLong);
  model.loss(ids, targets, 0).backward();
  optimizer.step();
  optimizer.clearGradients();
}

TEST(Gpt2, DistilGpt2_HasExactlyThePublishedParameters) {
  EXPECT_EQ(Gpt2(Gpt2Config::of("distilgpt2"), at::kFloat).parameterCount(), 81'912'576);
}

TEST(Gpt2, FreshModel_PredictsNearUniformly) {
  auto model = tiny();
  model.initialize(1);
  const auto ids = at::zeros({2, 8}, at::kLong);  // the targets differ: a tied embedding favours a token itself
  EXPECT_NEAR(model.loss(ids, at::ones_like(ids), 0).item<double>(), std::log(512.0), 0.2);
}

TEST(Gpt2, Initialisation_IsAFunctionOfTheSeed) {
  auto one = tiny(), same = tiny(), other = tiny();
  one.initialize(5);
  same.initialize(5);
  other.initialize(6);
  EXPECT_EQ(digest(one), digest(same));
  EXPECT_NE(digest(one), digest(other));
}

TEST(Gpt2, LaterTokens_DoNotReachEarlierPredictions) {
  auto model = tiny(at::kDouble);
  model.initialize(1);
  auto ids = at::arange(8, at::kLong).reshape({1, 8});
  // Only the first prediction counts; its gradient must not touch the positions after it.
  auto targets = at::full({1, 8}, -100, at::kLong);  // cross entropy's ignored class
  targets[0][0] = 3;
  model.loss(ids, targets, 0).backward();
  const auto gradient = model.named()[1].second.grad();  // of wpe.weight
  EXPECT_GT(gradient[0].abs().max().item<double>(), 0);
  EXPECT_EQ(gradient.slice(0, 1).abs().max().item<double>(), 0);
}

TEST(Weights, RoundTrip_IsExactInBothPrecisions) {
  const TemporaryFolder folder;
  for (const auto type : {at::kFloat, at::kDouble}) {
    auto saved = tiny(type), loaded = tiny(type);
    saved.initialize(3);
    AdamW optimizer(saved.parameters(), Options());
    Parallelism state(optimizer);
    saveWeights(folder / "model.safetensors", saved, state);
    loadWeights(loaded, folder / "model.safetensors");
    EXPECT_EQ(digest(saved), digest(loaded));
  }
}

class WeightsFile : public ::testing::Test {
 protected:
  // Writes the tiny model with one tensor left out, renamed or reshaped.
  void save(const std::function<void(std::map<std::string, TensorView>&)>& change) {
    std::map<std::string, TensorView> tensors;
    for (const auto& [name, tensor] : model_.named()) {
      tensors[name] = {
          "F32", tensor.sizes().vec(), {static_cast<const std::byte*>(tensor.data_ptr()), tensor.nbytes()}};
    }
    change(tensors);
    writeSafetensors(path_, tensors, {});
  }
  Gpt2 model_ = tiny();
  TemporaryFolder folder_;
  std::string path_ = folder_ / "model.safetensors";
};

TEST_F(WeightsFile, HuggingFacesExtras_AreIgnored) {
  model_.initialize(9);
  const std::string expected = digest(model_);
  const std::vector<float> buffer(16);
  save([&](auto& tensors) {
    tensors["lm_head.weight"] = tensors.at("wte.weight");
    tensors["h.0.attn.bias"] = {"F32", {1, 1, 4, 4}, std::as_bytes(std::span(buffer))};
  });
  auto loaded = tiny();
  loadWeights(loaded, path_);
  EXPECT_EQ(digest(loaded), expected);
}

TEST_F(WeightsFile, ForeignModels_AreRefusedUntouched) {
  auto target = tiny();
  target.initialize(2);
  const std::string before = digest(target);
  const auto load = [&] { loadWeights(target, path_); };
  save([](auto& tensors) { tensors.erase("h.1.ln_2.bias"); });
  expectMessage(load, "h.1.ln_2.bias is missing");
  save([](auto& tensors) { tensors["h.7.ln_2.bias"] = tensors.at("h.1.ln_2.bias"); });
  expectMessage(load, "h.7.ln_2.bias is none of this model's");
  save([](auto& tensors) { tensors.at("wpe.weight").shape = {32, 128}; });
  expectMessage(load, "wpe.weight: shape [32, 128], this model needs [128, 32]");
  save([](auto& tensors) {
    auto& view = tensors.at("ln_f.bias");
    view.dtype = "I32";
  });
  expectMessage(load, "dtype I32 holds no weights");
  save([](auto& tensors) { tensors["transformer.ln_f.bias"] = tensors.at("ln_f.bias"); });
  expectMessage(load, "ln_f.bias twice");
  const auto head = target.named().front().second * 2;
  ASSERT_EQ(target.named().front().first, "wte.weight");
  save([&](auto& tensors) {
    auto& view = tensors["lm_head.weight"] = tensors.at("wte.weight");
    view.bytes = {static_cast<const std::byte*>(head.data_ptr()), head.nbytes()};
  });
  expectMessage(load, "lm_head.weight differs from wte.weight");
  EXPECT_EQ(digest(target), before);
}

TEST(Checkpoint, TrainingOnFromIt_IsBitExact) {
  const TemporaryFolder folder;
  const Options options;
  const nlohmann::json trajectory{{"seed", 1}};
  auto straight = tiny();
  straight.initialize(1);
  AdamW straightOptimizer(straight.parameters(), options);
  trainOnce(straight, straightOptimizer, 1);
  trainOnce(straight, straightOptimizer, 2);
  Parallelism straightState(straightOptimizer);
  saveCheckpoint(folder / "c", straight, straightState, {.step = 2}, trajectory);
  trainOnce(straight, straightOptimizer, 3);

  auto resumed = tiny();
  AdamW resumedOptimizer(resumed.parameters(), options);
  const CheckpointFile file(folder / "c", resumed, trajectory);
  EXPECT_EQ(file.position().step, 2);
  file.readInto(resumed);
  Parallelism(resumedOptimizer).loadMoments([&](StateKind kind, size_t index) { return file.read(kind, index); });
  resumedOptimizer.setStepCount(file.position().step);
  trainOnce(resumed, resumedOptimizer, 3);
  EXPECT_EQ(digest(resumed), digest(straight));
}

TEST(Checkpoint, OtherOptionsOrFiles_AreRefused) {
  const TemporaryFolder folder;
  auto model = tiny();
  AdamW optimizer(model.parameters(), Options());
  Parallelism state(optimizer);
  saveCheckpoint(folder / "c", model, state, {.step = 2}, {{"batch_size", 8}});
  expectMessage([&] { CheckpointFile(folder / "c", model, {{"batch_size", 16}}); },
                "batch_size: 16 here, 8 in the checkpoint");
  saveWeights(folder / "w", model, state);
  expectMessage([&] { CheckpointFile(folder / "w", model, {{"batch_size", 8}}); }, "not a checkpoint of this program");
  auto other = tiny(at::kDouble);
  expectMessage([&] { CheckpointFile(folder / "c", other, {{"batch_size", 8}}); }, "has another precision");
}

TEST(AdamW, Clipping_BoundsTheNorm) {
  auto model = tiny(at::kDouble);
  model.initialize(1);
  AdamW optimizer(model.parameters(), Options());
  const auto ids = at::zeros({2, 8}, at::kLong);
  model.loss(ids, ids, 0).backward();
  const double norm = optimizer.clipGradients(1e-3);
  EXPECT_GT(norm, 1e-3);
  EXPECT_NEAR(optimizer.clipGradients(1e9), 1e-3, 1e-6);
}

}  // namespace
}  // namespace gloo_bypass::trainer
