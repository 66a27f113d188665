// Ethernet frames from strangers: IPv4, UDP, ICMP and ARP.
#include <algorithm>
#include <vector>

#include "tests/fuzz/fuzz_target.h"
#include "transport/base/check.h"
#include "transport/dpdk/frame.h"
#include "transport/dpdk/neighbour_table.h"

namespace gloo_bypass::fuzz {
using namespace dpdk;
namespace {

constexpr MacAddress kOwnMac{2, 0, 0, 0, 0, 1};
constexpr Ipv4Address kOwnIp = 0x0a000001;
constexpr std::size_t kHops = 4;  // kOwnIp + 1 and so on: wanted

bool inside(std::span<const std::byte> part, std::span<const std::byte> whole) {
  return part.empty() || (part.data() >= whole.data() && part.data() + part.size() <= whole.data() + whole.size());
}

void parse(std::span<const std::byte> frame) {
  const auto packet = parseIpv4Frame(frame);
  std::optional<UdpDatagram> udp;
  if (packet) {
    GLOO_BYPASS_CHECK(inside(packet->payload, frame));
    udp = parseUdp(packet->payload);
    if (udp) GLOO_BYPASS_CHECK(inside(udp->data, packet->payload));
    if (const auto told = parseNotDelivered(*packet)) {
      GLOO_BYPASS_CHECK(inside(told->data, packet->payload));
      GLOO_BYPASS_CHECK(packet->protocol == kProtocolIcmp);
      GLOO_BYPASS_CHECK(told->portUnreachable ? told->destinationIp == packet->sourceIp : told->mtu != 0);
    }
  }
  if (frame.size() < kFrameHeaderBytes) return;
  // The short way, for a frame's headers alone, must agree with the long one.
  const auto headers = frame.first<kFrameHeaderBytes>();
  const auto datagramBytes = udpDatagramBytes(headers, frame.size());
  const bool withoutOptions = frame[kEthernetHeaderBytes] == std::byte{0x45};
  const bool isUdp = packet && udp && withoutOptions && packet->protocol == kProtocolUdp;
  GLOO_BYPASS_CHECK(datagramBytes.has_value() == isUdp);
  if (isUdp) GLOO_BYPASS_CHECK(*datagramBytes == udp->data.size());
}

// A table that looks for some hops: whatever arrives, it holds only these, and sends a bounded number of requests.
void resolve(std::span<const std::byte> frame) {
  NeighbourTable table(kOwnMac, kOwnIp, /*answer=*/true);
  for (std::size_t i = 1; i <= kHops; ++i) table.want(kOwnIp + static_cast<Ipv4Address>(i));
  TimePoint now = TimePoint{} + std::chrono::hours(1);
  for (int i = 0; i < 3; ++i) {
    if (const auto reply = table.handle(frame, now)) {
      GLOO_BYPASS_CHECK(
          readBe32(&(*reply)[28]) == kOwnIp &&
          std::equal(kOwnMac.begin(), kOwnMac.end(), reinterpret_cast<const std::uint8_t*>(&(*reply)[6])));
      // To us a reply needs no reply.
      GLOO_BYPASS_CHECK(!table.handle(*reply, now));
    }
    GLOO_BYPASS_CHECK(table.tick(now).size() <= kHops);
    now += NeighbourTable::kRefreshAfter;
  }
  std::size_t known = 0;
  for (std::size_t i = 1; i <= kHops; ++i) {
    const auto mac = table.find(kOwnIp + static_cast<Ipv4Address>(i));
    if (!mac) continue;
    ++known;
    GLOO_BYPASS_CHECK(((*mac)[0] & 1) == 0 && *mac != MacAddress{});
  }
  GLOO_BYPASS_CHECK(known <= 1 && !table.find(kOwnIp));
}

// Corrects the IPv4 header's checksum, so that the code behind it is reached.
void fixChecksum(std::vector<std::byte>& frame) {
  if (frame.size() < kEthernetHeaderBytes + kIpv4HeaderBytes) return;
  std::byte* const ip = &frame[kEthernetHeaderBytes];
  const std::size_t headerBytes = (std::to_integer<std::size_t>(ip[0]) & 0xf) * 4;
  if (headerBytes < kIpv4HeaderBytes || headerBytes > frame.size() - kEthernetHeaderBytes) return;
  writeBe16(ip + 10, 0);
  writeBe16(ip + 10, internetChecksum({ip, headerBytes}));
}

}  // namespace

void fuzzFrame(std::span<const std::uint8_t> input) {
  const std::span<const std::byte> bytes = std::as_bytes(input);
  // A copy of exactly this size, so that reading beyond it is detected.
  std::vector<std::byte> frame(bytes.begin(), bytes.end());
  parse(frame);
  resolve(frame);
  fixChecksum(frame);
  parse(frame);
}

}  // namespace gloo_bypass::fuzz
