// Exports metrics while the process runs, as GLOO_BYPASS_METRICS says: to a file rewritten at an interval, or over an
// HTTP endpoint at a port or a Unix socket.
//
// One thread, which blocks all signals; it gets the text from a given function. If no target is configured there is no
// exporter, and so no thread and no socket. Owner: ProcessTransport.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "transport/base/config.h"
#include "transport/base/status.h"

namespace gloo_bypass {

class MetricsExporter {
 public:
  // The shortest interval between two new texts: a reader that asks without pause costs no more than ten requests a
  // second.
  static constexpr std::chrono::milliseconds kLeastInterval{100};

  // Only the exporter's thread calls `text`, from now until stop(). start() writes a file once, with `firstText`,
  // before it returns, so that an impossible path fails here; a later failure prints one line on stderr. Errors name
  // GLOO_BYPASS_METRICS: kUnavailable. An endpoint prints its address in one line on stderr.
  static Result<std::unique_ptr<MetricsExporter>> start(const TransportConfig& config, std::string firstText,
                                                        std::function<std::string()> text);
  virtual ~MetricsExporter() = default;

  // Ends and joins the thread (waits for a call of `text`); then, if the target is a file, writes the result of
  // `lastText`.
  virtual void stop(const std::function<std::string()>& lastText) noexcept = 0;
  // In a forked child, instead of all else: closes what the child has inherited. Async-signal-safe.
  virtual void leaveToParent() noexcept {}
};

}  // namespace gloo_bypass
