// Decentralised training: each step a rank mixes its parameters with those of some others, and applies its own gradient
// (Lian et al., Can Decentralized Algorithms Outperform Centralized Algorithms?, 2017, algorithm 1, with AdamW's step
// for the plain one).
#pragma once

#include <vector>

#include "trainer/distributed/averaging/averaging.h"

namespace gloo_bypass::trainer {

// Whom a rank hears in one step; the others hear as many. All weigh the same, with the rank itself: the mixing matrix
// is doubly stochastic, and the mean over ranks does not change.
struct Neighbours {
  std::vector<int> sendTo, receiveFrom;
};

// ring: both sides. exponential: from the rank at a distance of 2^(step mod log2 N) behind (Assran et al., Stochastic
// Gradient Push, 2019, section 3). random: pairs, drawn from seed and step alike at all ranks; with an odd number one
// is alone. Pure.
Neighbours neighboursOf(int rank, int worldSize, GossipTopology topology, int64_t step, uint64_t seed);

class Gossip final : public Averaging {
 public:
  Gossip(const Gpt2& model, AdamW& optimizer, GroupCommunicator& communicator, GossipTopology topology, uint64_t seed)
      : Averaging(model, optimizer, communicator), topology_(topology), seed_(seed) {}

  void updateParameters() override;
  bool ranksAgree() const override { return false; }

 private:
  void mix();
  const GossipTopology topology_;
  const uint64_t seed_;
};

}  // namespace gloo_bypass::trainer
