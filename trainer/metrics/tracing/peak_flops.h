// What model_flops_per_s is compared with: floating-point operations a second that all ranks together could do at best.
// One thread.
#pragma once

#include <cstdint>
#include <optional>

#include "trainer/config/options.h"
#include "trainer/distributed/communicator.h"
#include "trainer/model/gpt2.h"

namespace gloo_bypass::trainer {

// Operations a second of the best of several products (tokens, C) x (C, 4C), a layer of the model's, by the model's own
// operator on this rank's threads; takes about 0.3 s. Draws no random numbers.
double measureMatrixProduct(const Gpt2Config& config, int64_t tokens, at::ScalarType type);

// By the options; nothing if neither is given. Measuring is collective, since ranks on one machine share it. tokens: of
// a micro-batch.
std::optional<double> peakFlopsPerSecond(const TracingOptions& options, const Gpt2& model, int64_t tokens,
                                         Communicator& communicator);

}  // namespace gloo_bypass::trainer
