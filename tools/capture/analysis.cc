#include "tools/capture/analysis.h"

#include <algorithm>
#include <iterator>

#include "transport/base/flat_map.h"
#include "transport/wire/step_marker.h"

namespace gloo_bypass::capture {

void TrafficMatrix::add(Direction direction, const FlowTotals& totals) {
  const auto known = directions_.find(direction);
  if (known != directions_.end()) {
    known->second += totals;
  } else {
    (directions_.size() < kMaxDirections ? directions_[direction] : others_) += totals;
  }
}

void TrafficMatrix::add(const TrafficMatrix& other) {
  for (const auto& [direction, totals] : other.directions_) add(direction, totals);
  others_ += other.others_;
}

void TrafficMatrix::clear() {
  directions_.clear();
  others_ = {};
}

std::size_t Analysis::FlowHash::operator()(const FlowKey& key) const {
  return mixBits(key.addresses ^ (key.session * 0x9E3779B97F4A7C15u) ^ (std::uint64_t{key.ports} << 17));
}

bool Analysis::isMarker(const DissectedFrame& frame) const {
  return frame.isUdp && frame.destinationPort == settings_.markerPort &&
         frame.sourcePort >= wire::kStepMarkerSourcePort;
}

void Analysis::noteTime(CaptureTime time) {
  if (!any_) {
    any_ = true;
    start_ = totals_.first = totals_.last = time;
  } else if (time < previous_) {
    ++totals_.backwards;
  }
  previous_ = time;
  totals_.first = std::min(totals_.first, time);
  totals_.last = std::max(totals_.last, time);
}

void Analysis::add(CaptureTime time, const DissectedFrame& frame) {
  noteTime(time);
  if (isMarker(frame)) {
    steps_.onMarker(frame, time);
    training_.add(after_);
    after_.clear();
    if (!trainingTime_) trainingTime_.emplace(time, time);
    trainingTime_->second = time;
    return;
  }
  ++totals_.frames;
  totals_.bytes += frame.wireBytes;
  series_.add(time - start_, frame.wireBytes);
  const bool numbered = frame.kind == FrameKind::kTcp || frame.kind == FrameKind::kBypass;
  const std::uint64_t repeated = numbered ? repeatedBytes(frame) : 0;
  countKinds(frame, repeated);
  operationParts_.onFrame(frame, time, repeated);
  std::size_t index = StepWindows::kMaxDirections;
  TrafficMatrix& traffic = trainingTime_ ? after_ : before_;
  const FlowTotals carried{frame.wireBytes, 1, frame.payloadBytes};
  if (!frame.hasAddresses) {
    traffic.addOther(carried);
  } else {
    const Direction direction(frame.source, frame.destination);
    traffic.add(direction, carried);
    index = trackedIndex(direction);
    if (index < trackedSeries_.size()) trackedSeries_[index].add(time - start_, frame.wireBytes);
  }
  steps_.onFrame(frame.wireBytes, index);
}

void Analysis::finish() {
  steps_.finish();
  operationParts_.finish();
}

std::size_t Analysis::trackedIndex(Direction direction) {
  if (const auto known = trackedIndices_.find(direction); known != trackedIndices_.end()) return known->second;
  if (tracked_.size() >= StepWindows::kMaxDirections) return tracked_.size();
  tracked_.push_back(direction);
  trackedSeries_.emplace_back(settings_.interval, kMaxDirectionBins);
  trackedIndices_.emplace(direction, tracked_.size() - 1);
  return tracked_.size() - 1;
}

void Analysis::countKinds(const DissectedFrame& frame, std::uint64_t repeated) {
  struct Kinds {
    ByteKind rest, payload = ByteKind::kOther, repeated = ByteKind::kOther;
  };
  using enum ByteKind;
  constexpr Kinds kKinds[] = {{kHeaders, kTcpPayload, kTcpRepeated},  // in the order of FrameKind
                              {kAcknowledgements},
                              {kHeaders, kBypassPayload, kBypassRepeated},
                              {kAcknowledgements},
                              {kHeaders},
                              {kHeaders, kRocePayload},
                              {kAcknowledgements},
                              {kOther},
                              {kOther},
                              {kOther},
                              {kOther},
                              {kNotDissected}};
  static_assert(std::size(kKinds) == static_cast<std::size_t>(FrameKind::kCut) + 1);
  const Kinds& kinds = kKinds[static_cast<std::size_t>(frame.kind)];
  count(kinds.repeated, repeated);
  count(kinds.payload, frame.payloadBytes - repeated);
  count(kinds.rest, frame.wireBytes - frame.payloadBytes);
  if (frame.kind == FrameKind::kTcp) totals_.largestTcpFrame = std::max(totals_.largestTcpFrame, frame.wireBytes);
  if (frame.message && frame.message->isJoined) ++totals_.joinedDatagrams;
  if (frame.kind == FrameKind::kFragment) ++totals_.fragments;
  if (frame.kind == FrameKind::kCut) ++totals_.cut;
}

// TCP numbers bytes, our protocol frames.
std::uint64_t Analysis::repeatedBytes(const DissectedFrame& frame) {
  const bool tcp = frame.kind == FrameKind::kTcp;
  const std::uint64_t advance = tcp ? frame.payloadBytes + (frame.opens ? 1 : 0) : 1;
  if (advance == 0 || frame.damaged) return 0;
  const FlowKey key{std::uint64_t{frame.source} << 32 | frame.destination, tcp ? 0 : frame.session,
                    std::uint32_t{frame.sourcePort} << 16 | frame.destinationPort};
  const std::uint32_t end = frame.sequence + static_cast<std::uint32_t>(advance);
  const auto known = next_.find(key);
  if (known == next_.end() || frame.opens) {
    if (known != next_.end()) {
      known->second = end;
    } else if (next_.size() < kMaxSequences) {
      next_.emplace(key, end);
    }
    return 0;
  }
  const auto overlap = static_cast<std::int32_t>(known->second - frame.sequence);
  if (static_cast<std::int32_t>(end - known->second) > 0) known->second = end;
  if (overlap <= 0) return 0;
  return tcp ? std::min<std::uint64_t>(frame.payloadBytes, static_cast<std::uint64_t>(overlap)) : frame.payloadBytes;
}

}  // namespace gloo_bypass::capture
