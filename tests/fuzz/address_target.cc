// The addresses that ranks read from the rendezvous store: Gloo's padding, the channel's address in it, and in that the
// port's or the RDMA device's.
#include <algorithm>
#include <string>
#include <vector>

#include "tests/fuzz/fuzz_target.h"
#include "transport/base/check.h"
#include "transport/base/printable.h"
#include "transport/channel/channel_address.h"
#include "transport/channel/message_channel.h"
#include "transport/datagram/packet_port.h"
#include "transport/dpdk/port_address.h"
#include "transport/gloo/address.h"
#include "transport/pairs/pair_address.h"
#include "transport/udp/port_address.h"
#include "transport/verbs/rdma_address.h"

namespace gloo_bypass::fuzz {
using namespace dpdk;
using namespace verbs;
namespace {

// An error must be printable.
template <typename T>
bool accepted(const Result<T>& result) {
  if (result.ok()) return true;
  const std::string& message = result.error().message;
  GLOO_BYPASS_CHECK(!message.empty() &&
                    std::all_of(message.begin(), message.end(), [](char each) { return each >= 0x20 && each < 0x7f; }));
  return false;
}

void decodeNoMemory(std::span<const std::byte> bytes) {
  const auto none = decodeNoMemoryAddress(bytes);
  if (!accepted(none)) return;
  GLOO_BYPASS_CHECK(none.value().why.size() <= NoMemoryAddress::kMaxBytes);
  const std::vector<std::byte> again = encodeAddress(none.value());
  GLOO_BYPASS_CHECK(std::equal(again.begin(), again.end(), bytes.begin(), bytes.end()));
  const std::string line = whyNoMemory(bytes, none.value().machineId);
  GLOO_BYPASS_CHECK(!line.empty() && line == printable(line));
}

void decodePort(std::span<const std::byte> bytes) {
  const auto same = [&](const std::vector<std::byte>& again) {
    return std::equal(again.begin(), again.end(), bytes.begin(), bytes.end());
  };
  if (const auto udp = decodeUdpAddress(bytes); accepted(udp)) {
    GLOO_BYPASS_CHECK(udp.value().port != 0 && same(encodeAddress(udp.value())));
  }
  if (const auto memif = decodeMemifAddress(bytes); accepted(memif)) {
    const std::string& directory = memif.value().directory;
    GLOO_BYPASS_CHECK(directory.front() == '/' && directory.find('\0') == std::string::npos);
    GLOO_BYPASS_CHECK(same(encodeAddress(memif.value())));
  }
  decodeNoMemory(bytes);
  if (const auto sockets = udp::decode(bytes); accepted(sockets)) {
    for (const network::Endpoint& one : sockets.value()) GLOO_BYPASS_CHECK(one.isIp() && one.port() != 0);
    GLOO_BYPASS_CHECK(!sockets.value().empty() && sockets.value().size() <= PacketPort::kMaxRails);
    GLOO_BYPASS_CHECK(same(udp::encode(sockets.value())));
  }
  if (const auto both = decodeAutoAddress(bytes); accepted(both)) {
    GLOO_BYPASS_CHECK(same(encodeAutoAddress(both.value().memory, both.value().network)));
    (void)accepted(decodeMemifAddress(both.value().memory));
    decodeNoMemory(both.value().memory);
    (void)accepted(decodeUdpAddress(both.value().network));
  }
  if (const auto rdma = decodeRdmaAddress(bytes); accepted(rdma)) {
    GLOO_BYPASS_CHECK(!rdma.value().rails.empty() && rdma.value().rails.size() <= kMaxRails);
    GLOO_BYPASS_CHECK(same(encodeRdmaAddress(rdma.value())));
  }
}

void decodeChannel(std::span<const std::byte> bytes) {
  decodePort(bytes);
  if (const auto pair = pairs::decodePairAddress(bytes); accepted(pair)) {
    const auto again = pairs::encodePairAddress(pair.value());
    GLOO_BYPASS_CHECK(again.ok() || bytes.size() > MessageChannel::kMaxAddressBytes);
    const auto same = again.ok() ? pairs::decodePairAddress(again.value()) : pair;
    GLOO_BYPASS_CHECK(same.ok() && same.value().memory.portAddress == pair.value().memory.portAddress &&
                      same.value().network.portAddress == pair.value().network.portAddress &&
                      same.value().network.sessionId == pair.value().network.sessionId &&
                      same.value().memory.offer == pair.value().memory.offer &&
                      same.value().network.offer == pair.value().network.offer);
    decodePort(pair.value().memory.portAddress);
    decodePort(pair.value().network.portAddress);
  }
  const auto channel = decodeChannelAddress(bytes);
  if (!accepted(channel)) return;
  const std::string& description = channel.value().description;
  GLOO_BYPASS_CHECK(printable(description) == description);
  const std::vector<std::byte> port = channel.value().portAddress;
  decodePort(port);
  const auto again = decodeChannelAddress(encodeChannelAddress(channel.value()));
  GLOO_BYPASS_CHECK(again.ok() && again.value().portAddress == port && again.value().offer == channel.value().offer &&
                    again.value().sessionId == channel.value().sessionId);
}

}  // namespace

void fuzzAddress(std::span<const std::uint8_t> input) {
  const std::span<const std::byte> bytes = std::as_bytes(input);
  // Copies of exactly this size, so that reading beyond them is detected.
  decodeChannel(std::vector<std::byte>(bytes.begin(), bytes.end()));
  const std::vector<char> stored(input.begin(), input.end());
  const std::vector<std::byte> inside = adapter::decodeAddress(stored);
  GLOO_BYPASS_CHECK(inside.size() <= stored.size());
  if (!inside.empty()) decodeChannel(inside);
  // As the store's text: padded to the size that Gloo expects.
  if (input.empty() || input.size() > 400) return;
  GLOO_BYPASS_CHECK(adapter::decodeAddress(adapter::encodeAddress(bytes)) ==
                    std::vector<std::byte>(bytes.begin(), bytes.end()));
}

}  // namespace gloo_bypass::fuzz
