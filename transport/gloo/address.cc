#include "transport/gloo/address.h"

#include <algorithm>

#include "transport/base/check.h"
#include "transport/channel/message_channel.h"

namespace gloo_bypass::adapter {
namespace {

constexpr std::size_t kLengthBytes = 2;
constexpr std::size_t kUsualBytes = ::gloo::transport::Address::kMaxByteSize;
constexpr std::size_t kLongBytes = kLengthBytes + MessageChannel::kMaxAddressBytes;

}  // namespace

std::vector<char> encodeAddress(std::span<const std::byte> channelAddress) {
  const std::size_t length = channelAddress.size();
  GLOO_BYPASS_CHECK(length > 0 && length <= MessageChannel::kMaxAddressBytes);
  std::vector<char> bytes(length + kLengthBytes <= kUsualBytes ? kUsualBytes : kLongBytes, 0);
  bytes[0] = static_cast<char>(length & 0xff);
  bytes[1] = static_cast<char>(length >> 8);
  std::transform(channelAddress.begin(), channelAddress.end(), bytes.begin() + kLengthBytes,
                 [](std::byte b) { return static_cast<char>(b); });
  return bytes;
}

std::vector<std::byte> decodeAddress(std::span<const char> bytes) {
  if (bytes.size() != kUsualBytes && bytes.size() != kLongBytes) return {};
  const std::size_t length = static_cast<std::size_t>(static_cast<unsigned char>(bytes[0])) |
                             static_cast<std::size_t>(static_cast<unsigned char>(bytes[1])) << 8;
  if (length == 0 || length > bytes.size() - kLengthBytes) return {};
  std::vector<std::byte> address(length);
  std::transform(bytes.begin() + kLengthBytes, bytes.begin() + kLengthBytes + static_cast<std::ptrdiff_t>(length),
                 address.begin(), [](char c) { return static_cast<std::byte>(c); });
  return address;
}

}  // namespace gloo_bypass::adapter
