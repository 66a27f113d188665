#include "tools/common/carried_bytes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tools/common/error.h"

namespace gloo_bypass {
namespace {

using ::testing::HasSubstr;

std::string refusalOf(const std::string& transport, bool isOurs, const CarriedBytes& before, const CarriedBytes& now,
                      std::uint64_t leastBytes) {
  try {
    requireCarriedBy({transport}, isOurs, before, now, leastBytes);
    return "";
  } catch (const ProgramError& error) {
    return error.what();
  }
}

TEST(CarriedBytes, CountersOfNoneOneAndSeveral_AreReadByName) {
  EXPECT_EQ(carriedBytes("{}"), CarriedBytes());
  EXPECT_EQ(carriedBytes(R"({"transport": "DPDK", "payload_bytes_sent": 3, "payload_bytes_received": 7, "port": {}})"),
            (CarriedBytes{{"DPDK", {3, 7}}}));
  EXPECT_EQ(carriedBytes(R"({"DPDK": {"payload_bytes_sent": 3, "payload_bytes_received": 7},
                             "UDP": {"payload_bytes_sent": 0, "payload_bytes_received": 0}})"),
            (CarriedBytes{{"DPDK", {3, 7}}, {"UDP", {0, 0}}}));
}

TEST(CarriedBytes, TextThatIsNoCounters_IsRefused) {
  for (const char* text : {"", "[]", "7", R"({"transport": "DPDK"})", R"({"DPDK": 3})",
                           R"({"DPDK": {"payload_bytes_sent": 1, "payload_bytes_received": -1}})"})
    EXPECT_THROW(carriedBytes(text), ProgramError) << text;
}

TEST(RequireCarriedBy, BytesOverTheNamedTransport_AreAccepted) {
  EXPECT_EQ(refusalOf("DPDK", true, {}, {{"DPDK", {40, 60}}}, 100), "");
  EXPECT_EQ(refusalOf("TCP", false, {}, {}, 100), "");
}

TEST(RequireCarriedBy, BytesOfBefore_DoNotCount) {
  EXPECT_EQ(refusalOf("DPDK", true, {{"DPDK", {0, 900}}, {"UDP", {9, 5}}}, {{"DPDK", {0, 1000}}, {"UDP", {9, 5}}}, 100),
            "");
  EXPECT_EQ(refusalOf("TCP", false, {{"DPDK", {9, 900}}}, {{"DPDK", {9, 900}}}, 100), "");
}

TEST(RequireCarriedBy, SendThatLayInAQueue_IsAcceptedOfAnother) {
  EXPECT_EQ(refusalOf("TCP", false, {{"DPDK", {9, 900}}}, {{"DPDK", {13, 900}}}, 100), "");
}

TEST(RequireCarriedBy, NamedTransportCarriedNothingOrLess_IsRefused) {
  EXPECT_THAT(refusalOf("DPDK", true, {}, {}, 100), HasSubstr("DPDK was to carry 100 bytes at least, and carried 0"));
  EXPECT_THAT(refusalOf("DPDK", true, {{"DPDK", {0, 901}}}, {{"DPDK", {0, 1000}}}, 100), HasSubstr("and carried 99"));
}

TEST(RequireCarriedBy, AnotherTransportCarriedSome_IsRefusedByItsName) {
  EXPECT_THAT(refusalOf("TCP", false, {}, {{"UDP", {0, 8}}}, 100),
              HasSubstr("TCP was to carry all bytes, but 8 came over UDP"));
  EXPECT_THAT(refusalOf("DPDK", true, {{"UDP", {0, 5}}}, {{"DPDK", {0, 1000}}, {"UDP", {0, 6}}}, 100),
              HasSubstr("but 1 came over UDP"));
}

}  // namespace
}  // namespace gloo_bypass
