#include "transport/progress/core_use.h"

#include <fcntl.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>

#include "transport/base/file_descriptor.h"
#include "transport/progress/cpu_quota.h"

namespace gloo_bypass {
namespace {

// The beginning of a short file; empty: no such file, or no descriptor left.
std::array<char, 128> textOf(const char* path) {
  std::array<char, 128> text{};
  const FileDescriptor fd(::open(path, O_RDONLY | O_CLOEXEC));
  if (!fd || ::read(fd.get(), text.data(), text.size() - 1) <= 0) text.fill('\0');
  return text;
}

}  // namespace

Duration readyTime() {
  unsigned long long running = 0, ready = 0;
  return std::sscanf(textOf("/proc/thread-self/schedstat").data(), "%llu %llu", &running, &ready) == 2 ? Duration(ready)
                                                                                                       : Duration{0};
}

int runnableThreads(const char* loadavg) {
  int runnable = 0;
  // Skip the first three as words: the program's locale may write numbers with a comma.
  return std::sscanf(loadavg, "%*s %*s %*s %d/", &runnable) == 1 ? runnable : 0;
}

bool coreSeemsIdle() {
  const int runnable = runnableThreads(textOf("/proc/loadavg").data());
  cpu_set_t allowed;  // the call fails for more cores than the set holds
  return runnable > 0 && sched_getaffinity(0, sizeof(allowed), &allowed) == 0 && runnable <= CPU_COUNT(&allowed);
}

std::vector<std::uint64_t> coreSet() {
  cpu_set_t allowed;
  std::vector<std::uint64_t> words;
  if (sched_getaffinity(0, sizeof(allowed), &allowed) != 0) return words;
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (!CPU_ISSET(core, &allowed)) continue;
    words.resize(static_cast<std::size_t>(core / 64 + 1));
    words.back() |= std::uint64_t{1} << (core % 64);
  }
  return words;
}

int usableCores() {
  cpu_set_t allowed;
  const int cores = sched_getaffinity(0, sizeof(allowed), &allowed) == 0 ? CPU_COUNT(&allowed) : 1;
  return std::max(1, static_cast<int>(std::min<double>(cores, std::ceil(cpuQuota()))));
}

}  // namespace gloo_bypass
