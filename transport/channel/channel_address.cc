#include "transport/channel/channel_address.h"

#include <algorithm>
#include <array>
#include <optional>

#include "transport/base/check.h"

namespace gloo_bypass {
namespace {

constexpr std::array<char, 4> kMagic = {'G', 'B', 'Y', '1'};
constexpr std::size_t kMaxDescriptionBytes = 96;

void putInteger(std::vector<std::byte>& out, std::uint64_t value, std::size_t width) {
  for (std::size_t i = 0; i < width; ++i) out.push_back(static_cast<std::byte>(value >> (8 * i)));
}

class Reader {
 public:
  explicit Reader(std::span<const std::byte> bytes) : rest_(bytes) {}

  std::optional<std::uint64_t> integer(std::size_t width) {
    if (rest_.size() < width) return std::nullopt;
    std::uint64_t value = 0;
    for (std::size_t i = 0; i < width; ++i) value |= std::to_integer<std::uint64_t>(rest_[i]) << (8 * i);
    rest_ = rest_.subspan(width);
    return value;
  }

  std::optional<std::span<const std::byte>> field() {
    const auto length = integer(2);
    if (!length || *length > kMaxPortAddressBytes || *length > rest_.size()) return std::nullopt;
    const auto bytes = rest_.first(static_cast<std::size_t>(*length));
    rest_ = rest_.subspan(bytes.size());
    return bytes;
  }

  bool atEnd() const { return rest_.empty(); }

 private:
  std::span<const std::byte> rest_;
};

}  // namespace

std::vector<std::byte> encodeChannelAddress(const ChannelAddress& address) {
  GLOO_BYPASS_CHECK(address.portAddress.size() <= kMaxPortAddressBytes);
  std::vector<std::byte> out;
  for (char c : kMagic) out.push_back(static_cast<std::byte>(c));
  putInteger(out, address.sessionId, 8);
  putInteger(out, address.portAddress.size(), 2);
  for (const std::byte b : address.portAddress) out.push_back(b);
  const std::size_t described = std::min(address.description.size(), kMaxDescriptionBytes);
  putInteger(out, described, 2);
  for (std::size_t i = 0; i < described; ++i) out.push_back(static_cast<std::byte>(address.description[i]));
  return out;
}

Result<ChannelAddress> decodeChannelAddress(std::span<const std::byte> bytes) {
  const Error malformed{
      ErrorScope::kSession, ErrorCode::kPeerViolatedProtocol,
      "the peer's address in the rendezvous store is not one of this transport: are all ranks started "
      "with the same GLOO_DEVICE_TRANSPORT and the same version of gloo-bypass?"};
  Reader reader(bytes);
  for (char c : kMagic) {
    const auto byte = reader.integer(1);
    if (!byte || *byte != static_cast<unsigned char>(c)) return malformed;
  }
  ChannelAddress address;
  const auto id = reader.integer(8);
  if (!id) return malformed;
  address.sessionId = *id;
  const auto port = reader.field();
  if (!port) return malformed;
  address.portAddress.assign(port->begin(), port->end());
  const auto description = reader.field();
  // This version has no further fields.
  if (!description || !reader.atEnd()) return malformed;
  for (std::byte b : *description) {
    const auto c = std::to_integer<unsigned char>(b);
    address.description.push_back(c >= 0x20 && c < 0x7f ? static_cast<char>(c) : '?');
  }
  return address;
}

}  // namespace gloo_bypass
