// Element-wise reductions on one thread. Pure.
//
// Bits: the result depends on the inputs and their order only, never on alignment, count or processor: element i is
// ((inputs[0][i] op inputs[1][i]) op inputs[2][i]) ..., in the element type; fp16 and bf16 are converted to float first
// and rounded to nearest even once at the end. Integers wrap. A NaN that results is quiet, positive and has no payload.
// Subnormal numbers stay, whatever the thread's flush-to-zero flags. Of zeros that differ in sign, min and max give the
// first. bool: any non-zero byte is true; sum and max are "or", product and min "and"; the result is 0 or 1.
#pragma once

#include <cstddef>
#include <span>

#include "collectives/operation.h"

namespace gloo_bypass::collectives {

// output[i] = reduction of inputs[*][i]; kAverage divides by `ranks` (in float, or double for float64). `output` may be
// one of the inputs; otherwise it overlaps none. At least one input; isDefined(reduction, type).
void reduce(Reduction reduction, ElementType type, std::byte* output, std::span<const std::byte* const> inputs,
            std::size_t count, int ranks);

// Whether the sum of elements whose average fits may not fit itself: who adds in several steps divides first.
inline bool averagesOverflow(Reduction reduction, ElementType type) {
  return reduction == Reduction::kAverage && type == ElementType::kFloat16;
}

// Divides by `ranks` if the reduction is kAverage.
void finish(Reduction reduction, ElementType type, std::byte* values, std::size_t count, int ranks);

}  // namespace gloo_bypass::collectives
