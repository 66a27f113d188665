// From measured times to rules: which algorithm is to be chosen for which size and ranks. Pure.
#pragma once

#include <cstddef>
#include <vector>

#include "collectives/schedule/choices.h"

namespace gloo_bypass {

struct Measured {
  collectives::Kind kind = collectives::Kind::kAllReduce;
  int ranks = 2;
  std::size_t bytes = 0;  // as collectives::Circumstances has them
  collectives::Algorithm algorithm = collectives::Algorithm::kDirect;
  double microseconds = 0;
};

// For each kind and number of ranks, sizes ascending: the fastest algorithm, or that of the size before while it is at
// most `tolerance` (0.05: 5 %) slower. Between two sizes the limit is their geometric mean. The rules of the greatest
// number of ranks hold for more, too. Where a two-level algorithm is the fastest, the rules are for hosts of several
// ranks, and those of the other algorithms follow for others. Where none was measured, no rules are for such hosts.
std::vector<collectives::Rule> fastestRules(std::vector<Measured> measured, double tolerance);

}  // namespace gloo_bypass
