// The headers before a datagram, and their checksums.
#include "transport/dpdk/frame.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <vector>

#include "transport/dpdk/port_address.h"

namespace gloo_bypass::dpdk {
namespace {

constexpr std::size_t kUdpChecksumAt = kFrameHeaderBytes - 2;

UdpFlow someFlow() {
  UdpFlow flow;
  flow.sourceIp = 0x0a4e0001;
  flow.destinationIp = 0xfffe0102;
  flow.sourcePort = 47777;
  flow.destinationPort = 65535;
  return flow;
}

std::vector<std::byte> frameOf(const FrameTemplate& headers, std::size_t datagramBytes, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<std::byte> frame(kFrameHeaderBytes + datagramBytes);
  headers.write(frame.data(), datagramBytes);
  for (std::size_t i = kFrameHeaderBytes; i < frame.size(); ++i) frame[i] = static_cast<std::byte>(random());
  return frame;
}

// As a device does it: the sum over the UDP header, which holds the pseudo-header's, and the data; 0 becomes 0xffff.
void completeLikeADevice(std::vector<std::byte>& frame) {
  const auto sum = internetChecksum(std::span(frame).subspan(kEthernetHeaderBytes + kIpv4HeaderBytes));
  writeBe16(&frame[kUdpChecksumAt], sum == 0 ? 0xffff : sum);
}

bool isRight(const std::vector<std::byte>& frame) {
  const auto packet = parseIpv4Frame(frame);
  return packet && parseUdp(packet->payload) && hasRightUdpChecksum(*packet);
}

TEST(Frame, CompletedByADevice_IsRightAndEachFlippedBitIsFound) {
  for (const std::size_t bytes : {1u, 2u, 60u, 1471u, 1472u}) {
    SCOPED_TRACE(bytes);
    auto frame = frameOf(FrameTemplate(someFlow(), UdpChecksum::kByDevice), bytes, static_cast<unsigned>(bytes));
    completeLikeADevice(frame);
    EXPECT_TRUE(isRight(frame));
    for (std::size_t bit = (kEthernetHeaderBytes + kIpv4HeaderBytes) * 8; bit < frame.size() * 8; ++bit) {
      frame[bit / 8] ^= static_cast<std::byte>(1u << bit % 8);
      EXPECT_FALSE(isRight(frame)) << "bit " << bit;
      frame[bit / 8] ^= static_cast<std::byte>(1u << bit % 8);
    }
  }
}

TEST(Frame, WithoutChecksum_IsNotRight) {
  const auto frame = frameOf(FrameTemplate(someFlow()), 100, 1);
  EXPECT_EQ(readBe16(&frame[kUdpChecksumAt]), 0);
  EXPECT_TRUE(parseIpv4Frame(frame).has_value());
  EXPECT_FALSE(isRight(frame));
}

TEST(UdpAddress, ChecksumsOrNot_ArriveAsTheyWere) {
  for (const bool checksums : {false, true}) {
    const auto decoded = decodeUdpAddress(encodeAddress(UdpAddress{0x0a4e0001, 47777, checksums}));
    ASSERT_TRUE(decoded.ok()) << decoded.error().message;
    EXPECT_EQ(decoded.value().checksums, checksums);
    EXPECT_EQ(decoded.value().port, 47777);
  }
}

TEST(UdpAddress, SomethingElseAtItsEnd_IsMalformed) {
  auto bytes = encodeAddress(UdpAddress{0x0a4e0001, 47777, true});
  bytes.back() = std::byte{2};
  EXPECT_FALSE(decodeUdpAddress(bytes).ok());
  bytes.back() = std::byte{1};
  bytes.push_back(std::byte{1});
  EXPECT_FALSE(decodeUdpAddress(bytes).ok());
}

// The content of an ICMP message from `from` that quotes a datagram of someFlow().
std::optional<NotDelivered> saidByIcmp(std::uint8_t code, std::uint16_t mtu, Ipv4Address from,
                                       std::size_t quotedBytes = 16) {
  const auto quoted = frameOf(FrameTemplate(someFlow()), 100, 3);
  std::vector<std::byte> icmp(8);
  icmp[0] = std::byte{3};
  icmp[1] = std::byte{code};
  writeBe16(&icmp[6], mtu);
  icmp.insert(icmp.end(), quoted.begin() + kEthernetHeaderBytes, quoted.begin() + kFrameHeaderBytes + quotedBytes);
  return parseNotDelivered({.sourceIp = from, .protocol = kProtocolIcmp, .payload = icmp});
}

TEST(NotDelivered, PortUnreachable_CountsFromTheDestinationOnly) {
  const auto told = saidByIcmp(3, 0, someFlow().destinationIp);
  ASSERT_TRUE(told);
  EXPECT_TRUE(told->portUnreachable);
  EXPECT_EQ(told->sourcePort, someFlow().sourcePort);
  EXPECT_EQ(told->data.size(), 16u);
  EXPECT_FALSE(saidByIcmp(3, 0, someFlow().destinationIp + 1));
}

TEST(NotDelivered, TooLarge_CountsFromAnyRouterThatNamesAnMtu) {
  const auto told = saidByIcmp(4, 1400, 0x0a000001);
  ASSERT_TRUE(told);
  EXPECT_FALSE(told->portUnreachable);
  EXPECT_EQ(told->mtu, 1400);
  EXPECT_EQ(told->destinationIp, someFlow().destinationIp);
  EXPECT_FALSE(saidByIcmp(4, 0, 0x0a000001));
  EXPECT_FALSE(saidByIcmp(1, 1400, 0x0a000001));  // host unreachable: ARP may yet be answered
}

}  // namespace
}  // namespace gloo_bypass::dpdk
