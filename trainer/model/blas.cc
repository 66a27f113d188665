#include "trainer/model/blas.h"

#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <string_view>

#include "tools/common/program_path.h"

namespace gloo_bypass::trainer {
namespace {

constexpr const char* kCoreVariable = "OPENBLAS_CORETYPE";

std::string openBlasCore() {
  using NameFunction = char* (*)();
  const auto function = reinterpret_cast<NameFunction>(::dlsym(RTLD_DEFAULT, "openblas_get_corename"));
  return function != nullptr ? function() : "";
}

}  // namespace

std::string blasName() {
  const std::string core = openBlasCore();
  return core.empty() ? "other" : "openblas " + core;
}

std::optional<std::string> betterOpenBlasCore() {
#if defined(__x86_64__)
  // What OpenBLAS falls back to when it does not know the model.
  constexpr std::string_view kFallbacks[] = {"Prescott", "Core2", "Nehalem", "Generic", "Unknown"};
  const std::string core = openBlasCore();
  if (std::find(std::begin(kFallbacks), std::end(kFallbacks), core) == std::end(kFallbacks)) {
    return std::nullopt;
  }
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
      __builtin_cpu_supports("avx512vl")) {
    return "SkylakeX";
  }
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
    return "Haswell";
  }
#endif
  return std::nullopt;
}

void restartWithBetterBlas(char** argv) {
  if (std::getenv(kCoreVariable) != nullptr) {
    return;
  }
  if (const auto core = betterOpenBlasCore()) {
    ::setenv(kCoreVariable, core->c_str(), 1);
    ::execv(programPath().c_str(), argv);
  }
}

}  // namespace gloo_bypass::trainer
