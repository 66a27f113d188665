// Tensors between memory and safetensors files: model weights, checkpoints, and the digest of all parameters.
//
// Rank 0 reads and writes files; a broadcast gives the others its values.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "trainer/distributed/communicator.h"
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
  int64_t step = 0;   // optimiser steps done
  int64_t runId = 0;  // a random number of the run that wrote the checkpoint; 0: no rank keeps a file beside it
};

// A few numbers under a name that a resumed run needs besides the model, such as a loss scale. Somebody else owns them.
struct NamedValues {
  std::string name;
  std::span<double> values;
};
at::Tensor tensorOf(const NamedValues& state);  // (n), fp64, an alias; n is not 0

// A checkpoint is a safetensors file: "model.NAME", "exp_avg.NAME", "exp_avg_sq.NAME", `values` as "state.NAME", and
// the run's options and position as metadata. `model` is what the optimiser updates (fp32 masters, where the parameters
// have 16 bits). It holds no generator state: every step seeds its own (dropoutSeed()). Tensors are gathered from
// `state` one at a time. An empty path writes nothing, but takes part: all ranks must call it where they hold parts of
// the state (Parallelism::holdsParts). Throws ProgramError, also for a value that is not finite: `path` stays as it is.
void saveCheckpoint(const std::string& path, const Gpt2& model, Parallelism& state, const TrainingPosition& position,
                    const nlohmann::json& trajectory, const std::vector<NamedValues>& values = {});

// A checkpoint to continue from; its tensors are read one at a time.
class CheckpointFile {
 public:
  // Throws ProgramError for a file that is no checkpoint of this model or was made under other options.
  CheckpointFile(const std::string& path, const Gpt2& model, const nlohmann::json& trajectory);
  const TrainingPosition& position() const { return position_; }
  // Of the model's parameter `index`, in its shape and precision; memory of its own. Throws UsageError for a value that
  // is not finite.
  at::Tensor read(StateKind kind, size_t index) const;
  // Fills the weights and `values`. Entries missing from the file keep their values. Throws as read(), for the moments,
  // too.
  void readInto(Gpt2& model, const std::vector<NamedValues>& values = {}) const;

 private:
  void copy(const std::string& name, const at::Tensor& target) const;
  SafetensorsFile file_;
  std::vector<std::string> names_;
  TrainingPosition position_;
};

// SHA-256 over the bytes of all parameters in named() order, then, with masters, of these, as 64 hex digits. Throws
// ProgramError for a value that is not finite.
std::string parameterDigest(const Gpt2& model, Parallelism& state, bool hasMasters = false);
// Throws ProgramError where a rank's digest after step `step` differs from rank 0's, if ranks agree then. All ranks
// must call it.
void requireSameParameters(Communicator& communicator, const Parallelism& state, const std::string& digest,
                           int64_t step);

}  // namespace gloo_bypass::trainer
