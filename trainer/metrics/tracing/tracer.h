// --trace FILE: notes down where a rank's time goes, and brings all ranks' notes together at the end.
//
// One per rank; the training thread calls, gradients' hooks run on it too (autograd on a CPU). Without a path every
// call returns at once. start() and write() are collective: each rank talks to rank 0 over the process group.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trainer/config/options.h"
#include "trainer/distributed/communicator.h"
#include "trainer/distributed/parallelism.h"
#include "trainer/metrics/tracing/bucket_readiness.h"
#include "trainer/metrics/tracing/clock_offset.h"
#include "trainer/metrics/tracing/trace_recorder.h"

namespace gloo_bypass::trainer {

class Tracer {
 public:
  using Time = std::chrono::steady_clock::time_point;

  // Without a path in the options: off. Throws UsageError on rank 0 where the file cannot be written.
  Tracer(const Options& options, int rank);
  Tracer(const Tracer&) = delete;
  Tracer& operator=(const Tracer&) = delete;

  // Compares clocks, and asks the parameters to say when their gradients are ready. The tracer must outlive every
  // backward from here on. Throws what c10d throws.
  void start(Communicator& communicator, const std::vector<at::Tensor>& parameters);

  // What a step consists of, in any order. Step 0 is of no step: it is not noted down.
  void addWindow(int64_t step, const AllReduceWindow& window, Time backwardDone);
  void addForward(int64_t step, int64_t micro, Time begin, Time end) {
    addPass(SpanKind::kForward, step, micro, begin, end);
  }
  void addBackward(int64_t step, int64_t micro, Time begin, Time end) {
    addPass(SpanKind::kBackward, step, micro, begin, end);
  }
  void addWaits(int64_t step, const std::vector<Interval>& waits);
  void addStep(int64_t step, Time begin, Time backwardDone, Time optimizerDone, Time end, bool hasBarrier);

  // Compares clocks again and writes the file on rank 0, whole or not at all, in the memory of two ranks' spans. Throws
  // ProgramError where it cannot be written.
  void write();

 private:
  void addPass(SpanKind kind, int64_t step, int64_t micro, Time begin, Time end);
  bool isOn() const { return !path_.empty(); }
  ClockOffset compareClocks() const;

  std::string path_;
  std::string exchange_;  // Options::exchange
  int64_t bucketsRebuiltAfter_;
  Communicator* communicator_ = nullptr;  // from start() on
  std::optional<BucketReadiness> readiness_;
  TraceRecorder recorder_;
  ClockOffset clockAtStart_;
  int64_t originNs_ = 0;  // of rank 0's clock
};

}  // namespace gloo_bypass::trainer
