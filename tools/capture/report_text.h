// Words and JSON that the parts of a report share. Pure.
#pragma once

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <array>
#include <cstdint>
#include <string>

#include "tools/capture/step_statistics.h"

namespace gloo_bypass::capture {

inline constexpr std::array<const char*, kPercentiles.size()> kSpreadNames{"min", "p25", "median", "p75", "max"};

inline std::string ipv4(std::uint32_t address) {
  return fmt::format("{}.{}.{}.{}", address >> 24, (address >> 16) & 255, (address >> 8) & 255, address & 255);
}

inline nlohmann::ordered_json spreadJson(const Spread& spread) {
  nlohmann::ordered_json json;
  for (std::size_t i = 0; i < spread.size(); ++i) json[kSpreadNames[i]] = spread[i];
  return json;
}

// A line of notes; none if `count` is 0.
inline std::string noteIf(std::uint64_t count, const std::string& text) {
  return count == 0 ? "" : fmt::format("note: {} {}\n", count, text);
}

}  // namespace gloo_bypass::capture
