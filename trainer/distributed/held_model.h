// The model as one rank holds it, and the optimiser of what it holds.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "trainer/config/options.h"
#include "trainer/distributed/rank_environment.h"
#include "trainer/distributed/sharding/flat_unit.h"
#include "trainer/model/gpt2.h"
#include "trainer/model/layer_drop.h"
#include "trainer/optimizer/optimizer.h"

namespace gloo_bypass::trainer {

struct HeldModel {
  HeldModel(const Options& options, const RankEnvironment& environment);
  HeldModel(const HeldModel&) = delete;
  HeldModel& operator=(const HeldModel&) = delete;

  Gpt2 model;  // computes the loss; a part of the whole with --model-parallel
  // What the optimiser updates: the model's own parameters, or their fp32 masters. With --zero each rank has masters of
  // its shards in the optimiser, and these are without memory once it is connected.
  Gpt2 weights;
  std::vector<FlatUnit> units;  // none without --zero
  std::unique_ptr<AdamW> optimizer;
  std::optional<Gpt2> whole;  // rank 0's with --model-parallel, until each rank has its part

  // What rank 0 fills before the ranks meet.
  Gpt2& initial() { return whole ? *whole : weights; }
  // What the next forward draws, for dropout or LayerDrop, depends on `seed` alone.
  void seedForward(uint64_t seed);

 private:
  double dropout_;
  LayerDrop layerDrop_;
};

}  // namespace gloo_bypass::trainer
