// What a training step is measured by, and the records that a run writes.
//
// trainer/README.md defines every field. Durations are seconds, as their names say.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "trainer/metrics/byte_counter.h"

namespace gloo_bypass::trainer {

// Bytes that this rank's tensors hold of the model's state.
struct HeldBytes {
  int64_t parameters = 0, gradients = 0, optimizer = 0;
};

// Only with --zero or --memory-metrics.
struct MemoryMetrics {
  HeldBytes held;                        // after backward, before the optimiser's step
  std::optional<int64_t> peakOfTensors;  // in the step; with --memory-metrics
};

struct StepMetrics {
  int64_t step = 0, epoch = 0;     // the step counts from 1
  std::optional<double> loss;      // this rank's mean over its targets; none where it has no sample in the step
  double weightedLoss = 0;         // the same, each counted so that the mean of it over ranks is that over all samples
  std::optional<double> meanLoss;  // over all ranks; only known when steps end in a barrier
  double stepSeconds = 0, forwardSeconds = 0, backwardSeconds = 0, optimizerSeconds = 0, barrierSeconds = 0;
  double allReduceSeconds = 0;  // first bucket handed over to last bucket done
  double exposedSeconds = 0;    // of it, after the last gradient was ready
  int64_t buckets = 0, gradientBytes = 0;
  std::optional<double> gradientNorm;
  std::optional<uint64_t> bytesSent, bytesReceived;
  std::string bytesSource;
  // Of all ranks, or of this one with --average asynchronous, where each steps by itself.
  int64_t tokens = 0;
  double flops = 0;
  std::optional<double> peakFlopsPerSecond;             // where it is known
  nlohmann::json ofMethods = nlohmann::json::object();  // fields of the methods that this run uses
  std::string digest;                                   // only with --verify-ranks
  std::optional<MemoryMetrics> memory;

  // Over all ranks, if that is known, else this rank's.
  std::optional<double> bestLoss() const { return meanLoss ? meanLoss : loss; }

  using Time = std::chrono::steady_clock::time_point;
  // Once the times of forward, backward and the all-reduces are there. What is left of backward is computation, plus
  // the reducer's copying of gradients into and out of buckets.
  void setTimes(Time start, Time backwardDone, Time optimizerDone, Time end);
  void setPeak(std::optional<int64_t> bytesOfTensors);
  // The bytes of the step: the difference of two counts of `source`, where both are known.
  void setBytes(const char* source, const std::optional<ByteCounts>& before, const std::optional<ByteCounts>& after);
};

nlohmann::json toJson(const StepMetrics& metrics);

// Collects steps, some numbers of each, and summarises them, the first `skipFirst` left out (unless nothing else is
// left).
class MetricsSummary {
 public:
  explicit MetricsSummary(int64_t skipFirst) : skipFirst_(skipFirst) {}
  void add(const StepMetrics& metrics);
  // {"measured_steps", "median": {...}, "p99": {...}, "loss_first", "loss_last"}; medians are absent without steps.
  nlohmann::json toJson() const;

 private:
  int64_t skipFirst_;
  std::size_t steps_ = 0;
  std::optional<double> firstLoss_, lastLoss_;
  std::string bytesSource_;                  // the last step's
  std::vector<std::vector<double>> values_;  // by field, then by step; NaN where a step has none
};

}  // namespace gloo_bypass::trainer
