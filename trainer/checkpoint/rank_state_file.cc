#include "trainer/checkpoint/rank_state_file.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <optional>
#include <regex>

#include <ATen/ATen.h>
#include <fmt/format.h>

#include "tools/common/error.h"
#include "trainer/files/finite.h"
#include "trainer/files/safetensors.h"
#include "trainer/files/temporary_path.h"

namespace gloo_bypass::trainer {
namespace {

namespace fs = std::filesystem;

// Files of releases that did not name their run are of run 0, as their checkpoints are.
struct Origin {
  std::string step, run = "0";
  bool operator==(const Origin&) const = default;
};

Origin originOf(const SafetensorsFile& file) {
  return {.step = file.metadata("step"), .run = file.metadata("run", "0")};
}

Origin originOf(const std::string& path) {
  try {
    return originOf(SafetensorsFile(path));
  } catch (const ProgramError&) {
    return {};
  }
}

// What NAME.stepN.rankR... is of.
struct RankFileName {
  std::string step;
  int rank = 0;
  std::string rest;  // of the name
};

std::optional<RankFileName> parsed(const std::string& name, const std::string& checkpointName) {
  static const std::regex pattern("\\.step([0-9]+)\\.rank([0-9]{1,6})(.*)");
  std::smatch parts;
  if (!name.starts_with(checkpointName) ||
      !std::regex_match(name.begin() + static_cast<std::ptrdiff_t>(checkpointName.size()), name.end(), parts,
                        pattern)) {
    return std::nullopt;
  }
  return RankFileName{parts[1], std::stoi(parts[2]), parts[3]};
}

std::string dtypeOf(const at::Tensor& tensor) { return tensor.scalar_type() == at::kDouble ? "F64" : "F32"; }

}  // namespace

RankStateFile::RankStateFile(std::string checkpointPath, int64_t step, int rank)
    : path_(fmt::format("{}.step{}.rank{}", checkpointPath, step, rank)), step_(step), rank_(rank) {}

void RankStateFile::save(const RankState& state, int64_t run) const {
  std::map<std::string, TensorView> tensors;
  for (const auto& [name, tensor] : state) {
    tensors.emplace(name, TensorView{dtypeOf(tensor),
                                     tensor.sizes().vec(),
                                     {static_cast<const std::byte*>(tensor.data_ptr()), tensor.nbytes()}});
  }
  writeSafetensors(path_, tensors,
                   {{"step", std::to_string(step_)}, {"rank", std::to_string(rank_)}, {"run", std::to_string(run)}});
}

void RankStateFile::load(const RankState& state, int64_t run) const {
  if (!std::filesystem::exists(path_)) {
    throw UsageError(fmt::format(
        "{} is missing: rank {} keeps there what is its own at step {}; copy it to this machine from where the "
        "run was",
        path_, rank_, step_));
  }
  const SafetensorsFile file(path_);
  const Origin wrote = originOf(file);
  if (wrote.step != std::to_string(step_) || file.metadata("rank") != std::to_string(rank_)) {
    throw UsageError(fmt::format("{}: not what rank {} kept at step {}", path_, rank_, step_));
  }
  if (wrote.run != std::to_string(run)) {
    throw UsageError(
        fmt::format("{}: of another run than the checkpoint beside it: that run ended before it wrote a checkpoint of "
                    "its own. Resume from "
                    "files of one run, or begin anew",
                    path_));
  }
  for (const auto& [name, tensor] : state) {
    const auto found = file.tensors().find(name);
    if (found == file.tensors().end() || found->second.dtype != dtypeOf(tensor) ||
        at::IntArrayRef(found->second.shape) != tensor.sizes()) {
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
  std::error_code ignored;  // a file that stays does no harm
  fs::remove(path_, ignored);
}

void tidyRankFiles(const std::string& checkpointPath, int rank, int worldSize) {
  const fs::path whole(checkpointPath);
  const Origin checkpoint = originOf(checkpointPath);
  std::string orphans;
  std::error_code ignored;
  // On another machine than rank 0's there is no checkpoint that could say what it needs.
  const bool knows = rank == 0 || fs::exists(whole, ignored);
  for (const auto& entry : fs::directory_iterator(whole.has_parent_path() ? whole.parent_path() : ".", ignored)) {
    const std::string path = entry.path().string();
    const auto file = parsed(entry.path().filename().string(), whole.filename().string());
    if (!file || (file->rank != rank && (rank != 0 || file->rank < worldSize))) {
      continue;
    }
    if (!file->rest.empty()) {
      if (file->rest.starts_with(".tmp.") && isLeftover(path)) {
        fs::remove(path, ignored);
      }
      continue;
    }
    if (!knows) {
      continue;
    }
    const Origin wrote = originOf(path);
    if (file->step == checkpoint.step && wrote.run == checkpoint.run) {
      continue;
    }
    if (wrote.run == checkpoint.run && wrote.run != "0") {
      fs::remove(path, ignored);
    } else {
      orphans += (orphans.empty() ? "" : ", ") + path;
    }
  }
  if (!orphans.empty()) {
    complain("ddp_train", fmt::format("{}: the checkpoint at {} does not need that; its run ended before it wrote one, "
                                      "or the checkpoint was moved: remove it, or move it along",
                                      orphans, checkpointPath));
  }
}

}  // namespace gloo_bypass::trainer
