// The order of posting: on a device in software, posting a READ takes as long as the READ.
#include <atomic>
#include <thread>
#include <utility>

#include "tests/transport/verbs/rdma_end.h"

namespace gloo_bypass::test {
using namespace verbs;
namespace {

constexpr std::size_t kLarge = 300'000;
constexpr std::uint32_t kSoftRoceVendor = 0xffffff;

// Counts, in ibv_post_send, the SENDs that an end has posted before its first READ.
class PostedOrder {
 public:
  explicit PostedOrder(RdmaEnd& end) : end_(end) {
    end_.exclusive([this] {
      sendsBeforeRead = reads = sends = 0;
      readBytes = 0;
      original = std::exchange(end_.context->ops.post_send, count);
    });
  }
  ~PostedOrder() {
    end_.exclusive([this] { end_.context->ops.post_send = original; });
  }
  PostedOrder(const PostedOrder&) = delete;
  PostedOrder& operator=(const PostedOrder&) = delete;

  static inline std::atomic<int> sendsBeforeRead, reads, sends;
  static inline std::atomic<std::size_t> readBytes;

 private:
  static int count(ibv_qp* pair, ibv_send_wr* list, ibv_send_wr** bad) {
    for (const ibv_send_wr* work = list; work != nullptr; work = work->next) {
      if (work->opcode == IBV_WR_RDMA_READ && reads++ == 0) sendsBeforeRead = sends.load();
      if (work->opcode == IBV_WR_RDMA_READ) readBytes += work->sg_list[0].length;
      if (work->opcode == IBV_WR_SEND) ++sends;
    }
    return original(pair, list, bad);
  }

  static inline decltype(ibv_context_ops::post_send) original;
  RdmaEnd& end_;
};

class RdmaOrder : public RdmaChannelTest {
 protected:
  void openInSoftware() {
    auto devices = defaultSoftwareDevices();
    for (auto& device : devices) device.vendor = kSoftRoceVendor;
    rnic.setDevices(devices);
    open();
  }
  // A message of b that a knows of, without a receive for it.
  void announce(OperationToken token) {
    const std::size_t before = (*a)[0].record.announced.size();
    ASSERT_TRUE(b->send(token, token, out).ok());
    ASSERT_TRUE(a->wait([&] { return (*a)[0].record.announced.size() > before; }));
  }

  const std::vector<std::byte> out = patterned(kLarge, 1), small = patterned(100, 2);
  std::vector<std::byte> in = std::vector<std::byte>(kLarge);
};

TEST_F(RdmaOrder, ReceiveAndSendAtOnce_FrameGoesBeforeTheRead) {
  open();
  announce(1);
  const PostedOrder order(*a);
  a->exclusive([&] {
    auto& channel = *(*a)[0].handle;
    ASSERT_TRUE(
        channel.postReceive({.token = 1, .key = {MessageKind::kUnbound, 1}, .data = in.data(), .capacity = kLarge})
            .ok());
    ASSERT_TRUE(
        channel.postSend({.token = 2, .key = {MessageKind::kUnbound, 2}, .data = small.data(), .length = small.size()})
            .ok());
    EXPECT_EQ(PostedOrder::reads, 0);
  });
  EXPECT_EQ(PostedOrder::reads, 1);  // an adapter begins at once
  EXPECT_GE(PostedOrder::sendsBeforeRead, 1);
  ASSERT_TRUE(a->waitReceived(1));
  EXPECT_EQ(in, out);
}

// None of them completes: the requested bytes stay under way.
TEST_F(RdmaOrder, ReadBytesAreBounded_TheRestIsAskedForWhenThoseHaveCome) {
  TransportConfig bounded = rdmaConfig("soft0");
  bounded.rdma.readBytes = 256 * 1024;
  open(bounded, rdmaConfig("soft1"));
  announce(1);
  announce(2);
  std::vector<std::byte> second(kLarge);
  {
    const PostedOrder order(*a);
    rnic.setPaused(true);
    ASSERT_TRUE(a->receive(1, 1, in).ok());
    ASSERT_TRUE(a->receive(2, 2, second).ok());
    std::uint64_t polls = 0;
    (void)a->transport->progress().waitUntil([&] { return ++polls > 2000; }, monotonicNow() + kRnicPatience, true);
    EXPECT_EQ(PostedOrder::reads, 2);
    EXPECT_EQ(PostedOrder::readBytes, bounded.rdma.readBytes);
    rnic.setPaused(false);
    ASSERT_TRUE(a->waitReceived(1));
    ASSERT_TRUE(a->waitReceived(2));
    EXPECT_EQ(PostedOrder::readBytes, 2 * kLarge);
  }
  EXPECT_EQ(in, out);
  EXPECT_EQ(second, out);
}

// Gloo's ring posts a receive, then a send, then waits. A thread that was delayed in between may find the READ posted.
TEST_F(RdmaOrder, ReceiveThenSendThenWaitInSoftware_SendGoesBeforeTheRead) {
  openInSoftware();
  bool seen = false;
  for (OperationToken token = 1; token <= 100 && !seen; ++token) {
    announce(token);
    const PostedOrder order(*a);
    ASSERT_TRUE(a->receive(token, token, in).ok());
    ASSERT_TRUE(a->send(token, token, small).ok());
    ASSERT_TRUE(a->waitReceived(token));
    EXPECT_EQ(in, out);
    seen = PostedOrder::sendsBeforeRead >= 1;
  }
  EXPECT_TRUE(seen);
}

// Gloo's chunked ring waits for one message, and sends its result, while another is already announced.
TEST_F(RdmaOrder, WaiterIsGivenAMessageInSoftware_WhatItSendsGoesBeforeTheRead) {
  openInSoftware();
  std::vector<std::byte> given(small.size());
  bool seen = false;
  for (OperationToken token = 1; token <= 100 && !seen; ++token) {
    announce(token);
    const OperationToken brief = 1000 + token;
    std::thread::id driver;
    (*a)[0].record.onReceived = [&](OperationToken received) {
      if (received == brief) driver = std::this_thread::get_id();
    };
    const PostedOrder order(*a);
    a->exclusive([&] {
      auto& channel = *(*a)[0].handle;
      const auto before = rnic.counters().operations[IBV_WR_SEND];
      ASSERT_TRUE(b->send(brief, brief, small).ok());
      ASSERT_TRUE(eventually([&] { return rnic.counters().operations[IBV_WR_SEND] > before; }));
      ASSERT_TRUE(channel
                      .postReceive({.token = brief,
                                    .key = {MessageKind::kUnbound, brief},
                                    .data = given.data(),
                                    .capacity = given.size()})
                      .ok());
      ASSERT_TRUE(
          channel
              .postReceive(
                  {.token = token, .key = {MessageKind::kUnbound, token}, .data = in.data(), .capacity = kLarge})
              .ok());
    });
    ASSERT_TRUE(a->waitReceived(brief));
    ASSERT_TRUE(a->send(token, token, small).ok());
    ASSERT_TRUE(a->waitReceived(token));
    EXPECT_EQ(in, out);
    // The engine's own thread posts no READ in any case.
    seen = driver == std::this_thread::get_id() && PostedOrder::sendsBeforeRead >= 1;
  }
  (*a)[0].record.onReceived = nullptr;
  EXPECT_TRUE(seen);
}

TEST_F(RdmaOrder, NobodyWaitsInSoftware_MessageIsReadAllTheSame) {
  openInSoftware();
  announce(1);
  ASSERT_TRUE(a->receive(1, 1, in).ok());
  EXPECT_TRUE(eventually([&] { return rnic.counters().operations[IBV_WR_RDMA_READ] > 0; }));
  ASSERT_TRUE(a->waitReceived(1));
  EXPECT_EQ(in, out);
}

TEST_F(RdmaOrder, CancelledBeforeItsReadInSoftware_BufferIsNotTouchedAndSendCompletes) {
  openInSoftware();
  announce(1);
  ASSERT_TRUE(a->receive(1, 1, in).ok());
  a->exclusive([&] { EXPECT_TRUE((*a)[0].handle->cancelReceive(1)); });
  const auto after = in;
  ASSERT_TRUE(b->waitSent(1));
  EXPECT_EQ(in, after);
  EXPECT_EQ((*a)[0].record.timesReceived(1), 0u);
  exchange(kLarge, 5);
}

TEST_F(RdmaOrder, ClosedBeforeItsReadInSoftware_NothingIsLeft) {
  openInSoftware();
  announce(1);
  ASSERT_TRUE(a->receive(1, 1, in).ok());
  a->close(false);
  EXPECT_TRUE(b->waitState(ChannelState::kPeerClosed));
}

}  // namespace
}  // namespace gloo_bypass::test
