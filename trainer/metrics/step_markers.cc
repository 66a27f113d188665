#include "trainer/metrics/step_markers.h"

#include <arpa/inet.h>
#include <sys/socket.h>
#include <cerrno>
#include <cstring>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "tools/common/error.h"
#include "trainer/config/marker_address.h"
#include "transport/wire/step_marker.h"

namespace gloo_bypass::trainer {
namespace {

FileDescriptor makeSocket() { return FileDescriptor(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0)); }

}  // namespace

StepMarkers::StepMarkers(std::string address) : address_(std::move(address)) {
  const auto parsed = parseMarkerAddress(address_);
  if (!parsed) {
    throw UsageError(fmt::format("--step-markers {}: neither IPv4 address nor ADDRESS:PORT", address_));
  }
  destination_ = *parsed;
  // Asks for a route and whether it is a broadcast address; the sockets that send stay unconnected, since on a
  // connected one the answer of a host where nobody listens would keep the next marker from being sent.
  const auto probe = makeSocket();
  if (probe.get() < 0 ||
      ::connect(probe.get(), reinterpret_cast<const sockaddr*>(&destination_), sizeof destination_) != 0) {
    throw UsageError(fmt::format("--step-markers {}: cannot be sent to: {}", address_, std::strerror(errno)));
  }
}

void StepMarkers::prepare(uint64_t step) {
  step_ = step;
  socket_ = makeSocket();
  if (socket_.get() < 0) {
    return fail("socket", errno);
  }
  sockaddr_in local{};
  local.sin_family = AF_INET;
  local.sin_port = htons(wire::stepMarkerSourcePort(step));
  if (::bind(socket_.get(), reinterpret_cast<const sockaddr*>(&local), sizeof local) != 0) {
    const int error = errno;
    socket_ = FileDescriptor();
    fail(fmt::format("bind to port {}", wire::stepMarkerSourcePort(step)).c_str(), error);
  }
}

void StepMarkers::send(bool last) {
  if (socket_.get() < 0) {
    ++failed_;
    return;
  }
  const std::string text = wire::stepMarkerText({step_, last});
  const ssize_t sent = ::sendto(socket_.get(), text.data(), text.size(), MSG_DONTWAIT | MSG_NOSIGNAL,
                                reinterpret_cast<const sockaddr*>(&destination_), sizeof destination_);
  if (sent < 0) {
    ++failed_;
    return fail("sendto", errno);
  }
  ++sent_;
}

void StepMarkers::fail(const char* what, int error) {
  lastError_ = fmt::format("step {}: {}: {}", step_, what, std::strerror(error));
}

void StepMarkers::complainOfFailures() const {
  if (failed_ > 0) {
    complain("ddp_train",
             fmt::format("{} step markers were not sent to {}; the last reason: {}", failed_, address_, lastError_));
  }
}

nlohmann::json StepMarkers::toJson() const {
  return {{"sent", sent_}, {"failed", failed_}, {"last_error", lastError_}};
}

}  // namespace gloo_bypass::trainer
