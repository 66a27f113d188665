#include "tools/common/machine.h"

#include <malloc.h>
#include <sys/resource.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <array>
#include <fstream>
#include <sstream>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace gloo_bypass {
namespace {

double seconds(const timeval& time) {
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
}

}  // namespace

std::string processorName() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (line.rfind("model name", 0) != 0) continue;
    const auto colon = line.find(": ");
    if (colon != std::string::npos) return line.substr(colon + 2);
  }
  return "unknown";
}

std::string hostName() {
  std::array<char, 256> name{};
  if (gethostname(name.data(), name.size() - 1) != 0) return "unknown";
  return name.data();
}

nlohmann::json describeMachine() {
  utsname system{};
  const bool known = uname(&system) == 0;
  return {{"hostname", hostName()},
          {"cpu", processorName()},
          {"cores", sysconf(_SC_NPROCESSORS_ONLN)},
          {"kernel", known ? fmt::format("{} {}", system.sysname, system.release) : "unknown"}};
}

double processCpuSeconds() {
  rusage usage{};
  if (getrusage(RUSAGE_SELF, &usage) != 0) return 0;
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

MemoryUse processMemory() {
  malloc_trim(0);
  MemoryUse use;
  std::ifstream file("/proc/self/smaps_rollup");
  for (std::string line; std::getline(file, line);) {
    std::istringstream fields(line);
    std::string name;
    std::uint64_t kib = 0;
    if (!(fields >> name >> kib)) continue;
    if (name == "Rss:") use.rssBytes = kib * 1024;
    if (name == "Pss:") use.pssBytes = kib * 1024;
  }
  return use;
}

}  // namespace gloo_bypass
