#include "trainer/distributed/all_reduce_window.h"

#include "tools/common/error.h"

namespace gloo_bypass::trainer {
namespace {

using Clock = std::chrono::steady_clock;

double secondsBetween(Clock::time_point from, Clock::time_point to) {
  return std::chrono::duration<double>(to - from).count();
}

}  // namespace

void AllReduceWindow::addTo(StepMetrics& metrics) const {
  metrics.buckets = buckets;
  metrics.gradientBytes = bytes;
  metrics.allReduceSeconds = secondsBetween(firstHandedOver, lastDone);
  metrics.exposedSeconds = secondsBetween(lastHandedOver, lastDone);
}

void WindowClock::begin(uint64_t step, int64_t gradientBytes) {
  const std::lock_guard lock(mutex_);
  window_ = {};
  isOpen_ = true;
  gradientBytes_ = gradientBytes;
  isMarking_ = markers_ && step != 0;
  if (isMarking_) {
    markers_->prepare(step);
  }
}

BucketTicket WindowClock::handedOver(const at::Tensor& added) {
  return added.is_floating_point() ? handedOver(static_cast<int64_t>(added.nbytes())) : std::nullopt;
}

BucketTicket WindowClock::handedOver(int64_t bytes) {
  const std::lock_guard lock(mutex_);
  if (!isOpen_) {
    return {};
  }
  window_.lastHandedOver = Clock::now();
  if (isRecording_) {
    window_.each.push_back({.handedOver = window_.lastHandedOver, .done = {}, .begun = {}, .bytes = bytes});
  }
  if (window_.buckets++ == 0) {
    window_.firstHandedOver = window_.lastHandedOver;
    if (isMarking_) {
      markers_->sendFirst();
    }
  }
  window_.bytes += bytes;
  ++pending_;
  return static_cast<size_t>(window_.buckets - 1);
}

void WindowClock::begun(size_t bucket) {
  const std::lock_guard lock(mutex_);
  window_.each[bucket].begun = Clock::now();
}

void WindowClock::done(size_t bucket) {
  const std::lock_guard lock(mutex_);
  window_.lastDone = Clock::now();
  if (isRecording_) {
    window_.each[bucket].done = window_.lastDone;
  }
  if (--pending_ == 0 && window_.bytes >= gradientBytes_) {
    markLast();
  }
  changed_.notify_all();
}

AllReduceWindow WindowClock::end() {
  std::unique_lock lock(mutex_);
  isOpen_ = false;
  constexpr std::chrono::seconds kStampsArriveWithin{10};
  if (!changed_.wait_for(lock, kStampsArriveWithin, [&] { return pending_ == 0; })) {
    throw ProgramError("an all-reduce of this step has not completed although backward returned");
  }
  markLast();  // where parameters had no part in the loss, fewer bytes were handed over
  return window_;
}

void WindowClock::markLast() {
  if (isMarking_ && window_.buckets > 0) {
    markers_->sendLast();
  }
  isMarking_ = false;
}

}  // namespace gloo_bypass::trainer
