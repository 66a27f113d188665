// An HTTP server for one page, /metrics, on one given address: libmicrohttpd, loaded when an endpoint is asked for and
// not before.
//
// Bounds: kMaxConnections at a time, each with 16 KiB and closed after kIdleSeconds of silence; GET and HEAD of
// /metrics only (404 and 405 otherwise), no request body is read. One thread, which blocks all signals. Whoever can
// reach the address can keep others from reading metrics, but not disturb the transport.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "transport/base/status.h"

namespace gloo_bypass {

class MetricsEndpoint {
 public:
  static constexpr unsigned kMaxConnections = 16;
  static constexpr unsigned kIdleSeconds = 5;

  // Binds and starts. `page` gives the text; it is called on the endpoint's thread, one call at a time. Errors
  // (kUnavailable): the address is in use or not ours, libmicrohttpd is missing, or was when this was built.
  static Result<std::unique_ptr<MetricsEndpoint>> open(const std::string& address, std::uint16_t port,
                                                       std::function<std::string()> page);

  virtual ~MetricsEndpoint() = default;  // stops and waits for the thread: for as long as a call of `page` takes
  // As bound: never 0.
  virtual std::uint16_t port() const = 0;
  // In a forked child, where the thread does not exist: gives the port free here. Nothing else may be called
  // afterwards, not even the destructor. Async-signal-safe.
  virtual void leaveToParent() noexcept = 0;
};

}  // namespace gloo_bypass
