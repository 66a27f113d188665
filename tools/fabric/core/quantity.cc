#include "tools/fabric/core/quantity.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <iterator>
#include <span>

#include "tools/fabric/core/edge_emulator.h"

namespace gloo_bypass::fabric {
namespace {

struct Unit {
  std::string_view name;
  double factor;
};

constexpr Unit kDurationUnits[] = {{"ns", 1}, {"us", 1e3}, {"ms", 1e6}, {"s", 1e9}, {"min", 60e9}, {"h", 3600e9}};
constexpr Unit kRateUnits[] = {{"bit/s", 1},     {"kbit/s", 1e3}, {"Mbit/s", 1e6}, {"Gbit/s", 1e9}, {"Tbit/s", 1e12},
                               {"Pbit/s", 1e15}, {"B/s", 8},      {"kB/s", 8e3},   {"MB/s", 8e6},   {"GB/s", 8e9}};
constexpr Unit kByteUnits[] = {{"B", 1},        {"kB", 1e3},        {"MB", 1e6},          {"GB", 1e9},
                               {"KiB", 1024.0}, {"MiB", 1048576.0}, {"GiB", 1073741824.0}};
constexpr Unit kPercentUnits[] = {{"%", 0.01}};
constexpr Unit kMetreUnits[] = {{"m", 1}, {"km", 1e3}};

constexpr std::uint64_t kMinRateBitsPerSecond = 1000;  // slower, and a single frame takes minutes

struct Kind {
  std::string_view article;  // "a duration"
  std::string_view example;
  std::span<const Unit> units;
  bool whole;  // its base unit is not divided
};

const Kind kDuration{"a duration", "100ms", kDurationUnits, true};
const Kind kRate{"a rate", "50Mbit/s", kRateUnits, true};
const Kind kBytes{"a size", "1MiB", kByteUnits, true};
const Kind kPercentage{"a percentage", "0.1%", kPercentUnits, false};
const Kind kMetres{"a length", "4800km", kMetreUnits, false};

Error refuse(std::string message) { return Error{ErrorScope::kDevice, ErrorCode::kConfiguration, std::move(message)}; }

std::string unitList(std::span<const Unit> units) {
  std::string list;
  for (std::size_t i = 0; i < units.size(); ++i) {
    list += fmt::format("{}{}", i == 0 ? "" : i + 1 == units.size() ? " or " : ", ", units[i].name);
  }
  return list;
}

// The number in the kind's base unit; not negative, finite.
Result<double> parse(std::string_view text, const Kind& kind) {
  const auto isDigit = [](char c) { return c >= '0' && c <= '9'; };
  const std::string allowed = fmt::format("give a number and {}, such as \"{}\"", unitList(kind.units), kind.example);
  if (text.size() >= 2 && text[0] == '-' && isDigit(text[1])) return refuse("is negative; " + allowed);
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number, std::chars_format::fixed);
  if (text.empty() || !isDigit(text[0]) || error == std::errc::invalid_argument) {
    return refuse(fmt::format("is not {}; {}", kind.article, allowed));
  }
  std::string_view unit = text.substr(static_cast<std::size_t>(end - text.data()));
  if (error != std::errc{} || !std::isfinite(number)) return refuse("is out of range; " + allowed);
  if (unit.starts_with(' ')) unit.remove_prefix(1);
  if (unit.empty()) return refuse("has no unit; " + allowed);
  for (const Unit& each : kind.units) {
    if (each.name == unit) return kind.whole ? std::round(number * each.factor) : number * each.factor;
  }
  return refuse(fmt::format("is not {}; {}", kind.article, allowed));
}

// The same within bounds, which `textOf` writes for people.
template <typename Quantity, typename Text>
Result<double> parseWithin(std::string_view text, const Kind& kind, Quantity least, Quantity most, Text textOf) {
  const Result<double> parsed = parse(text, kind);
  if (!parsed || (parsed.value() >= static_cast<double>(least) && parsed.value() <= static_cast<double>(most)))
    return parsed;
  return refuse(fmt::format("is outside what is allowed, {} to {}", textOf(least), textOf(most)));
}

// In the largest unit that fits at least once; `units` are ascending.
std::string inUnits(double amount, std::span<const Unit> units) {
  Unit best = units.front();
  for (const Unit& each : units) {
    if (amount >= each.factor) best = each;
  }
  return fmt::format("{:.6g} {}", amount / best.factor, best.name);
}

}  // namespace

Result<Duration> parseDuration(std::string_view text, Duration least, Duration most) {
  const auto textOf = [](Duration::rep count) { return durationText(Duration(count)); };
  const Result<double> parsed = parseWithin(text, kDuration, least.count(), most.count(), textOf);
  if (!parsed) return parsed.error();
  return Duration(static_cast<Duration::rep>(parsed.value()));
}

Result<std::uint64_t> parseRate(std::string_view text) {
  if (text == "unlimited") return std::uint64_t{0};
  const Result<double> parsed =
      parseWithin(text, kRate, kMinRateBitsPerSecond, EdgeEmulator::kMaxRateBitsPerSecond, rateText);
  if (!parsed) return refuse(parsed.error().message + ", or \"unlimited\"");
  return static_cast<std::uint64_t>(parsed.value());
}

Result<std::uint64_t> parseBytes(std::string_view text, std::uint64_t least, std::uint64_t most) {
  const Result<double> parsed = parseWithin(text, kBytes, least, most, bytesText);
  if (!parsed) return parsed.error();
  return static_cast<std::uint64_t>(parsed.value());
}

Result<double> parsePercentage(std::string_view text) {
  return parseWithin(text, kPercentage, 0, 1, [](int share) { return share == 0 ? "0%" : "100%"; });
}

Result<double> parseMetres(std::string_view text, double least, double most) {
  return parseWithin(text, kMetres, least, most, [](double metres) { return inUnits(metres, kMetreUnits); });
}

std::string durationText(Duration duration) {
  if (duration == Duration{0}) return "0 s";
  return inUnits(static_cast<double>(duration.count()), std::span(kDurationUnits).first(4));  // up to seconds
}

std::string rateText(std::uint64_t bitsPerSecond) {
  if (bitsPerSecond == 0) return "unlimited";
  return inUnits(static_cast<double>(bitsPerSecond), std::span(kRateUnits).first(6));  // those in bits
}

std::string bytesText(std::uint64_t bytes) {
  const bool binary = bytes % 1024 == 0 && bytes > 0;
  const std::span units(kByteUnits);
  return inUnits(static_cast<double>(bytes), binary ? units.last(3) : units.first(4));
}

std::string percentageText(double probability) { return fmt::format("{:.6g} %", probability * 100); }

}  // namespace gloo_bypass::fabric
