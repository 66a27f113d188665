#include "transport/verbs/memory_limit.h"

#include <fmt/format.h>
#include <sys/resource.h>

#include <cerrno>
#include <cstring>

namespace gloo_bypass::verbs {
namespace {

std::string inMiB(std::size_t bytes) { return fmt::format("{:.1f} MiB", static_cast<double>(bytes) / (1 << 20)); }

// Empty: there is none.
std::string limitInWords() {
  rlimit limit{};
  if (getrlimit(RLIMIT_MEMLOCK, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return {};
  return fmt::format(
      "the limit of locked memory (RLIMIT_MEMLOCK) is {}; raise it: ulimit -l unlimited, LimitMEMLOCK=infinity in a "
      "systemd unit, --ulimit memlock=-1:-1 for a container",
      inMiB(limit.rlim_cur));
}

}  // namespace

std::string registrationFailure(int error, std::size_t wantedBytes, std::size_t pinnedBytes, const char* what) {
  const std::string failed = fmt::format("cannot register {} of memory for RDMA ({})", inMiB(wantedBytes), what);
  if (error != ENOMEM) return fmt::format("{}: {}", failed, std::strerror(error));
  const std::string pinned = fmt::format("{}: {} are registered", failed, inMiB(pinnedBytes));
  if (const std::string limit = limitInWords(); !limit.empty()) return fmt::format("{} and {}", pinned, limit);
  return pinned + ", locked memory is not limited (RLIMIT_MEMLOCK): memory or the adapter's memory regions are used up";
}

std::string lockedMemoryHint(int error) {
  const std::string limit = error == ENOMEM ? limitInWords() : std::string();
  return limit.empty() ? limit : fmt::format(". Drivers lock memory for it, and {}", limit);
}

}  // namespace gloo_bypass::verbs
