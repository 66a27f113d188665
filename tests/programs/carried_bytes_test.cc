#include "programs/carried_bytes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "programs/error.h"

namespace gloo_bypass {
namespace {

using ::testing::HasSubstr;

std::string refusalOf(const std::string& transport, bool isOurs, const CarriedBytes& before, const CarriedBytes& now,
                      std::uint64_t leastBytes) {
  try {
    requireCarriedBy(transport, isOurs, before, now, leastBytes);
    return "";
  } catch (const ProgramError& error) {
    return error.what();
  }
}

TEST(CarriedBytes, CountersOfNoneOneAndSeveral_AreReadByName) {
  EXPECT_EQ(carriedBytes("{}"), CarriedBytes());
  EXPECT_EQ(carriedBytes(R"({"transport": "DPDK", "payload_bytes_received": 7, "open_channels": []})"),
            (CarriedBytes{{"DPDK", 7}}));
  EXPECT_EQ(carriedBytes(R"({"DPDK": {"payload_bytes_received": 7}, "UDP": {"payload_bytes_received": 0}})"),
            (CarriedBytes{{"DPDK", 7}, {"UDP", 0}}));
}

TEST(CarriedBytes, TextThatIsNoCounters_IsRefused) {
  for (const char* text :
       {"", "[]", "7", "{\"transport\": \"DPDK\"}", "{\"DPDK\": 3}", "{\"DPDK\": {\"payload_bytes_received\": -1}}"})
    EXPECT_THROW(carriedBytes(text), ProgramError) << text;
}

TEST(RequireCarriedBy, BytesOverTheNamedTransport_AreAccepted) {
  EXPECT_EQ(refusalOf("DPDK", true, {}, {{"DPDK", 100}}, 100), "");
  EXPECT_EQ(refusalOf("DPDK", true, {{"DPDK", 900}, {"UDP", 5}}, {{"DPDK", 1000}, {"UDP", 5}}, 100), "");
  EXPECT_EQ(refusalOf("TCP", false, {}, {}, 100), "");
  EXPECT_EQ(refusalOf("TCP", false, {{"DPDK", 900}}, {{"DPDK", 900}}, 100), "");
}

TEST(RequireCarriedBy, NamedTransportCarriedNothingOrLess_IsRefused) {
  EXPECT_THAT(refusalOf("DPDK", true, {}, {}, 100),
              HasSubstr("DPDK was to carry 100 bytes at least, but 0 came over it"));
  EXPECT_THAT(refusalOf("DPDK", true, {{"DPDK", 901}}, {{"DPDK", 1000}}, 100), HasSubstr("but 99 came over it"));
}

TEST(RequireCarriedBy, AnotherTransportCarriedSome_IsRefusedByItsName) {
  EXPECT_THAT(refusalOf("TCP", false, {}, {{"UDP", 8}}, 100),
              HasSubstr("TCP was to carry all bytes, but 8 of them came over UDP"));
  EXPECT_THAT(refusalOf("DPDK", true, {{"UDP", 5}}, {{"DPDK", 1000}, {"UDP", 6}}, 100),
              HasSubstr("but 1 of them came over UDP"));
}

}  // namespace
}  // namespace gloo_bypass
