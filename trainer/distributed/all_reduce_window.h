// When the gradients of one backward were reduced: timestamps of its buckets, and the markers at the first and the last
// of them.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trainer/metrics/metrics.h"
#include "trainer/metrics/step_markers.h"

namespace gloo_bypass::trainer {

struct BucketTimes {
  std::chrono::steady_clock::time_point handedOver, done;
  // When a thread of the process group began its ring, which sends at once; none for a bucket that is not all-reduced.
  std::optional<std::chrono::steady_clock::time_point> begun;
  int64_t bytes = 0;
};

// The all-reduces of one window. All zero when there were none.
struct AllReduceWindow {
  std::chrono::steady_clock::time_point firstHandedOver, lastHandedOver, lastDone;
  int64_t buckets = 0;
  int64_t bytes = 0;              // of gradients handed over
  std::vector<BucketTimes> each;  // in the order of handing over; empty without recordBuckets()

  void addTo(StepMetrics& metrics) const;
};

// A bucket's number in its window; none where no window was open.
using BucketTicket = std::optional<size_t>;

// The training thread begins and ends windows and hands buckets over; the process group's workers say when they are
// done.
class WindowClock {
 public:
  void sendMarkers(const std::string& address) { markers_.emplace(address); }
  const StepMarkers* markers() const { return markers_ ? &*markers_ : nullptr; }
  void recordBuckets() { isRecording_ = true; }
  bool isRecording() const { return isRecording_; }

  void begin(uint64_t step, int64_t gradientBytes);
  BucketTicket handedOver(int64_t bytes);
  // What an all-reduce adds up; no bucket where that is no gradients, but which parameters the ranks have used.
  BucketTicket handedOver(const at::Tensor& added);
  void begun(size_t bucket);
  void done(size_t bucket);
  AllReduceWindow end();

 private:
  void markLast();

  std::mutex mutex_;
  std::condition_variable changed_;
  AllReduceWindow window_;
  std::optional<StepMarkers> markers_;
  int64_t gradientBytes_ = 0;
  int pending_ = 0;
  bool isOpen_ = false, isMarking_ = false;  // isMarking_: the last marker of this window is still to be sent
  bool isRecording_ = false;
};

}  // namespace gloo_bypass::trainer
