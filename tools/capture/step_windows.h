// The steps of a capture: which markers open and close them, and what crossed the wire in between. Pure.
//
//   no step open --first marker of s--> s open --second marker of s--> s is complete
//                                        |  first marker of another step: s stays without an end
//
// A marker with this project's text (transport/wire/step_marker.h) says which of the two it is; one without is the
// second of its step if that step is open. A marker seen again (the network repeated it, or the capture saw it on two
// interfaces) is counted and has no effect. Bounds: kMaxSteps steps are kept, as long as kMaxDirectionEntries figures
// of their directions hold them; the rest is counted.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "tools/capture/dissection.h"
#include "transport/base/seconds.h"

namespace gloo_bypass::capture {

// Since 1970.
using CaptureTime = std::chrono::nanoseconds;

struct StepWindow {
  std::uint64_t step = 0;
  CaptureTime begin{}, end{};
  std::uint64_t bytes = 0, frames = 0;                 // of all frames between the markers, the markers left out
  bool complete = false;                               // has an end, not before its begin
  std::size_t directionsBegin = 0, directionsEnd = 0;  // in StepWindows::directions()

  double seconds() const { return secondsOf(end - begin); }
};

struct MarkerCounters {
  std::uint64_t markers = 0;       // all of them
  std::uint64_t repeated = 0;      // seen before
  std::uint64_t withoutBegin = 0;  // "last" of a step that is not open
  std::uint64_t withoutEnd = 0;    // steps
  std::uint64_t backwards = 0;     // steps that end before they begin, by the capture's clock
  std::uint64_t notKept = 0;       // steps beyond these bounds
};

class StepWindows {
 public:
  static constexpr std::size_t kMaxSteps = 1'000'000;
  static constexpr std::size_t kMaxDirectionEntries = 8'000'000;
  // Directions of which each step's bytes are kept, the first ones that carry any.
  static constexpr std::size_t kMaxDirections = 256;

  // A frame to the markers' port, from one of their source ports.
  void onMarker(const DissectedFrame& frame, CaptureTime time);
  // Any other one; `direction`: its index, or kMaxDirections and more for those not kept.
  void onFrame(std::uint64_t bytes, std::size_t direction);
  // At the capture's end.
  void finish();

  // Complete ones, and those without an end, as they began.
  const std::vector<StepWindow>& steps() const { return steps_; }
  // (direction, bytes), of the steps in turn.
  const std::vector<std::pair<std::uint32_t, std::uint64_t>>& directions() const { return directions_; }
  const MarkerCounters& counters() const { return counters_; }

 private:
  struct Seen {
    std::uint64_t step;
    bool last;
    std::uint16_t identification;
    CaptureTime time;
  };
  // What the marker says, or what follows from the markers before it. nullopt: a repeated one.
  std::optional<std::pair<std::uint64_t, bool>> interpret(const DissectedFrame& frame, CaptureTime time);
  std::uint64_t unwrapped(std::uint16_t sourcePort) const;
  void open(std::uint64_t step, CaptureTime time);
  void close(CaptureTime time);
  void keepStep();

  std::optional<StepWindow> open_;
  std::vector<std::uint64_t> openDirections_;  // bytes by direction
  std::optional<Seen> previous_;
  std::vector<StepWindow> steps_;
  std::vector<std::pair<std::uint32_t, std::uint64_t>> directions_;
  MarkerCounters counters_;
};

}  // namespace gloo_bypass::capture
