#include "tools/simulation/worlds/script.h"

#include <algorithm>

namespace gloo_bypass::sim {

SessionConfig RankScript::config() const {
  SessionConfig config;
  config.congestionControl = congestion;
  config.repair = {fec, static_cast<unsigned>(fecPercent)};
  config.payloadChecksum = checksum;
  config.shortPathEagerBytes = eagerBytes;
  config.maxBufferBytes = bufferBytes;
  config.rendezvousBytes = rendezvousBytes;
  config.peerTimeout = peerTimeout;
  config.fixedWindowBytes = 256 << 10;
  return config;
}

RankScript Script::rank(int rank) const {
  for (const RankScript& one : settings) {
    if (one.rank == rank) return one;
  }
  RankScript byDefault;
  byDefault.rank = rank;
  return byDefault;
}

PairScript Script::pair(int a, int b) const {
  for (const PairScript& one : pairs) {
    if (one.from == std::min(a, b) && one.to == std::max(a, b)) return one;
  }
  PairScript byDefault;
  byDefault.from = std::min(a, b);
  byDefault.to = std::max(a, b);
  return byDefault;
}

fabric::EdgeModel Script::edge(int from, int to, int rail) const {
  fabric::EdgeModel model;
  model.delay = std::chrono::microseconds(50);
  for (const EdgeScript& one : edges) {
    if (one.from == from && one.to == to && one.rail == rail) one.settings.applyTo(model);
  }
  return model;
}

}  // namespace gloo_bypass::sim
