#include "tools/fabric/core/network_address.h"

#include <fmt/format.h>

#include <charconv>

#include "tools/fabric/core/description.h"

namespace gloo_bypass::fabric {
namespace {

constexpr unsigned kMinPrefix = 8, kMaxPrefix = 30;

// Takes a number of 1 to `digits` digits off the front.
std::optional<unsigned> takeNumber(std::string_view& text, int base, std::size_t digits, unsigned most) {
  unsigned number = 0;
  const char* const end = text.data() + std::min(text.size(), digits);
  const auto [stop, error] = std::from_chars(text.data(), end, number, base);
  if (error != std::errc{} || number > most) return std::nullopt;
  text.remove_prefix(static_cast<std::size_t>(stop - text.data()));
  return number;
}

bool take(std::string_view& text, char expected) {
  if (text.empty() || text.front() != expected) return false;
  text.remove_prefix(1);
  return true;
}

}  // namespace

std::optional<Network> parseNetwork(std::string_view text) {
  Network network;
  for (int i = 0; i < 4; ++i) {
    if (i > 0 && !take(text, '.')) return std::nullopt;
    const std::optional<unsigned> part = takeNumber(text, 10, 3, 255);
    if (!part) return std::nullopt;
    network.address = network.address << 8 | *part;
  }
  if (!take(text, '/')) return std::nullopt;
  const std::optional<unsigned> prefix = takeNumber(text, 10, 2, kMaxPrefix);
  if (!prefix || *prefix < kMinPrefix || !text.empty()) return std::nullopt;
  network.prefixLength = *prefix;
  return network;
}

std::optional<std::array<std::uint8_t, 6>> parseMac(std::string_view text) {
  std::array<std::uint8_t, 6> mac{};
  bool any = false;
  for (std::size_t i = 0; i < mac.size(); ++i) {
    if (i > 0 && !take(text, ':')) return std::nullopt;
    const std::optional<unsigned> part = takeNumber(text, 16, 2, 255);
    if (!part) return std::nullopt;
    mac[i] = static_cast<std::uint8_t>(*part);
    any = any || *part != 0;
  }
  if (!text.empty() || !any || (mac[0] & 1) != 0) return std::nullopt;
  return mac;
}

std::string macText(const std::array<std::uint8_t, 6>& mac) {
  return fmt::format("{:02x}:{:02x}:{:02x}:{:02x}:{:02x}:{:02x}", mac[0], mac[1], mac[2], mac[3], mac[4], mac[5]);
}

std::string networkText(const Network& network) {
  return fmt::format("{}/{}", ipv4Text(network.first()), network.prefixLength);
}

}  // namespace gloo_bypass::fabric
