// The loops behind reduce.h, once for each instruction set: reduce_kernels.cc is compiled several times, and the
// processor decides at run time. Public for tests, which compare the sets bit by bit. Pure.
#pragma once

#include <cstddef>
#include <span>

#include "collectives/operation.h"

namespace gloo_bypass::collectives {

// reduce() for one reduction and element type.
using ReduceKernel = void (*)(std::byte* output, const std::byte* const* inputs, std::size_t inputCount,
                              std::size_t count, int ranks);

struct ReduceKernels {
  const char* instructionSet;                        // "AVX2"
  ReduceKernel kernels[kReductions][kElementTypes];  // nullptr where not isDefined()
};

// Those that this processor can run, the fastest last. Constant, never empty.
std::span<const ReduceKernels* const> runnableReduceKernels();

}  // namespace gloo_bypass::collectives
