#include "plugin/availability.h"

#include <netdb.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <system_error>
#include <utility>

#include <fmt/format.h>
#include <gloo/common/error.h>
#include <gloo/transport/device.h>
#include <gloo/transport/tcp/device.h>
#include <nlohmann/json.hpp>

#include "plugin/child_answer.h"
#include "plugin/environment.h"
#include "plugin/gloo_address.h"
#include "plugin/process_transport.h"
#include "transport/base/file_descriptor.h"
#include "transport/gloo/connect_mode.h"
#include "transport/io/json_text.h"
#ifdef GLOO_BYPASS_HAVE_DPDK
#include "plugin/dpdk_device.h"
#include "transport/dpdk/dpdk_port.h"
#include "transport/dpdk/eal.h"
#include "transport/dpdk/memif_directory.h"
#include "transport/gloo/device.h"
#include "transport/io/datagram_transport.h"
#endif
#ifdef GLOO_BYPASS_HAVE_RDMA
#include "plugin/rdma_device.h"
#endif

namespace gloo_bypass {
namespace {

using DevicePointer = std::shared_ptr<::gloo::transport::Device>;

// Where PyTorch would communicate: the first of GLOO_SOCKET_IFNAME's interfaces, or else this machine's name.
struct Place {
  std::string interface;
  std::string hostName;
};

Place placeOfProcess() {
  Place place{requestedInterface(), ""};
  if (place.interface.empty()) place.hostName = ownHostName();
  return place;
}

// Thrown and not returned, since that is how the makers of devices say it as well.
[[noreturn]] void refuse(const std::string& reason) { throw ::gloo::InvalidOperationException(reason); }

// Gloo's texts begin with the source line that threw.
std::string withoutSourceLine(std::string text) {
  if (!text.starts_with('[')) return text;
  const std::size_t end = text.find("] ");
  return end == std::string::npos ? text : text.substr(end + 2);
}

std::string askInChild(const std::function<std::string()>& ask) {
  ChildAnswer answer = answerOfChild(ask, kAvailabilityBound);
  if (!answer.answered) refuse(answer.text);
  return std::move(answer.text);
}

// Whether the name has an address that a socket can be bound to. Gloo of 2023 reads unset memory when a name has none.
bool isUsable(const std::string& hostName) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (hostName.empty() || ::getaddrinfo(hostName.c_str(), nullptr, &hints, &found) != 0) return false;
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> addresses(found, freeaddrinfo);
  for (const addrinfo* address = addresses.get(); address != nullptr; address = address->ai_next) {
    const FileDescriptor bound(::socket(address->ai_family, address->ai_socktype | SOCK_CLOEXEC, address->ai_protocol));
    if (bound && ::bind(bound.get(), address->ai_addr, address->ai_addrlen) == 0) return true;
  }
  return false;
}

std::string tryTcp() {
  const Place place = placeOfProcess();
  return askInChild([&] {
    const auto made = [](const std::string& interface, const std::string& hostName) {
      ::gloo::transport::tcp::attr attributes;
      attributes.iface = interface;
      attributes.hostname = hostName;
      return ::gloo::transport::tcp::CreateDevice(attributes)->str();
    };
    if (!place.interface.empty()) {
      try {
        return made(place.interface, "");
      } catch (const std::exception& error) {
        refuse(fmt::format("GLOO_SOCKET_IFNAME='{}': {}: name an interface that is up and has an address",
                           place.interface, withoutSourceLine(error.what())));
      }
    }
    return made("", isUsable(place.hostName) ? place.hostName : "127.0.0.1");  // as PyTorch does, with a warning
  });
}

// withGlooAddress or withGlooAddressForRdma: they may ask a name server, which may take minutes.
using Resolve = Result<TransportConfig> (*)(TransportConfig, const std::string&, const std::string&);

[[maybe_unused]] TransportConfig resolved(Resolve resolve, const TransportConfig& config, const Place& place) {
  auto whole = resolve(config, place.interface, place.hostName);
  if (!whole) refuse(whole.error().message);
  return std::move(whole).value();
}

// What `make` says in this process; only the address is asked for in a child.
[[maybe_unused]] std::string tryHere(const TransportConfig& config, Resolve resolve, const Place& place,
                                     const std::function<DevicePointer(const TransportConfig&)>& make) {
  TransportConfig whole = config;
  whole.interface = askInChild([&] { return resolved(resolve, config, place).interface; });
  return make(whole)->str();
}

[[maybe_unused]] std::string tryInChild(const TransportConfig& config, Resolve resolve, const Place& place,
                                        const std::function<DevicePointer(const TransportConfig&)>& make) {
  return askInChild([&] {
    const std::string text = make(resolved(resolve, config, place))->str();
    ProcessTransport::instance().shutDown();
    return text;
  });
}

// makeDpdkDevice or makeRdmaDevice, which have a second argument.
template <auto kMake>
DevicePointer atOnce(const TransportConfig& config) {
  return kMake(config, ConnectMode::kAtOnce);
}

[[maybe_unused]] TransportConfig configurationOfProcess(BackEnd backEnd) {
  auto read = configurationFromEnvironment();
  if (!read) refuse(read.error().message);
  TransportConfig config = std::move(read).value();
  if (!ProcessTransport::instance().settled(backEnd)) {  // nobody shall see what the attempt counts
    config.stats.clear();
    config.metrics.clear();
    config.capture.clear();
    config.captureMarkers.clear();
    config.telemetry = false;
  }
  return config;
}

#ifdef GLOO_BYPASS_HAVE_DPDK
// Over a transport that goes with it: the process's own is made by the first process group, with its whole configuration.
DevicePointer dpdkDeviceOfItsOwn(const TransportConfig& config) {
  auto port = makeDpdkPort(config);
  if (!port) refuse(port.error().message);
  return makeDevice(makeDatagramTransport(config, std::move(port).value()), ConnectMode::kAtOnce);
}

// For a memif directory that is not there yet: one beside it, as long as this lives. Not the real one, which would have to be
// removed again, perhaps from under a rank that starts at that moment.
class ProbeDirectory {
 public:
  explicit ProbeDirectory(TransportConfig& config) : real_(config.memifDirectory) {
    struct stat status {};
    if (config.link != LinkMode::kMemif || ::lstat(real_.c_str(), &status) == 0) return;
    const std::filesystem::path parent = std::filesystem::path(real_ + "/").parent_path().parent_path();
    std::string path = parent / ".gbXXXXXX";
    // A name longer than the real one's might be refused where that is not.
    if (path.size() > kMaxMemifDirectoryBytes && real_.size() <= kMaxMemifDirectoryBytes) {
      if (::access(parent.c_str(), W_OK | X_OK) != 0) return;
      path = "/tmp/.gbXXXXXX";
    }
    if (::mkdtemp(path.data()) == nullptr) return;  // the child will find the same about the real one, and say it
    path_ = path;
    config.memifDirectory = path;
  }
  ~ProbeDirectory() {
    std::error_code ignored;
    if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
  }
  ProbeDirectory(const ProbeDirectory&) = delete;
  ProbeDirectory& operator=(const ProbeDirectory&) = delete;

  // `text` with the real directory's name.
  std::string named(std::string text) const {
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
#endif

std::string tryDpdk() {
#ifdef GLOO_BYPASS_HAVE_DPDK
  const Place place = placeOfProcess();
  TransportConfig config = configurationOfProcess(BackEnd::kDpdk);
  if (ProcessTransport::instance().settled(BackEnd::kDpdk)) {
    return tryHere(config, withGlooAddress, place, atOnce<makeDpdkDevice>);
  }
  const ProbeDirectory directory(config);
  try {
    // After a device that failed DPDK itself may run, or be known not to: no child could start it again.
    return directory.named(Eal::decided() ? tryHere(config, withGlooAddress, place, dpdkDeviceOfItsOwn)
                                          : tryInChild(config, withGlooAddress, place, atOnce<makeDpdkDevice>));
  } catch (const std::exception& error) {
    refuse(directory.named(error.what()));
  }
#else
  refuse("not in this build (" GLOO_BYPASS_NO_DPDK "): install libdpdk-dev and build again");
#endif
}

std::string tryRdma() {
#ifdef GLOO_BYPASS_HAVE_RDMA
  const Place place = placeOfProcess();
  const TransportConfig config = configurationOfProcess(BackEnd::kRdma);
  const bool here = ProcessTransport::instance().settled(BackEnd::kRdma);
  return (here ? tryHere : tryInChild)(config, withGlooAddressForRdma, place, atOnce<makeRdmaDevice>);
#else
  refuse("not in this build (" GLOO_BYPASS_NO_RDMA "): install libibverbs-dev and build again");
#endif
}

nlohmann::ordered_json answerOf(const std::string& transport, const std::function<std::string()>& attempt) {
  std::string device;
  std::string reason;
  try {
    device = attempt();
  } catch (const std::exception& error) {
    reason = withoutSourceLine(error.what());
    const std::string prefix = transport + " transport: ";
    if (reason.starts_with(prefix)) reason.erase(0, prefix.size());
    if (reason.empty()) reason = "unknown error";
  }
  return {{"available", reason.empty()}, {"device", device}, {"reason", reason}};
}

}  // namespace

std::string availabilityJson() {
  const nlohmann::ordered_json all = {
      {"TCP", answerOf("TCP", tryTcp)}, {"DPDK", answerOf("DPDK", tryDpdk)}, {"RDMA", answerOf("RDMA", tryRdma)}};
  return jsonText(all);
}

}  // namespace gloo_bypass
