#include "collectives/network/wire.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <random>

namespace gloo_bypass::collectives {
namespace {

using ::testing::HasSubstr;
using Bytes = std::vector<std::byte>;

OperationHeader header() {
  return {.algorithm = Algorithm::kRing,
          .log2PartBytes = 18,
          .payloadFollows = true,
          .operation = 1ull << 40,
          .description = {0x0102030405060708, 77},
          .bytes = 99};
}

TEST(NetworkWire_OperationHeader, EveryField_ComesBack) {
  std::array<std::byte, OperationHeader::kBytes> bytes;
  encode(header(), bytes.data());
  EXPECT_EQ(decodeOperationHeader(bytes), header());
}

TEST(NetworkWire_OperationHeader, CutShortOrOutOfRange_IsRefused) {
  std::array<std::byte, OperationHeader::kBytes> bytes;
  encode(header(), bytes.data());
  EXPECT_FALSE(decodeOperationHeader(std::span(bytes).first(47)));
  for (const std::size_t at : {0, 4, 5}) {  // magic, algorithm, part
    auto changed = bytes;
    changed[at] = std::byte{0xff};
    EXPECT_FALSE(decodeOperationHeader(changed)) << at;
  }
}

TEST(NetworkWire_ControlMessage, EveryField_ComesBackPrintable) {
  const auto message = decodeControlMessage(encode(ControlMessage{.type = ControlMessage::Type::kFailed,
                                                                  .code = ErrorCode::kTimedOut,
                                                                  .operation = 12,
                                                                  .description = {3, 4},
                                                                  .text = "why\n\x1b[2J"}));
  ASSERT_TRUE(message);
  EXPECT_EQ(message->code, ErrorCode::kTimedOut);
  EXPECT_EQ(message->operation, 12u);
  EXPECT_EQ(message->description, (DescriptionWords{3, 4}));
  EXPECT_EQ(message->text, "why\\x0a\\x1b[2J");
}

TEST(NetworkWire_ControlMessage, CutShortTooLongOrOutOfRange_IsRefused) {
  const Bytes bytes = encode(ControlMessage{.text = std::string(5000, 'x')});
  ASSERT_EQ(bytes.size(), ControlMessage::kMostBytes);
  ASSERT_TRUE(decodeControlMessage(bytes));
  EXPECT_FALSE(decodeControlMessage(std::span(bytes).first(31)));
  Bytes longer = bytes;
  longer.push_back({});
  EXPECT_FALSE(decodeControlMessage(longer));
  for (const std::size_t at : {0, 4, 5}) {  // magic, type, code
    Bytes changed = bytes;
    changed[at] = std::byte{0xff};
    EXPECT_FALSE(decodeControlMessage(changed)) << at;
  }
}

TEST(NetworkWire_Addresses, OfAllRanks_ComeBack) {
  const std::vector<Bytes> addresses = {Bytes(3, std::byte{1}), {}, Bytes(512, std::byte{2})};
  const auto decoded = decodeAddresses(encodeAddresses(1, addresses), 1, 3);
  ASSERT_TRUE(decoded.ok());
  EXPECT_EQ(decoded.value(), addresses);
}

TEST(NetworkWire_Addresses, OtherVersionOrSize_NamesBothValues) {
  const Bytes bytes = encodeAddresses(1, std::vector<Bytes>(3));
  EXPECT_THAT(decodeAddresses(bytes, 1, 4).error().message, HasSubstr("rank 1 has a group of size 3 and this rank 4"));
  Bytes other = bytes;
  other[4] = std::byte{9};
  EXPECT_EQ(decodeAddresses(other, 1, 3).error().code, ErrorCode::kConfiguration);
  EXPECT_THAT(decodeAddresses(other, 1, 3).error().message, HasSubstr("rank 1 has version 9 and this rank 2"));
  EXPECT_FALSE(decodeAddresses(bytes, 2, 3).ok());
}

TEST(NetworkWire_Addresses, EveryCutAndRandomBytes_AreRefusedOrDecoded) {
  const Bytes bytes = encodeAddresses(0, std::vector<Bytes>(4, Bytes(20)));
  for (std::size_t length = 0; length < bytes.size(); ++length) {
    EXPECT_FALSE(decodeAddresses(std::span(bytes).first(length), 0, 4).ok()) << length;
  }
  std::mt19937 random(3);
  for (int i = 0; i < 2000; ++i) {
    Bytes changed = bytes;
    for (int k = 0; k < 3; ++k) changed[random() % changed.size()] = static_cast<std::byte>(random());
    (void)decodeAddresses(changed, 0, 4);  // the address sanitizer looks
  }
}

TEST(NetworkWire_Keys, OfTheThreeKinds_NeverMeet) {
  EXPECT_EQ(programTag(programKey(0xffffffff)), 0xffffffffu);
  EXPECT_EQ(collectiveTag(collectiveKey(0x5000007, 0xffffffff)), (CollectiveTag{7, 0xffffffff}));
  EXPECT_FALSE(collectiveTag(controlKey()) || collectiveTag(programKey(7)));
  EXPECT_FALSE(programTag(controlKey()));
  EXPECT_FALSE(programTag(collectiveKey(0xffffffffffff, 0xffffffff)));
  EXPECT_NE(collectiveKey(1, 0), collectiveKey(2, 0));
}

}  // namespace
}  // namespace gloo_bypass::collectives
