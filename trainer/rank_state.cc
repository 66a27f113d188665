#include "trainer/rank_state.h"

#include <algorithm>
#include <filesystem>
#include <map>

#include <ATen/ATen.h>
#include <fmt/format.h>

#include "programs/error.h"
#include "trainer/finite.h"
#include "trainer/safetensors.h"

namespace gloo_bypass::trainer {
namespace {

std::string dtypeOf(const at::Tensor& tensor) { return tensor.scalar_type() == at::kDouble ? "F64" : "F32"; }

} // namespace

RankStateFile::RankStateFile(std::string checkpointPath, int64_t step, int rank)
    : path_(fmt::format("{}.step{}.rank{}", checkpointPath, step, rank)), step_(step), rank_(rank) {}

void RankStateFile::save(const RankState& state, int64_t run) const {
  std::map<std::string, TensorView> tensors;
  for (const auto& [name, tensor] : state) {
    tensors.emplace(name, TensorView{dtypeOf(tensor), tensor.sizes().vec(),
        {static_cast<const std::byte*>(tensor.data_ptr()), tensor.nbytes()}});
  }
  writeSafetensors(path_, tensors, {{"step", std::to_string(step_)}, {"rank", std::to_string(rank_)}, {"run", std::to_string(run)}});
}

void RankStateFile::load(const RankState& state, int64_t run) const {
  if (!std::filesystem::exists(path_)) {
    throw UsageError(fmt::format("{} is missing: rank {} keeps there what is its own at step {}; copy it to this machine from where the "
        "run was", path_, rank_, step_));
  }
  const SafetensorsFile file(path_);
  const auto text = [&](const char* key) {
    const auto found = file.metadata().find(key);
    return found == file.metadata().end() ? std::string() : found->second;
  };
  if (text("step") != std::to_string(step_) || text("rank") != std::to_string(rank_)) {
    throw UsageError(fmt::format("{}: not what rank {} kept at step {}", path_, rank_, step_));
  }
  // Files of releases that did not name it are of run 0, as their checkpoints are.
  if (const auto wrote = text("run"); (wrote.empty() ? "0" : wrote) != std::to_string(run)) {
    throw UsageError(fmt::format("{}: of another run than the checkpoint beside it: that run ended before it wrote a checkpoint of its own. Resume from "
        "files of one run, or begin anew", path_));
  }
  for (const auto& [name, tensor] : state) {
    const auto found = file.tensors().find(name);
    if (found == file.tensors().end() || found->second.dtype != dtypeOf(tensor) || at::IntArrayRef(found->second.shape) != tensor.sizes()) {
      throw UsageError(fmt::format("{}: tensor {} is missing, or has another shape or precision", path_, name));
    }
  }
  for (const auto& [name, tensor] : state) {
    const std::span bytes(static_cast<std::byte*>(tensor.data_ptr()), tensor.nbytes());
    file.read(file.tensors().at(name), 0, bytes);
    if (const std::string bad = firstNotFinite(dtypeOf(tensor), bytes); !bad.empty()) {
      throw UsageError(
          fmt::format("{}: tensor {} holds {}: give the files of a run that had not diverged", path_, name, bad));
    }
  }
}

void RankStateFile::remove() const {
  std::error_code ignored; // a file that stays does no harm
  std::filesystem::remove(path_, ignored);
}

} // namespace gloo_bypass::trainer
