// How the adapter handles a back-end's faults: over the memory transport, which injects them on demand.
#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

#include <gloo/common/error.h>
#include <gloo/transport/buffer.h>
#include <gloo/transport/pair.h>
#include <gloo/transport/unbound_buffer.h>
#include <gloo/types.h>

#include "tests/conformance/backend.h"
#include "tests/support/memory_transport.h"
#include "transport/compatibility/gloo/remote_key.h"
#include "transport/gloo/device.h"

namespace gloo_bypass::test {
namespace {

constexpr std::uint64_t kSlot = 5;

class Adapter : public ::testing::Test {
 protected:
  // Transport i belongs to rank i.
  Mesh connect(int size, const MemoryTransportOptions& options = {}) {
    for (int i = 0; i < size; ++i) transports_.push_back(fabric_->makeTransport(options));
    auto next = std::make_shared<std::size_t>(0);
    const Backend backend{"memory", [this, next] { return makeDevice(transports_[(*next)++]); }};
    return connectedMesh(backend, size);
  }
  // The context of a rank in a group of two; its pair with the other rank does not connect yet.
  std::shared_ptr<::gloo::transport::Context> unconnected(int rank, const MemoryTransportOptions& options = {}) {
    transports_.push_back(fabric_->makeTransport(options));
    auto context = makeDevice(transports_.back())->createContext(rank, 2);
    context->setTimeout(kPatience);
    (void)context->createPair(1 - rank);
    return context;
  }
  const Transport& transport(std::size_t rank) const { return *transports_[rank]; }

  const std::shared_ptr<MemoryFabric> fabric_ = MemoryFabric::make();
  std::vector<std::shared_ptr<Transport>> transports_;
};

// A transport that records the options of the last channel.
class KeepingOptions final : public Transport {
 public:
  explicit KeepingOptions(std::shared_ptr<Transport> inner) : inner_(std::move(inner)) {}
  ProgressEngine& progress() override { return inner_->progress(); }
  std::string describe() const override { return inner_->describe(); }
  Result<std::unique_ptr<MessageChannel>> openChannel(const ChannelOptions& options,
                                                      ChannelObserver* observer) override {
    last = options;
    return inner_->openChannel(options, observer);
  }
  TransportReport report() const override { return inner_->report(); }

  ChannelOptions last;

 private:
  const std::shared_ptr<Transport> inner_;
};

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

// A slot in the form of Gloo's collectives.
const std::uint64_t kCollectiveSlot = ::gloo::Slot::build(::gloo::kAllreduceSlotPrefix, 3);

std::unique_ptr<::gloo::transport::UnboundBuffer> bufferOf(const std::shared_ptr<::gloo::transport::Context>& context,
                                                           int& value) {
  return context->createUnboundBuffer(&value, sizeof(value));
}

TEST_F(Adapter, GroupsTimeout_IsHowLongItsChannelsWaitForASilentPeer) {
  const auto transport = std::make_shared<KeepingOptions>(fabric_->makeTransport({}));
  auto context = makeDevice(transport)->createContext(0, 2);
  context->setTimeout(std::chrono::minutes(30));
  (void)context->createPair(1);
  EXPECT_EQ(transport->last.silenceTimeout, Duration(std::chrono::minutes(30)));
  EXPECT_EQ(transport->last.connectTimeout, Duration(std::chrono::minutes(30)));
}

// One rank ends; ranks that wait for it learn it at once, no others do.
TEST_F(Adapter, PeerVanishes_ItsOwnPairsFail_TheOthersGoOn) {
  Mesh mesh = connect(3);
  int lost = 0, boundLost = 0, in = 4, out = 0, boundIn = 5, boundOut = 0;
  auto fromVictim = bufferOf(mesh.contexts[0], lost), fromOther = bufferOf(mesh.contexts[0], out);
  auto boundFromVictim = mesh.contexts[0]->getPair(1)->createRecvBuffer(1, &boundLost, sizeof(boundLost));
  auto boundFromOther = mesh.contexts[0]->getPair(2)->createRecvBuffer(1, &boundOut, sizeof(boundOut));
  fromVictim->recv(1, kSlot);
  fromOther->recv(2, kSlot);
  std::string text, boundText;
  std::thread waiting([&] { text = ioExceptionOf([&] { fromVictim->waitRecv(); }); });
  std::thread boundWaiting([&] { boundText = ioExceptionOf([&] { boundFromVictim->waitRecv(); }); });
  fabric_->vanish(transport(1));
  waiting.join();
  boundWaiting.join();
  for (const std::string& each : {text, boundText}) {
    EXPECT_TRUE(contains(each, "Rank 0") && contains(each, "rank 1") && contains(each, "process is gone")) << each;
  }
  auto send = bufferOf(mesh.contexts[2], in);
  send->send(0, kSlot);
  EXPECT_TRUE(send->waitSend());
  EXPECT_TRUE(fromOther->waitRecv());
  EXPECT_EQ(4, out);
  auto boundSend = mesh.contexts[2]->getPair(0)->createSendBuffer(1, &boundIn, sizeof(boundIn));
  boundSend->send();
  boundSend->waitSend();
  boundFromOther->waitRecv();
  EXPECT_EQ(5, boundOut);
  // Operations that begin later, in either direction.
  auto later = bufferOf(mesh.contexts[0], lost);
  EXPECT_TRUE(contains(ioExceptionOf([&] { later->recv(1, kSlot); }), "rank 1"));
  fromOther->send(2, kSlot + 1);
  send->recv(0, kSlot + 1);
  EXPECT_TRUE(fromOther->waitSend());
  EXPECT_TRUE(send->waitRecv());
}

// Rank 2 waits in a collective for rank 1, rank 1 for rank 0, and rank 0 for one that ends: a chain, as in a ring.
TEST_F(Adapter, PeerVanishesInACollective_WhoeverWaitsForItsPeers_FailsNamingIt) {
  Mesh mesh = connect(4);
  int values[3] = {};
  std::vector<std::string> texts(3);
  std::vector<std::thread> threads;
  for (const int rank : {2, 1, 0}) {
    threads.emplace_back([&, rank] {
      const auto at = static_cast<std::size_t>(rank);
      auto buffer = bufferOf(mesh.contexts[at], values[at]);
      texts[at] = ioExceptionOf([&] {
        buffer->recv(rank == 0 ? 3 : rank - 1, kCollectiveSlot);  // throws if the peer has vanished before
        buffer->waitRecv();
      });
    });
  }
  fabric_->vanish(transport(3));
  for (std::thread& thread : threads) thread.join();
  for (const std::string& text : texts) {
    EXPECT_TRUE(contains(text, "lost its connection to rank 3") && contains(text, "process is gone")) << text;
  }
  EXPECT_TRUE(contains(texts[2], "Rank 2 cannot complete a collective: it failed at rank 1")) << texts[2];
  // The next collective fails before it waits; the program's own message arrives.
  auto later = bufferOf(mesh.contexts[2], values[2]);
  EXPECT_TRUE(contains(ioExceptionOf([&] { later->recv(1, kCollectiveSlot + 1); }), "rank 3"));
  EXPECT_TRUE(contains(ioExceptionOf([&] { later->send(1, kCollectiveSlot + 1); }), "rank 3"));
  int in = 6;
  auto send = bufferOf(mesh.contexts[1], in);
  send->send(2, kSlot);
  later->recv(1, kSlot);
  EXPECT_TRUE(later->waitRecv());
  EXPECT_TRUE(send->waitSend());
  EXPECT_EQ(6, values[2]);
}

// A rank may end as soon as its own part is done.
TEST_F(Adapter, PeerVanishesWhenItsPartIsDone_TheOthersCompleteTheCollective) {
  Mesh mesh = connect(3);
  int token = 1, fromVictim = 0, fromOther = 0;
  for (const int rank : {0, 2}) {
    auto send = bufferOf(mesh.contexts[1], token);
    send->send(rank, kCollectiveSlot);
    EXPECT_TRUE(send->waitSend());
  }
  std::string text = "not called";
  std::thread waiting([&] {
    auto receive = bufferOf(mesh.contexts[0], fromOther);
    receive->recv(2, kCollectiveSlot);
    text = ioExceptionOf([&] { receive->waitRecv(); });
  });
  fabric_->vanish(transport(1));
  auto send = bufferOf(mesh.contexts[2], token), receive = bufferOf(mesh.contexts[2], fromVictim);
  receive->recv(1, kCollectiveSlot);
  EXPECT_TRUE(receive->waitRecv());
  send->send(0, kCollectiveSlot);
  EXPECT_TRUE(send->waitSend());
  waiting.join();
  EXPECT_EQ("", text);
  EXPECT_EQ(1, fromOther);
  EXPECT_EQ(1, fromVictim);
}

// Pairs that connect on demand: the one that waits may connect after the collective has failed here.
TEST_F(Adapter, CollectiveFails_APairThatConnectsLater_LearnsOfIt) {
  std::vector<std::shared_ptr<::gloo::transport::Context>> contexts;
  for (int rank = 0; rank < 3; ++rank) {
    transports_.push_back(fabric_->makeTransport());
    contexts.push_back(makeDevice(transports_.back())->createContext(rank, 3));
    contexts.back()->setTimeout(kPatience);
  }
  const auto connect = [&](int one, int other) {
    for (const auto& [rank, peer] : {std::pair(one, other), std::pair(other, one)}) {
      (void)contexts[static_cast<std::size_t>(rank)]->createPair(peer);
    }
    const auto pairOf = [&](int rank, int peer) -> auto& {
      return contexts[static_cast<std::size_t>(rank)]->getPair(peer);
    };
    const auto addressOfOne = pairOf(one, other)->address().bytes(),
               addressOfOther = pairOf(other, one)->address().bytes();
    inThreads(2, [&](int i) {
      i == 0 ? pairOf(one, other)->connect(addressOfOther) : pairOf(other, one)->connect(addressOfOne);
    });
  };
  connect(0, 1);
  int value = 0, other = 0;
  auto buffer = bufferOf(contexts[0], value);
  buffer->recv(1, kCollectiveSlot);
  fabric_->vanish(transport(1));
  EXPECT_TRUE(contains(ioExceptionOf([&] { buffer->waitRecv(); }), "rank 1"));
  connect(0, 2);
  auto waiting = bufferOf(contexts[2], other);
  EXPECT_TRUE(contains(ioExceptionOf([&] {
                         waiting->recv(0, kCollectiveSlot);
                         waiting->waitRecv();
                       }),
                       "lost its connection to rank 1"));
}

// Small sends that had completed when their sender was killed.
TEST_F(Adapter, PeerVanishesAfterSending_LaterReceives_GetWhatItSent) {
  Mesh mesh = connect(2);
  int values[2] = {1, 2}, out = 0;
  for (int i = 0; i < 2; ++i) {
    auto send = bufferOf(mesh.contexts[1], values[i]);
    send->send(0, kSlot + static_cast<std::uint64_t>(i));
    send->waitSend();
  }
  auto other = bufferOf(mesh.contexts[0], out), receive = bufferOf(mesh.contexts[0], out);
  other->recv(1, kSlot + 100);
  fabric_->vanish(transport(1));
  EXPECT_TRUE(contains(ioExceptionOf([&] { other->waitRecv(); }), "process is gone"));
  receive->recv(1, kSlot + 1);
  EXPECT_TRUE(receive->waitRecv());
  EXPECT_EQ(2, out);
  receive->recv(std::vector<int>{1}, kSlot);
  EXPECT_TRUE(receive->waitRecv());
  EXPECT_EQ(1, out);
  EXPECT_NE("", ioExceptionOf([&] { receive->recv(1, kSlot); }));
}

TEST_F(Adapter, PeerStopped_WaitTimesOut_ResumedLosesNothing) {
  Mesh mesh = connect(2);
  fabric_->setPaused(transport(1), true);
  std::vector<char> in(1 << 20, 'a'), out(1 << 20);
  auto send = mesh.contexts[0]->createUnboundBuffer(in.data(), in.size());
  auto receive = mesh.contexts[1]->createUnboundBuffer(out.data(), out.size());
  send->send(1, kSlot);
  receive->recv(0, kSlot);
  send->abortWaitSend();
  EXPECT_FALSE(send->waitSend());
  fabric_->setPaused(transport(1), false);
  EXPECT_TRUE(send->waitSend());
  EXPECT_TRUE(receive->waitRecv());
  EXPECT_EQ(in, out);
  fabric_->setPaused(transport(1), true);
  receive->recv(0, kSlot);
  send->send(1, kSlot);
  EXPECT_TRUE(contains(ioExceptionOf([&] { send->waitSend(Milliseconds(30)); }), "Timed out waiting 30ms for send"));
  fabric_->setPaused(transport(1), false);
}

gloo_version::RemoteKeyBuffer& withRemoteKey(::gloo::transport::UnboundBuffer& buffer) {
  return dynamic_cast<gloo_version::RemoteKeyBuffer&>(buffer);
}

TEST_F(Adapter, TargetOfPutAndGetStopped_WaitIsAborted_ResumedLosesNothing) {
  for (const std::size_t size : {100u, 1u << 20}) {
    transports_.clear();
    Mesh mesh = connect(2);
    std::vector<char> in(size, 'a'), target(size), back(size);
    auto exposed = mesh.contexts[1]->createUnboundBuffer(target.data(), size);
    auto put = mesh.contexts[0]->createUnboundBuffer(in.data(), size);
    auto get = mesh.contexts[0]->createUnboundBuffer(back.data(), size);
    const auto key = withRemoteKey(*exposed).getRemoteKey();
    fabric_->setPaused(transport(1), true);
    withRemoteKey(*put).put(*key, kSlot, 0, 0, size);
    withRemoteKey(*get).get(*key, kSlot, 0, 0, size);
    put->abortWaitSend();
    EXPECT_FALSE(put->waitSend());
    EXPECT_EQ(std::vector<char>(size), target);
    fabric_->setPaused(transport(1), false);
    EXPECT_TRUE(put->waitSend());
    EXPECT_TRUE(get->waitSend());
    EXPECT_EQ(in, target);
    EXPECT_EQ(in, back);
  }
}

TEST_F(Adapter, TargetOfPutAndGetVanishes_BothFailNamingIt) {
  Mesh mesh = connect(3);
  std::vector<char> in(1 << 20, 'a'), target(1 << 20), back(1 << 20);
  auto exposed = mesh.contexts[1]->createUnboundBuffer(target.data(), target.size());
  auto put = mesh.contexts[0]->createUnboundBuffer(in.data(), in.size());
  auto get = mesh.contexts[0]->createUnboundBuffer(back.data(), back.size());
  const auto key = withRemoteKey(*exposed).getRemoteKey();
  fabric_->setPaused(transport(1), true);
  withRemoteKey(*put).put(*key, kSlot, 0, 0, in.size());
  withRemoteKey(*get).get(*key, kSlot, 0, 0, in.size());
  fabric_->vanish(transport(1));
  for (auto* buffer : {&put, &get}) {
    const std::string text = ioExceptionOf([&] { (*buffer)->waitSend(); });
    EXPECT_TRUE(contains(text, "Rank 0") && contains(text, "rank 1") && contains(text, "process is gone")) << text;
  }
  EXPECT_EQ(std::vector<char>(1 << 20), target);
}

TEST_F(Adapter, MismatchedSettings_FailAtConnectNamingBoth) {
  MemoryTransportOptions one, two;
  one.dialect = "mtu-1500";
  two.dialect = "mtu-9000";
  auto first = unconnected(0, one), second = unconnected(1, two);
  const auto firstAddress = first->getPair(1)->address().bytes(), secondAddress = second->getPair(0)->address().bytes();
  inThreads(2, [&](int rank) {
    auto& context = rank == 0 ? first : second;
    const std::string text =
        ioExceptionOf([&] { context->getPair(1 - rank)->connect(rank == 0 ? secondAddress : firstAddress); });
    EXPECT_TRUE(contains(text, "mtu-1500") && contains(text, "mtu-9000")) << text;
  });
}

// A rank does its work and ends before another one, on a busy machine, has looked.
TEST_F(Adapter, PeerConnectsSendsAndCloses_BeforeTheWaitingThreadLooks_IsConnected) {
  auto context = unconnected(0), peer = unconnected(1);
  const auto address = context->getPair(1)->address().bytes(), peerAddress = peer->getPair(0)->address().bytes();
  // Rank 0 receives nothing until the peer has gone: then everything at once.
  fabric_->setPaused(transport(0), true);
  std::string text = "not called";
  std::thread connecting([&] { text = ioExceptionOf([&] { context->getPair(1)->connect(peerAddress); }); });
  peer->getPair(0)->connect(address);
  int in = 5, out = 0;
  {
    auto send = peer->createUnboundBuffer(&in, sizeof(in));
    send->send(0, kSlot);
    send->waitSend();
  }
  peer.reset();
  fabric_->setPaused(transport(0), false);
  connecting.join();
  EXPECT_EQ("", text);
  auto receive = context->createUnboundBuffer(&out, sizeof(out));
  receive->recv(1, kSlot);
  EXPECT_TRUE(receive->waitRecv());
  EXPECT_EQ(5, out);
  EXPECT_TRUE(contains(ioExceptionOf([&] { receive->send(1, kSlot); }), "closed by peer"));
}

TEST_F(Adapter, MessageTooLong_FailsBothSides) {
  Mesh mesh = connect(2);
  std::vector<char> in(100), out(10);
  auto send = mesh.contexts[0]->createUnboundBuffer(in.data(), in.size());
  auto receive = mesh.contexts[1]->createUnboundBuffer(out.data(), out.size());
  receive->recv(0, kSlot);
  send->send(1, kSlot);
  const std::string text = ioExceptionOf([&] { receive->waitRecv(); });
  EXPECT_TRUE(contains(text, "100 bytes") && contains(text, "rank 0")) << text;
  EXPECT_NE("", ioExceptionOf([&] {
              auto again = mesh.contexts[0]->createUnboundBuffer(in.data(), in.size());
              again->recv(1, kSlot);
              again->waitRecv();
            }));
}

// The sender may have left, in good order or not, before the receive shows that the sizes differ.
TEST_F(Adapter, MessageTooLong_SenderHasGone_ErrorNamesTheSizes) {
  for (const bool closes : {true, false}) {
    transports_.clear();
    Mesh mesh = connect(2);
    std::vector<char> in(100), out(10);
    {
      auto send = mesh.contexts[0]->createUnboundBuffer(in.data(), in.size());
      send->send(1, kSlot);
      send->waitSend();
    }
    auto other = mesh.contexts[1]->createUnboundBuffer(out.data(), out.size());
    auto receive = mesh.contexts[1]->createUnboundBuffer(out.data(), out.size());
    other->recv(0, kSlot + 1);
    closes ? mesh.contexts[0].reset() : fabric_->vanish(transport(0));
    EXPECT_NE("", ioExceptionOf([&] { other->waitRecv(); }));
    const std::string text = ioExceptionOf([&] { receive->recv(0, kSlot); });
    EXPECT_TRUE(contains(text, "100 bytes") && contains(text, "rank 0")) << text;
  }
}

TEST_F(Adapter, BoundMessageBeyondTheBuffer_FailsThePair) {
  Mesh mesh = connect(2);
  std::vector<char> in(100), out(10);
  auto receive = mesh.contexts[1]->getPair(0)->createRecvBuffer(1, out.data(), out.size());
  auto send = mesh.contexts[0]->getPair(1)->createSendBuffer(1, in.data(), in.size());
  send->send(0, 5, /*roffset=*/6);
  EXPECT_NE("", ioExceptionOf([&] { receive->waitRecv(); }));
}

TEST_F(Adapter, OneChannelFails_OtherPairsGoOn) {
  Mesh mesh = connect(3);
  int in = 6, out = 0, lost = 0;
  auto fromBroken = mesh.contexts[0]->createUnboundBuffer(&lost, sizeof(lost));
  auto receive = mesh.contexts[0]->createUnboundBuffer(&out, sizeof(out));
  auto send = mesh.contexts[2]->createUnboundBuffer(&in, sizeof(in));
  fromBroken->recv(1, kSlot);
  receive->recv(2, kSlot);
  fabric_->corrupt(transport(0), transport(1));
  const std::string text = ioExceptionOf([&] { fromBroken->waitRecv(); });
  EXPECT_TRUE(contains(text, "nonsense") && contains(text, "rank 1")) << text;
  send->send(0, kSlot);
  EXPECT_TRUE(receive->waitRecv());
  EXPECT_TRUE(send->waitSend());
  EXPECT_EQ(6, out);
}

// A small send completes before its receive is posted; then its sender may be gone before, too.
TEST_F(Adapter, PeerClosedAfterSending_LaterReceives_GetWhatItSent) {
  Mesh mesh = connect(2);
  int values[3] = {1, 2, 3};
  for (int i = 0; i < 3; ++i) {
    auto send = mesh.contexts[1]->createUnboundBuffer(&values[i], sizeof(int));
    send->send(0, kSlot + static_cast<std::uint64_t>(i));
    send->waitSend();
  }
  int boundValue = 4;
  {
    auto send = mesh.contexts[1]->getPair(0)->createSendBuffer(1, &boundValue, sizeof(boundValue));
    send->send();
    send->waitSend();
  }
  mesh.contexts[1].reset();
  int out = 0;
  auto receive = mesh.contexts[0]->createUnboundBuffer(&out, sizeof(out));
  auto other = mesh.contexts[0]->createUnboundBuffer(&out, sizeof(out));
  // A receive of something else fails because of the close, which shows that the close and everything before it
  // arrived.
  EXPECT_TRUE(contains(ioExceptionOf([&] {
                         other->recv(1, kSlot + 100);
                         other->waitRecv();
                       }),
                       "closed by peer"));
  receive->recv(1, kSlot + 2);
  EXPECT_TRUE(receive->waitRecv());
  EXPECT_EQ(3, out);
  receive->recv(std::vector<int>{1}, kSlot);
  int rank = -1;
  EXPECT_TRUE(receive->waitRecv(&rank));
  EXPECT_EQ(1, out);
  EXPECT_EQ(1, rank);
  int boundOut = 0;
  auto bound = mesh.contexts[0]->getPair(1)->createRecvBuffer(1, &boundOut, sizeof(boundOut));
  bound->waitRecv();
  EXPECT_EQ(4, boundOut);
  EXPECT_NE("", ioExceptionOf([&] { bound->waitRecv(); }));
  EXPECT_NE("", ioExceptionOf([&] { receive->recv(std::vector<int>{1}, kSlot); }));
}

TEST_F(Adapter, ReceiveFromAny_LastSourceCloses_Fails) {
  Mesh mesh = connect(4);
  int out = 0, in = 8;
  auto receive = mesh.contexts[0]->createUnboundBuffer(&out, sizeof(out));
  auto fromThree = mesh.contexts[0]->createUnboundBuffer(&out, sizeof(out));
  receive->recv(std::vector<int>{0, 1, 2}, kSlot);
  fromThree->recv(std::vector<int>{2, 3}, kSlot);
  mesh.contexts[1].reset();
  mesh.contexts[2].reset();
  EXPECT_TRUE(contains(ioExceptionOf([&] { receive->waitRecv(); }), "closed by peer"));
  auto send = mesh.contexts[3]->createUnboundBuffer(&in, sizeof(in));
  send->send(0, kSlot);
  EXPECT_TRUE(fromThree->waitRecv());
  EXPECT_EQ(8, out);
}

TEST_F(Adapter, LateMessageForADestroyedReceive_TouchesNothing) {
  Mesh mesh = connect(2);
  std::vector<char> in(1 << 20, 'x');
  auto out = std::make_unique<std::vector<char>>(1 << 20);
  auto send = mesh.contexts[0]->createUnboundBuffer(in.data(), in.size());
  auto receive = mesh.contexts[1]->createUnboundBuffer(out->data(), out->size());
  receive->recv(0, kSlot);
  // The grant is under way when the receive disappears: rank 0 cannot know.
  fabric_->setPaused(transport(0), true);
  send->send(1, kSlot);
  receive->abortWaitRecv();
  EXPECT_FALSE(receive->waitRecv());
  receive.reset();
  out.reset();
  fabric_->setPaused(transport(0), false);
  std::vector<char> again(1 << 20);
  auto retry = mesh.contexts[1]->createUnboundBuffer(again.data(), again.size());
  retry->recv(0, kSlot + 1);
  send->send(1, kSlot + 1);
  EXPECT_TRUE(retry->waitRecv());
  EXPECT_EQ(in, again);
}

TEST_F(Adapter, NoPairForARank_IsRefused) {
  Mesh mesh = connect(2);
  int value = 0;
  auto buffer = mesh.contexts[0]->createUnboundBuffer(&value, sizeof(value));
  for (const int rank : {0, 2, -1}) {
    EXPECT_THROW(buffer->send(rank, kSlot), std::exception) << rank;
    EXPECT_THROW(buffer->recv(rank, kSlot), std::exception) << rank;
  }
}

TEST_F(Adapter, BoundSendBeforeConnect_IsRefused) {
  auto context = unconnected(0);
  int value = 0;
  auto buffer = context->getPair(1)->createSendBuffer(1, &value, sizeof(value));
  EXPECT_THROW(buffer->send(), std::exception);
}

}  // namespace
}  // namespace gloo_bypass::test
