// Which BLAS does the arithmetic, and the cure for a known fault of it.
//
// OpenBLAS chooses its kernels by CPU model. Debian 12's (0.3.21) does not know models newer than itself and falls
// back to kernels of 2004 on them: a step of DistilGPT2 takes four times as long. OPENBLAS_CORETYPE overrides the
// choice, but is read when the library is loaded, so the program has to start anew with it.
#pragma once

#include <optional>
#include <string>

namespace gloo_bypass::trainer {

// "openblas SkylakeX", or "other" when no OpenBLAS is loaded.
std::string blasName();

// The core type OpenBLAS should have chosen, if it chose one far below what this processor can do.
std::optional<std::string> betterOpenBlasCore();

// Replaces the process by itself with OPENBLAS_CORETYPE set, if that helps and the user has not set it. Returns
// otherwise, also when the replacement fails: the program then is slow, not wrong.
void restartWithBetterBlas(char** argv);

}  // namespace gloo_bypass::trainer
