// Collective operations of made-up captures.
#include "tools/capture/operations.h"

#include <gtest/gtest.h>

#include <vector>

#include "tests/tools/capture/operation_frames.h"

namespace gloo_bypass::capture {
namespace {

using collectives::Algorithm;
using collectives::Description;
using collectives::ElementType;
using collectives::Kind;
using collectives::Reduction;
using std::chrono::milliseconds;
using test::host;
using test::Octets;
using test::OperationSender;

const Description kSum{Kind::kAllReduce, ElementType::kFloat32, Reduction::kSum, 0, 1024};
const Description kOther{Kind::kBroadcast, ElementType::kInt64, Reduction::kSum, 1, 10};

test::Endpoint rank(int number) {
  return {host(2 + static_cast<unsigned>(number)), static_cast<std::uint16_t>(7000 + number)};
}
RankAddress addressOf(int number) { return {rank(number).address, rank(number).port}; }

// A session from one rank to another; the id is the receiver's.
OperationSender sender(int from, int to, std::uint64_t group = 1) {
  return {rank(from), rank(to),
          group * 10'000 + static_cast<std::uint64_t>(from) * 100 + static_cast<std::uint64_t>(to)};
}

class Feed {
 public:
  void add(CaptureTime time, const Octets& frame, std::size_t kept = ~std::size_t{0}) {
    const Octets bytes(frame.begin(), frame.begin() + static_cast<std::ptrdiff_t>(std::min(kept, frame.size())));
    analysis_.add(time, dissect(LinkLayer::kEthernet, std::as_bytes(std::span(bytes)), frame.size()));
  }
  Operations operations() {
    analysis_.finish();
    return operationsOf(analysis_.operationParts());
  }
  const OperationCounters& counters() const { return analysis_.operationParts().counters(); }

 private:
  Analysis analysis_{{}};
};

TEST(Operations, MessagesAndTheirParts_AreOneOperationWithItsRanks) {
  OperationSender there = sender(0, 1), back = sender(1, 0);
  Feed feed;
  const Octets head = there.header(7, kSum), first = there.message(7, 1, 1000, 5000);
  feed.add(milliseconds(1000), head);
  feed.add(milliseconds(1001), first);
  const std::uint64_t message = there.lastMessage();
  feed.add(milliseconds(1002), there.chunk(message, 1000));
  feed.add(milliseconds(1003), there.chunk(message, 1000, 3));  // over a rail
  feed.add(milliseconds(1005), back.header(7, kSum, 100));
  feed.add(milliseconds(1006), first);  // again
  feed.add(milliseconds(1500), test::tcpSegment(rank(0), rank(1), 1, 100));
  const Operations found = feed.operations();
  ASSERT_EQ(found.all.size(), 1u);
  EXPECT_EQ(found.groups, 1u);
  const Operation& operation = found.all[0];
  EXPECT_EQ(operation.number, 7u);
  EXPECT_EQ(operation.description, kSum);
  EXPECT_EQ(operation.algorithm, Algorithm::kRing);
  EXPECT_TRUE(operation.agreed);
  EXPECT_EQ(operation.totals.frames, 6u);
  EXPECT_EQ(operation.totals.payloadBytes, 48u + 4 * 1000 + 148);
  EXPECT_EQ(operation.totals.repeatedBytes, 1000u);
  EXPECT_DOUBLE_EQ(operation.seconds(), 0.006);
  EXPECT_DOUBLE_EQ(operation.skewSeconds(), 0.005);
  ASSERT_EQ(operation.ranksEnd - operation.ranksBegin, 2u);
  EXPECT_EQ(found.ranks[0].rank, addressOf(0));
  EXPECT_EQ(found.ranks[0].sent.first, milliseconds(1000));
  EXPECT_EQ(found.ranks[0].sent.last, milliseconds(1006));
  EXPECT_EQ(found.ranks[1].rank, addressOf(1));
  EXPECT_EQ(found.ranks[1].sent.payloadBytes, 148u);
  EXPECT_EQ(callText(operation), "all-reduce of 1024 float32, sum (ring)");
}

TEST(Operations, OneAfterTheOther_HaveTheirOwnFigures) {
  OperationSender there = sender(0, 1), back = sender(1, 0);
  Feed feed;
  for (std::uint64_t number = 1; number <= 3; ++number) {
    const Description& call = number == 3 ? kOther : kSum;
    const auto at = milliseconds(100 * number);
    feed.add(at, there.header(number, call, 50));
    feed.add(at + milliseconds(number), back.header(number, call, 50));
  }
  const Operations found = feed.operations();
  ASSERT_EQ(found.all.size(), 3u);
  const auto calls = callStatistics(found);
  ASSERT_EQ(calls.size(), 2u);
  EXPECT_EQ(calls[0].operations, 2u);
  EXPECT_DOUBLE_EQ(calls[0].seconds[0], 0.001);
  EXPECT_DOUBLE_EQ(calls[0].seconds[4], 0.002);
  EXPECT_EQ(calls[1].example->description, kOther);
  EXPECT_DOUBLE_EQ(calls[1].skewSeconds[2], 0.003);
}

TEST(Operations, PartsBeforeTheirDescription_AreCountedOnceItComes) {
  OperationSender there = sender(0, 1);
  Feed feed;
  feed.add(milliseconds(1), there.header(1, kSum));
  const Octets late = there.message(1, 1, 1000, 2000);
  feed.add(milliseconds(2), there.chunk(there.lastMessage(), 1000));
  feed.add(milliseconds(3), late);
  feed.add(milliseconds(4), there.chunk(77, 1000));  // never described
  const Operations found = feed.operations();
  ASSERT_EQ(found.all.size(), 1u);
  EXPECT_EQ(found.all[0].totals.payloadBytes, 2048u);
  EXPECT_EQ(feed.counters().unplaced, 1u);
}

TEST(Operations, OtherMessagesOfTheSession_BelongToNone) {
  OperationSender there = sender(0, 1), gloo = sender(2, 3);
  Feed feed;
  feed.add(milliseconds(1), there.header(1, kSum));
  feed.add(milliseconds(2), there.message(collectives::programKey(5).tag, 1000, 2000));
  feed.add(milliseconds(3), there.chunk(there.lastMessage(), 1000));
  feed.add(milliseconds(4), gloo.message(0x0123, 1000, 2000));
  feed.add(milliseconds(5), gloo.chunk(gloo.lastMessage(), 1000));
  const Operations found = feed.operations();
  ASSERT_EQ(found.all.size(), 1u);
  EXPECT_EQ(found.all[0].totals.frames, 1u);
  EXPECT_EQ(feed.counters().unplaced, 0u);
}

// Each 0 -> 1 -> 2 -> 0, and both call the same at the same time.
TEST(Operations, TwoGroupsOfTheSameRanks_StayApart) {
  std::vector<OperationSender> rings;
  for (const std::uint64_t group : {1, 2}) {
    for (int from = 0; from < 3; ++from) rings.push_back(sender(from, (from + 1) % 3, group));
  }
  Feed feed;
  for (std::uint64_t number = 1; number <= 2; ++number) {
    for (std::size_t i = 0; i < rings.size(); ++i) {
      feed.add(milliseconds(100 * number + (i < 3 ? 0 : 10) + i), rings[i].header(number, kSum, 10));
    }
  }
  const Operations found = feed.operations();
  EXPECT_EQ(found.groups, 2u);
  ASSERT_EQ(found.all.size(), 4u);
  for (const Operation& operation : found.all) {
    EXPECT_EQ(operation.totals.frames, 3u);
    EXPECT_DOUBLE_EQ(operation.seconds(), 0.002);
  }
  EXPECT_EQ(found.all[0].group, 1u);
  EXPECT_EQ(found.all[1].group, 2u);
}

// The sessions between 0 and 1 and between 2 and 3 are seen before one joins them.
TEST(Operations, SessionsThatMeetLater_AreOneGroup) {
  std::vector<OperationSender> sessions{sender(0, 1), sender(2, 3), sender(1, 2), sender(3, 0)};
  Feed feed;
  for (OperationSender& one : sessions) feed.add(milliseconds(1), one.header(1, kSum, 10));
  const Operations found = feed.operations();
  ASSERT_EQ(found.all.size(), 1u);
  EXPECT_EQ(found.all[0].totals.frames, 4u);
  EXPECT_EQ(found.ranks.size(), 4u);
}

TEST(Operations, RanksThatCallDifferentThings_AreSaid) {
  OperationSender there = sender(0, 1), back = sender(1, 0);
  Feed feed;
  for (std::uint64_t number = 1; number <= 2; ++number) {
    feed.add(milliseconds(number), there.header(number, kSum));
    feed.add(milliseconds(number), back.header(number, number == 1 ? kSum : kOther));
  }
  const Operations found = feed.operations();
  ASSERT_EQ(found.all.size(), 2u);
  EXPECT_TRUE(found.all[0].agreed);
  EXPECT_FALSE(found.all[1].agreed);
  EXPECT_NE(callText(found.all[1]).find("ranks disagree"), std::string::npos);
}

TEST(Operations, SnapLengthBeforeTheHeader_LeavesTheNumber) {
  OperationSender there = sender(0, 1);
  const Octets head = there.header((1ull << 24) + 5, kSum, 200);
  for (std::size_t kept = 0; kept <= head.size(); ++kept) {
    Feed feed;
    feed.add(milliseconds(1), head, kept);
    const Operations found = feed.operations();
    // Ethernet, IPv4, UDP, common header, message number and tag; all of the message's header and the operation's.
    ASSERT_EQ(found.all.size(), kept >= 42 + 56 + 16 ? 1u : 0u) << kept;
    if (found.all.empty()) continue;
    const bool whole = kept >= 42 + 56 + 44 + 48;
    EXPECT_EQ(found.all[0].description.has_value(), whole) << kept;
    EXPECT_EQ(found.all[0].number, whole ? (1ull << 24) + 5 : 5) << kept;
    EXPECT_EQ(found.all[0].totals.bytes, head.size());
  }
}

TEST(Operations, NumbersBeyondTheTag_GoOn) {
  OperationSender there = sender(0, 1);
  const std::uint64_t first = (3ull << 24) - 2;
  Feed feed;
  feed.add(milliseconds(1), there.header(first, kSum));
  for (std::uint64_t number = first + 1; number < first + 5; ++number) {
    feed.add(milliseconds(number - first + 1), there.message(number, 1, 10, 10));
  }
  feed.add(milliseconds(9), there.message(first, 1, 10, 10));          // late
  feed.add(milliseconds(9), there.message(first - 1'000, 1, 10, 10));  // too late
  const Operations found = feed.operations();
  ASSERT_EQ(found.all.size(), 5u);
  EXPECT_EQ(found.all[0].totals.frames, 2u);
  EXPECT_EQ(found.all[4].number, first + 4);
  EXPECT_EQ(feed.counters().unplaced, 1u);
}

TEST(Operations, HeaderOfAnotherNumberThanItsTag_IsIgnored) {
  OperationSender there = sender(0, 1);
  Octets head = there.header(5, kSum);
  head[head.size() - 48 + 8] = 6;
  Feed feed;
  feed.add(milliseconds(1), head);
  const Operations found = feed.operations();
  ASSERT_EQ(found.all.size(), 1u);
  EXPECT_EQ(found.all[0].number, 5u);
  EXPECT_FALSE(found.all[0].description.has_value());
  EXPECT_EQ(callText(found.all[0]), "?");
}

TEST(Operations, MoreSessionsThanAreKept_AreCounted) {
  Feed feed;
  for (std::size_t i = 0; i < OperationParts::kMaxSessions + 10; ++i) {
    OperationSender one(rank(0), rank(1), 1'000'000 + i);
    feed.add(milliseconds(1), one.header(1, kSum));
  }
  EXPECT_EQ(feed.operations().all.size(), OperationParts::kMaxSessions);  // of one pair of ranks: a group each
  EXPECT_EQ(feed.counters().notKept, 10u);
}

}  // namespace
}  // namespace gloo_bypass::capture
