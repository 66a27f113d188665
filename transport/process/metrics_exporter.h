// Metrics for others while the process runs, as GLOO_BYPASS_METRICS says: a file written anew at an interval, or an
// HTTP endpoint.
//
// One thread, which blocks all signals; it asks for the text by a function that it was given. With neither target asked
// for there is no exporter, and so no thread and no socket. Owner: ProcessTransport.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "transport/base/config.h"
#include "transport/base/status.h"

namespace gloo_bypass {

class MetricsExporter {
 public:
  // A new text at most so often: a reader who asks without pause costs no more than one who asks ten times a second.
  static constexpr std::chrono::milliseconds kLeastInterval{100};

  // `text` is called on the exporter's thread only, from now until stop(). A file is written once before start returns,
  // with `firstText`, so that a path that cannot work is told here; if it cannot be written later, one line on stderr
  // says so. Errors name GLOO_BYPASS_METRICS: kUnavailable. An endpoint says its address in one line on stderr.
  static Result<std::unique_ptr<MetricsExporter>> start(const TransportConfig& config, std::string firstText,
                                                        std::function<std::string()> text);
  virtual ~MetricsExporter() = default;

  // Ends and joins the thread (waits for a call of `text`); then, if the target is a file, calls `lastText` and writes
  // what it gives.
  virtual void stop(const std::function<std::string()>& lastText) noexcept = 0;
  // In a forked child, instead of all else: gives free what the child has inherited. Async-signal-safe.
  virtual void leaveToParent() noexcept {}
};

}  // namespace gloo_bypass
