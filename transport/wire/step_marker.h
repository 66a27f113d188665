// Marks a training step in a capture by two UDP datagrams from rank 0: one when the first bucket of gradients goes to
// the all-reduce, one when the step's last bucket has completed. Between them lies the step's all-reduce on the wire.
// Pure.
//
// Port and source ports are those of the published captures ("Distributed AI fabrics: a network-side perspective",
// master's thesis, 2026): to port 9999 from port 40000 + step. A port has 16 bits, so the steps wrap: source port =
// 40000 + step mod 25536. The text inside is ours. It gives the full step and which of the two markers it is, so that a
// lost or repeated marker is not mistaken for the other.
#pragma once

#include <charconv>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace gloo_bypass::wire {

inline constexpr std::uint16_t kStepMarkerPort = 9999;
inline constexpr std::uint16_t kStepMarkerSourcePort = 40000;
inline constexpr std::uint64_t kStepMarkerCycle = 65536 - kStepMarkerSourcePort;

struct StepMarker {
  std::uint64_t step = 0;
  bool last = false;  // the step's last bucket has completed; else its first one has been handed over
};

constexpr std::uint16_t stepMarkerSourcePort(std::uint64_t step) {
  return static_cast<std::uint16_t>(kStepMarkerSourcePort + step % kStepMarkerCycle);
}

inline constexpr std::string_view kStepMarkerBegin = "gloo-bypass step ";

inline std::string stepMarkerText(StepMarker marker) {
  return std::string(kStepMarkerBegin) + std::to_string(marker.step) + (marker.last ? " last\n" : " first\n");
}

// nullopt: not our text, or cut short. Ignores anything after the line.
inline std::optional<StepMarker> parseStepMarker(std::string_view text) {
  if (!text.starts_with(kStepMarkerBegin)) return {};
  text.remove_prefix(kStepMarkerBegin.size());
  StepMarker marker;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), marker.step);
  if (error != std::errc()) return {};
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  marker.last = text.starts_with(" last\n");
  if (!marker.last && !text.starts_with(" first\n")) return {};
  return marker;
}

}  // namespace gloo_bypass::wire
