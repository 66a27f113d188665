// No compression: every rank gets all ranks' gradients and adds them itself, in the order of the ranks (--sums). So
// the mean's bits do not depend on buckets, segments, algorithms or who runs the collectives, as they do with three
// ranks and more where each adds on what the one before has sent (docs/studies/summation). 16-bit gradients are added
// in fp32 and rounded once.
//
// Compensated: what each addition rounds away is added up, too, and added at the end (A. Neumaier, "Rundungsfehler-
// analyse einiger Verfahren zur Summation endlicher Summen", ZAMM 54, 1974; D. Knuth's and W. Kahan's sums): the result
// is nearly always the float that is nearest to the exact sum.
//
// A rank sends its gradients to each other one: N - 1 times their bytes where a ring sends 2 (N - 1) / N times.
#pragma once

#include "trainer/distributed/compression/compressor.h"

namespace gloo_bypass::trainer {

class GatheredSums final : public Compressor {
 public:
  explicit GatheredSums(bool compensated) : compensated_(compensated) {}
  void reduce(std::span<const GradientPart> parts, int64_t step, Wire& wire) override;

 private:
  const bool compensated_;
};

}  // namespace gloo_bypass::trainer
