// The addresses that ARP asks for, and when it repeats a request. Pure: no EAL, no interface.
#include "transport/dpdk/neighbour_table.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace gloo_bypass::dpdk {
namespace {

constexpr MacAddress kOwnMac{2, 0, 0, 0, 0, 1}, kHopMac{2, 0, 0, 0, 0, 2};
constexpr Ipv4Address kOwnIp = 0x0a4d0001, kHop = 0x0a4d0002;

class Neighbours : public ::testing::Test {
 protected:
  // Requests until there are no more, or `limit` have passed.
  int requestsWithin(Duration limit) {
    int requests = 0;
    for (const TimePoint end = now_ + limit; now_ < end; now_ += std::chrono::milliseconds(10)) {
      requests += static_cast<int>(table_.tick(now_).size());
    }
    return requests;
  }
  // The reply that the hop would send.
  ArpFrame reply() const {
    NeighbourTable hop(kHopMac, kHop, true);
    NeighbourTable asking(kOwnMac, kOwnIp, false);
    asking.want(kHop);
    return *hop.handle(asking.tick(now_).at(0), now_);
  }

  NeighbourTable table_{kOwnMac, kOwnIp, false};
  TimePoint now_{std::chrono::hours(1)};
};

TEST_F(Neighbours, NobodyAnswers_FailsAfterAllTries) {
  table_.want(kHop);
  EXPECT_EQ(requestsWithin(std::chrono::seconds(30)), NeighbourTable::kMaxTries);
  EXPECT_TRUE(table_.failed(kHop));
  EXPECT_FALSE(table_.searching());
}

TEST_F(Neighbours, WantedAgainAfterItFailed_SearchBeginsAnew) {
  table_.want(kHop);
  (void)requestsWithin(std::chrono::seconds(30));
  ASSERT_TRUE(table_.failed(kHop));
  table_.want(kHop);
  EXPECT_FALSE(table_.failed(kHop));
  EXPECT_TRUE(table_.searching());
  EXPECT_EQ(table_.tick(now_).size(), 1U);  // at once
  (void)table_.handle(reply(), now_);
  EXPECT_EQ(table_.find(kHop), kHopMac);
}

TEST_F(Neighbours, WantedAgainWhileItIsSearchedFor_TriesGoOn) {
  table_.want(kHop);
  EXPECT_GT(requestsWithin(std::chrono::seconds(1)), 2);
  table_.want(kHop);
  EXPECT_LT(requestsWithin(std::chrono::seconds(30)), NeighbourTable::kMaxTries);
  EXPECT_TRUE(table_.failed(kHop));
}

TEST_F(Neighbours, KnownAndWantedAgain_KeepsItsAddress) {
  table_.want(kHop);
  (void)table_.tick(now_);
  (void)table_.handle(reply(), now_);
  table_.want(kHop);
  EXPECT_EQ(table_.find(kHop), kHopMac);
  EXPECT_EQ(requestsWithin(std::chrono::seconds(20)), 0);
}

TEST_F(Neighbours, AddressIsFoundOrChanges_VersionTellsIt) {
  table_.want(kHop);
  (void)table_.tick(now_);
  const std::uint64_t before = table_.version();
  (void)table_.handle(reply(), now_);
  const std::uint64_t known = table_.version();
  EXPECT_NE(known, before);
  table_.learn(kHop, MacAddress{2, 0, 0, 0, 0, 3}, now_);
  EXPECT_EQ(table_.version(), known) << "nothing is learnt of a known hop from a packet";
  EXPECT_EQ(table_.find(kHop), kHopMac);
}

}  // namespace
}  // namespace gloo_bypass::dpdk
