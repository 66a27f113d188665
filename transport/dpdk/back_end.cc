#include "transport/dpdk/back_end.h"

#include <fmt/format.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "transport/base/own_description.h"
#include "transport/base/printable.h"
#include "transport/dpdk/dpdk_port.h"
#include "transport/dpdk/dpdk_transport.h"
#include "transport/dpdk/eal.h"
#include "transport/dpdk/memif_directory.h"
#include "transport/dpdk/settings.h"
#include "transport/dpdk/telemetry.h"

namespace gloo_bypass::dpdk {
namespace {

// Memory links have no interface, and an address names a PCI device. The route to MASTER_ADDR selects a kernel
// interface; without MASTER_ADDR, netdev only has the host's name.
InterfaceRule interfaceRule(const TransportConfig& config) {
  if (usesRdma(config)) return InterfaceRule::kOptional;  // as with RDMA alone
  if (usesNetdev(config)) return config.masterAddress.empty() ? InterfaceRule::kRequired : InterfaceRule::kNamed;
  return config.link == LinkMode::kAuto && !usesPci(config) ? InterfaceRule::kSeveral : InterfaceRule::kIgnored;
}

std::vector<std::string> ignoredSettings(const TransportConfig& config) {
  std::vector<std::string> lines;
  if (usesRdma(config) && !config.capture.empty()) {
    lines.emplace_back(
        "GLOO_BYPASS_CAPTURE has the frames within this host; those to other hosts are the RDMA adapter's: use "
        "tcpdump on its interface");
  }
  if (needsEal(config)) return lines;
  const auto ignored = [&](const char* name, const std::string& value) {
    lines.push_back(
        fmt::format("{}='{}' does nothing here: memory links and UDP sockets need no EAL, and it is not started", name,
                    printable(value)));
  };
  if (!config.ealArguments.empty()) ignored("GLOO_BYPASS_EAL_ARGUMENTS", config.ealArguments);
  if (config.hugePages == HugePages::kOn) ignored("GLOO_BYPASS_HUGE_PAGES", "on");
  return lines;
}

// DPDK chooses the socket's path, so we print it.
Status publish(const TransportConfig& config, ReportSource report) {
  if (!config.telemetry) return {};
  Status offered = offerTelemetry(std::move(report));
  if (!offered) return offered;
  const std::string path = telemetrySocketPath();
  if (path.empty()) {
    return {ErrorScope::kDevice, ErrorCode::kUnavailable,
            "GLOO_BYPASS_TELEMETRY='on': DPDK made no telemetry socket; is XDG_RUNTIME_DIR (for root: /var/run/dpdk) "
            "writable?"};
  }
  std::fprintf(stderr, "gloo-bypass: %s: telemetry at %s\n", describeProcess(config.rank).c_str(), path.c_str());
  return {};
}

// Replaces a memif directory that does not exist yet by one beside it, as long as this object lives. Creating the real
// one would mean removing it again, perhaps under a rank that starts at that moment.
class ProbeDirectory final : public Rehearsal {
 public:
  explicit ProbeDirectory(TransportConfig& config) : real_(config.memifDirectory) {
    struct stat status{};
    if (!usesMemif(config) || real_.size() > kMaxMemifDirectoryBytes || ::lstat(real_.c_str(), &status) == 0) return;
    const std::filesystem::path parent = std::filesystem::path(real_ + "/").parent_path().parent_path();
    std::string path = parent / ".gbXXXXXX";
    // A name longer than the real one might be refused when the real one is not.
    if (path.size() > kMaxMemifDirectoryBytes) {
      if (::access(parent.c_str(), W_OK | X_OK) != 0) return;
      path = "/tmp/.gbXXXXXX";
    }
    if (::mkdtemp(path.data()) == nullptr)
      return;  // the child will fail in the same way at the real one, and report it
    path_ = path;
    config.memifDirectory = path;
  }
  ~ProbeDirectory() override {
    std::error_code ignored;
    if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
  }
  ProbeDirectory(const ProbeDirectory&) = delete;
  ProbeDirectory& operator=(const ProbeDirectory&) = delete;

  std::string withRealNames(std::string text) const override {
    if (path_.empty()) return text;
    for (std::size_t at = text.find(path_); at != std::string::npos; at = text.find(path_, at + real_.size())) {
      text.replace(at, path_.size(), real_);
    }
    return text;
  }

 private:
  const std::string real_;
  std::string path_;  // empty: the real one is used
};

}  // namespace

BackEnd backEnd() {
  return {.name = "DPDK",
          .package = "libdpdk-dev",
          .settings = settings,
          .checkSettings = checkSettings,
          .make = makeDpdkTransport,
          .interfaceRule = interfaceRule,
          .ignoredSettings = ignoredSettings,
          .publish = publish,
          .decided = [] { return Eal::decided(); },
          .rehearse = [](TransportConfig& config) -> std::unique_ptr<Rehearsal> {
            return std::make_unique<ProbeDirectory>(config);
          }};
}

}  // namespace gloo_bypass::dpdk
