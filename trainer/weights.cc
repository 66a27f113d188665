#include "trainer/weights.h"

#include <algorithm>
#include <array>
#include <map>
#include <memory>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>
#include <openssl/evp.h>

#include "programs/error.h"
#include "trainer/joined.h"
#include "trainer/safetensors.h"

namespace gloo_bypass::trainer {
namespace {

constexpr const char* kCheckpointFormat = "gloo-bypass checkpoint 1";

std::span<const std::byte> bytesOf(const at::Tensor& tensor) {
  return {static_cast<const std::byte*>(tensor.data_ptr()), tensor.nbytes()};
}

constexpr std::pair<const char*, at::ScalarType> kTypes[] = {
    {"F32", at::kFloat}, {"F64", at::kDouble}, {"F16", at::kHalf}, {"BF16", at::kBFloat16}};

TensorView viewOf(const at::Tensor& tensor) {
  const auto* const type = std::find_if(
      std::begin(kTypes), std::end(kTypes), [&](const auto& entry) { return entry.second == tensor.scalar_type(); });
  return {type->first, tensor.sizes().vec(), bytesOf(tensor)};
}

at::ScalarType scalarType(const std::string& dtype, const std::string& where) {
  for (const auto& [name, type] : kTypes) {
    if (dtype == name) {
      return type;
    }
  }
  throw UsageError(fmt::format("{}: dtype {} holds no weights (F16, BF16, F32 and F64 do)", where, dtype));
}

void checkShape(const TensorView& view, const at::Tensor& target, const std::string& where) {
  if (at::IntArrayRef(view.shape) != target.sizes()) {
    throw UsageError(fmt::format("{}: shape [{}], this model needs [{}]", where, joined(view.shape, ", "),
        joined(target.sizes(), ", ")));
  }
}

void copyInto(at::Tensor target, const TensorView& view, const std::string& where) {
  const at::NoGradGuard noGrad;
  // from_blob wants a mutable pointer; copy_ only reads through it. Data in the file need not be aligned: clone bytes.
  auto raw = at::empty(view.shape, at::TensorOptions().dtype(scalarType(view.dtype, where)));
  std::copy(view.bytes.begin(), view.bytes.end(), static_cast<std::byte*>(raw.data_ptr()));
  target.copy_(raw);
}

// Buffers and ties that Hugging Face files may carry and that hold nothing of ours to learn.
bool isNoParameter(const std::string& name) {
  return name == "lm_head.weight" ||
      (name.starts_with("h.") && (name.ends_with(".attn.bias") || name.ends_with(".attn.masked_bias")));
}

} // namespace

std::vector<NamedValues> withoutEmpty(std::vector<NamedValues> states) {
  std::erase_if(states, [](const NamedValues& state) { return state.values.empty(); });
  return states;
}

at::Tensor tensorOf(const NamedValues& state) {
  return at::from_blob(state.values.data(), {static_cast<int64_t>(state.values.size())}, at::kDouble);
}

void loadWeights(Gpt2& model, const std::string& path) {
  constexpr std::string_view kPrefix = "transformer.";
  const SafetensorsFile file(path);
  std::map<std::string, const TensorView*> found;
  for (const auto& [fullName, view] : file.tensors()) {
    const std::string name = fullName.starts_with(kPrefix) ? fullName.substr(kPrefix.size()) : fullName;
    if (!isNoParameter(name) && !found.emplace(name, &view).second) {
      throw UsageError(fmt::format("{}: tensor {} twice, with and without \"transformer.\"", path, name));
    }
  }
  for (const auto& [name, tensor] : model.named()) {
    const std::string where = fmt::format("{}: tensor {}", path, name);
    const auto entry = found.find(name);
    if (entry == found.end()) {
      throw UsageError(where + " is missing: not the weights of this GPT-2 model");
    }
    checkShape(*entry->second, tensor, where);
    scalarType(entry->second->dtype, where);
  }
  if (found.size() != model.named().size()) {
    for (const auto& [name, tensor] : model.named()) {
      found.erase(name);
    }
    throw UsageError(fmt::format("{}: tensor {} is none of this model's (a larger GPT-2?)", path, found.begin()->first));
  }
  for (const auto& [name, tensor] : model.named()) {
    copyInto(tensor, *found.at(name), name);
  }
}

void saveWeights(const Gpt2& model, const std::string& path) {
  std::map<std::string, TensorView> tensors;
  for (const auto& [name, tensor] : model.named()) {
    tensors.emplace("transformer." + name, viewOf(tensor));
  }
  writeSafetensors(path, tensors, {{"format", "pt"}});
}

void saveCheckpoint(const std::string& path, const Gpt2& model, const AdamW& optimizer,
    const TrainingPosition& position, const nlohmann::json& trajectory, const std::vector<NamedValues>& more) {
  std::map<std::string, TensorView> tensors;
  for (size_t i = 0; i < model.named().size(); ++i) {
    const auto& [name, tensor] = model.named()[i];
    tensors.emplace("model." + name, viewOf(tensor));
    tensors.emplace("exp_avg." + name, viewOf(optimizer.firstMoments()[i]));
    tensors.emplace("exp_avg_sq." + name, viewOf(optimizer.secondMoments()[i]));
  }
  for (const auto& state : more) {
    tensors.emplace("state." + state.name, viewOf(tensorOf(state)));
  }
  writeSafetensors(path, tensors,
      {{"format", kCheckpointFormat}, {"step", std::to_string(position.step)}, {"options", trajectory.dump()}});
}

TrainingPosition loadCheckpoint(const std::string& path, Gpt2& model, AdamW& optimizer, const nlohmann::json& trajectory,
    const std::vector<NamedValues>& more) {
  const SafetensorsFile file(path);
  const auto text = [&](const std::string& key) {
    const auto found = file.metadata().find(key);
    return found == file.metadata().end() ? std::string() : found->second;
  };
  if (text("format") != kCheckpointFormat) {
    throw UsageError(fmt::format("{}: not a checkpoint of this program (its format is {:?})", path, text("format")));
  }
  const auto saved = nlohmann::json::parse(text("options"), nullptr, false);
  const auto step = nlohmann::json::parse(text("step"), nullptr, false);
  if (!saved.is_object() || !step.is_number_unsigned()) {
    throw UsageError(path + ": the checkpoint's options or step are unreadable");
  }
  if (const auto difference = firstDifference(trajectory, saved, "in the checkpoint"); !difference.empty()) {
    throw UsageError(fmt::format("{}: cannot continue under other options: {}", path, difference));
  }
  std::vector<std::pair<const TensorView*, at::Tensor>> copies;
  const auto copy = [&](const std::string& name, const at::Tensor& target) {
    const auto found = file.tensors().find(name);
    if (found == file.tensors().end()) {
      return false;
    }
    const std::string where = fmt::format("{}: tensor {}", path, name);
    checkShape(found->second, target, where);
    if (scalarType(found->second.dtype, where) != target.scalar_type()) {
      throw UsageError(where + " has another precision");
    }
    copies.emplace_back(&found->second, target);
    return true;
  };
  for (size_t i = 0; i < model.named().size(); ++i) {
    const auto& [name, tensor] = model.named()[i];
    const std::pair<const char*, at::Tensor> parts[] = {{"model.", tensor},
        {"exp_avg.", optimizer.firstMoments()[i]}, {"exp_avg_sq.", optimizer.secondMoments()[i]}};
    for (const auto& [prefix, target] : parts) {
      if (!copy(prefix + name, target)) {
        throw UsageError(fmt::format("{}: tensor {}{} is missing", path, prefix, name));
      }
    }
  }
  for (const auto& state : more) {
    copy("state." + state.name, tensorOf(state));
  }
  for (const auto& [view, target] : copies) {
    copyInto(target, *view, path);
  }
  const TrainingPosition position{.step = step.get<int64_t>()};
  optimizer.setStepCount(position.step);
  return position;
}

std::string parameterDigest(const Gpt2& model, const std::vector<at::Tensor>& more) {
  const std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)> context(EVP_MD_CTX_new(), &EVP_MD_CTX_free);
  if (!context || EVP_DigestInit_ex(context.get(), EVP_sha256(), nullptr) != 1) {
    throw ProgramError("OpenSSL offers no SHA-256");
  }
  auto tensors = model.parameters();
  tensors.insert(tensors.end(), more.begin(), more.end());
  for (const auto& tensor : tensors) {
    const auto bytes = bytesOf(tensor);
    EVP_DigestUpdate(context.get(), bytes.data(), bytes.size());
  }
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned length = 0;
  EVP_DigestFinal_ex(context.get(), digest.data(), &length);
  std::string hex;
  for (unsigned i = 0; i < length; ++i) {
    hex += fmt::format("{:02x}", digest[i]);
  }
  return hex;
}

} // namespace gloo_bypass::trainer
