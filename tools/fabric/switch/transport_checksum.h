// Whether a frame's TCP or UDP checksum is right. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace gloo_bypass::fabric {

enum class TransportChecksum : std::uint8_t {
  kNone,  // no TCP or UDP over IPv4, a fragment, cut short, or UDP without one
  kRight,
  kWrong,  // also one that a kernel has left for its network card to finish
};

TransportChecksum transportChecksumOf(std::span<const std::byte> frame);

}  // namespace gloo_bypass::fabric
