#include "transport/channel/channel_address.h"

#include <algorithm>
#include <array>

#include "transport/base/check.h"
#include "transport/base/fields.h"
#include "transport/base/printable.h"
#include "transport/channel/message_channel.h"

namespace gloo_bypass {
namespace {

constexpr std::array<char, 4> kMagic = {'G', 'B', 'Y', '1'};
constexpr std::size_t kMaxDescriptionBytes = 96;
constexpr std::size_t kLengthBytes = sizeof(std::uint16_t);

// Before the port's address: magic, session, length of that address.
constexpr std::size_t kFixedBytes = kMagic.size() + sizeof(std::uint64_t) + sizeof(std::uint16_t);
static_assert(kFixedBytes + kMaxPortAddressBytes + 2 * kLengthBytes + kMaxOfferBytes <=
              MessageChannel::kMaxAddressBytes);

}  // namespace

std::vector<std::byte> encodeChannelAddress(const ChannelAddress& address) {
  const auto& port = address.portAddress;
  GLOO_BYPASS_CHECK(port.size() <= kMaxPortAddressBytes);
  GLOO_BYPASS_CHECK(address.offer.size() <= kMaxOfferBytes);
  const std::size_t offered = address.offer.empty() ? 0 : kLengthBytes + address.offer.size();
  const std::size_t others = kFixedBytes + port.size() + kLengthBytes + offered;
  const std::string description =
      address.description.substr(0, std::min(kMaxDescriptionBytes, MessageChannel::kMaxAddressBytes - others));
  std::vector<std::byte> out(others + description.size());
  FieldWriter writer(out.data());
  writer(kMagic, address.sessionId, static_cast<std::uint16_t>(port.size()));
  writer.bytes(port);
  writer(static_cast<std::uint16_t>(description.size()));
  writer.bytes(std::as_bytes(std::span(description)));
  if (offered == 0) return out;
  writer(static_cast<std::uint16_t>(address.offer.size()));
  writer.bytes(address.offer);
  return out;
}

Result<ChannelAddress> decodeChannelAddress(std::span<const std::byte> bytes) {
  const Error malformed{
      ErrorScope::kSession, ErrorCode::kPeerViolatedProtocol,
      "the peer's address in the rendezvous store is not one of this transport: are all ranks started "
      "with the same GLOO_DEVICE_TRANSPORT and the same version of gloo-bypass?"};
  if (bytes.size() < kFixedBytes) return malformed;
  ChannelAddress address;
  auto magic = kMagic;
  std::uint16_t portBytes = 0, described = 0;
  FieldReader fixed(bytes.data());
  fixed(magic, address.sessionId, portBytes);
  const auto rest = bytes.subspan(kFixedBytes);
  if (magic != kMagic || portBytes > kMaxPortAddressBytes || rest.size() < portBytes + kLengthBytes) {
    return malformed;
  }
  address.portAddress.assign(rest.begin(), rest.begin() + portBytes);
  FieldReader length(rest.data() + portBytes);
  length(described);
  const auto afterLength = rest.subspan(portBytes + kLengthBytes);
  if (described > std::min(kMaxPortAddressBytes, afterLength.size())) return malformed;
  if (const auto last = afterLength.subspan(described); !last.empty()) {
    std::uint16_t offered = 0;
    if (last.size() <= kLengthBytes || last.size() > kLengthBytes + kMaxOfferBytes) return malformed;
    FieldReader offerLength(last.data());
    offerLength(offered);
    if (offered != last.size() - kLengthBytes) return malformed;
    address.offer.assign(last.begin() + kLengthBytes, last.end());
  }
  const auto description = afterLength.first(described);
  address.description = printable({reinterpret_cast<const char*>(description.data()), description.size()});
  return address;
}

}  // namespace gloo_bypass
