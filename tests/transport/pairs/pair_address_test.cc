#include "transport/pairs/pair_address.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "transport/channel/message_channel.h"

namespace gloo_bypass::pairs {
namespace {

using ::testing::HasSubstr;
using Bytes = std::vector<std::byte>;

PairAddress address(std::size_t memoryBytes, std::size_t networkBytes, const std::string& description = "rank 3") {
  return {.memory = {11, Bytes(memoryBytes, std::byte{1}), description},
          .network = {22, Bytes(networkBytes, std::byte{2}), description}};
}

Bytes encoded(const PairAddress& of) {
  auto bytes = encodePairAddress(of);
  EXPECT_TRUE(bytes.ok()) << bytes.error().message;
  return std::move(bytes).value();
}

// With other bytes as its port address.
Bytes withPortAddress(const Bytes& portAddress) { return encodeChannelAddress({11, portAddress, "rank 3"}); }

TEST(PairAddress, RoundTrip_KeepsBoth) {
  for (const auto& [memory, network] : {std::pair{100u, 97u}, {0u, 5u}, {5u, 0u}}) {
    const auto decoded = decodePairAddress(encoded(address(memory, network)));
    ASSERT_TRUE(decoded.ok()) << decoded.error().message;
    EXPECT_EQ(decoded.value().memory.sessionId, 11u);
    EXPECT_EQ(decoded.value().network.sessionId, 22u);
    EXPECT_EQ(decoded.value().memory.portAddress, Bytes(memory, std::byte{1}));
    EXPECT_EQ(decoded.value().network.portAddress, Bytes(network, std::byte{2}));
    EXPECT_EQ(decoded.value().network.description, "rank 3");
  }
}

TEST(PairAddress, OffersOfKeys_AreKeptAndWithoutThemNothingIsWritten) {
  PairAddress keyed = address(100, 97);
  keyed.memory.offer = Bytes(50, std::byte{3});
  keyed.network.offer = Bytes(50, std::byte{4});
  const auto decoded = decodePairAddress(encoded(keyed));
  ASSERT_TRUE(decoded.ok()) << decoded.error().message;
  EXPECT_EQ(decoded.value().memory.offer, keyed.memory.offer);
  EXPECT_EQ(decoded.value().network.offer, keyed.network.offer);
  EXPECT_EQ(decoded.value().memory.portAddress, keyed.memory.portAddress);
  EXPECT_EQ(decoded.value().network.portAddress, keyed.network.portAddress);
  EXPECT_TRUE(decodePairAddress(encoded(address(100, 97))).value().network.offer.empty());
  EXPECT_EQ(encoded(keyed).size(), encoded(address(100, 97)).size() + 2 * (2 + 50));
}

TEST(PairAddress, OfferBeyondTheEndOrTooLong_IsRefused) {
  PairAddress keyed = address(4, 9);
  keyed.network.offer = Bytes(50, std::byte{4});
  const Bytes port = decodeChannelAddress(encoded(keyed)).value().portAddress;
  constexpr std::size_t kOfferLengthAt = 15 + 4;
  ASSERT_EQ(port[kOfferLengthAt], std::byte{50});
  for (const unsigned length : {0u, 60u, 65u, 255u}) {
    Bytes changed = port;
    changed[kOfferLengthAt] = static_cast<std::byte>(length);
    EXPECT_FALSE(decodePairAddress(withPortAddress(changed)).ok()) << length;
  }
  for (std::size_t length = 0; length < kOfferLengthAt + 2 + 50; ++length) {
    EXPECT_FALSE(decodePairAddress(withPortAddress({port.begin(), port.begin() + static_cast<long>(length)})).ok());
  }
}

TEST(PairAddress, LongestThatFits_FitsAndOneMore_IsRefusedNamingWhatToShorten) {
  const std::string description(96, 'x');
  std::size_t network = 0;
  while (encodePairAddress(address(100, network + 1, description)).ok()) ++network;
  EXPECT_GT(network, 97u) << "one RDMA device must fit";
  EXPECT_LE(encoded(address(100, network, description)).size(), MessageChannel::kMaxAddressBytes);
  const auto refused = encodePairAddress(address(100, network + 1, description));
  EXPECT_EQ(refused.error().code, ErrorCode::kExhausted);
  EXPECT_THAT(refused.error().message, HasSubstr("GLOO_BYPASS_MEMIF_DIRECTORY"));
  EXPECT_THAT(refused.error().message, HasSubstr("GLOO_BYPASS_RDMA_DEVICES"));
}

TEST(PairAddress, EveryTruncation_IsRefused) {
  const Bytes whole = encoded(address(4, 0));
  for (std::size_t length = 0; length < whole.size(); ++length) {
    EXPECT_FALSE(decodePairAddress(std::span(whole).first(length)).ok()) << length;
  }
  const Bytes port = decodeChannelAddress(whole).value().portAddress;
  for (std::size_t length = 0; length < port.size(); ++length) {
    const auto refused = decodePairAddress(withPortAddress({port.begin(), port.begin() + static_cast<long>(length)}));
    ASSERT_FALSE(refused.ok()) << length;
    EXPECT_THAT(refused.error().message, ::testing::Not(HasSubstr("\n")));
  }
}

TEST(PairAddress, LengthBeyondTheEnd_IsRefused) {
  Bytes port = decodeChannelAddress(encoded(address(4, 9))).value().portAddress;
  constexpr std::size_t kLengthAt = 13;
  ASSERT_EQ(port[kLengthAt], std::byte{4});
  port[kLengthAt] = std::byte{13};  // all of it
  EXPECT_TRUE(decodePairAddress(withPortAddress(port)).ok());
  for (const int high : {0, 0xff}) {
    port[kLengthAt] = high == 0 ? std::byte{14} : std::byte{0xff};
    port[kLengthAt + 1] = static_cast<std::byte>(high);
    const auto refused = decodePairAddress(withPortAddress(port));
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().code, ErrorCode::kPeerViolatedProtocol);
  }
}

TEST(PairAddress, OtherKindOrVersion_SaysWhatToSet) {
  const auto other = decodePairAddress(withPortAddress(Bytes(100, std::byte{'G'})));
  ASSERT_FALSE(other.ok());
  EXPECT_EQ(other.error().code, ErrorCode::kConfiguration);
  EXPECT_THAT(other.error().message, HasSubstr("GLOO_BYPASS_NETWORK"));
  Bytes port = decodeChannelAddress(encoded(address(4, 4))).value().portAddress;
  port[4] = std::byte{9};
  EXPECT_THAT(decodePairAddress(withPortAddress(port)).error().message, HasSubstr("version 2, the peer's 9"));
}

}  // namespace
}  // namespace gloo_bypass::pairs
