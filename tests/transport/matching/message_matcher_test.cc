// Matching of messages with receives.
#include "transport/matching/message_matcher.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <functional>
#include <map>
#include <random>
#include <set>
#include <vector>

namespace gloo_bypass {
namespace {

struct Body {
  int number = 0;
};
using Matcher = MessageMatcher<Body>;

MessageKey key(std::uint64_t tag) { return {MessageKind::kUnbound, tag}; }
ReceiveRequest request(OperationToken token, std::uint64_t tag, bool persistent = false) {
  return {.token = token, .key = key(tag), .persistent = persistent};
}

struct MatcherTest : ::testing::Test {
  SlotIndex arrive(std::uint64_t tag, int number = 0) {
    const SlotIndex slot = matcher.arrive(key(tag));
    matcher[slot].body.number = number;
    return slot;
  }
  void complete(SlotIndex slot) { matcher.complete(slot, end()); }
  std::function<void(const Matcher::Message&)> end() {
    return [this](const Matcher::Message& message) {
      if (!message.orphaned) told.push_back(message.receive.token);
    };
  }
  Matcher matcher{1};
  std::vector<OperationToken> told;
};

TEST_F(MatcherTest, MessagesOfOneKey_CompleteInTheOrderPosted) {
  for (OperationToken token : {1, 2, 3}) EXPECT_FALSE(matcher.post(request(token, 5)));
  const SlotIndex first = arrive(5), second = arrive(5), third = arrive(5);
  complete(third);
  complete(second);
  EXPECT_TRUE(told.empty());
  complete(first);
  EXPECT_EQ(told, (std::vector<OperationToken>{1, 2, 3}));
}

TEST_F(MatcherTest, UnmatchedMessages_MeetReceivesOldestFirst) {
  arrive(5, 1);
  arrive(5, 2);
  EXPECT_EQ(matcher.oldestUnmatched(key(5))->body.number, 1);
  EXPECT_EQ(matcher[*matcher.post(request(1, 5))].body.number, 1);
  EXPECT_EQ(matcher[*matcher.post(request(2, 5))].body.number, 2);
  EXPECT_EQ(matcher.oldestUnmatched(key(5)), nullptr);
  EXPECT_FALSE(matcher.post(request(3, 5)));
}

TEST_F(MatcherTest, Keys_AreIndependent) {
  matcher.post(request(1, 5));
  matcher.post(request(2, 6));
  matcher.post({.token = 3, .key = {MessageKind::kBound, 5}});
  arrive(7);
  const SlotIndex blocked = arrive(5), other = arrive(6), bound = matcher.arrive({MessageKind::kBound, 5});
  complete(bound);
  complete(other);
  EXPECT_EQ(told, (std::vector<OperationToken>{3, 2}));
  complete(blocked);
  EXPECT_EQ(told.back(), 1u);
}

TEST_F(MatcherTest, PersistentReceive_TakesEveryMessage) {
  EXPECT_FALSE(matcher.post(request(1, 5, true)));
  for (int i = 0; i < 5; ++i) complete(arrive(5));
  EXPECT_EQ(told.size(), 5u);
  EXPECT_TRUE(matcher.cancelWaiting(1));
  EXPECT_FALSE(matcher[arrive(5)].matched);
}

TEST_F(MatcherTest, Cancel_InEveryState_OthersGoOn) {
  matcher.post(request(1, 5));
  matcher.post(request(2, 5));
  EXPECT_TRUE(matcher.cancelWaiting(1));
  EXPECT_FALSE(matcher.cancelWaiting(1));
  const SlotIndex active = arrive(5);
  EXPECT_EQ(matcher[active].receive.token, 2u);
  EXPECT_FALSE(matcher.cancelWaiting(2));
  matcher.post(request(3, 5));
  const SlotIndex behind = arrive(5);
  matcher.forEachActiveOf(2, [&](SlotIndex slot) { matcher[slot].orphaned = true; });
  matcher.forEachActiveOf(2, [&](SlotIndex) { FAIL() << "it is orphaned already"; });
  complete(behind);
  EXPECT_TRUE(told.empty());
  complete(active);
  EXPECT_EQ(told, std::vector<OperationToken>{3});
}

TEST_F(MatcherTest, MessageTakenEarly_IsUnknownUntilItArrives) {
  const SlotIndex late = matcher.take();
  matcher[late].key = key(5);
  EXPECT_EQ(matcher.oldestUnmatched(key(5)), nullptr);
  EXPECT_FALSE(matcher.post(request(1, 5)));
  EXPECT_EQ(matcher.waiting(key(5))->token, 1u);
  EXPECT_TRUE(matcher.arrive(late));
  EXPECT_EQ(matcher.waiting(key(5)), nullptr);
  EXPECT_EQ(matcher[late].receive.token, 1u);
}

TEST_F(MatcherTest, UnmatchedSince_IsTheArrivalOfTheOldest) {
  EXPECT_FALSE(matcher.unmatchedSince(key(5)));
  matcher[arrive(5)].arrived = TimePoint(Duration(7));
  matcher[arrive(5)].arrived = TimePoint(Duration(9));
  EXPECT_EQ(matcher.unmatchedSince(key(5)), TimePoint(Duration(7)));
  matcher.post(request(1, 5));
  EXPECT_EQ(matcher.unmatchedSince(key(5)), TimePoint(Duration(9)));
}

TEST_F(MatcherTest, ReadyKey_OnlyWithAReceiveAndNothingUnderWay) {
  EXPECT_EQ(matcher.readyKey(key(5)), nullptr);
  matcher.post(request(1, 5));
  matcher.post(request(2, 5));
  Matcher::Key* ready = matcher.readyKey(key(5));
  ASSERT_NE(ready, nullptr);
  EXPECT_EQ(matcher.firstReceive(*ready).token, 1u);
  matcher.finishFirstReceive(ready);
  const SlotIndex active = arrive(5);
  EXPECT_EQ(matcher[active].receive.token, 2u);
  matcher.post(request(3, 5));
  EXPECT_EQ(matcher.readyKey(key(5)), nullptr);
  complete(active);
  EXPECT_NE(matcher.readyKey(key(5)), nullptr);
}

TEST_F(MatcherTest, Withdraw_Unmatched_IsAsIfNeverSent) {
  const SlotIndex first = arrive(5, 1);
  arrive(5, 2);
  EXPECT_FALSE(matcher.withdraw(first, end()));
  EXPECT_EQ(matcher[*matcher.post(request(1, 5))].body.number, 2);
}

TEST_F(MatcherTest, Withdraw_Matched_ItsReceiveIsFirstAgain) {
  for (OperationToken token : {1, 2, 3}) matcher.post(request(token, 5));
  const SlotIndex withdrawn = arrive(5), younger = arrive(5);
  complete(younger);
  EXPECT_TRUE(told.empty());
  EXPECT_FALSE(matcher.withdraw(withdrawn, end()));
  EXPECT_EQ(told, std::vector<OperationToken>{2});
  EXPECT_EQ(matcher[arrive(5)].receive.token, 1u);
  EXPECT_EQ(matcher[arrive(5)].receive.token, 3u);
}

TEST_F(MatcherTest, Withdraw_OthersUnmatched_TheReceiveMeetsTheOldest) {
  matcher.post(request(1, 5));
  const SlotIndex withdrawn = arrive(5), second = arrive(5), third = arrive(5);
  EXPECT_EQ(matcher.withdraw(withdrawn, end()), second);
  EXPECT_EQ(matcher[second].receive.token, 1u);
  EXPECT_FALSE(matcher[third].matched);
}

TEST_F(MatcherTest, PostFromInsideACompletion_IsAllowed) {
  matcher.post(request(1, 5));
  const SlotIndex slot = arrive(5);
  arrive(5, 9);
  int met = 0;
  matcher.complete(slot, [&](const Matcher::Message&) { met = matcher[*matcher.post(request(2, 5))].body.number; });
  EXPECT_EQ(met, 9);
}

TEST_F(MatcherTest, ForgetReceives_KeepsWholeMessagesInOrderUpToTheFirstOther) {
  matcher.post(request(1, 1));
  matcher.post(request(2, 2));
  arrive(2);     // under way
  arrive(2, 1);  // behind it
  for (int i = 0; i < 6; ++i) arrive(3, i);
  std::vector<int> dropped;
  matcher.forgetReceives([](const Matcher::Message& message) { return message.body.number != 3; },
                         [&](const Matcher::Message& message) { dropped.push_back(message.body.number); });
  std::sort(dropped.begin(), dropped.end());
  EXPECT_EQ(dropped, (std::vector<int>{0, 1, 3, 4, 5}));
  EXPECT_FALSE(matcher.cancelWaiting(1));
  matcher.forEachActive([](Matcher::Message&) { FAIL(); });
  EXPECT_EQ(matcher.oldestUnmatched(key(2)), nullptr);
  for (int i : {0, 1, 2}) {
    const auto met = matcher.post(request(1, 3));
    ASSERT_TRUE(met.has_value()) << i;
    EXPECT_EQ(matcher[*met].body.number, i);
  }
  EXPECT_EQ(matcher.oldestUnmatched(key(3)), nullptr);
}

TEST_F(MatcherTest, MillionsOfKeys_MemoryStaysThatOfOne) {
  std::size_t after = 0;
  for (std::uint64_t tag = 0; tag < 200'000; ++tag) {
    if (tag % 2 == 0) matcher.post(request(tag, tag));
    const SlotIndex slot = arrive(tag);
    if (tag % 2 == 1) matcher.post(request(tag, tag));
    complete(slot);
    matcher.post(request(tag, tag));
    EXPECT_TRUE(matcher.cancelWaiting(tag));
    if (tag == 1000) after = matcher.memoryBytes();
  }
  EXPECT_EQ(matcher.memoryBytes(), after);
  EXPECT_EQ(told.size(), 200'000u);
}

// The same with lists, too simple to be wrong.
struct Model {
  struct Active {
    OperationToken token;
    SlotIndex slot;
    bool complete = false, orphaned = false;
  };
  std::map<std::uint64_t, std::deque<OperationToken>> receives;
  std::map<std::uint64_t, std::deque<SlotIndex>> unmatched;
  std::map<std::uint64_t, std::deque<Active>> active;

  std::vector<OperationToken> complete(std::uint64_t tag, std::size_t index) {
    std::vector<OperationToken> told;
    auto& queue = active[tag];
    queue[index].complete = true;
    for (; !queue.empty() && queue.front().complete; queue.pop_front()) {
      if (!queue.front().orphaned) told.push_back(queue.front().token);
    }
    return told;
  }
};

void runModel(unsigned seed) {
  std::mt19937 random(seed);
  Matcher matcher{1};
  Model model;
  OperationToken next = 1;
  for (int step = 0; step < 400; ++step) {
    const std::uint64_t tag = random() % 3;
    auto &waiting = model.receives[tag], &queue = waiting;
    switch (random() % 4) {
      case 0: {
        const SlotIndex slot = matcher.arrive(key(tag));
        ASSERT_EQ(matcher[slot].matched, !waiting.empty());
        if (waiting.empty()) {
          model.unmatched[tag].push_back(slot);
          break;
        }
        ASSERT_EQ(matcher[slot].receive.token, waiting.front());
        model.active[tag].push_back({waiting.front(), slot});
        waiting.pop_front();
        break;
      }
      case 1: {
        const auto met = matcher.post(request(next, tag));
        auto& here = model.unmatched[tag];
        ASSERT_EQ(met.has_value(), !here.empty());
        if (met) {
          ASSERT_EQ(*met, here.front());
          here.pop_front();
          model.active[tag].push_back({next, *met});
        } else {
          queue.push_back(next);
        }
        ++next;
        break;
      }
      case 2: {
        auto& active = model.active[tag];
        if (active.empty()) break;
        const std::size_t index = random() % active.size();
        if (active[index].complete) break;
        const SlotIndex slot = active[index].slot;
        if (random() % 4 == 0) matcher[slot].orphaned = active[index].orphaned = true;
        std::vector<OperationToken> told;
        matcher.complete(slot, [&](const Matcher::Message& message) {
          if (!message.orphaned) told.push_back(message.receive.token);
        });
        ASSERT_EQ(told, model.complete(tag, index));
        break;
      }
      default: {
        if (waiting.empty()) break;
        const std::size_t index = random() % waiting.size();
        ASSERT_TRUE(matcher.cancelWaiting(waiting[index]));
        waiting.erase(waiting.begin() + static_cast<std::ptrdiff_t>(index));
        break;
      }
    }
  }
}

// A peer that knows the hash of keys, but not the seed; without a seed it can choose tags that collide.
TEST(MessageMatcherHostile, TagsChosenToMeet_DoNotWithASeed) {
  constexpr std::uint64_t kTags = 20'000, kCells = 32'768;
  // The tag that MessageKeyHash without a seed hashes to `hash`: mixBits' inverse.
  const auto tagOf = [](std::uint64_t hash) {
    hash = (hash ^ (hash >> 31) ^ (hash >> 62)) * 0x319642b2d24d8ec3ull;
    hash = (hash ^ (hash >> 27) ^ (hash >> 54)) * 0x96de1b173f119089ull;
    return (hash ^ (hash >> 30) ^ (hash >> 60)) - 0x9e3779b97f4a7c15ull;
  };
  const auto places = [&](const MessageKeyHash& hash) {
    std::set<std::uint64_t> all;
    for (std::uint64_t i = 0; i < kTags; ++i) all.insert(hash(key(tagOf(i << 32))) % kCells);
    return all.size();
  };
  ASSERT_EQ(places({}), 1U);
  std::mt19937_64 random(5);
  for (int i = 0; i < 20; ++i) EXPECT_GT(places({.seed = random()}), 14'000U) << "of tags at random there are 15,000";
}

TEST(MessageMatcherModel, RandomSteps_AreAsTheModelSays) {
  for (unsigned seed = 1; seed <= 300; ++seed) {
    SCOPED_TRACE(seed);
    runModel(seed);
    if (::testing::Test::HasFatalFailure()) return;
  }
}

}  // namespace
}  // namespace gloo_bypass
