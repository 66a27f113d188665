#include "tools/capture/step_windows.h"

#include <string_view>

#include "transport/wire/step_marker.h"

namespace gloo_bypass::capture {
namespace {

// Two sightings of one datagram, where nothing in it tells: closer than any all-reduce is short.
constexpr std::chrono::microseconds kSameDatagram{10};

std::optional<wire::StepMarker> textOf(const DissectedFrame& frame) {
  return wire::parseStepMarker({reinterpret_cast<const char*>(frame.udpPayload.data()), frame.udpPayload.size()});
}

}  // namespace

// The step nearest to the one before that has this port.
std::uint64_t StepWindows::unwrapped(std::uint16_t sourcePort) const {
  const std::uint64_t low = sourcePort - wire::kStepMarkerSourcePort;
  if (!previous_) return low;
  constexpr std::uint64_t kHalf = wire::kStepMarkerCycle / 2;
  std::uint64_t step = previous_->step - previous_->step % wire::kStepMarkerCycle + low;
  if (step + kHalf < previous_->step) step += wire::kStepMarkerCycle;
  if (step > previous_->step + kHalf && step >= wire::kStepMarkerCycle) step -= wire::kStepMarkerCycle;
  return step;
}

std::optional<std::pair<std::uint64_t, bool>> StepWindows::interpret(const DissectedFrame& frame, CaptureTime time) {
  const auto text = textOf(frame);
  const bool told = text && wire::stepMarkerSourcePort(text->step) == frame.sourcePort;
  const std::uint64_t step = told ? text->step : unwrapped(frame.sourcePort);
  const bool isOpen = open_ && open_->step == step;
  if (told) {
    if (previous_ && previous_->step == step && previous_->last >= text->last) return {};
    return std::pair(step, text->last);
  }
  if (previous_ && previous_->step == step) {
    const bool same = frame.identification != 0 && previous_->identification == frame.identification;
    const CaptureTime since = time - previous_->time;
    const bool close = frame.identification == 0 && since >= CaptureTime::zero() && since <= kSameDatagram;
    if (same || close) return {};
  }
  return std::pair(step, isOpen);
}

void StepWindows::onMarker(const DissectedFrame& frame, CaptureTime time) {
  ++counters_.markers;
  const auto meaning = interpret(frame, time);
  if (!meaning) {
    ++counters_.repeated;
    return;
  }
  const auto [step, last] = *meaning;
  previous_ = Seen{step, last, frame.identification, time};
  if (!last) {
    open(step, time);
  } else if (open_ && open_->step == step) {
    close(time);
  } else {
    ++counters_.withoutBegin;
  }
}

void StepWindows::onFrame(std::uint64_t bytes, std::size_t direction) {
  if (!open_) return;
  open_->bytes += bytes;
  ++open_->frames;
  if (direction >= kMaxDirections) return;
  if (openDirections_.size() <= direction) openDirections_.resize(direction + 1);
  openDirections_[direction] += bytes;
}

void StepWindows::open(std::uint64_t step, CaptureTime time) {
  finish();
  open_.emplace();
  open_->step = step;
  open_->begin = time;
  open_->end = time;
}

void StepWindows::close(CaptureTime time) {
  open_->end = time;
  open_->complete = time >= open_->begin;
  if (!open_->complete) ++counters_.backwards;
  keepStep();
}

void StepWindows::finish() {
  if (!open_) return;
  ++counters_.withoutEnd;
  keepStep();
}

void StepWindows::keepStep() {
  if (steps_.size() >= kMaxSteps || directions_.size() + openDirections_.size() > kMaxDirectionEntries) {
    ++counters_.notKept;
  } else {
    open_->directionsBegin = directions_.size();
    for (std::size_t i = 0; i < openDirections_.size(); ++i) {
      if (openDirections_[i] > 0) directions_.emplace_back(static_cast<std::uint32_t>(i), openDirections_[i]);
    }
    open_->directionsEnd = directions_.size();
    steps_.push_back(*open_);
  }
  openDirections_.clear();
  open_.reset();
}

}  // namespace gloo_bypass::capture
