#include "trainer/check_input.h"

#include <fmt/format.h>

#include "tools/common/error.h"
#include "trainer/checkpoint/checkpoints.h"
#include "trainer/data/batches.h"
#include "trainer/distributed/compression/wire_bytes.h"
#include "trainer/distributed/group_communicator.h"
#include "trainer/files/safetensors.h"
#include "trainer/metrics/evaluation/evaluation.h"
#include "trainer/model/model_share.h"
#include "trainer/model/tensor_memory.h"

namespace gloo_bypass::trainer {

namespace {

void requireWholeCopies(const Options& options, int ranks) {
  const int64_t parts = options.modelParallel.ranks;
  if (parts > 0 && ranks % parts != 0) {
    throw UsageError(fmt::format("--model-ranks {}: {} ranks are no multiple of it", parts, ranks));
  }
}

}  // namespace

void checkInput(const Options& options) {
  const int ranks = options.spawn > 0 ? options.spawn : options.elastic.maxRanks;
  requireWholeCopies(options, ranks);
  const ModelShare share(options.modelParallel.method, options.modelParallel.placeOf(0, ranks), modelConfig(options));
  checkMemory(options, ranks, ranks);
  requireGain(options, ranks);
  const Batches batches(options, 0, ranks);
  const Evaluation evaluation(options, batches);
  for (const std::string& path : {options.weightsPath, options.resumePath}) {
    if (!path.empty()) {
      const SafetensorsFile file(path);
    }
  }
  checkOutputs(options);
  if (options.ddp) {
    prepareTransport(options);
  }
  if (!options.stepMarkers.empty()) {
    const StepMarkers markers(options.stepMarkers);
  }
}

void prepareRank(const Options& options, const RankEnvironment& environment) {
  if (!options.ddp && environment.worldSize > 1) {
    throw UsageError(fmt::format("--no-ddp is for a single rank, not for {}", environment.worldSize));
  }
  requireWholeCopies(options, environment.worldSize);
  requireGain(options, environment.worldSize);
  prepareMemory(options, environment.worldSize);
}

}  // namespace gloo_bypass::trainer
