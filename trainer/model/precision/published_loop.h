// The loop that the published measurements of single and double precision were made with: 1.15e9 multiplications and
// divisions by 3, one of each in every pass, compiled without optimisation (-O0: meson.build). Read as passes, since
// how the two were counted is not published.
#pragma once

#include <cstdint>

#include "trainer/config/options.h"

namespace gloo_bypass::trainer {

constexpr int64_t kPublishedPasses = 1'150'000'000;

// What the published loop took, in seconds; 0 for a type that was not published.
double publishedLoopSeconds(Precision type);

// Runs it; returns the value that it ends with, which is near 1. fp16 and bf16 are c10::Half and c10::BFloat16: each
// operation computes in fp32 and is rounded, in software.
double runPublishedLoop(Precision type, int64_t passes);

}  // namespace gloo_bypass::trainer
