#include "trainer/distributed/held_model.h"

#include <ATen/ATen.h>

#include "trainer/model/precision/arithmetic.h"
#include "trainer/optimizer/master_weights.h"

namespace gloo_bypass::trainer {

HeldModel::HeldModel(const Options& options, const RankEnvironment& environment)
    : model(modelConfig(options), arithmetic::scalarTypeOf(options.precision.type),
            ModelShare(options.modelParallel.method,
                       options.modelParallel.placeOf(environment.rank, environment.worldSize), modelConfig(options))),
      weights(mastersOf(model)),
      units(layOutUnits(model, options.sharding.zero, environment.rank, environment.worldSize)),
      optimizer(units.empty() ? makeOptimizer(model.parameters(), weights.parameters(), options)
                              : makeOptimizer(shardsOf(units), mastersOf(shardsOf(units)), options)),
      dropout_(options.dropout),
      layerDrop_(options.layerDrop) {
  if (!units.empty() && options.precision.hasMasters() && environment.rank != 0) {
    for (const auto& [name, weight] : weights.named()) {
      dropMemory(weight);  // rank 0's are broadcast, and each rank keeps masters of its shards
    }
  }
  if (options.layerDrop > 0) {
    model.runPartsBy(&layerDrop_);
  }
  model.checkpointActivations(options.activationCheckpointing);
  model.checkpointAttention(options.selectiveCheckpointing);
  if (options.modelParallel.isUsed() && environment.rank == 0) {
    whole.emplace(model.config(), model.named().front().second.scalar_type());
  }
}

void HeldModel::seedForward(uint64_t seed) {
  if (dropout_ > 0) {
    at::manual_seed(seed);
  }
  layerDrop_.seed(seed);
}

}  // namespace gloo_bypass::trainer
