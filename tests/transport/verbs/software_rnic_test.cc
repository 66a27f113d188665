// What the back-end's tests trust the software adapter for: it moves the right bytes in the right order, refuses what
// an adapter refuses, and ends requests as one does. Its faults on demand are tested by rdma_faults_test.cc and
// rdma_many_peers_test.cc, which see their effect.
#include <poll.h>

#include <algorithm>
#include <tuple>

#include "tests/transport/verbs/rnic_end.h"

namespace gloo_bypass::test {
using namespace verbs;
namespace {

using Bytes = std::vector<std::byte>;

constexpr int kMask = RnicEnd::kReadyToReceiveMask;
constexpr int kEverything = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;

class SoftwareRnicDouble : public SoftwareRnicTest {
 protected:
  // 1024 bytes between regions of 4096 at either end; how the request ends at a.
  ibv_wc_status request(ibv_wr_opcode opcode, int localAccess = kEverything, int remoteAccess = kEverything,
                        std::size_t remoteOffset = 0) {
    ibv_mr* const here = a->expose(local_, localAccess);
    ibv_mr* const there = b->expose(remote_, remoteAccess);
    EXPECT_EQ(a->post(opcode, 1, {RnicEnd::part(here, 0, 1024)}, IBV_SEND_SIGNALED, there, remoteOffset), 0);
    return a->status();
  }
  void expectBroken(RnicEnd& end) {
    EXPECT_EQ(end.post(IBV_WR_SEND, 100, {}), 0);
    EXPECT_EQ(end.status(), IBV_WC_WR_FLUSH_ERR);
  }
  void makeEnds() {
    a = std::make_unique<RnicEnd>();
    b = std::make_unique<RnicEnd>();
    ASSERT_EQ(a->toInit(), 0);
  }
  int modify(RnicEnd& end, ibv_qp_attr wanted, int mask) { return verbs.modifyQueuePair(end.queuePair, &wanted, mask); }
  void destroyQueuePair(RnicEnd& end) {
    EXPECT_EQ(verbs.destroyQueuePair(end.queuePair), 0);
    end.queuePair = nullptr;
  }
  static bool isReadable(int fd) {
    pollfd readable{fd, POLLIN, 0};
    return ::poll(&readable, 1, 0) == 1;
  }
  // An empty message from a arrives at b.
  void deliver() {
    ASSERT_EQ(b->postReceive(1, {}), 0);
    ASSERT_EQ(a->post(IBV_WR_SEND, 1, {}), 0);
    EXPECT_EQ(a->status(), IBV_WC_SUCCESS);
  }
  void takeEvent(RnicEnd& end, unsigned acknowledged = 1) {
    ibv_cq* queue = nullptr;
    void* context = nullptr;
    ASSERT_EQ(verbs.getCompletionEvent(end.channel, &queue, &context), 0);
    EXPECT_EQ(queue, end.completions);
    verbs.ackCompletionEvents(queue, acknowledged);
  }

  Bytes local_ = Bytes(4096), remote_ = Bytes(4096);
};

// ---- data, order and slots

TEST_F(SoftwareRnicDouble, Send_InParts_ArrivesWithLengthAndSource) {
  connect();
  Bytes sent = patterned(300, 1), received(400);
  ibv_mr* const from = a->expose(sent);
  ibv_mr* const to = b->expose(received);
  ASSERT_EQ(b->postReceive(7, {RnicEnd::part(to, 0, 7), RnicEnd::part(to, 7)}), 0);
  ASSERT_EQ(a->post(IBV_WR_SEND, 8, {RnicEnd::part(from, 0, 100), RnicEnd::part(from, 100)}), 0);
  const ibv_wc arrival = b->completion(), departure = a->completion();
  EXPECT_EQ(std::tuple(arrival.status, arrival.opcode, arrival.wr_id, arrival.byte_len, arrival.qp_num),
            std::tuple(IBV_WC_SUCCESS, IBV_WC_RECV, 7U, 300U, b->queuePair->qp_num));
  EXPECT_EQ(std::tuple(departure.status, departure.opcode, departure.wr_id),
            std::tuple(IBV_WC_SUCCESS, IBV_WC_SEND, 8U));
  EXPECT_TRUE(std::equal(sent.begin(), sent.end(), received.begin()));
  EXPECT_EQ(received[300], std::byte{0});
}

TEST_F(SoftwareRnicDouble, WriteAndRead_LargeMessages_TouchNothingElse) {
  connect({}, {.device = "soft1"});
  Bytes sent = patterned(1000000, 3), target(1000100), fetched(1000000);
  ibv_mr* const to = b->expose(target);
  ASSERT_EQ(a->post(IBV_WR_RDMA_WRITE, 1, {RnicEnd::part(a->expose(sent))}, 0, to, 50), 0);
  ASSERT_EQ(a->post(IBV_WR_RDMA_READ, 2, {RnicEnd::part(a->expose(fetched))}, IBV_SEND_SIGNALED, to, 50), 0);
  EXPECT_EQ(a->status(), IBV_WC_SUCCESS);
  EXPECT_TRUE(b->isQuiet());
  EXPECT_TRUE(std::equal(sent.begin(), sent.end(), target.begin() + 50));
  EXPECT_EQ(std::pair(target[49], target[1000050]), std::pair(std::byte{0}, std::byte{0}));
  EXPECT_EQ(fetched, sent);
}

// A program that changes a buffer before the completion sends something else.
TEST_F(SoftwareRnicDouble, Send_BufferChangedBeforeExecution_SendsTheNewContents) {
  connect();
  Bytes sent = patterned(32, 1), received(32), inlined(32);
  const Bytes before = sent;
  ibv_sge from = RnicEnd::part(a->expose(sent));
  ASSERT_EQ(b->postReceive(1, {RnicEnd::part(b->expose(received))}), 0);
  ASSERT_EQ(b->postReceive(2, {RnicEnd::part(b->expose(inlined))}), 0);
  rnic.setPaused(true);
  ASSERT_EQ(a->post(IBV_WR_SEND, 1, {from}), 0);
  from.lkey = 0;  // not looked at for inline data
  ASSERT_EQ(a->post(IBV_WR_SEND, 2, {from}, IBV_SEND_SIGNALED | IBV_SEND_INLINE), 0);
  std::fill(sent.begin(), sent.end(), std::byte{0xee});
  rnic.setPaused(false);
  EXPECT_EQ(b->completion().wr_id, 1U);
  EXPECT_EQ(b->completion().wr_id, 2U);
  EXPECT_EQ(received, sent);
  EXPECT_EQ(inlined, before);
}

TEST_F(SoftwareRnicDouble, Requests_ManyOfAllKinds_CompleteInOrderOfPosting) {
  connect({.maxSends = 64, .signalAll = true});
  Bytes memory = patterned(200000, 1), there(200000);
  ibv_mr* const local = a->expose(memory);
  ibv_mr* const remote = b->expose(there);
  for (std::uint64_t i = 0; i < 15; ++i) ASSERT_EQ(b->postReceive(100 + i, {RnicEnd::part(remote, 0, 8)}), 0);
  for (std::uint64_t i = 0; i < 15; ++i) {
    ASSERT_EQ(a->post(IBV_WR_RDMA_WRITE, 4 * i, {RnicEnd::part(local)}, 0, remote), 0);
    ASSERT_EQ(a->post(IBV_WR_SEND, 4 * i + 1, {RnicEnd::part(local, i, 8)}, 0), 0);
    ASSERT_EQ(a->post(IBV_WR_RDMA_READ, 4 * i + 2, {RnicEnd::part(local, 64)}, 0, remote, 64), 0);
    ASSERT_EQ(a->post(IBV_WR_RDMA_WRITE, 4 * i + 3, {RnicEnd::part(local, 0, 8)}, 0, remote), 0);
  }
  for (std::uint64_t id = 0; id < 60; ++id) ASSERT_EQ(a->completion().wr_id, id);
  for (std::uint64_t i = 0; i < 15; ++i) EXPECT_EQ(b->completion().wr_id, 100 + i);
}

TEST_F(SoftwareRnicDouble, SendQueue_Full_IsFreeOnceACompletionThatCoversItWasPolled) {
  connect({.maxSends = 2});
  for (std::uint64_t round = 0; round < 2; ++round) {
    ASSERT_EQ(a->post(IBV_WR_RDMA_WRITE, 1, {}, 0), 0);
    ASSERT_EQ(a->post(IBV_WR_RDMA_WRITE, 2, {}, round == 0 ? IBV_SEND_SIGNALED : 0), 0);
    ASSERT_TRUE(eventually([&] { return rnic.counters().operations[IBV_WR_RDMA_WRITE] == 2 * round + 2; }));
    EXPECT_EQ(a->post(IBV_WR_RDMA_WRITE, 3, {}, IBV_SEND_SIGNALED), ENOMEM);
    if (round == 0) {
      EXPECT_EQ(a->completion().wr_id, 2U);
    }
    EXPECT_TRUE(a->isQuiet());
  }
}

TEST_F(SoftwareRnicDouble, ReceiveQueue_Full_IsFreeOnceACompletionWasPolled) {
  connect({}, {.maxReceives = 2});
  EXPECT_EQ(b->postReceive(1, {}), 0);
  EXPECT_EQ(b->postReceive(2, {}), 0);
  ASSERT_EQ(a->post(IBV_WR_SEND, 1, {}), 0);
  EXPECT_EQ(a->status(), IBV_WC_SUCCESS);
  EXPECT_EQ(b->postReceive(3, {}), ENOMEM);
  EXPECT_EQ(b->completion().wr_id, 1U);
  EXPECT_EQ(b->postReceive(3, {}), 0);
}

// ---- refused when it is posted, or by keys, bounds and rights

TEST_F(SoftwareRnicDouble, Post_WrongRequests_AreRefusedAndNamed) {
  connect({.maxSendSegments = 2, .maxInlineBytes = 16});
  const ibv_sge part = RnicEnd::part(a->expose(local_));
  EXPECT_EQ(a->post(IBV_WR_RDMA_WRITE, 0, {part, part, part}), EINVAL);
  EXPECT_EQ(a->post(IBV_WR_RDMA_WRITE, 0, {part}, IBV_SEND_INLINE), EINVAL);
  EXPECT_EQ(a->post(IBV_WR_RDMA_READ, 0, {RnicEnd::part(a->regions[0], 0, 8)}, IBV_SEND_INLINE), EINVAL);
  EXPECT_EQ(b->postReceive(0, {part, part, part}), EINVAL);
  ibv_send_wr good{}, wrong{};
  good.opcode = IBV_WR_RDMA_WRITE;
  good.send_flags = IBV_SEND_SIGNALED;
  good.wr_id = 2;
  good.next = &wrong;
  wrong.opcode = IBV_WR_BIND_MW;
  ibv_send_wr* bad = nullptr;
  EXPECT_EQ(ibv_post_send(a->queuePair, &good, &bad), EINVAL);
  EXPECT_EQ(bad, &wrong);
  EXPECT_EQ(a->completion().wr_id, 2U);  // what came before it in the list was taken
}

TEST_F(SoftwareRnicDouble, LocalKey_UnknownOrOutOfBounds_IsAProtectionError) {
  for (const auto& [otherKey, moreBytes] : {std::pair(1U, 0U), std::pair(0U, 1U)}) {
    connect();
    ibv_sge part = RnicEnd::part(a->expose(local_));
    part.lkey ^= otherKey;
    part.length += moreBytes;
    ASSERT_EQ(a->post(IBV_WR_RDMA_WRITE, 1, {part}, 0, b->expose(remote_)), 0);
    EXPECT_EQ(a->status(), IBV_WC_LOC_PROT_ERR);
  }
}

TEST_F(SoftwareRnicDouble, LocalRegion_OfAnotherDomain_IsAProtectionError) {
  connect();
  ibv_pd* const other = verbs.allocProtectionDomain(a->context);
  ibv_mr* const region = verbs.registerMemory(other, local_.data(), local_.size(), kEverything);
  ASSERT_EQ(a->post(IBV_WR_RDMA_WRITE, 1, {RnicEnd::part(region)}, 0, b->expose(remote_)), 0);
  EXPECT_EQ(a->status(), IBV_WC_LOC_PROT_ERR);
  EXPECT_EQ(verbs.deregisterMemory(region), 0);
  EXPECT_EQ(verbs.freeProtectionDomain(other), 0);
}

TEST_F(SoftwareRnicDouble, LocalRegion_NotWritable_TakesNoDataAndGivesSome) {
  connect();
  EXPECT_EQ(request(IBV_WR_RDMA_WRITE, 0), IBV_WC_SUCCESS);
  EXPECT_EQ(request(IBV_WR_RDMA_READ, 0), IBV_WC_LOC_PROT_ERR);
  connect();
  ASSERT_EQ(b->postReceive(3, {RnicEnd::part(b->expose(remote_, 0))}), 0);
  EXPECT_EQ(request(IBV_WR_SEND), IBV_WC_REM_OP_ERR);
  EXPECT_EQ(b->status(), IBV_WC_LOC_PROT_ERR);
  expectBroken(*a);
  expectBroken(*b);
}

TEST_F(SoftwareRnicDouble, RemoteAccess_OutsideOfWhatWasGranted_IsRefusedAndBreaksBothEnds) {
  using Refusal = std::tuple<ibv_wr_opcode, int, std::size_t>;
  for (const auto& [opcode, access, offset] :
       {Refusal(IBV_WR_RDMA_WRITE, kEverything, 4096 - 1023), Refusal(IBV_WR_RDMA_READ, kEverything, 4000),
        Refusal(IBV_WR_RDMA_WRITE, kEverything, std::size_t{0} - 1),
        Refusal(IBV_WR_RDMA_WRITE, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ, 0),
        Refusal(IBV_WR_RDMA_READ, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE, 0)}) {
    connect();
    local_ = patterned(4096, 1);
    EXPECT_EQ(request(opcode, kEverything, access, offset), IBV_WC_REM_ACCESS_ERR);
    EXPECT_EQ(b->asyncEvent(), IBV_EVENT_QP_ACCESS_ERR);
    EXPECT_EQ(remote_, Bytes(4096));
    expectBroken(*a);
    expectBroken(*b);
  }
  connect({}, {.access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ});  // the queue pair grants less
  EXPECT_EQ(request(IBV_WR_RDMA_WRITE), IBV_WC_REM_INV_REQ_ERR);
}

// The key is looked up when the request is executed.
TEST_F(SoftwareRnicDouble, RemoteRegion_DeregisteredBeforeExecution_IsRefused) {
  connect();
  ibv_mr* const region = verbs.registerMemory(b->domain, remote_.data(), remote_.size(), kEverything);
  rnic.setPaused(true);
  ASSERT_EQ(a->post(IBV_WR_RDMA_READ, 1, {RnicEnd::part(a->expose(local_))}, 0, region), 0);
  ASSERT_EQ(verbs.deregisterMemory(region), 0);
  rnic.setPaused(false);
  EXPECT_EQ(a->status(), IBV_WC_REM_ACCESS_ERR);
}

TEST_F(SoftwareRnicDouble, Reads_BeyondALimit_AreHeldBackByOursAndRefusedByThePeers) {
  const auto readAtOnce = [this](std::uint64_t reads) {
    const ibv_sge here = RnicEnd::part(a->expose(local_));
    ibv_mr* const there = b->expose(remote_);
    rnic.setPaused(true);
    for (std::uint64_t id = 0; id < reads; ++id)
      EXPECT_EQ(a->post(IBV_WR_RDMA_READ, id, {here}, IBV_SEND_SIGNALED, there), 0);
    rnic.setPaused(false);
  };
  connect({.maxReads = 2}, {.maxReads = 2});
  readAtOnce(8);
  for (int i = 0; i < 8; ++i) EXPECT_EQ(a->status(), IBV_WC_SUCCESS);
  connect({.maxReads = 4}, {.maxReads = 2});
  readAtOnce(3);
  EXPECT_EQ(a->status(), IBV_WC_REM_INV_REQ_ERR);
  EXPECT_EQ(a->status(), IBV_WC_WR_FLUSH_ERR);
  connect({.maxReads = 0});
  EXPECT_EQ(request(IBV_WR_RDMA_READ), IBV_WC_LOC_QP_OP_ERR);
}

TEST_F(SoftwareRnicDouble, Send_LongerThanTheReceive_FailsAtBothEnds) {
  connect();
  ASSERT_EQ(b->postReceive(1, {RnicEnd::part(b->expose(remote_), 0, 1023)}), 0);
  ASSERT_EQ(b->postReceive(2, {}), 0);
  EXPECT_EQ(request(IBV_WR_SEND), IBV_WC_REM_INV_REQ_ERR);
  EXPECT_EQ(b->status(), IBV_WC_LOC_LEN_ERR);
  EXPECT_EQ(b->status(), IBV_WC_WR_FLUSH_ERR);
}

// ---- states

TEST_F(SoftwareRnicDouble, State_OutOfOrder_IsRefused) {
  makeEnds();
  EXPECT_EQ(a->toReadyToSend(), EINVAL);
  EXPECT_EQ(b->toReadyToReceive(*a), EINVAL);
  EXPECT_EQ(a->post(IBV_WR_SEND, 1, {}), EINVAL);
  ASSERT_EQ(a->toReadyToReceive(*b), 0);
  EXPECT_EQ(a->toInit(), EINVAL);
  EXPECT_EQ(a->post(IBV_WR_SEND, 1, {}), EINVAL);
  ASSERT_EQ(a->toReadyToSend(), 0);
  ASSERT_EQ(a->toError(), 0);
  EXPECT_EQ(a->toReadyToSend(), EINVAL);
}

TEST_F(SoftwareRnicDouble, State_AttributeMissingOrOutOfRange_IsRefused) {
  makeEnds();
  const ibv_qp_attr wanted = a->readyToReceive(*b);
  for (int bit = 1; bit <= kMask; bit <<= 1) {
    if ((kMask & bit) == 0) continue;
    EXPECT_EQ(modify(*a, wanted, kMask & ~bit), EINVAL) << bit;
  }
  ibv_qp_attr otherPort = wanted, otherGid = wanted, moreReads = wanted;
  otherPort.ah_attr.port_num = 2;
  otherGid.ah_attr.grh.sgid_index = 1;
  moreReads.max_dest_rd_atomic = 17;
  for (const ibv_qp_attr& wrong : {otherPort, otherGid, moreReads}) EXPECT_EQ(modify(*a, wrong, kMask), EINVAL);
  EXPECT_EQ(a->queuePair->state, IBV_QPS_INIT);
  EXPECT_EQ(modify(*a, wanted, kMask), 0);
}

TEST_F(SoftwareRnicDouble, Error_Requested_FlushesBothQueuesInOrder) {
  connect();
  rnic.setPaused(true);
  for (std::uint64_t id = 0; id < 3; ++id) {
    ASSERT_EQ(a->post(IBV_WR_SEND, id, {}, 0), 0);
    ASSERT_EQ(b->postReceive(id, {}), 0);
  }
  for (RnicEnd* const end : {a.get(), b.get()}) {
    ASSERT_EQ(end->toError(), 0);
    EXPECT_TRUE(end->isQuiet());  // as on hardware, it takes a while
  }
  rnic.setPaused(false);
  for (RnicEnd* const end : {a.get(), b.get()}) {
    for (std::uint64_t id = 0; id < 3; ++id) {
      const ibv_wc flushed = end->completion();
      EXPECT_EQ(std::pair(flushed.wr_id, flushed.status), std::pair(id, IBV_WC_WR_FLUSH_ERR));
    }
  }
}

// ---- peers that do not answer

TEST_F(SoftwareRnicDouble, Peer_Silent_TimesOutAfterTheConfiguredTries) {
  const std::function<void()> silences[] = {[this] { destroyQueuePair(*b); }, [this] { ASSERT_EQ(b->toError(), 0); },
                                            [this] {  // knows another sequence number, and so not us
                                              makeEnds();
                                              ibv_qp_attr wanted = b->readyToReceive(*a);
                                              ++wanted.rq_psn;
                                              ASSERT_EQ(b->toInit(), 0);
                                              ASSERT_EQ(modify(*b, wanted, kMask), 0);
                                              ASSERT_EQ(a->toReadyToReceive(*b), 0);
                                              ASSERT_EQ(a->toReadyToSend(), 0);
                                            }};
  for (const auto& silence : silences) {
    connect();
    const auto before = rnic.counters().retransmissions;
    const auto start = std::chrono::steady_clock::now();
    silence();
    EXPECT_EQ(request(IBV_WR_RDMA_WRITE), IBV_WC_RETRY_EXC_ERR);
    EXPECT_EQ(rnic.counters().retransmissions - before, a->options.retries);
    EXPECT_GE(std::chrono::steady_clock::now() - start, 3 * 256 * std::chrono::nanoseconds(4096));
  }
}

TEST_F(SoftwareRnicDouble, ReceiverNotReady_PostedInTimeOrNot_TheRetriesDecide) {
  connect({.rnrRetries = 7});
  ASSERT_EQ(a->post(IBV_WR_SEND, 1, {}), 0);
  ASSERT_TRUE(eventually([this] { return rnic.counters().rnrNaks >= 20; }));
  EXPECT_TRUE(a->isQuiet());  // 7 means for ever
  ASSERT_EQ(b->postReceive(1, {}), 0);
  EXPECT_EQ(a->status(), IBV_WC_SUCCESS);
  EXPECT_EQ(b->status(), IBV_WC_SUCCESS);
  connect({.rnrRetries = 3});
  const auto before = rnic.counters().rnrNaks;
  ASSERT_EQ(a->post(IBV_WR_SEND, 0x123456789, {}, 0), 0);
  const ibv_wc failed = a->completion();  // although it was not signalled
  EXPECT_EQ(std::pair(failed.status, failed.wr_id), std::pair(IBV_WC_RNR_RETRY_EXC_ERR, std::uint64_t{0x123456789}));
  EXPECT_EQ(rnic.counters().rnrNaks - before, 4U);
  EXPECT_NE(failed.opcode & IBV_WC_RECV, 0);  // an error's opcode and length mean nothing
  EXPECT_NE(failed.byte_len, 0U);
  expectBroken(*a);
}

// ---- completion queues, registration, teardown

TEST_F(SoftwareRnicDouble, Notification_Requested_GivesOneEventForLaterCompletions) {
  connect();
  deliver();
  ASSERT_EQ(ibv_req_notify_cq(b->completions, 0), 0);
  EXPECT_FALSE(isReadable(b->channel->fd));  // the one that is there says nothing
  deliver();
  deliver();
  takeEvent(*b);
  deliver();  // not requested again
  EXPECT_FALSE(isReadable(b->channel->fd));
}

TEST_F(SoftwareRnicDouble, CompletionQueue_Overrun_IsReportedAndBreaksItsQueuePairs) {
  connect({.completions = 4});
  for (std::uint64_t id = 0; id < 5; ++id) ASSERT_EQ(a->post(IBV_WR_RDMA_WRITE, id, {}), 0);
  EXPECT_EQ(a->asyncEvent(), IBV_EVENT_CQ_ERR);
  EXPECT_EQ(a->asyncEvent(), IBV_EVENT_QP_FATAL);
  for (std::uint64_t id = 0; id < 4; ++id) EXPECT_EQ(a->completion().wr_id, id);
  EXPECT_TRUE(a->isQuiet());
}

using SoftwareRnicDeathTest = SoftwareRnicDouble;

TEST_F(SoftwareRnicDeathTest, Destroy_TwiceOrWithUnacknowledgedEvents_EndsTheProcess) {
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
  EXPECT_DEATH(
      {
        makeEnds();
        verbs.destroyQueuePair(a->queuePair);
        verbs.destroyQueuePair(a->queuePair);
      },
      "broken invariant");
}

TEST_F(SoftwareRnicDouble, Teardown_ParentsBeforeChildren_AreBusyAndLeaksAreNamed) {
  connect();
  EXPECT_EQ(verbs.freeProtectionDomain(a->domain), EBUSY);
  EXPECT_EQ(verbs.destroyCompletionQueue(a->completions), EBUSY);
  EXPECT_EQ(verbs.destroyCompletionChannel(a->channel), EBUSY);
  a.reset();
  EXPECT_EQ(rnic.liveObjects().describe(),
            "1 context, 1 protection domain, 1 completion channel, 1 completion queue, 1 queue pair");
}

// When destroy returns nothing touches the memory any more, whatever the peer still sends: a sanitizer would see it.
TEST_F(SoftwareRnicDouble, QueuePair_DestroyedInMidTraffic_MemoryMayGoAtOnce) {
  for (int round = 0; round < 20; ++round) {
    connect({.maxSends = 64});
    auto there = std::make_unique<Bytes>(1000000);
    Bytes memory(1000000);
    const ibv_sge here = RnicEnd::part(a->expose(memory));
    ibv_mr* const remote = verbs.registerMemory(b->domain, there->data(), there->size(), kEverything);
    for (std::uint64_t id = 0; id < 64; ++id)
      ASSERT_EQ(a->post(IBV_WR_RDMA_WRITE, id, {here}, IBV_SEND_SIGNALED, remote), 0);
    for (int polled = 0; polled < round; ++polled) ASSERT_EQ(a->status(), IBV_WC_SUCCESS);
    destroyQueuePair(*b);
    there.reset();
    ASSERT_EQ(verbs.deregisterMemory(remote), 0);
    destroyQueuePair(*a);
    memory = Bytes();
    a.reset();
    b.reset();
  }
}

}  // namespace
}  // namespace gloo_bypass::test
