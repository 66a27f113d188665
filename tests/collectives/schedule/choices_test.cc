#include "collectives/schedule/choices.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace gloo_bypass::collectives {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

Circumstances of(Kind kind, std::size_t bytes, int ranks, bool sharedHosts = false) {
  return {.kind = kind, .bytes = bytes, .ranks = ranks, .sharedHosts = sharedHosts};
}

// `visit` gets every kind with sizes and ranks of all magnitudes.
template <typename Visit>
void forAll(Visit&& visit) {
  for (int kind = 0; kind < kKinds; ++kind) {
    for (const int size : {1, 2, 3, 8, 17, 4096}) {
      for (std::size_t bytes = 0; bytes < (std::size_t{1} << 40); bytes = 4 * bytes + 1) {
        visit(of(static_cast<Kind>(kind), bytes, size));
      }
    }
  }
}

TEST(Choices_BuiltIn, AnySizeAndRanks_GivesAnAlgorithmOfTheKind) {
  forAll([](const Circumstances& circumstances) {
    const Choice choice = ChoiceTable().choose(circumstances);
    EXPECT_NE(findAlgorithm(circumstances.kind, choice.algorithm), nullptr);
    EXPECT_GE(choice.partBytes, 4096u);
  });
}

TEST(Choices_BuiltIn, HostsWithSeveralRanks_TakeTwoLevelsForWhatIsNotLong) {
  const auto chosen = [](std::size_t bytes, int ranks, bool sharedHosts) {
    return ChoiceTable().choose(of(Kind::kAllReduce, bytes, ranks, sharedHosts)).algorithm;
  };
  for (const std::size_t bytes : {4, 16 * 1024, 256 * 1024}) {
    EXPECT_EQ(chosen(bytes, 8, true), Algorithm::kTwoLevelOneShot) << bytes;
    EXPECT_NE(chosen(bytes, 8, false), Algorithm::kTwoLevelOneShot) << bytes;
  }
  EXPECT_EQ(chosen(4, 16, true), Algorithm::kTwoLevelOneShot);
  EXPECT_EQ(chosen(4, 64, true), Algorithm::kTwoLevelOneShot);
  EXPECT_NE(chosen(4, 65, true), Algorithm::kTwoLevelOneShot);
  EXPECT_NE(chosen(4 << 20, 8, true), Algorithm::kTwoLevelOneShot);
}

TEST(Choices_BuiltIn, HostsWithSeveralRanks_TakeRailsForWhatIsLong) {
  for (const Kind kind :
       {Kind::kAllReduce, Kind::kReduce, Kind::kReduceScatter, Kind::kAllGather, Kind::kBroadcast, Kind::kBarrier}) {
    for (const int ranks : {3, 16, 64}) {
      EXPECT_EQ(ChoiceTable().choose(of(kind, 4 << 20, ranks, true)).algorithm, Algorithm::kTwoLevelRails)
          << nameOf(kind) << " " << ranks;
      EXPECT_NE(ChoiceTable().choose(of(kind, 4 << 20, ranks, false)).algorithm, Algorithm::kTwoLevelRails);
    }
    EXPECT_NE(ChoiceTable().choose(of(kind, 4 << 20, 65, true)).algorithm, Algorithm::kTwoLevelRails);
  }
}

// Where a step adds several messages they wait in memory: smaller slices stay in the cache.
TEST(Choices_Slices, SeveralMessagesToAdd_AreSmaller) {
  constexpr std::size_t kKiB = 1024;
  for (const Algorithm algorithm : {Algorithm::kOneShot, Algorithm::kDirect, Algorithm::kDoubleTree,
                                    Algorithm::kTwoLevelRing, Algorithm::kTwoLevelOneShot}) {
    EXPECT_EQ(choiceOf(algorithm, 8).partBytes, 256 * kKiB) << nameOf(algorithm);
  }
  for (const Algorithm algorithm :
       {Algorithm::kRing, Algorithm::kBidirectionalRing, Algorithm::kHalvingDoubling, Algorithm::kBinomial,
        Algorithm::kScatterAllGather, Algorithm::kDissemination, Algorithm::kTwoLevelRails}) {
    EXPECT_EQ(choiceOf(algorithm, 8).partBytes, 1024 * kKiB) << nameOf(algorithm);
  }
}

TEST(Choices_InOrder, AnySizeAndRanks_GivesAnAlgorithmThatAddsInOrder) {
  ChoiceTable table;
  Rule ring;
  ring.kind = Kind::kAllReduce;
  ring.algorithm = Algorithm::kRing;
  table.prefer({ring});
  table.keepOrderOfRanks();
  forAll([&](const Circumstances& circumstances) {
    const Choice choice = table.choose(circumstances);
    ASSERT_NE(findAlgorithm(circumstances.kind, choice.algorithm), nullptr);
    EXPECT_TRUE(findAlgorithm(circumstances.kind, choice.algorithm)->addsInOrder);
  });
}

TEST(Choices_InOrder, AfterAnotherOrderByName_IsRefused) {
  ChoiceTable table;
  ASSERT_TRUE(table.prefer(std::string_view("ring")).ok());
  EXPECT_THAT(table.addsInOrderOfRanks().error().message, HasSubstr("all-reduce by ring does not add in the order"));
  ChoiceTable gathers;
  ASSERT_TRUE(gathers.prefer(std::string_view("all-gather=ring")).ok());
  EXPECT_TRUE(gathers.addsInOrderOfRanks().ok());
}

TEST(Choices_ByName, OneName_HoldsForAllKindsThatHaveIt) {
  ChoiceTable table;
  ASSERT_TRUE(table.prefer(std::string_view("ring")).ok());
  EXPECT_EQ(table.choose(of(Kind::kAllReduce, 4, 2)).algorithm, Algorithm::kRing);
  EXPECT_EQ(table.choose(of(Kind::kAllGather, 4, 2)).algorithm, Algorithm::kRing);
  EXPECT_EQ(table.choose(of(Kind::kBroadcast, 4, 2)).algorithm, Algorithm::kBinomial);
  EXPECT_THAT(table.explain(of(Kind::kAllReduce, 4, 2)), HasSubstr("chosen by name"));
}

TEST(Choices_ByName, KindsAndNames_HoldForThese) {
  ChoiceTable table;
  ASSERT_TRUE(table.prefer(std::string_view("all-reduce=double-tree,broadcast=scatter-all-gather")).ok());
  EXPECT_EQ(table.choose(of(Kind::kAllReduce, 4, 2)).algorithm, Algorithm::kDoubleTree);
  EXPECT_EQ(table.choose(of(Kind::kBroadcast, 4, 2)).algorithm, Algorithm::kScatterAllGather);
  EXPECT_EQ(table.choose(of(Kind::kAllGather, 4, 2)).algorithm, Algorithm::kDirect);
}

TEST(Choices_ByName, UnknownOnes_AreRefusedWithThoseThatThereAre) {
  const auto why = [](const char* names) { return ChoiceTable().prefer(std::string_view(names)).error().message; };
  EXPECT_THAT(why("rung"), AllOf(HasSubstr("no algorithm 'rung'"), HasSubstr("ring, ")));
  EXPECT_THAT(why("all-reduce=binomial"), AllOf(HasSubstr("'binomial' for all-reduce"), HasSubstr("one-shot, direct")));
  EXPECT_THAT(why("reduce-all=ring"), HasSubstr("no operation 'reduce-all'"));
  EXPECT_THAT(why("ring,"), HasSubstr(""));
}

TEST(Choices_Text, WrittenAndRead_IsTheSame) {
  ChoiceTable table;
  ASSERT_TRUE(table.prefer(std::string_view("all-gather=ring")).ok());
  Rule rule;
  rule.kind = Kind::kAllReduce;
  rule.algorithm = Algorithm::kTwoLevelRing;
  rule.upToBytes = 4096;
  rule.upToRanks = 8;
  rule.sharedHostsOnly = true;
  rule.why = "measured";
  Rule other = rule;
  other.sharedHostsOnly = false;
  other.ownHostsOnly = true;
  table.prefer({rule, other});
  table.keepOrderOfRanks();
  const auto read = ChoiceTable::parse(table.text());
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(read.value(), table);
}

TEST(Choices_Rule, OfSharedHosts_HoldsThereOnly) {
  ChoiceTable table;
  Rule rule;
  rule.kind = Kind::kAllReduce;
  rule.algorithm = Algorithm::kTwoLevelRing;
  rule.sharedHostsOnly = true;
  table.prefer({rule});
  EXPECT_EQ(table.choose(of(Kind::kAllReduce, 1 << 30, 4, true)).algorithm, Algorithm::kTwoLevelRing);
  EXPECT_EQ(table.choose(of(Kind::kAllReduce, 1 << 30, 4, false)).algorithm, Algorithm::kRing);
}

TEST(Choices_Rule, OfHostsOfOneRank_HoldsThereOnly) {
  const auto table = ChoiceTable::parse(
      R"({"gloo_bypass_choices":1,"rules":[{"kind":"all-reduce","algorithm":"double-tree","own_hosts_only":true}]})");
  ASSERT_TRUE(table) << table.error().message;
  const Circumstances own = of(Kind::kAllReduce, 1 << 30, 4, false), shared = of(Kind::kAllReduce, 1 << 30, 4, true);
  EXPECT_EQ(table.value().choose(own).algorithm, Algorithm::kDoubleTree);
  EXPECT_NE(table.value().choose(shared).algorithm, Algorithm::kDoubleTree);
  EXPECT_THAT(table.value().explain(own), HasSubstr("where no ranks share a host"));
}

TEST(Choices_Text, WrongOnes_AreRefusedWithTheRule) {
  const auto why = [](const std::string& text) {
    const auto table = ChoiceTable::parse(text);
    return table ? "accepted" : table.error().message;
  };
  const auto withRule = [&](const std::string& rule) {
    return why(R"({"gloo_bypass_choices":1,"rules":[{"kind":"barrier","algorithm":"dissemination"},)" + rule + "]}");
  };
  EXPECT_THAT(why(""), HasSubstr("no table of choices"));
  EXPECT_THAT(why("[1]"), HasSubstr("no table of choices"));
  EXPECT_THAT(why(R"({"gloo_bypass_choices":2})"), HasSubstr("another version"));
  EXPECT_THAT(why(R"({"gloo_bypass_choices":1})"), HasSubstr("rules"));
  EXPECT_THAT(why(R"({"gloo_bypass_choices":1,"rules":7})"), HasSubstr("list"));
  EXPECT_THAT(withRule("7"), HasSubstr("rule 1"));
  EXPECT_THAT(withRule(R"({"kind":"all-reduce"})"), AllOf(HasSubstr("rule 1"), HasSubstr("algorithm")));
  EXPECT_THAT(withRule(R"({"kind":"all-reduce","algorithm":"r\nng"})"), HasSubstr("'r\\x0ang'"));
  EXPECT_THAT(withRule(R"({"kind":"all-reduce","algorithm":"ring","up_to_bytes":-1})"), HasSubstr("up_to_bytes"));
  EXPECT_THAT(withRule(R"({"kind":"all-reduce","algorithm":"ring","up_to_ranks":99999999999})"),
              HasSubstr("up_to_ranks"));
  EXPECT_THAT(withRule(R"({"kind":"all-reduce","algorithm":"ring","shared_hosts_only":3})"), HasSubstr("rule 1"));
}

TEST(Choices_Explain, SaysAlgorithmCostAndReason) {
  EXPECT_THAT(ChoiceTable().explain(of(Kind::kAllReduce, 8192, 2)),
              HasSubstr("one-shot (1 round, n (p - 1) bytes). short: one network"));
  EXPECT_THAT(ChoiceTable().explain(of(Kind::kAllReduce, 64 << 20, 8)), HasSubstr("ring (2 (p - 1) rounds"));
}

}  // namespace
}  // namespace gloo_bypass::collectives
