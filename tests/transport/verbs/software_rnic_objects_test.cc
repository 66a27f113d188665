// Completion channels, asynchronous events, registration, limits and teardown of the software adapter, and that it
// works with many threads.
#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <thread>

#include "tests/transport/verbs/rnic_end.h"

namespace gloo_bypass::test {
using namespace verbs;
namespace {

using Bytes = std::vector<std::byte>;

class SoftwareRnicObjects : public SoftwareRnicTest {
 protected:
  static bool isReadable(int fd) {
    pollfd readable{fd, POLLIN, 0};
    return ::poll(&readable, 1, 0) == 1;
  }
  static void makeNonBlocking(int fd) { ASSERT_EQ(::fcntl(fd, F_SETFL, ::fcntl(fd, F_GETFL) | O_NONBLOCK), 0); }
  // An empty message from a arrives at b; its completions at both ends are there, and polled at a.
  void deliver(unsigned flags = 0) {
    const std::uint64_t before = rnic.counters().receives;
    ASSERT_EQ(b->postReceive(1, {}), 0);
    ASSERT_EQ(a->post(IBV_WR_SEND, 1, {}, flags | IBV_SEND_SIGNALED), 0);
    EXPECT_EQ(a->status(), IBV_WC_SUCCESS);
    EXPECT_EQ(rnic.counters().receives, before + 1);
  }
  bool takeEvent(RnicEnd& end, unsigned acknowledged = 1) {
    ibv_cq* queue = nullptr;
    void* context = nullptr;
    if (verbs.getCompletionEvent(end.channel, &queue, &context) != 0) return false;
    EXPECT_EQ(queue, end.completions);
    EXPECT_EQ(context, &end);
    verbs.ackCompletionEvents(queue, acknowledged);
    return true;
  }
};

TEST_F(SoftwareRnicObjects, Notification_Requested_GivesOneEventForManyCompletions) {
  connect();
  makeNonBlocking(b->channel->fd);
  ASSERT_EQ(ibv_req_notify_cq(b->completions, 0), 0);
  EXPECT_FALSE(isReadable(b->channel->fd));
  deliver();
  deliver();
  EXPECT_TRUE(isReadable(b->channel->fd));
  EXPECT_TRUE(takeEvent(*b));
  EXPECT_FALSE(isReadable(b->channel->fd));
  EXPECT_FALSE(takeEvent(*b));
  EXPECT_EQ(errno, EAGAIN);
  deliver();  // not requested again
  EXPECT_FALSE(isReadable(b->channel->fd));
}

TEST_F(SoftwareRnicObjects, Notification_RequestedAfterTheCompletion_SaysNothing) {
  connect();
  deliver();
  ASSERT_EQ(ibv_req_notify_cq(b->completions, 0), 0);
  EXPECT_FALSE(isReadable(b->channel->fd));
  deliver();
  EXPECT_TRUE(isReadable(b->channel->fd));
}

TEST_F(SoftwareRnicObjects, Notification_ForSolicited_PassesOverOthers) {
  connect();
  ASSERT_EQ(ibv_req_notify_cq(b->completions, 1), 0);
  deliver();
  EXPECT_FALSE(isReadable(b->channel->fd));
  deliver(IBV_SEND_SOLICITED);
  EXPECT_TRUE(takeEvent(*b));
  ASSERT_EQ(ibv_req_notify_cq(a->completions, 1), 0);
  ASSERT_EQ(a->toError(), 0);
  ASSERT_EQ(a->post(IBV_WR_SEND, 1, {}), 0);
  EXPECT_EQ(a->status(), IBV_WC_WR_FLUSH_ERR);
  EXPECT_TRUE(takeEvent(*a));  // an error is always worth an event
}

TEST_F(SoftwareRnicObjects, CompletionEvent_BlockingReader_IsWoken) {
  connect();
  ASSERT_EQ(ibv_req_notify_cq(b->completions, 0), 0);
  std::thread reader([this] { EXPECT_TRUE(takeEvent(*b)); });
  deliver();
  reader.join();
}

TEST_F(SoftwareRnicObjects, CompletionQueue_DestroyedWithUnreadEvent_TheEventIsGone) {
  connect();
  ASSERT_EQ(ibv_req_notify_cq(b->completions, 0), 0);
  deliver();
  ASSERT_TRUE(isReadable(b->channel->fd));
  ASSERT_EQ(verbs.destroyQueuePair(b->queuePair), 0);
  b->queuePair = nullptr;
  ASSERT_EQ(verbs.destroyCompletionQueue(b->completions), 0);
  b->completions = nullptr;
  EXPECT_FALSE(isReadable(b->channel->fd));
}

using SoftwareRnicDeathTest = SoftwareRnicObjects;

TEST_F(SoftwareRnicDeathTest, CompletionQueue_DestroyedWithUnacknowledgedEvent_EndsTheProcess) {
  ::testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_DEATH(
      {
        connect();
        ASSERT_EQ(ibv_req_notify_cq(b->completions, 0), 0);
        deliver();
        takeEvent(*b, 0);
        verbs.destroyQueuePair(b->queuePair);
        verbs.destroyCompletionQueue(b->completions);
      },
      "completion queue is destroyed with 1 events read and 0 acknowledged");
}

TEST_F(SoftwareRnicDeathTest, Object_DestroyedTwice_EndsTheProcess) {
  ::testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_DEATH(
      {
        a = std::make_unique<RnicEnd>();
        verbs.destroyQueuePair(a->queuePair);
        verbs.destroyQueuePair(a->queuePair);
      },
      "broken invariant");
}

TEST_F(SoftwareRnicObjects, CompletionQueue_Overrun_IsToldAndBreaksItsQueuePairs) {
  connect({.completions = 4});
  for (std::uint64_t id = 0; id < 5; ++id) {
    ASSERT_EQ(b->postReceive(id, {}), 0);
    ASSERT_EQ(a->post(IBV_WR_SEND, id, {}), 0);
  }
  EXPECT_EQ(a->asyncEvent(), IBV_EVENT_CQ_ERR);
  EXPECT_EQ(a->asyncEvent(), IBV_EVENT_QP_FATAL);
  for (std::uint64_t id = 0; id < 4; ++id) EXPECT_EQ(a->completion().wr_id, id);
  ASSERT_EQ(a->post(IBV_WR_SEND, 9, {}), 0);
  RnicEnd c, d;
  join(c, d);
  ASSERT_EQ(c.post(IBV_WR_RDMA_WRITE, 1, {}), 0);
  EXPECT_EQ(c.status(), IBV_WC_SUCCESS);  // the adapter has been at a's request before
  EXPECT_TRUE(a->isQuiet());              // nothing more comes out of it
}

TEST_F(SoftwareRnicObjects, CompletionQueue_Resized_HoldsMoreButNotTooMany) {
  connect({.completions = 2});
  EXPECT_EQ(verbs.resizeCompletionQueue(a->completions, 16), 0);
  EXPECT_EQ(a->completions->cqe, 16);
  EXPECT_EQ(verbs.resizeCompletionQueue(a->completions, 16385), EINVAL);
  for (std::uint64_t id = 0; id < 5; ++id) {
    ASSERT_EQ(b->postReceive(id, {}), 0);
    ASSERT_EQ(a->post(IBV_WR_SEND, id, {}), 0);
  }
  for (std::uint64_t id = 0; id < 5; ++id) EXPECT_EQ(a->status(), IBV_WC_SUCCESS);
}

TEST_F(SoftwareRnicObjects, AsyncEvent_NothingHappened_WouldBlock) {
  connect();
  makeNonBlocking(a->context->async_fd);
  ibv_async_event event{};
  EXPECT_EQ(verbs.getAsyncEvent(a->context, &event), -1);
  EXPECT_EQ(errno, EAGAIN);
  rnic.setPort("soft0", false);
  EXPECT_TRUE(isReadable(a->context->async_fd));
  ASSERT_EQ(verbs.getAsyncEvent(a->context, &event), 0);
  EXPECT_EQ(event.event_type, IBV_EVENT_PORT_ERR);
  EXPECT_EQ(event.element.port_num, 1);
  verbs.ackAsyncEvent(&event);
  EXPECT_FALSE(isReadable(a->context->async_fd));
}

TEST_F(SoftwareRnicObjects, Teardown_ParentsBeforeChildren_AreBusy) {
  connect();
  EXPECT_EQ(verbs.freeProtectionDomain(a->domain), EBUSY);
  EXPECT_EQ(verbs.destroyCompletionQueue(a->completions), EBUSY);
  EXPECT_EQ(verbs.destroyCompletionChannel(a->channel), EBUSY);
  ASSERT_EQ(verbs.destroyQueuePair(a->queuePair), 0);
  a->queuePair = nullptr;
  EXPECT_EQ(verbs.destroyCompletionChannel(a->channel), EBUSY);
  Bytes memory(8);
  ibv_mr* const region = verbs.registerMemory(a->domain, memory.data(), 8, 0);
  EXPECT_EQ(verbs.freeProtectionDomain(a->domain), EBUSY);
  EXPECT_EQ(verbs.deregisterMemory(region), 0);
}

TEST_F(SoftwareRnicObjects, LiveObjects_Leaked_AreNamedEvenAfterTheDeviceWasClosed) {
  ibv_device** const list = verbs.getDeviceList(nullptr);
  ibv_context* const context = verbs.openDevice(list[0]);
  EXPECT_EQ(rnic.liveObjects().describe(), "1 device list, 1 context");
  verbs.freeDeviceList(list);
  ibv_pd* const domain = verbs.allocProtectionDomain(context);
  Bytes memory(8);
  ASSERT_NE(verbs.registerMemory(domain, memory.data(), 8, 0), nullptr);
  EXPECT_EQ(verbs.closeDevice(context), 0);
  EXPECT_EQ(rnic.liveObjects().describe(), "1 protection domain, 1 region");
  EXPECT_EQ(rnic.liveObjects().total(), 2U);
  rnic.reset();
  EXPECT_EQ(rnic.liveObjects().total(), 0U);
}

TEST_F(SoftwareRnicObjects, Registration_MemlockTooSmall_FailsUntilSomethingIsGivenBack) {
  a = std::make_unique<RnicEnd>();
  Bytes memory(3 * 4096 + 1);
  rnic.limitRegisteredBytes(5 * 4096);
  ibv_mr* const region = verbs.registerMemory(a->domain, memory.data(), memory.size(), IBV_ACCESS_LOCAL_WRITE);
  ASSERT_NE(region, nullptr);
  EXPECT_GE(rnic.counters().registeredBytes, 4U * 4096);
  EXPECT_EQ(verbs.registerMemory(a->domain, memory.data(), memory.size(), IBV_ACCESS_LOCAL_WRITE), nullptr);
  EXPECT_EQ(errno, ENOMEM);
  ASSERT_EQ(verbs.deregisterMemory(region), 0);
  EXPECT_EQ(rnic.counters().registeredBytes, 0U);
  ibv_mr* const again = verbs.registerMemory(a->domain, memory.data(), memory.size(), IBV_ACCESS_LOCAL_WRITE);
  EXPECT_NE(again, nullptr);
  EXPECT_EQ(verbs.deregisterMemory(again), 0);
  EXPECT_EQ(rnic.counters().registrations, 2U);
  EXPECT_EQ(rnic.counters().failedRegistrations, 1U);
}

TEST_F(SoftwareRnicObjects, Registration_MemoryThatCannotBeUsed_Fails) {
  a = std::make_unique<RnicEnd>();
  void* const pages = ::mmap(nullptr, 4 * 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(pages, MAP_FAILED);
  EXPECT_EQ(verbs.registerMemory(a->domain, pages, 4096, IBV_ACCESS_LOCAL_WRITE), nullptr);
  EXPECT_EQ(errno, EFAULT);
  ibv_mr* const readOnly = verbs.registerMemory(a->domain, pages, 4096, IBV_ACCESS_REMOTE_READ);
  EXPECT_NE(readOnly, nullptr);
  EXPECT_EQ(verbs.deregisterMemory(readOnly), 0);
  // As good as unmapped, but nobody else's memory can come there.
  ASSERT_EQ(::mprotect(pages, 4 * 4096, PROT_NONE), 0);
  EXPECT_EQ(verbs.registerMemory(a->domain, pages, 4096, 0), nullptr);
  EXPECT_EQ(errno, EFAULT);
  ASSERT_EQ(::munmap(pages, 4 * 4096), 0);
  Bytes memory(8);
  EXPECT_EQ(verbs.registerMemory(a->domain, memory.data(), 8, IBV_ACCESS_REMOTE_WRITE), nullptr);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(verbs.registerMemory(a->domain, memory.data(), 0, 0), nullptr);
  EXPECT_EQ(errno, EINVAL);
}

TEST_F(SoftwareRnicObjects, Limits_OfTheDevice_AreReportedAndKept) {
  a = std::make_unique<RnicEnd>();
  ibv_device_attr limits{};
  ASSERT_EQ(verbs.queryDevice(a->context, &limits), 0);
  const auto refusesQueuePair = [&](const std::function<void(ibv_qp_init_attr&)>& change) {
    ibv_qp_init_attr wanted{};
    wanted.send_cq = wanted.recv_cq = a->completions;
    wanted.qp_type = IBV_QPT_RC;
    wanted.cap = {4, 4, 1, 1, 0};
    change(wanted);
    ibv_qp* const made = verbs.createQueuePair(a->domain, &wanted);
    if (made != nullptr) {
      EXPECT_EQ(verbs.destroyQueuePair(made), 0);
    }
    return made == nullptr;
  };
  EXPECT_FALSE(refusesQueuePair([](auto&) {}));
  EXPECT_TRUE(
      refusesQueuePair([&](auto& wanted) { wanted.cap.max_send_wr = static_cast<unsigned>(limits.max_qp_wr) + 1; }));
  EXPECT_TRUE(
      refusesQueuePair([&](auto& wanted) { wanted.cap.max_recv_wr = static_cast<unsigned>(limits.max_qp_wr) + 1; }));
  EXPECT_TRUE(
      refusesQueuePair([&](auto& wanted) { wanted.cap.max_send_sge = static_cast<unsigned>(limits.max_sge) + 1; }));
  EXPECT_TRUE(refusesQueuePair([](auto& wanted) { wanted.cap.max_inline_data = 257; }));
  EXPECT_TRUE(refusesQueuePair([](auto& wanted) { wanted.qp_type = IBV_QPT_UD; }));
  EXPECT_TRUE(refusesQueuePair([](auto& wanted) { wanted.send_cq = nullptr; }));
  EXPECT_EQ(verbs.createCompletionQueue(a->context, limits.max_cqe + 1, nullptr, nullptr, 0), nullptr);
  EXPECT_EQ(verbs.createCompletionQueue(a->context, 1, nullptr, nullptr, 1), nullptr);
}

TEST_F(SoftwareRnicObjects, Queries_ADevice_DescribeARocePort) {
  a = std::make_unique<RnicEnd>(EndOptions{.device = "soft1"});
  ibv_port_attr port{};
  ASSERT_EQ(verbs.queryPort(a->context, 1, &port), 0);
  EXPECT_EQ(port.state, IBV_PORT_ACTIVE);
  EXPECT_EQ(port.active_mtu, IBV_MTU_4096);
  EXPECT_EQ(port.link_layer, IBV_LINK_LAYER_ETHERNET);
  EXPECT_EQ(port.max_msg_sz, 8U * 1024 * 1024);
  EXPECT_EQ(port.gid_tbl_len, 1);
  EXPECT_EQ(verbs.queryPort(a->context, 2, &port), EINVAL);
  ibv_gid_entry entries[4]{};
  ASSERT_EQ(verbs.queryGidTable(a->context, entries, 4, 0, sizeof(entries[0])), 1);
  const ibv_gid expected = mappedGid("127.0.0.2");
  EXPECT_EQ(std::memcmp(entries[0].gid.raw, expected.raw, 16), 0);
  EXPECT_EQ(entries[0].gid_type, static_cast<unsigned>(IBV_GID_TYPE_ROCE_V2));
  EXPECT_NE(entries[0].ndev_ifindex, 0U);
  EXPECT_EQ(verbs.queryGidTable(a->context, entries, 0, 0, sizeof(entries[0])), -EINVAL);
}

// Each thread is a process of its own, with its own queue; all talk at once, over both devices.
TEST_F(SoftwareRnicObjects, ManyPairs_AtOnce_EveryByteArrives) {
  constexpr int kPairs = 4, kRounds = 50;
  const auto converse = [this](int pair) {
    RnicEnd left({.device = "soft0"}), right({.device = "soft1"});
    join(left, right);
    const std::size_t size = 1000 + 70000 * static_cast<std::size_t>(pair);
    Bytes sent = patterned(size, pair), eager(size), written(size), fetched(size);
    ibv_mr* const from = left.expose(sent);
    ibv_mr* const landing = right.expose(eager);
    ibv_mr* const target = right.expose(written);
    ibv_mr* const back = left.expose(fetched);
    for (int round = 0; round < kRounds; ++round) {
      sent[static_cast<std::size_t>(round)] ^= std::byte{0x55};
      ASSERT_EQ(right.postReceive(1, {RnicEnd::part(landing)}), 0);
      ASSERT_EQ(left.post(IBV_WR_RDMA_WRITE, 1, {RnicEnd::part(from)}, 0, target), 0);
      ASSERT_EQ(left.post(IBV_WR_SEND, 2, {RnicEnd::part(from)}, 0), 0);
      ASSERT_EQ(left.post(IBV_WR_RDMA_READ, 3, {RnicEnd::part(back)}, IBV_SEND_SIGNALED, target), 0);
      ASSERT_EQ(right.status(), IBV_WC_SUCCESS);
      ASSERT_EQ(left.status(), IBV_WC_SUCCESS);
      ASSERT_EQ(sent, eager);
      ASSERT_EQ(sent, written);
      ASSERT_EQ(sent, fetched);
    }
  };
  std::vector<std::thread> threads;
  for (int pair = 0; pair < kPairs; ++pair) threads.emplace_back(converse, pair);
  for (std::thread& thread : threads) thread.join();
}

// When destroy returns nothing touches the memory any more, whatever the peer still sends: a sanitizer would see it.
TEST_F(SoftwareRnicObjects, QueuePair_DestroyedInMidTraffic_MemoryMayGoAtOnce) {
  for (int round = 0; round < 20; ++round) {
    connect({.maxSends = 64});
    auto there = std::make_unique<Bytes>(1000000);
    Bytes memory(1000000);
    const ibv_sge here = RnicEnd::part(a->expose(memory));
    ibv_mr* const remote =
        verbs.registerMemory(b->domain, there->data(), there->size(), IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
    for (std::uint64_t id = 0; id < 64; ++id)
      ASSERT_EQ(a->post(IBV_WR_RDMA_WRITE, id, {here}, IBV_SEND_SIGNALED, remote), 0);
    for (int polled = 0; polled < round; ++polled) ASSERT_EQ(a->status(), IBV_WC_SUCCESS);
    ASSERT_EQ(verbs.destroyQueuePair(b->queuePair), 0);
    b->queuePair = nullptr;
    there.reset();
    ASSERT_EQ(verbs.deregisterMemory(remote), 0);
    ASSERT_EQ(verbs.destroyQueuePair(a->queuePair), 0);
    a->queuePair = nullptr;
    memory = Bytes();
    a.reset();
    b.reset();
  }
}

}  // namespace
}  // namespace gloo_bypass::test
