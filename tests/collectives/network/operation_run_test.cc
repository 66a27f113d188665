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
  void onProgramMessage(Peer&, std::uint32_t) override {}
  void onEnded(Peer&) override {}
};

// Messages that rank 0 of two sends in an all-reduce of so many slices, its header aside, before the other says
// anything.
int sentBeforeAnythingComes(bool endsSends, std::size_t slices, Algorithm algorithm = Algorithm::kRing) {
  TakingTransport transport(endsSends);
  NoEvents events;
  std::vector<std::unique_ptr<Peer>> peers;
  peers.push_back(nullptr);
  peers.push_back(std::make_unique<Peer>(0, 1, events));
  EXPECT_TRUE(peers[1]->open(transport, {}).ok());
  OutgoingCopies copies(8);
  OperationRun run(0, peers, copies);
  const Choice choice = choiceOf(algorithm, 2);
  const Schedule schedule = findAlgorithm(Kind::kAllReduce, algorithm)->make({.rank = 0, .size = 2});
  std::vector<float> vector(slices * 2 * choice.partBytes / sizeof(float));
  auto* const bytes = reinterpret_cast<std::byte*>(vector.data());
  const ConstBlock input{bytes, vector.size()};
  const Block output{bytes, vector.size()};
  const Call call{
      .kind = Kind::kAllReduce, .type = ElementType::kFloat32, .inputs = {&input, 1}, .outputs = {&output, 1}};
  const Status begun = run.begin(call, {.number = 1, .choice = choice, .schedule = &schedule, .place = 0, .size = 2});
  EXPECT_TRUE(begun.ok());
  run.cancel();
  return transport.sends - 1;
}

TEST(OperationRun, SendsUnderWay_BoundTheSlices) {
  EXPECT_EQ(sentBeforeAnythingComes(/*endsSends=*/false, 40), static_cast<int>(kSlicesUnderWay));
  EXPECT_EQ(sentBeforeAnythingComes(/*endsSends=*/false, 2), 2);
}

// As over a path whose round trip takes longer than to send some slices.
TEST(OperationRun, NothingLeftToSend_BeginsMoreSlices_UpToABound) {
  EXPECT_EQ(sentBeforeAnythingComes(/*endsSends=*/true, 40), static_cast<int>(kMostSlicesUnderWay));
  EXPECT_EQ(sentBeforeAnythingComes(/*endsSends=*/true, 7), 7);
  // What several messages are added to waits in memory of the executor.
  EXPECT_EQ(sentBeforeAnythingComes(/*endsSends=*/true, 40, Algorithm::kDirect), static_cast<int>(kSlicesUnderWay));
}

}  // namespace
}  // namespace gloo_bypass::collectives
