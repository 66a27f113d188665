// How many slices of a long vector a rank has under way, over a channel that only takes what it is given.
#include <cstdlib>
#include <memory>
#include <vector>

#include <gtest/gtest.h>

#include "collectives/network/operation_run.h"

namespace gloo_bypass::collectives {
namespace {

// Sends are over at once, as into the buffer of a long path; or never.
class TakingChannel final : public MessageChannel {
 public:
  TakingChannel(ChannelObserver& observer, bool endsSends, int& sends)
      : observer_(observer), endsSends_(endsSends), sends_(sends) {}

  std::vector<std::byte> localAddress() const override { return {}; }
  Status connect(std::span<const std::byte>) override { return {}; }
  Status postSend(const SendRequest& request) override {
    ++sends_;
    if (endsSends_) observer_.onSendComplete(request.token);
    return {};
  }
  Status postReceive(const ReceiveRequest&) override { return {}; }
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
};

class TakingTransport final : public Transport {
 public:
  explicit TakingTransport(bool endsSends) : endsSends_(endsSends) {}
  ProgressEngine& progress() override { std::abort(); }
  std::string describe() const override { return "takes what it is given"; }
  Result<std::unique_ptr<MessageChannel>> openChannel(const ChannelOptions&, ChannelObserver* observer) override {
    return std::unique_ptr<MessageChannel>(new TakingChannel(*observer, endsSends_, sends));
  }
  TransportReport report() const override { return {}; }

  int sends = 0;

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
  const Schedule schedule = findAlgorithm(kind, choice.algorithm)->make({.rank = 0, .size = 2});
  const std::size_t each = slices * choice.partBytes / sizeof(float);
  const auto memory = std::make_unique_for_overwrite<float[]>(2 * each);
  auto* const bytes = reinterpret_cast<std::byte*>(memory.get());
  const bool scatters = kind == Kind::kReduceScatter;
  const std::vector<ConstBlock> inputs = scatters ? std::vector<ConstBlock>{{bytes, each}, {bytes + 4 * each, each}}
                                                  : std::vector<ConstBlock>{{bytes, 2 * each}};
  const Block output{bytes, scatters ? each : 2 * each};
  const Call call{.kind = kind, .type = ElementType::kFloat32, .inputs = inputs, .outputs = {&output, 1}};
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

// Of many ranks most sums are another rank's: they have no place here but the slice's.
TEST(OperationRun, SumsAreSetAside_MemoryBoundsTheSlices) {
  Case test{.slices = 20, .kind = Kind::kReduceScatter};
  EXPECT_EQ(sentBeforeAnythingComes(/*endsSends=*/true, test), static_cast<int>(kMostSlicesUnderWay));
  test.choice.partBytes = OperationRun::kMostAsideBytes / 8;
  EXPECT_EQ(sentBeforeAnythingComes(/*endsSends=*/true, test), 8);
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
