// IPv4 and Ethernet addresses as texts.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace gloo_bypass::fabric {

struct Network {
  std::uint32_t address = 0;  // host byte order; of a host, or with all host bits 0
  unsigned prefixLength = 0;

  std::uint32_t mask() const { return prefixLength == 0 ? 0 : ~std::uint32_t{0} << (32 - prefixLength); }
  std::uint32_t first() const { return address & mask(); }
  std::uint32_t last() const { return first() | ~mask(); }
  bool contains(std::uint32_t other) const { return (other & mask()) == first(); }
};

// "10.32.0.2/24". None: no such text, or a prefix outside 8 to 30.
std::optional<Network> parseNetwork(std::string_view text);
// "02:00:00:00:00:01". None: no such text, a group address, or zeros alone.
std::optional<std::array<std::uint8_t, 6>> parseMac(std::string_view text);
std::string macText(const std::array<std::uint8_t, 6>& mac);
std::string networkText(const Network& network);  // "10.32.0.0/24", the host bits left out

}  // namespace gloo_bypass::fabric
