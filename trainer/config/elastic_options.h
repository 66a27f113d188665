// Training that outlives its ranks: --elastic and what belongs to it. No libtorch.
#pragma once

#include <cstdint>
#include <string>

namespace CLI {
class App;
}

namespace gloo_bypass::trainer {

struct ElasticOptions {
  std::string range;  // "MIN:MAX" as given; empty: not elastic
  int minRanks = 0, maxRanks = 0;
  int maxRestarts = 3;
  double rejoinSeconds = 30;  // after which the slot of a rank that failed is used again, at the next restart
  std::string samplesPath;    // --log-samples; empty: none

  bool isUsed() const { return maxRanks > 0; }
};

void addElasticOptions(CLI::App& app, ElasticOptions& options);
// What is wrong with the options, one line; empty: nothing. `spawn` is 0 where another launcher starts the ranks.
std::string crossCheck(const ElasticOptions& options, int spawn, const std::string& checkpointPath, bool hasGroup);

}  // namespace gloo_bypass::trainer
