#include "trainer/checkpoint/weights.h"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <map>
#include <span>
#include <string_view>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include "tools/common/error.h"
#include "trainer/config/trajectory.h"
#include "trainer/files/finite.h"
#include "trainer/files/json_input.h"
#include "trainer/files/safetensors.h"
#include "trainer/files/sha256.h"
#include "transport/base/joined.h"

namespace gloo_bypass::trainer {
namespace {

constexpr const char* kCheckpointFormat = "gloo-bypass checkpoint 1";

std::span<const std::byte> bytesOf(const at::Tensor& tensor) {
  return {static_cast<const std::byte*>(tensor.data_ptr()), tensor.nbytes()};
}

constexpr std::pair<const char*, at::ScalarType> kTypes[] = {
    {"F32", at::kFloat}, {"F64", at::kDouble}, {"F16", at::kHalf}, {"BF16", at::kBFloat16}};

const char* dtypeOf(const at::Tensor& tensor) {
  const auto* const type = std::find_if(std::begin(kTypes), std::end(kTypes),
                                        [&](const auto& entry) { return entry.second == tensor.scalar_type(); });
  return type->first;
}

at::ScalarType scalarType(std::string_view dtype, const std::string& where) {
  for (const auto& [name, type] : kTypes) {
    if (dtype == name) {
      return type;
    }
  }
  throw UsageError(fmt::format("{}: dtype {} holds no weights (F16, BF16, F32 and F64 do)", where, dtype));
}

void checkShape(const StoredTensor& stored, const at::Tensor& target, const std::string& where) {
  if (at::IntArrayRef(stored.shape) != target.sizes()) {
    throw UsageError(fmt::format("{}: shape [{}], this model needs [{}]", where, joined(stored.shape, ", "),
                                 joined(target.sizes(), ", ")));
  }
}

// Throws UsageError for a value that is not finite, or not in the target's precision.
void copyInto(at::Tensor target, const SafetensorsFile& file, const StoredTensor& stored, const std::string& where) {
  const at::NoGradGuard noGrad;
  const auto type = scalarType(stored.dtype, where);
  const auto raw = type == target.scalar_type() ? target : at::empty(stored.shape, at::TensorOptions().dtype(type));
  file.read(stored, 0, {static_cast<std::byte*>(raw.data_ptr()), raw.nbytes()});
  if (!raw.is_same(target)) {
    target.copy_(raw);
  }
  if (const std::string bad = firstNotFinite(dtypeOf(target), bytesOf(target)); !bad.empty()) {
    throw UsageError(
        fmt::format("{} holds {}: weights must be finite; give a file of a run that had not diverged", where, bad));
  }
}

constexpr std::string_view kHead = "lm_head.weight", kEmbedding = "wte.weight";

// Buffers and ties that Hugging Face files may carry and that hold nothing of ours to learn.
bool isNoParameter(const std::string& name) {
  return name == kHead ||
         (name.starts_with("h.") && (name.ends_with(".attn.bias") || name.ends_with(".attn.masked_bias")));
}

bool haveSameBytes(const SafetensorsFile& file, const StoredTensor& a, const StoredTensor& b) {
  if (a.dtype != b.dtype || a.shape != b.shape) return false;
  constexpr std::size_t kPiece = 1 << 20;
  std::vector<std::byte> first(kPiece), second(kPiece);
  for (uint64_t at = 0; at < a.bytes; at += kPiece) {
    const auto count = static_cast<std::size_t>(std::min<uint64_t>(kPiece, a.bytes - at));
    file.read(a, at, std::span(first).first(count));
    file.read(b, at, std::span(second).first(count));
    if (!std::equal(first.begin(), first.begin() + static_cast<std::ptrdiff_t>(count), second.begin())) return false;
  }
  return true;
}

}  // namespace

at::Tensor tensorOf(const NamedValues& state) {
  return at::from_blob(state.values.data(), {static_cast<int64_t>(state.values.size())}, at::kDouble);
}

void loadWeights(Gpt2& model, const std::string& path) {
  constexpr std::string_view kPrefix = "transformer.";
  const SafetensorsFile file(path);
  std::map<std::string, const StoredTensor*> found;
  const StoredTensor* head = nullptr;
  for (const auto& [fullName, stored] : file.tensors()) {
    const std::string name = fullName.starts_with(kPrefix) ? fullName.substr(kPrefix.size()) : fullName;
    if (name == kHead) head = &stored;
    if (!isNoParameter(name) && !found.emplace(name, &stored).second) {
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
    throw UsageError(
        fmt::format("{}: tensor {} is none of this model's (a larger GPT-2?)", path, found.begin()->first));
  }
  if (head != nullptr && !haveSameBytes(file, *head, *found.at(std::string(kEmbedding)))) {
    throw UsageError(
        fmt::format("{}: tensor {} differs from {}: only a GPT-2 whose head is its embedding is trained here", path,
                    kHead, kEmbedding));
  }
  for (const auto& [name, tensor] : model.named()) {
    copyInto(tensor, file, *found.at(name), fmt::format("{}: tensor {}", path, name));
  }
}

namespace {

constexpr StateKind kStateKinds[] = {StateKind::kWeight, StateKind::kFirstMoment, StateKind::kSecondMoment};

const char* prefixOf(StateKind kind) {
  switch (kind) {
    case StateKind::kWeight:
      return "model.";
    case StateKind::kFirstMoment:
      return "exp_avg.";
    case StateKind::kSecondMoment:
      return "exp_avg_sq.";
  }
  return "";
}

// `get` is asked when the tensor's turn to be written comes.
template <typename Get>
TensorSource sourceOf(const at::Tensor& like, std::vector<int64_t> sizes, const Get& get) {
  return {dtypeOf(like), std::move(sizes), [get] { return bytesOf(get()); }};
}

// Other ranks than the one that writes find the same fault in the same tensor, and end with the same line.
void writeOrTakePart(const std::string& path, const std::map<std::string, TensorSource>& tensors,
                     const std::map<std::string, std::string>& metadata) {
  if (!path.empty()) {
    writeSafetensors(path, tensors, metadata);
    return;
  }
  for (const auto& [name, source] : tensors) {
    requireFinite(name, source.dtype, source.bytes(), path);
  }
}

void checkTensor(const StoredTensor& stored, const at::Tensor& target, const std::string& where) {
  checkShape(stored, target, where);
  if (scalarType(stored.dtype, where) != target.scalar_type()) {
    throw UsageError(where + " has another precision");
  }
}

}  // namespace

void saveWeights(const std::string& path, const Gpt2& model, Parallelism& state) {
  std::map<std::string, TensorSource> tensors;
  for (size_t i = 0; i < model.named().size(); ++i) {
    const auto& [name, tensor] = model.named()[i];
    tensors.emplace("transformer." + name, sourceOf(tensor, model.wholeSizes(i), [&state, held = tensor, i] {
                      return state.wholeParameter(held, i);
                    }));
  }
  writeOrTakePart(path, tensors, {{"format", "pt"}});
}

void saveCheckpoint(const std::string& path, const Gpt2& model, Parallelism& state, const TrainingPosition& position,
                    const nlohmann::json& trajectory, const std::vector<NamedValues>& values) {
  std::map<std::string, TensorSource> tensors;
  for (size_t i = 0; i < model.named().size(); ++i) {
    const auto& [name, tensor] = model.named()[i];
    for (const auto kind : kStateKinds) {
      tensors.emplace(prefixOf(kind) + name,
                      sourceOf(tensor, model.wholeSizes(i), [&state, kind, i] { return state.whole(kind, i); }));
    }
  }
  for (const auto& each : values) {
    const auto tensor = tensorOf(each);
    tensors.emplace("state." + each.name, sourceOf(tensor, tensor.sizes().vec(), [tensor] { return tensor; }));
  }
  writeOrTakePart(path, tensors,
                  {{"format", kCheckpointFormat},
                   {"step", std::to_string(position.step)},
                   {"run", std::to_string(position.runId)},
                   {"options", trajectory.dump()}});
}

CheckpointFile::CheckpointFile(const std::string& path, const Gpt2& model, const nlohmann::json& trajectory)
    : file_(path) {
  if (file_.metadata("format") != kCheckpointFormat) {
    throw UsageError(
        fmt::format("{}: not a checkpoint of this program (its format is {:?})", path, file_.metadata("format")));
  }
  const auto saved = parseSmallJson(file_.metadata("options"));
  const auto step = parseSmallJson(file_.metadata("step"));
  if (!saved.is_object() || !step.is_number_unsigned() ||
      step.get<uint64_t>() > uint64_t{std::numeric_limits<int64_t>::max()}) {
    throw UsageError(path + ": the checkpoint's options or step are unreadable");
  }
  if (const auto difference = firstDifference(trajectory, saved, "in the checkpoint"); !difference.empty()) {
    const bool ofTheRanks = difference.starts_with("world_size:");
    throw UsageError(fmt::format("{}: cannot continue under other options: {}{}", path, difference,
                                 ofTheRanks ? " (ranks with samples of their own: with --model-parallel, copies of the "
                                              "model; a run with --elastic MIN:MAX may have fewer than MAX, which is "
                                              "the checkpoint's number)"
                                            : ""));
  }
  for (const auto& [name, tensor] : model.named()) {
    for (const auto kind : kStateKinds) {
      const auto found = file_.tensors().find(prefixOf(kind) + name);
      const std::string where = fmt::format("{}: tensor {}{}", path, prefixOf(kind), name);
      if (found == file_.tensors().end()) {
        throw UsageError(where + " is missing");
      }
      checkTensor(found->second, tensor, where);
    }
    names_.push_back(name);
  }
  const auto run = parseSmallJson(file_.metadata("run"));
  position_ = {.step = step.get<int64_t>(), .runId = run.is_number_integer() ? run.get<int64_t>() : 0};
}

void CheckpointFile::copy(const std::string& name, const at::Tensor& target) const {
  copyInto(target, file_, file_.tensors().at(name), fmt::format("{}: tensor {}", file_.path(), name));
}

at::Tensor CheckpointFile::read(StateKind kind, size_t index) const {
  const std::string name = prefixOf(kind) + names_[index];
  const auto& stored = file_.tensors().at(name);
  auto tensor = at::empty(stored.shape, at::TensorOptions().dtype(scalarType(stored.dtype, file_.path())));
  copy(name, tensor);
  return tensor;
}

void CheckpointFile::readInto(Gpt2& model, const std::vector<NamedValues>& values) const {
  for (const auto& state : values) {
    const auto found = file_.tensors().find("state." + state.name);
    if (found != file_.tensors().end()) {
      checkTensor(found->second, tensorOf(state), fmt::format("{}: tensor {}", file_.path(), found->first));
      copy(found->first, tensorOf(state));
    }
  }
  for (size_t i = 0; i < names_.size(); ++i) {
    copy(prefixOf(StateKind::kWeight) + names_[i], model.named()[i].second);
    read(StateKind::kFirstMoment, i);  // refused here, not when other ranks wait for them
    read(StateKind::kSecondMoment, i);
  }
}

std::string parameterDigest(const Gpt2& model, Parallelism& state, bool hasMasters) {
  Sha256 digest;
  const auto update = [&](const std::string& name, const at::Tensor& tensor) {
    requireFinite(name, dtypeOf(tensor), bytesOf(tensor), "");
    digest.add(bytesOf(tensor));
  };
  for (size_t i = 0; i < model.named().size(); ++i) {
    const auto& [name, held] = model.named()[i];
    update(name, state.wholeParameter(held, i));
  }
  for (size_t i = 0; hasMasters && i < model.named().size(); ++i) {
    update("of the masters", state.whole(StateKind::kWeight, i));
  }
  return digest.hex();
}

void requireSameParameters(Communicator& communicator, const Parallelism& state, const std::string& digest,
                           int64_t step) {
  if (!state.ranksAgree()) {
    return;
  }
  const auto digests = communicator.gather(digest);
  for (size_t rank = 0; rank < digests.size(); ++rank) {
    if (digests[rank] != digests[0]) {
      throw ProgramError(fmt::format("after step {} rank {} holds other parameters than rank 0 ({} and {})", step, rank,
                                     digests[rank], digests[0]));
    }
  }
}

}  // namespace gloo_bypass::trainer
