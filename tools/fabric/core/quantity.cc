#include "tools/fabric/core/quantity.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <initializer_list>
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
};

const Kind kDuration{"a duration", "100ms", kDurationUnits};
const Kind kRate{"a rate", "50Mbit/s", kRateUnits};
const Kind kBytes{"a size", "1MiB", kByteUnits};
const Kind kPercentage{"a percentage", "0.1%", kPercentUnits};
const Kind kMetres{"a length", "4800km", kMetreUnits};

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
    if (each.name == unit) return number * each.factor;
  }
  return refuse(fmt::format("is not {}; {}", kind.article, allowed));
}

Error outside(std::string_view least, std::string_view most) {
  return refuse(fmt::format("is outside what is allowed, {} to {}", least, most));
}

// The largest unit of which there is at least one, from those given in ascending order.
std::string inUnits(double amount, std::initializer_list<Unit> units) {
  Unit best = *units.begin();
  for (const Unit& each : units) {
    if (amount >= each.factor) best = each;
  }
  return fmt::format("{:.6g} {}", amount / best.factor, best.name);
}

}  // namespace

Result<Duration> parseDuration(std::string_view text, Duration least, Duration most) {
  const Result<double> parsed = parse(text, kDuration);
  if (!parsed) return parsed.error();
  const double nanoseconds = std::round(parsed.value());
  if (nanoseconds < static_cast<double>(least.count()) || nanoseconds > static_cast<double>(most.count())) {
    return outside(durationText(least), durationText(most));
  }
  return Duration(static_cast<Duration::rep>(nanoseconds));
}

Result<std::uint64_t> parseRate(std::string_view text) {
  if (text == "unlimited") return std::uint64_t{0};
  const Result<double> parsed = parse(text, kRate);
  if (!parsed) return refuse(parsed.error().message + ", or \"unlimited\"");
  const double rate = std::round(parsed.value());
  if (rate < static_cast<double>(kMinRateBitsPerSecond) ||
      rate > static_cast<double>(EdgeEmulator::kMaxRateBitsPerSecond)) {
    return refuse(outside(rateText(kMinRateBitsPerSecond), rateText(EdgeEmulator::kMaxRateBitsPerSecond)).message +
                  ", or \"unlimited\"");
  }
  return static_cast<std::uint64_t>(rate);
}

Result<std::uint64_t> parseBytes(std::string_view text, std::uint64_t least, std::uint64_t most) {
  const Result<double> parsed = parse(text, kBytes);
  if (!parsed) return parsed.error();
  const double bytes = std::round(parsed.value());
  if (bytes < static_cast<double>(least) || bytes > static_cast<double>(most)) {
    return outside(bytesText(least), bytesText(most));
  }
  return static_cast<std::uint64_t>(bytes);
}

Result<double> parsePercentage(std::string_view text) {
  const Result<double> parsed = parse(text, kPercentage);
  if (!parsed) return parsed.error();
  if (parsed.value() > 1) return outside("0%", "100%");
  return parsed.value();
}

Result<double> parseMetres(std::string_view text, double least, double most) {
  const Result<double> parsed = parse(text, kMetres);
  if (!parsed) return parsed.error();
  if (parsed.value() < least || parsed.value() > most) {
    return outside(inUnits(least, {{"m", 1}, {"km", 1e3}}), inUnits(most, {{"m", 1}, {"km", 1e3}}));
  }
  return parsed.value();
}

std::string durationText(Duration duration) {
  return duration == Duration{0}
             ? "0 s"
             : inUnits(static_cast<double>(duration.count()), {{"ns", 1}, {"us", 1e3}, {"ms", 1e6}, {"s", 1e9}});
}

std::string rateText(std::uint64_t bitsPerSecond) {
  if (bitsPerSecond == 0) return "unlimited";
  return inUnits(static_cast<double>(bitsPerSecond),
                 {{"bit/s", 1}, {"kbit/s", 1e3}, {"Mbit/s", 1e6}, {"Gbit/s", 1e9}, {"Tbit/s", 1e12}, {"Pbit/s", 1e15}});
}

std::string bytesText(std::uint64_t bytes) {
  const bool binary = bytes % 1024 == 0 && bytes > 0;
  return binary ? inUnits(static_cast<double>(bytes), {{"KiB", 1024.0}, {"MiB", 1048576.0}, {"GiB", 1073741824.0}})
                : inUnits(static_cast<double>(bytes), {{"B", 1}, {"kB", 1e3}, {"MB", 1e6}, {"GB", 1e9}});
}

std::string percentageText(double probability) { return fmt::format("{:.6g} %", probability * 100); }

}  // namespace gloo_bypass::fabric
