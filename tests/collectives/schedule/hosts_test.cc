#include "collectives/schedule/hosts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace gloo_bypass::collectives {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(Hosts_Of, RanksInTurn_AreGroupedByHostInTheOrderOfRanks) {
  const int hostOf[] = {7, 3, 7, 3};
  const Hosts hosts(3, hostOf);
  EXPECT_EQ(hosts.count(), 2);
  EXPECT_THAT(hosts.ranks(0), ElementsAre(0, 2));
  EXPECT_THAT(hosts.mates(), ElementsAre(1, 3));
  EXPECT_EQ(hosts.mine(), 1);
  EXPECT_EQ(hosts.place(), 1);
  EXPECT_THAT(hosts.leaders(), ElementsAre(0, 1));
  EXPECT_EQ(hosts.mostRanks(), 2);
  EXPECT_TRUE(hosts.even());
  EXPECT_THAT(hosts.column(), ElementsAre(2, 3));
  EXPECT_THAT(hosts.everyone(), ElementsAre(0, 1, 2, 3));
}

TEST(Hosts_Of, UnequalHosts_HaveNoColumns) {
  const int hostOf[] = {0, 1, 1};
  const Hosts hosts(2, hostOf);
  EXPECT_EQ(hosts.mostRanks(), 2);
  EXPECT_FALSE(hosts.even());
  EXPECT_THAT(hosts.column(), IsEmpty());
  EXPECT_THAT(hosts.leaders(), ElementsAre(0, 1));
}

TEST(Hosts_Of, Identities_EmptyOnesAreHostsOfTheirOwn) {
  const std::string identities[] = {"a", "", "a", "", "b"};
  EXPECT_THAT(hostsOf(identities), ElementsAre(0, 1, 0, 3, 4));
}

TEST(Hosts_Representatives, ARoot_StandsForItsOwnHost) {
  const int hostOf[] = {0, 0, 1, 1};
  const Hosts hosts(0, hostOf);
  EXPECT_THAT(hosts.representatives(3), ElementsAre(0, 3));
  EXPECT_THAT(hosts.representatives(0), ElementsAre(0, 2));
}

}  // namespace
}  // namespace gloo_bypass::collectives
