// What one rank notes down while it trains: spans of its own steady clock, in a buffer of bounded size.
//
// One thread. Six whole numbers a span, so that a rank's spans travel to rank 0 as a tensor (N, 6) of int64.
#pragma once

#include <chrono>
#include <cstdint>
#include <vector>

namespace gloo_bypass::trainer {

enum class SpanKind : int64_t {
  kStep,       // batch, forward, backward, optimiser, barrier
  kForward,    // of one micro-batch; `index` counts them
  kBackward,   // of one micro-batch
  kExposed,    // the part of backward in which nothing is left but waiting for all-reduces
  kOptimizer,  // clipping included
  kBarrier,
  kBucketReady,    // first gradient of bucket `index` ready until its last one is
  kBucketReduced,  // bucket `index` handed over to the process group until it is reduced
  kBucketQueued,   // the part of the span before it in which no thread of the process group had begun with it
  kWait,  // the part of a forward or backward, or of what follows them, in which the rank only waits for others
};

struct TraceSpan {
  SpanKind kind;
  int64_t step;   // from 1
  int64_t index;  // micro-batch or bucket, from 0
  int64_t bytes;  // of a bucket
  int64_t beginNs, endNs;
};
constexpr int kNumbersASpan = 6;
static_assert(sizeof(TraceSpan) == kNumbersASpan * sizeof(int64_t));

// 12.6 MB a rank: 11,900 steps of DistilGPT2 with 22 spans each. What comes later is counted and left out.
constexpr size_t kMaxTraceSpans = size_t{1} << 18;

class TraceRecorder {
 public:
  explicit TraceRecorder(size_t capacity = kMaxTraceSpans) : capacity_(capacity) {}

  void add(SpanKind kind, int64_t step, int64_t index, std::chrono::steady_clock::time_point begin,
           std::chrono::steady_clock::time_point end, int64_t bytes = 0) {
    if (spans_.size() < capacity_) {
      spans_.push_back({kind, step, index, bytes, nanoseconds(begin), nanoseconds(end)});
    } else {
      ++leftOut_;
    }
  }
  const std::vector<TraceSpan>& spans() const { return spans_; }
  int64_t leftOut() const { return leftOut_; }

  static int64_t nanoseconds(std::chrono::steady_clock::time_point time) {
    return std::chrono::nanoseconds(time.time_since_epoch()).count();
  }

 private:
  size_t capacity_;
  std::vector<TraceSpan> spans_;
  int64_t leftOut_ = 0;
};

}  // namespace gloo_bypass::trainer
