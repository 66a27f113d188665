#include "transport/process/environment.h"

#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "transport/base/printable.h"
#include "transport/process/foreign_variables.h"

extern char** environ;

namespace gloo_bypass {
namespace {

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

// In some containers XDG_RUNTIME_DIR names a directory that does not exist.
std::string defaultMemifDirectory() {
  std::string parent = variable("XDG_RUNTIME_DIR");
  if (parent.empty() || parent.front() != '/' || access(parent.c_str(), W_OK | X_OK) != 0) parent = "/tmp";
  return fmt::format("{}/gloo-bypass-{}", parent, geteuid());
}

// DPDK's choice (eal_create_runtime_dir); the folder of a file prefix lies in it.
std::string dpdkDirectory() {
  std::string parent = variable("RUNTIME_DIRECTORY");
  if (parent.empty()) parent = getuid() == 0 ? "/var/run" : variable("XDG_RUNTIME_DIR");
  return (parent.empty() ? "/tmp" : parent) + "/dpdk";
}

// Replaces %r in a setting's text by RANK.
Status putRank(const char* setting, const char* instead, const std::string& rank, std::string& text) {
  const std::size_t at = text.find("%r");
  if (at == std::string::npos) return {};
  if (rank.empty() || rank.find('/') != std::string::npos) {
    return {ErrorScope::kDevice, ErrorCode::kConfiguration,
            fmt::format("{}='{}' is not allowed: %r stands for RANK, which is '{}'; set RANK or {}", setting,
                        printable(text), printable(rank), instead)};
  }
  text.replace(at, 2, rank);
  return {};
}

// Once per process.
void sayWhatIsIgnored(const std::vector<std::string>& names) {
  static std::atomic<bool> said{false};
  if (names.empty() || said.exchange(true)) return;
  const std::string others = names.size() == 1 ? "" : fmt::format(" and {} others", names.size() - 1);
  std::fprintf(stderr,
               "gloo-bypass: ignoring the variable%s %s%s: not a setting, but what Kubernetes sets for a Service, "
               "Docker for a link, or a module system (in a pod: enableServiceLinks: false)\n",
               names.size() == 1 ? "" : "s", names.front().c_str(), others.c_str());
}

}  // namespace

std::vector<SettingText> settingsInEnvironment() {
  std::vector<SettingText> texts;
  std::vector<std::string> ignored;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view line(*entry);
    const std::size_t equals = line.find('=');
    if (equals == std::string_view::npos || line.substr(0, kSettingPrefix.size()) != kSettingPrefix) continue;
    const std::string_view name = line.substr(0, equals), value = line.substr(equals + 1);
    if (isForeignVariable(name, value)) {
      ignored.emplace_back(name);
    } else {
      texts.emplace_back(name, value);
    }
  }
  sayWhatIsIgnored(ignored);
  return texts;
}

Result<TransportConfig> configurationFrom(std::span<const SettingText> texts) {
  Result<TransportConfig> result = configurationFromTexts(texts);
  if (!result) return result;
  TransportConfig& config = result.value();
  if (config.memifDirectory.empty()) {
    config.memifDirectory = defaultMemifDirectory();
    config.memifDirectoryIsDefault = true;
  }
  config.dpdkDirectory = dpdkDirectory();
  config.rank = variable("RANK");
  config.masterAddress = variable("MASTER_ADDR");
  Status status = putRank("GLOO_BYPASS_STATS", "use %p", config.rank, config.stats);
  if (status) status = putRank("GLOO_BYPASS_CAPTURE", "use %p", config.rank, config.capture);
  if (status) status = putRank("GLOO_BYPASS_METRICS", "use %p or auto", config.rank, config.metrics);
  if (status) status = validate(config);
  if (!status) return status.error();
  return result;
}

Result<TransportConfig> configurationFromEnvironment() { return configurationFrom(settingsInEnvironment()); }

std::string requestedDeviceTransport() { return variable("GLOO_DEVICE_TRANSPORT"); }

std::string whyNotGloosTransports() {
  const std::string security = variable("GLOO_BYPASS_SECURITY");
  if (security.empty() || security == "off") return "";
  return fmt::format(
      "GLOO_BYPASS_SECURITY='{}' encrypts nothing over Gloo's own transports: set GLOO_DEVICE_TRANSPORT to DPDK or "
      "UDP, or leave GLOO_BYPASS_SECURITY out",
      printable(security));
}

std::string requestedInterfaces() { return variable("GLOO_SOCKET_IFNAME"); }

}  // namespace gloo_bypass
