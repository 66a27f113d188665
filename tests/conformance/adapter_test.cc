// What the adapter makes of a back-end's faults: over the memory transport, which has them on demand.
#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

#include <gloo/common/error.h>
#include <gloo/transport/buffer.h>
#include <gloo/transport/pair.h>
#include <gloo/transport/unbound_buffer.h>

#include "compatibility/gloo/remote_key.h"
#include "tests/conformance/backend.h"
#include "tests/support/memory_transport.h"
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
  // Of a group of two; its pair with the other rank does not connect yet.
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

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

TEST_F(Adapter, PeerVanishes_EveryWaitOfTheContext_FailsNamingIt) {
  Mesh mesh = connect(3);
  int value = 0;
  auto fromVictim = mesh.contexts[0]->createUnboundBuffer(&value, sizeof(value));
  auto fromOther = mesh.contexts[0]->createUnboundBuffer(&value, sizeof(value));
  auto bound = mesh.contexts[0]->getPair(2)->createRecvBuffer(1, &value, sizeof(value));
  fromVictim->recv(1, kSlot);
  fromOther->recv(2, kSlot);
  std::vector<std::string> texts(3);
  std::thread first([&] { texts[0] = ioExceptionOf([&] { fromVictim->waitRecv(); }); });
  std::thread second([&] { texts[1] = ioExceptionOf([&] { fromOther->waitRecv(); }); });
  std::thread third([&] { texts[2] = ioExceptionOf([&] { bound->waitRecv(); }); });
  fabric_->vanish(transport(1));
  first.join();
  second.join();
  third.join();
  for (const std::string& text : texts) {
    EXPECT_TRUE(contains(text, "Rank 0") && contains(text, "rank 1") && contains(text, "process is gone")) << text;
  }
  // A wait that begins later fails too; what is complete does not.
  int sent = 4;
  auto send = mesh.contexts[0]->createUnboundBuffer(&sent, sizeof(sent));
  send->send(2, kSlot + 1);
  EXPECT_TRUE(send->waitSend());
  auto later = mesh.contexts[0]->createUnboundBuffer(&value, sizeof(value));
  later->recv(2, kSlot + 2);
  EXPECT_TRUE(contains(ioExceptionOf([&] { later->waitRecv(); }), "rank 1"));
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

// As a rank that does its work and ends while another, on a busy machine, has not yet looked.
TEST_F(Adapter, PeerConnectsSendsAndCloses_BeforeTheWaitingThreadLooks_IsConnected) {
  auto context = unconnected(0), peer = unconnected(1);
  const auto address = context->getPair(1)->address().bytes(), peerAddress = peer->getPair(0)->address().bytes();
  // Rank 0 takes in nothing until the peer has gone: then all of it at once.
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
  // The close has arrived, with everything before it, once a receive of something else fails for it.
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
  // The grant is on its way back when the receive goes: rank 0 cannot see it.
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
