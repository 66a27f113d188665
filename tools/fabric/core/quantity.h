// Quantities with their units, as people write them: "100ms", "50Mbit/s", "0.1%", "1MiB". A bare number is refused: it
// could mean anything. Decimal prefixes are powers of 1000, binary ones (KiB) of 1024; a bit rate has "bit/s", a byte
// rate "B/s".
//
// Errors have no place and no key: their message says what is wrong with the text and what is allowed.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "transport/base/status.h"
#include "transport/base/time.h"

namespace gloo_bypass::fabric {

Result<Duration> parseDuration(std::string_view text, Duration least, Duration most);
// Bits a second; "unlimited" is 0.
Result<std::uint64_t> parseRate(std::string_view text);
Result<std::uint64_t> parseBytes(std::string_view text, std::uint64_t least, std::uint64_t most);
// "0.1%" is 0.001.
Result<double> parsePercentage(std::string_view text);
Result<double> parseMetres(std::string_view text, double least, double most);

// The shortest text that the functions above read back, within six digits: "300 ms", "50 Mbit/s", "1 MiB", "0.1 %".
std::string durationText(Duration duration);
std::string rateText(std::uint64_t bitsPerSecond);
std::string bytesText(std::uint64_t bytes);
std::string percentageText(double probability);

}  // namespace gloo_bypass::fabric
