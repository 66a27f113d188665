// Tensors between memory and safetensors files: model weights, checkpoints, and the digest of all parameters.
//
// Files are read and written by one rank; c10d's broadcast brings the others along.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "trainer/distributed/parallelism.h"
#include "trainer/files/safetensors.h"
#include "trainer/model/gpt2.h"

namespace gloo_bypass::trainer {

// Fills the model from Hugging Face's model.safetensors (names with or without "transformer."; F16, BF16, F32 or F64,
// converted). Names, shapes and completeness are checked before the first value is copied. Throws UsageError, also for
// a value that is not finite.
void loadWeights(Gpt2& model, const std::string& path);
// Writes what loadWeights reads, in the model's own precision. `path`, `state`: see saveCheckpoint.
void saveWeights(const std::string& path, const Gpt2& model, Parallelism& state);

struct TrainingPosition {
  int64_t step = 0;  // optimiser steps done
  int64_t run = 0;   // a random number of the run that wrote the checkpoint; 0: no rank keeps anything beside it
};

// What else a run goes on with, such as a loss scale: a few numbers under a name. The values belong to somebody else.
struct NamedValues {
  std::string name;
  std::span<double> values;
};
std::vector<NamedValues> withoutEmpty(std::vector<NamedValues> states);
at::Tensor tensorOf(const NamedValues& state);  // (n), fp64, an alias

// A checkpoint is a safetensors file: "model.NAME", "exp_avg.NAME", "exp_avg_sq.NAME", `more` as "state.NAME", and the
// run's options and position as metadata. `model` is what the optimiser updates (fp32 masters, where the parameters
// have 16 bits). No generator state: every step seeds its own (see training.cc). Tensors are gathered from `state` one
// at a time. path empty: writes nothing, but takes part: all ranks must call it where they hold parts of the state
// (Parallelism::holdsParts). Throws ProgramError, also for a value that is not finite: what `path` holds stays.
void saveCheckpoint(const std::string& path, const Gpt2& model, Parallelism& state, const TrainingPosition& position,
                    const nlohmann::json& trajectory, const std::vector<NamedValues>& more = {});

// A checkpoint to continue from; its tensors are read one at a time.
class CheckpointFile {
 public:
  // Throws ProgramError for a file that is no checkpoint of this model or was made under other options.
  CheckpointFile(const std::string& path, const Gpt2& model, const nlohmann::json& trajectory);
  const TrainingPosition& position() const { return position_; }
  // Of the model's parameter `index`, in its shape and precision; memory of its own. Throws UsageError for a value that
  // is not finite.
  at::Tensor read(StateKind kind, size_t index) const;
  // The weights, and `more`: entries missing from the file keep their values. Throws as read(), for the moments, too.
  void readInto(Gpt2& model, const std::vector<NamedValues>& more = {}) const;

 private:
  void copy(const std::string& name, const at::Tensor& target) const;
  SafetensorsFile file_;
  std::vector<std::string> names_;
  TrainingPosition position_;
};

// SHA-256 over the bytes of all parameters in named() order, then of `more`, as 64 hex digits. Throws ProgramError for
// a value that is not finite.
std::string parameterDigest(const Gpt2& model, Parallelism& state, const std::vector<at::Tensor>& more = {});

}  // namespace gloo_bypass::trainer
