// An HTTP server for one page, /metrics, at one port or one Unix socket. libmicrohttpd is loaded only when an endpoint
// is configured.
//
// Bounds: kMaxConnections at a time, each with 16 KiB and closed after kIdleSeconds of silence; GET and HEAD of
// /metrics only (404 and 405 otherwise), no request body is read. One thread, which blocks all signals. A client that
// can connect can keep others from reading metrics, but not disturb the transport. Whoever reaches a port can connect;
// to a Unix socket this user and root can.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "transport/base/status.h"
#include "transport/process/metrics_target.h"

namespace gloo_bypass {

class MetricsEndpoint {
 public:
  static constexpr unsigned kMaxConnections = 16;
  static constexpr unsigned kIdleSeconds = 5;

  // Binds and starts; of a `target` that is no file. `page` returns the text; the endpoint's thread calls it, one call
  // at a time. A socket that a killed process has left is replaced. Errors (kUnavailable): the address is in use or not
  // ours, the path has something else or is too long, libmicrohttpd is missing now or was missing in the build.
  static Result<std::unique_ptr<MetricsEndpoint>> open(const MetricsTarget& target, std::function<std::string()> page);

  // Stops and joins the thread, as long as a call of `page` takes; removes the socket.
  virtual ~MetricsEndpoint() = default;
  // The bound port; 0: a Unix socket.
  virtual std::uint16_t port() const = 0;
  // In a forked child, where the thread does not exist: closes the child's copy of the port. Call nothing else
  // afterwards, not even the destructor. Async-signal-safe.
  virtual void leaveToParent() noexcept = 0;
};

}  // namespace gloo_bypass
