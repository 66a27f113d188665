#include "tools/all_reduce_perf/build_info.h"

#include <fmt/format.h>
#include <gloo/config.h>
#include <nlohmann/json.hpp>

#include "tools/all_reduce_perf/device_factory.h"
#include "tools/common/version.h"

namespace gloo_bypass {

namespace {
#ifdef __clang__
constexpr const char* kCompiler = __VERSION__;  // begins with "Clang"
#else
constexpr const char* kCompiler = "g++ " __VERSION__;
#endif
}  // namespace

nlohmann::json buildInfo() {
  nlohmann::json transports = nlohmann::json::array();
  for (const std::string& transport : transportNames()) {
    if (transportProblem(transport).empty()) transports.push_back(transport);
  }
  return {{"version", versionName()},
          {"commit", commitName()},
          {"compiler", kCompiler},
          {"transports", transports},
          {"libraries",
           {{"gloo", fmt::format("{}.{}.{}", GLOO_VERSION_MAJOR, GLOO_VERSION_MINOR, GLOO_VERSION_PATCH)},
            {"dpdk", GLOO_BYPASS_DPDK_VERSION}}}};
}

}  // namespace gloo_bypass
