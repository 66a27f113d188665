#include "plugin/torch/availability.h"

#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <functional>
#include <memory>
#include <utility>

#include <fmt/format.h>
#include <gloo/common/error.h>
#include <gloo/transport/device.h>
#include <gloo/transport/tcp/device.h>
#include <nlohmann/json.hpp>

#include "plugin/torch/child_answer.h"
#include "transport/base/file_descriptor.h"
#include "transport/channel/message_channel.h"
#include "transport/gloo/device.h"
#include "transport/process/back_ends.h"
#include "transport/process/environment.h"
#include "transport/process/gloo_address.h"
#include "transport/process/gloo_device.h"
#include "transport/process/json_text.h"
#include "transport/process/process_transport.h"

namespace gloo_bypass {
namespace {

// PyTorch's choice: the first of GLOO_SOCKET_IFNAME's interfaces, else this machine's name.
GlooPlace placeOfProcess() {
  const std::string interfaces = requestedInterfaces();
  GlooPlace place{interfaces.substr(0, interfaces.find(',')), ""};
  if (place.interface.empty()) place.hostName = ownHostName();
  return place;
}

// Throws, since the makers of devices report errors in this way too.
[[noreturn]] void refuse(const std::string& reason) { throw ::gloo::InvalidOperationException(reason); }

// Gloo's messages begin with the source line that threw.
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

// Whether a socket can be bound to an address of the name. Gloo of 2023 reads unset memory if a name has none.
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
  if (const std::string reason = whyNotGloosTransports(); !reason.empty()) refuse(reason);
  const GlooPlace place = placeOfProcess();
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

// Fills in the place. This may query a name server for minutes, so call it in a child only.
TransportConfig resolved(const BackEnd& backEnd, const TransportConfig& config, const GlooPlace& place) {
  auto whole = withGlooAddress(backEnd.interfaceRule(config), config, place.interface, place.hostName);
  if (!whole) refuse(whole.error().message);
  return std::move(whole).value();
}

// The device on the process's own transport, existing or new.
std::string deviceOverProcessTransport(const BackEnd& backEnd, const TransportConfig& config) {
  return makeGlooDevice(backEnd, config, {config.interface, ""})->str();
}

// On a temporary transport: the first process group makes the process's own, with its whole configuration.
std::string deviceOfItsOwn(const BackEnd& backEnd, const TransportConfig& config) {
  auto transport = makeTransport(backEnd, config);
  if (!transport) refuse(transport.error().message);
  return makeDevice(std::move(transport).value(), ConnectMode::kAtOnce)->str();
}

using Attempt = std::string (*)(const BackEnd&, const TransportConfig&);

// In this process; only the address is resolved in a child.
std::string tryHere(const BackEnd& backEnd, const TransportConfig& config, const GlooPlace& place, Attempt attempt) {
  TransportConfig whole = config;
  whole.interface = askInChild([&] { return resolved(backEnd, config, place).interface; });
  return attempt(backEnd, whole);
}

// With a temporary transport, since a child may not use the process's own after a failed attempt.
std::string tryInChild(const BackEnd& backEnd, const TransportConfig& config, const GlooPlace& place) {
  return askInChild([&] { return deviceOfItsOwn(backEnd, resolved(backEnd, config, place)); });
}

std::string tryBackEnd(const BackEnd& backEnd) {
  if (!backEnd.inThisBuild()) refuse(whyMissing(backEnd));
  GlooPlace place = placeOfProcess();
  auto read = configurationFromEnvironment();
  if (!read) refuse(read.error().message);
  TransportConfig config = std::move(read).value();
  place.interface = interfacesFor(backEnd.interfaceRule(config), requestedInterfaces(), place.interface);
  if (ProcessTransport::instance().settled(backEnd)) return tryHere(backEnd, config, place, deviceOverProcessTransport);
  // The attempt must not publish its counters.
  config.stats.clear();
  config.metrics.clear();
  config.capture.clear();
  config.captureMarkers.clear();
  config.telemetry = false;
  const auto rehearsal = backEnd.rehearse != nullptr ? backEnd.rehearse(config) : nullptr;
  const auto named = [&](std::string text) { return rehearsal ? rehearsal->withRealNames(std::move(text)) : text; };
  try {
    // After a device that failed, its foundation (DPDK's EAL) may run, or be known to fail: no child could start it
    // again.
    const bool here = backEnd.decided != nullptr && backEnd.decided();
    return named(here ? tryHere(backEnd, config, place, deviceOfItsOwn) : tryInChild(backEnd, config, place));
  } catch (const std::exception& error) {
    refuse(named(error.what()));
  }
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
  nlohmann::ordered_json all{{"TCP", answerOf("TCP", tryTcp)}};
  for (const BackEnd& backEnd : backEnds()) {
    all[backEnd.name] = answerOf(backEnd.name, [&backEnd] { return tryBackEnd(backEnd); });
  }
  return jsonText(all);
}

}  // namespace gloo_bypass
