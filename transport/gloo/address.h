// A channel's address as Gloo's rendezvous carries it: u16 length (little-endian), the channel's bytes, zeros up to a
// fixed size, since Gloo cuts a rank's addresses apart by dividing.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include <gloo/transport/address.h>

namespace gloo_bypass::adapter {

class Address final : public ::gloo::transport::Address {
 public:
  Address() = default;
  Address(std::vector<char> bytes, std::string text) : bytes_(std::move(bytes)), text_(std::move(text)) {}

  std::string str() const override { return text_; }
  std::vector<char> bytes() const override { return bytes_; }

 private:
  std::vector<char> bytes_;
  std::string text_;
};

// Gloo's upper bound if the address fits under it, MessageChannel's otherwise.
std::vector<char> encodeAddress(std::span<const std::byte> channelAddress);
// Hostile bytes. Empty: not one of ours.
std::vector<std::byte> decodeAddress(std::span<const char> bytes);

}  // namespace gloo_bypass::adapter
