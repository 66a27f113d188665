#include "trainer/distributed/averaging/gossip.h"

#include <bit>

#include <ATen/ATen.h>

#include "trainer/data/sampler.h"
#include "trainer/distributed/averaging/flat.h"

namespace gloo_bypass::trainer {
namespace {

int around(int rank, int worldSize) { return (rank % worldSize + worldSize) % worldSize; }

}  // namespace

Neighbours neighboursOf(int rank, int worldSize, GossipTopology topology, int64_t step, uint64_t seed) {
  if (worldSize == 1) return {};
  switch (topology) {
    case GossipTopology::kRing: {
      const int left = around(rank - 1, worldSize), right = around(rank + 1, worldSize);
      if (left == right) return {{left}, {left}};
      return {{left, right}, {left, right}};
    }
    case GossipTopology::kExponential: {
      const auto distances = std::bit_width(static_cast<unsigned>(worldSize - 1));  // 1, 2, 4, ... below the world size
      const int distance = 1 << (step % distances);
      return {{around(rank + distance, worldSize)}, {around(rank - distance, worldSize)}};
    }
    case GossipTopology::kRandom: {
      const auto order = torchPermutation(worldSize, seed + static_cast<uint64_t>(step));
      for (std::size_t i = 0; i + 1 < order.size(); i += 2) {
        if (order[i] == rank) return {{static_cast<int>(order[i + 1])}, {static_cast<int>(order[i + 1])}};
        if (order[i + 1] == rank) return {{static_cast<int>(order[i])}, {static_cast<int>(order[i])}};
      }
      return {};
    }
  }
  return {};
}

void Gossip::mix() {
  const auto neighbours = neighboursOf(communicator().rank(), communicator().worldSize(), topology_, step(), seed_);
  if (neighbours.receiveFrom.empty()) return;
  const Exchange exchange(*this);
  auto own = flat(parameters());
  std::vector<at::Tensor> heard;
  for (std::size_t i = 0; i < neighbours.receiveFrom.size(); ++i) heard.push_back(at::empty_like(own));
  communicator().exchange(own, neighbours.sendTo, heard, neighbours.receiveFrom);
  for (const auto& other : heard) own.add_(other);
  setValues(parameters(), own.div_(static_cast<double>(heard.size() + 1)));
}

// The gradient is that of the parameters before the mixing.
void Gossip::updateParameters() {
  mix();
  Averaging::updateParameters();
}

}  // namespace gloo_bypass::trainer
