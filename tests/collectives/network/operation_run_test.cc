// How many slices of a long vector, and how many operations, a rank has under way, over a channel that only takes what
// it is given.
#include <algorithm>
#include <array>
#include <cstdlib>
#include <memory>
#include <vector>

#include <gtest/gtest.h>

#include "collectives/network/network_operations.h"
#include "collectives/network/operation_run.h"

namespace gloo_bypass::collectives {
namespace {

// Sends are over at once, as into the buffer of a long path; or never.
class TakingChannel final : public MessageChannel {
 public:
  TakingChannel(ChannelObserver& observer, bool endsSends, int& sends, std::vector<MessageKey>& receives)
      : observer_(observer), endsSends_(endsSends), sends_(sends), receives_(receives) {}

  std::vector<std::byte> localAddress() const override { return {}; }
  Status connect(std::span<const std::byte>) override { return {}; }
  Status postSend(const SendRequest& request) override {
    ++sends_;
    if (endsSends_) observer_.onSendComplete(request.token);
    return {};
  }
  Status postReceive(const ReceiveRequest& request) override {
    receives_.push_back(request.key);
    return {};
  }
  bool cancelSend(OperationToken) override { return true; }
  bool cancelReceive(OperationToken) override { return true; }
  std::optional<TimePoint> oldestUnmatched(MessageKey) const override { return std::nullopt; }
  ChannelState state() const override { return ChannelState::kConnected; }
  const Error& error() const override { std::abort(); }
  std::string describePeer() const override { return "nobody"; }
  ChannelCounters counters() const override { return {}; }
  void close(bool) override {}

 private:
  ChannelObserver& observer_;
  const bool endsSends_;
  int& sends_;
  std::vector<MessageKey>& receives_;
};

class TakingTransport final : public Transport {
 public:
  explicit TakingTransport(bool endsSends) : endsSends_(endsSends) {}
  ProgressEngine& progress() override { std::abort(); }
  std::string describe() const override { return "takes what it is given"; }
  Result<std::unique_ptr<MessageChannel>> openChannel(const ChannelOptions&, ChannelObserver* observer) override {
    peer = observer;
    return std::unique_ptr<MessageChannel>(new TakingChannel(*observer, endsSends_, sends, receives));
  }
  TransportReport report() const override { return {}; }

  int sends = 0;
  std::vector<MessageKey> receives;
  ChannelObserver* peer = nullptr;  // of the channel opened last

 private:
  const bool endsSends_;
};

struct NoEvents final : PeerEvents {
  void onControl(Peer&, const ControlMessage&) override {}
  void onHeader(Peer&, std::uint32_t) override {}
  void onProgramMessage(Peer&, std::uint32_t) override {}
  void onEnded(Peer&) override {}
};

struct Case {
  std::size_t slices = 1;
  Kind kind = Kind::kAllReduce;
  Choice choice = choiceOf(Algorithm::kRing, 2);
};

// Messages that rank 0 of two sends in an operation, its header aside, before the other says anything.
int sentBeforeAnythingComes(bool endsSends, const Case& test) {
  const auto& [slices, kind, choice] = test;
  TakingTransport transport(endsSends);
  NoEvents events;
  std::vector<std::unique_ptr<Peer>> peers;
  peers.push_back(nullptr);
  peers.push_back(std::make_unique<Peer>(0, 1, events));
  EXPECT_TRUE(peers[1]->open(transport, {}).ok());
  OutgoingCopies copies(8);
  OperationRun run(0, peers, copies);
  const int root = 1;
  const Schedule schedule = findAlgorithm(kind, choice.algorithm)->make({.rank = 0, .size = 2, .root = root});
  const std::size_t each = slices * choice.partBytes / sizeof(float);
  const auto memory = std::make_unique_for_overwrite<float[]>(2 * each);
  auto* const bytes = reinterpret_cast<std::byte*>(memory.get());
  const ConstBlock input{bytes, 2 * each};
  const Block output{bytes, 2 * each};
  Call call{.kind = kind, .type = ElementType::kFloat32, .root = root, .inputs = {&input, 1}};
  if (kind == Kind::kAllReduce) call.outputs = {&output, 1};
  const Status begun = run.begin(call, {.number = 1, .choice = choice, .schedule = &schedule, .place = 0, .size = 2});
  EXPECT_TRUE(begun.ok());
  run.cancel();
  return transport.sends - 1;
}

TEST(OperationRun, SendsUnderWay_BoundTheSlices) {
  EXPECT_EQ(sentBeforeAnythingComes(/*endsSends=*/false, {.slices = 40}), static_cast<int>(kSlicesUnderWay));
  EXPECT_EQ(sentBeforeAnythingComes(/*endsSends=*/false, {.slices = 2}), 2);
}

// As over a path whose round trip takes longer than to send some slices.
TEST(OperationRun, NothingLeftToSend_BeginsMoreSlices_UpToABound) {
  EXPECT_EQ(sentBeforeAnythingComes(/*endsSends=*/true, {.slices = 40}), static_cast<int>(kMostSlicesUnderWay));
  EXPECT_EQ(sentBeforeAnythingComes(/*endsSends=*/true, {.slices = 7}), 7);
  // What several messages are added to waits in memory of the executor.
  EXPECT_EQ(sentBeforeAnythingComes(/*endsSends=*/true, {.slices = 40, .choice = choiceOf(Algorithm::kDirect, 2)}),
            static_cast<int>(kSlicesUnderWay));
}

// Whatever its length, a message that is added to this rank's input while it arrives takes no memory.
TEST(OperationRun, SumsAreAddedOnArrival_MemoryBoundsNothing) {
  Case test{.slices = 20};
  test.choice.partBytes = OperationRun::kMostAsideBytes / 8;
  EXPECT_EQ(sentBeforeAnythingComes(/*endsSends=*/true, test), static_cast<int>(kMostSlicesUnderWay));
}

// A sum that is another rank's has no place here but the slice's.
TEST(OperationRun, SumsAreSetAside_MemoryBoundsTheSlices) {
  Case test{.slices = 20, .kind = Kind::kReduce, .choice = choiceOf(Algorithm::kDirect, 2)};
  test.choice.mostSlices = kMostSlicesUnderWay;
  EXPECT_EQ(sentBeforeAnythingComes(/*endsSends=*/true, test), static_cast<int>(kMostSlicesUnderWay));
  test.choice.partBytes = OperationRun::kMostAsideBytes / 8;
  EXPECT_EQ(sentBeforeAnythingComes(/*endsSends=*/true, test), 8);
}

// Rank 0 of two, and what it has sent: one message in each short operation that has begun.
class Announced : public ::testing::Test {
 protected:
  Announced() { EXPECT_TRUE(operations_.peers()[1]->open(transport_, {}).ok()); }
  ~Announced() override { operations_.leave(); }

  // An all-reduce of the i-th vector; a later one of the same is the same call.
  const Call& allReduce(std::size_t i, std::size_t count = 4) {
    std::vector<float>& vector = vectors_.at(i);
    vector.resize(count);
    auto* const bytes = reinterpret_cast<std::byte*>(vector.data());
    inputs_[i] = {bytes, count};
    outputs_[i] = {bytes, count};
    calls_[i] = {.kind = Kind::kAllReduce,
                 .type = ElementType::kFloat32,
                 .inputs = {&inputs_[i], 1},
                 .outputs = {&outputs_[i], 1}};
    return calls_[i];
  }
  int sent() const { return transport_.sends; }

  static constexpr std::size_t kCalls = 20;
  std::array<std::vector<float>, kCalls> vectors_;
  std::array<ConstBlock, kCalls> inputs_;
  std::array<Block, kCalls> outputs_;
  std::array<Call, kCalls> calls_;
  TakingTransport transport_{/*endsSends=*/true};
  NetworkOperations operations_{0, 2, {}, {}};
};

TEST_F(Announced, BeforeAnythingIsWaitedFor_Begin) {
  operations_.announce(allReduce(0));
  operations_.announce(allReduce(1));
  EXPECT_EQ(sent(), 2);
  ASSERT_TRUE(operations_.begin(allReduce(0)));
  EXPECT_EQ(sent(), 2);
  EXPECT_FALSE(operations_.settled());
}

TEST_F(Announced, WhileTheFirstOneWaits_BeginUpToABound) {
  ASSERT_TRUE(operations_.begin(allReduce(0)));
  EXPECT_EQ(sent(), 1);
  for (std::size_t i = 1; i < kCalls; ++i) operations_.announce(allReduce(i));
  EXPECT_EQ(sent(), static_cast<int>(NetworkOperations::kMostAtOnce));
}

TEST_F(Announced, OfMemoryThatAnEarlierOneUses_WaitWithAllThatFollow) {
  ASSERT_TRUE(operations_.begin(allReduce(0)));
  operations_.announce(allReduce(0));
  operations_.announce(allReduce(1));
  EXPECT_EQ(sent(), 1);
}

TEST_F(Announced, Barrier_WaitsForItsTurn) {
  ASSERT_TRUE(operations_.begin(allReduce(0)));
  operations_.announce({.kind = Kind::kBarrier});
  operations_.announce(allReduce(1));
  EXPECT_EQ(sent(), 1);
}

TEST_F(Announced, BehindALongOne_WaitUntilItsLastSliceHasBegun) {
  const std::size_t slice = 2 * choiceOf(Algorithm::kRing, 2).partBytes / sizeof(float);
  ASSERT_TRUE(operations_.begin(allReduce(0, 3 * kMostSlicesUnderWay * slice)));
  const int before = sent();
  operations_.announce(allReduce(1));
  EXPECT_EQ(sent(), before);
}

// A peer that has begun the second one sends its header before that of the first, for which it waits for others.
TEST_F(Announced, HeadersComeInAnotherOrder_EachIsReceivedOnce) {
  transport_.peer->onMessageAnnounced(collectiveKey(2, 0), OperationHeader::kBytes);
  transport_.peer->onMessageAnnounced(collectiveKey(1, 0), OperationHeader::kBytes);
  ASSERT_TRUE(operations_.begin(allReduce(0)));
  operations_.announce(allReduce(1));
  operations_.announce(allReduce(2));
  for (std::uint64_t number = 1; number <= 3; ++number) {
    EXPECT_EQ(std::ranges::count(transport_.receives, collectiveKey(number, 0)), 1) << number;
  }
  EXPECT_FALSE(operations_.failure());
}

// One that was over would begin again with the memory of another.
TEST_F(Announced, OneAfterTheOther_TakeTheSameMemory) {
  NetworkOperations alone(0, 1, {}, {});
  for (std::size_t i = 0; i < 3; ++i) {
    ASSERT_TRUE(alone.begin(allReduce(0)));
    ASSERT_TRUE(alone.settled());
    EXPECT_TRUE(alone.outcome());
    EXPECT_TRUE(alone.idle());
  }
  alone.leave();
}

TEST_F(Announced, TheGroupFails_EndWithItsReason) {
  ASSERT_TRUE(operations_.begin(allReduce(0)));
  operations_.announce(allReduce(1));
  operations_.announce(allReduce(2));
  operations_.fail({ErrorScope::kDevice, ErrorCode::kPeerVanished, "gone"}, 2);
  EXPECT_FALSE(operations_.settled()) << "the first one may still end well";
  operations_.fail({ErrorScope::kDevice, ErrorCode::kPeerVanished, "gone too"}, 1);
  ASSERT_TRUE(operations_.settled());
  EXPECT_EQ(operations_.outcome().error().message, "gone");
  operations_.cancel();
  EXPECT_FALSE(operations_.begin(allReduce(1)));
  EXPECT_FALSE(operations_.begin(allReduce(2)));
}

TEST(OutgoingCopies, PoolIsFull_LastWordGoesAllTheSame) {
  TakingTransport transport(/*endsSends=*/false);
  NoEvents events;
  Peer peer(0, 1, events);
  ASSERT_TRUE(peer.open(transport, {}).ok());
  OutgoingCopies copies(2);
  const std::byte word{1};
  EXPECT_TRUE(copies.send(peer, controlKey(), {&word, 1}).ok());
  EXPECT_TRUE(copies.send(peer, controlKey(), {&word, 1}).ok());
  EXPECT_EQ(copies.send(peer, controlKey(), {&word, 1}).error().code, ErrorCode::kExhausted);
  EXPECT_TRUE(copies.sendLastWord(peer, controlKey(), {&word, 1}).ok());
  EXPECT_EQ(transport.sends, 3);
}

}  // namespace
}  // namespace gloo_bypass::collectives
