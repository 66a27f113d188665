// Spans of all ranks as one file in Chrome's trace event format, as PyTorch's profiler writes it
// ("Trace Event Format", Duncan, Sinclair et al.; names of events: torch/profiler, torch/csrc/distributed/c10d).
//
// A rank is a process, rank 0's clock is the time axis. Pure but for `write`; one thread.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "trainer/metrics/tracing/clock_offset.h"
#include "trainer/metrics/tracing/trace_recorder.h"

namespace gloo_bypass::trainer {

// What is known of a rank besides its spans.
struct TracedRank {
  int64_t rank = 0;
  int64_t leftOut = 0;                   // spans beyond kMaxTraceSpans
  ClockOffset clockAtStart, clockAtEnd;  // from this rank's clock to rank 0's
};

class ChromeTrace {
 public:
  using Write = std::function<void(std::string_view)>;

  // Times in the file count from originNs of rank 0's clock. `write` gets the file's text piece by piece.
  // `collectives`: gloo or own.
  ChromeTrace(Write write, int64_t originNs, int worldSize, const std::string& transport,
              const std::string& collectives, const std::string& exchange);
  // Ranks in any order, each once.
  void addRank(const TracedRank& rank, std::span<const TraceSpan> spans);
  void finish();

 private:
  void writeEvent(const std::string& json);

  Write write_;
  int64_t originNs_;
  std::string ranks_;  // of the ranks so far; comes last in the file
  bool isFirstEvent_ = true;
};

}  // namespace gloo_bypass::trainer
