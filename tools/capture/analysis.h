// Turns a capture, frame by frame, into the figures of a study of distributed training. Pure: frames and their times
// come in as arguments. Memory is bounded however long the capture is; one owner.
//
// The metrics are those of "Distributed AI fabrics: a network-side perspective" (master's thesis, 2026):
//   Bytes_AR   bytes on the wire between the two markers of a step
//   Dur/event  time between them
//   TH_peak    Bytes_AR x 8 / Dur
//   TH_avg     all bytes x 8 / the time that they took: of the training, from the first marker to the last, or of all
//   of the capture
// Bytes are those of frames as they were, not as far as they were kept, from the Ethernet header on, without preamble
// and checksum. Markers are never counted.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "tools/capture/dissection.h"
#include "tools/capture/operation_parts.h"
#include "tools/capture/step_windows.h"
#include "tools/capture/time_series.h"

namespace gloo_bypass::capture {

// What the bytes of frames are for. Every byte is of one kind.
enum class ByteKind : std::uint8_t {
  kTcpPayload,
  kTcpRepeated,  // payload before the highest sequence number seen on its connection: retransmitted, or overtaken
  kBypassPayload,
  kBypassRepeated,    // payload of a frame that is not the newest of its session: retransmitted, or overtaken
  kRocePayload,       // what the adapter repeats is not told apart
  kHeaders,           // of the frames that carry these, and of control frames
  kAcknowledgements,  // frames that do nothing else
  kOther,             // ARP, IPv6, fragments, other UDP, other IPv4
  kNotDissected,      // frames of which too little was kept
};
inline constexpr std::size_t kByteKinds = 9;

struct FlowTotals {
  std::uint64_t bytes = 0, frames = 0, payloadBytes = 0;

  void operator+=(const FlowTotals& more) {
    bytes += more.bytes;
    frames += more.frames;
    payloadBytes += more.payloadBytes;
  }
};
using Direction = std::pair<std::uint32_t, std::uint32_t>;  // IPv4 source and destination

// Bytes from host to host. Bounded: what has no place is in `others`, as are frames without IPv4 addresses.
class TrafficMatrix {
 public:
  static constexpr std::size_t kMaxDirections = 65'536;
  void add(Direction direction, const FlowTotals& totals);
  void add(const TrafficMatrix& other);
  void addOther(const FlowTotals& totals) { others_ += totals; }
  void clear();
  const std::map<Direction, FlowTotals>& directions() const { return directions_; }
  const FlowTotals& others() const { return others_; }

 private:
  std::map<Direction, FlowTotals> directions_;
  FlowTotals others_;
};

struct AnalysisSettings {
  std::uint16_t markerPort = 9999;
  std::chrono::nanoseconds interval = std::chrono::milliseconds(100);
};

struct AnalysisTotals {
  std::uint64_t frames = 0, bytes = 0;  // without markers
  std::uint64_t largestTcpFrame = 0;
  std::uint64_t joinedDatagrams = 0;     // frames with several datagrams of gloo-bypass, as far as they tell
  std::uint64_t backwards = 0;           // frames with a time before that of the frame before
  std::uint64_t fragments = 0, cut = 0;  // frames
  CaptureTime first{}, last{};           // earliest and latest, markers included
  std::array<std::uint64_t, kByteKinds> bytesOfKind{};
};

class Analysis {
 public:
  explicit Analysis(const AnalysisSettings& settings) : settings_(settings), series_(settings.interval) {}

  // Whether the frame is a marker, which filters let through.
  bool isMarker(const DissectedFrame& frame) const;
  void add(CaptureTime time, const DissectedFrame& frame);
  // After the last frame.
  void finish();

  bool empty() const { return !any_; }
  const AnalysisTotals& totals() const { return totals_; }
  const StepWindows& steps() const { return steps_; }
  const OperationParts& operationParts() const { return operationParts_; }
  const TimeSeries& series() const { return series_; }
  // Before the first marker; from it to the last one; and after that. Without markers all is in the first.
  const TrafficMatrix& before() const { return before_; }
  const TrafficMatrix& training() const { return training_; }
  const TrafficMatrix& after() const { return after_; }
  // Indices of StepWindows::directions().
  const std::vector<Direction>& trackedDirections() const { return tracked_; }
  // Of each of them, coarser than series() in a long capture.
  const std::vector<TimeSeries>& trackedSeries() const { return trackedSeries_; }
  // Times of the first and of the last marker.
  const std::optional<std::pair<CaptureTime, CaptureTime>>& trainingTime() const { return trainingTime_; }

 private:
  // Connections and sessions whose sequence numbers are known; of more, nothing counts as repeated.
  static constexpr std::size_t kMaxSequences = 65'536;
  // A plot has no more points; 4 MiB of memory for all directions.
  static constexpr std::size_t kMaxDirectionBins = 2'048;
  struct FlowKey {
    std::uint64_t addresses, session;
    std::uint32_t ports;
    bool operator==(const FlowKey&) const = default;
  };
  struct FlowHash {
    std::size_t operator()(const FlowKey& key) const;
  };

  void noteTime(CaptureTime time);
  std::size_t trackedIndex(Direction direction);
  void countKinds(const DissectedFrame& frame, std::uint64_t repeated);
  std::uint64_t repeatedBytes(const DissectedFrame& frame);
  void count(ByteKind kind, std::uint64_t bytes) { totals_.bytesOfKind[static_cast<std::size_t>(kind)] += bytes; }

  const AnalysisSettings settings_;
  AnalysisTotals totals_;
  StepWindows steps_;
  OperationParts operationParts_;
  TimeSeries series_;
  TrafficMatrix before_, training_, after_;
  std::vector<Direction> tracked_;
  std::vector<TimeSeries> trackedSeries_;
  std::map<Direction, std::size_t> trackedIndices_;
  std::unordered_map<FlowKey, std::uint32_t, FlowHash> next_;  // the sequence number after the highest seen
  std::optional<std::pair<CaptureTime, CaptureTime>> trainingTime_;
  CaptureTime start_{}, previous_{};
  bool any_ = false;
};

}  // namespace gloo_bypass::capture
