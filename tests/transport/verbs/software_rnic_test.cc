// What the back-end's tests trust the software adapter for: it moves the right bytes in the right order, refuses what
// an adapter refuses, and ends requests as one does. Its faults on demand are tested by rdma_faults_test.cc and
// rdma_many_peers_test.cc, which see their effect.
#include <poll.h>

#include <algorithm>
#include <tuple>
#include <utility>

#include "tests/transport/verbs/rnic_end.h"

namespace gloo_bypass::test {
using namespace verbs;
namespace {

using Bytes = std::vector<std::byte>;

constexpr int kMask = RnicEnd::kReadyToReceiveMask;
constexpr int kEverything = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ;
constexpr std::uint32_t kBytes = 1024;  // of a request() and its receive, in regions of 4096 at either end

// What makes a request() one that an adapter refuses when it executes it.
struct Fault {
  int localAccess = kEverything, remoteAccess = kEverything;
  std::size_t remoteOffset = 0;
  std::uint32_t otherKey = 0, moreBytes = 0;  // of the local part
  std::uint32_t receiveBytes = kBytes;
  bool isForeign = false;  // the local region is of another protection domain
  bool isGone = false;     // the remote region ends between posting and execution
  EndOptions forA = {}, forB = {};
};

class SoftwareRnicDouble : public SoftwareRnicTest {
 protected:
  // How it ends at a.
  ibv_wc_status request(ibv_wr_opcode opcode, const Fault& fault) {
    ibv_mr* const here = (fault.isForeign ? b : a)->expose(local_, fault.localAccess);
    ibv_mr* const there = b->expose(remote_, fault.remoteAccess);
    ibv_sge part = RnicEnd::part(here, local_.size() - kBytes);
    part.lkey ^= fault.otherKey;
    part.length += fault.moreBytes;
    EXPECT_EQ(b->postReceive(2, {RnicEnd::part(there, 0, fault.receiveBytes)}), 0);
    rnic.setPaused(true);
    EXPECT_EQ(a->post(opcode, 1, {part}, IBV_SEND_SIGNALED, there, fault.remoteOffset), 0);
    if (fault.isGone) {
      EXPECT_EQ(verbs.deregisterMemory(there), 0);
      b->regions.pop_back();
    }
    rnic.setPaused(false);
    return a->status();
  }
  static void expectBroken(RnicEnd& end) {
    EXPECT_EQ(end.post(IBV_WR_SEND, 100, {}), 0);
    EXPECT_EQ(end.status(), IBV_WC_WR_FLUSH_ERR);
  }
  // A read of nothing, which needs nobody's memory.
  static int touch(RnicEnd& end, std::uint64_t id, unsigned flags = IBV_SEND_SIGNALED) {
    return end.post(IBV_WR_RDMA_READ, id, {}, flags);
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
  local_ = patterned(300, 1);
  ibv_mr* const from = a->expose(local_, 0);  // is only read
  ibv_mr* const to = b->expose(remote_);
  ASSERT_EQ(b->postReceive(7, {RnicEnd::part(to, 0, 7), RnicEnd::part(to, 7)}), 0);
  ASSERT_EQ(a->post(IBV_WR_SEND, 8, {RnicEnd::part(from, 0, 100), RnicEnd::part(from, 100)}), 0);
  const ibv_wc arrival = b->completion(), departure = a->completion();
  EXPECT_EQ(std::tuple(arrival.status, arrival.opcode, arrival.wr_id, arrival.byte_len, arrival.qp_num),
            std::tuple(IBV_WC_SUCCESS, IBV_WC_RECV, 7U, 300U, b->queuePair->qp_num));
  EXPECT_EQ(std::tuple(departure.status, departure.opcode, departure.wr_id),
            std::tuple(IBV_WC_SUCCESS, IBV_WC_SEND, 8U));
  local_.resize(remote_.size());
  EXPECT_EQ(local_, remote_);
}

TEST_F(SoftwareRnicDouble, Read_LargeMessage_TouchesNothingElse) {
  connect({}, {.device = "soft1"});
  Bytes source = patterned(1000100, 3), fetched(1000002);
  ibv_mr* const into = a->expose(fetched);
  ASSERT_EQ(a->post(IBV_WR_RDMA_READ, 2, {RnicEnd::part(into, 1, 1000000)}, IBV_SEND_SIGNALED, b->expose(source), 50),
            0);
  EXPECT_EQ(a->status(), IBV_WC_SUCCESS);
  EXPECT_TRUE(b->isQuiet());
  EXPECT_TRUE(std::equal(fetched.begin() + 1, fetched.end() - 1, source.begin() + 50));
  EXPECT_EQ(std::pair(fetched.front(), fetched.back()), std::pair(std::byte{0}, std::byte{0}));
}

// A program that changes a buffer before the completion sends something else.
TEST_F(SoftwareRnicDouble, Send_BufferChangedBeforeExecution_SendsTheNewContentsUnlessInline) {
  connect();
  const Bytes before(local_.size()), after = patterned(local_.size(), 1);
  ibv_sge from = RnicEnd::part(a->expose(local_), 0, 32);
  ibv_mr* const to = b->expose(remote_);
  for (std::size_t at : {0, 32}) ASSERT_EQ(b->postReceive(at, {RnicEnd::part(to, at, 32)}), 0);
  rnic.setPaused(true);
  ASSERT_EQ(a->post(IBV_WR_SEND, 1, {from}), 0);
  from.lkey = 0;  // not looked at for inline data
  ASSERT_EQ(a->post(IBV_WR_SEND, 2, {from}, IBV_SEND_SIGNALED | IBV_SEND_INLINE), 0);
  local_ = after;
  rnic.setPaused(false);
  for (const std::uint64_t id : {0, 32}) EXPECT_EQ(b->completion().wr_id, id);
  EXPECT_TRUE(std::equal(after.begin(), after.begin() + 32, remote_.begin()));
  EXPECT_TRUE(std::equal(before.begin(), before.begin() + 32, remote_.begin() + 32));
}

TEST_F(SoftwareRnicDouble, Requests_ManyOfAllKinds_CompleteInOrderOfPosting) {
  connect({.maxSends = 64});
  Bytes memory = patterned(200000, 1), there(200000);
  ibv_mr* const local = a->expose(memory);
  ibv_mr* const remote = b->expose(there);
  for (std::uint64_t i = 0; i < 15; ++i) ASSERT_EQ(b->postReceive(100 + i, {RnicEnd::part(remote, 0, 8)}), 0);
  for (std::uint64_t i = 0; i < 15; ++i) {
    ASSERT_EQ(a->post(IBV_WR_RDMA_READ, 3 * i, {RnicEnd::part(local)}, IBV_SEND_SIGNALED, remote), 0);
    ASSERT_EQ(a->post(IBV_WR_SEND, 3 * i + 1, {RnicEnd::part(local, i, 8)}), 0);
    ASSERT_EQ(touch(*a, 3 * i + 2), 0);
  }
  for (std::uint64_t id = 0; id < 45; ++id) ASSERT_EQ(a->completion().wr_id, id);
  for (std::uint64_t i = 0; i < 15; ++i) EXPECT_EQ(b->completion().wr_id, 100 + i);
}

TEST_F(SoftwareRnicDouble, Queues_Full_AreFreeOnceACompletionThatCoversThemWasPolled) {
  connect({.maxSends = 2}, {.maxReceives = 1});
  ASSERT_EQ(touch(*a, 1, 0), 0);
  ASSERT_EQ(touch(*a, 2), 0);
  ASSERT_TRUE(eventually([&] { return rnic.counters().operations[IBV_WR_RDMA_READ] == 2; }));
  EXPECT_EQ(touch(*a, 3), ENOMEM);
  EXPECT_EQ(a->completion().wr_id, 2U);
  deliver();
  EXPECT_EQ(b->postReceive(2, {}), ENOMEM);
  EXPECT_EQ(b->completion().wr_id, 1U);
  deliver();
}

// ---- refused when it is posted, or by keys, bounds and rights

TEST_F(SoftwareRnicDouble, Post_WrongRequests_AreRefused) {
  connect({.maxSendSegments = 2, .maxInlineBytes = 16});
  const ibv_sge part = RnicEnd::part(a->expose(local_), 0, 8);
  EXPECT_EQ(a->post(IBV_WR_SEND, 0, {part, part, part}), EINVAL);
  EXPECT_EQ(a->post(IBV_WR_SEND, 0, {RnicEnd::part(a->regions[0], 0, 17)}, IBV_SEND_INLINE), EINVAL);
  EXPECT_EQ(a->post(IBV_WR_RDMA_READ, 0, {part}, IBV_SEND_INLINE), EINVAL);
  EXPECT_EQ(a->post(IBV_WR_RDMA_WRITE, 0, {part}), EINVAL);  // the back-end writes into no peer's memory
  EXPECT_EQ(b->postReceive(0, {part, part, part}), EINVAL);
}

TEST_F(SoftwareRnicDouble, Request_Refused_EndsWithItsStatusAndBreaksWhoTookPart) {
  constexpr auto kSend = IBV_WR_SEND, kRead = IBV_WR_RDMA_READ;
  constexpr auto kOwnFault = IBV_WC_SUCCESS;  // b is not broken
  constexpr auto kFlushed = IBV_WC_WR_FLUSH_ERR;
  const struct {
    const char* name;
    ibv_wr_opcode opcode;
    Fault fault;
    ibv_wc_status status, receiveStatus;  // of the request at a, of the receive at b
  } refusals[] = {
      {"unknown local key", kRead, {.otherKey = 1}, IBV_WC_LOC_PROT_ERR, kOwnFault},
      {"beyond the local region", kSend, {.moreBytes = 1}, IBV_WC_LOC_PROT_ERR, kOwnFault},
      {"a local region of another domain", kSend, {.isForeign = true}, IBV_WC_LOC_PROT_ERR, kOwnFault},
      {"a local region not to be written", kRead, {.localAccess = 0}, IBV_WC_LOC_PROT_ERR, kOwnFault},
      {"no reads", kRead, {.forA = {.maxReads = 0}}, IBV_WC_LOC_QP_OP_ERR, kOwnFault},
      {"a receive not to be written", kSend, {.remoteAccess = 0}, IBV_WC_REM_OP_ERR, IBV_WC_LOC_PROT_ERR},
      {"a shorter receive", kSend, {.receiveBytes = kBytes - 1}, IBV_WC_REM_INV_REQ_ERR, IBV_WC_LOC_LEN_ERR},
      {"beyond the remote region", kRead, {.remoteOffset = 4097 - kBytes}, IBV_WC_REM_ACCESS_ERR, kFlushed},
      {"before the remote region", kRead, {.remoteOffset = SIZE_MAX}, IBV_WC_REM_ACCESS_ERR, kFlushed},
      {"no right to read", kRead, {.remoteAccess = IBV_ACCESS_LOCAL_WRITE}, IBV_WC_REM_ACCESS_ERR, kFlushed},
      {"a region that is gone", kRead, {.isGone = true}, IBV_WC_REM_ACCESS_ERR, kFlushed},
      {"a queue pair that grants none", kRead, {.forB = {.access = 0}}, IBV_WC_REM_INV_REQ_ERR, kFlushed},
  };
  for (const auto& refusal : refusals) {
    SCOPED_TRACE(refusal.name);
    connect(refusal.fault.forA, refusal.fault.forB);
    local_ = patterned(4096, 1);
    EXPECT_EQ(request(refusal.opcode, refusal.fault), refusal.status);
    EXPECT_EQ(std::pair(local_, remote_), std::pair(patterned(4096, 1), Bytes(4096)));
    expectBroken(*a);
    if (refusal.receiveStatus == kOwnFault) continue;
    if (refusal.opcode == kRead) {
      const bool isAccess = refusal.status == IBV_WC_REM_ACCESS_ERR;
      EXPECT_EQ(b->asyncEvent(), isAccess ? IBV_EVENT_QP_ACCESS_ERR : IBV_EVENT_QP_REQ_ERR);
    }
    EXPECT_EQ(b->status(), refusal.receiveStatus);
    expectBroken(*b);
  }
}

TEST_F(SoftwareRnicDouble, Reads_BeyondALimit_AreHeldBackByOursAndRefusedByThePeers) {
  const auto readAtOnce = [this](std::uint64_t reads) {
    rnic.setPaused(true);
    for (std::uint64_t id = 0; id < reads; ++id) EXPECT_EQ(touch(*a, id), 0);
    rnic.setPaused(false);
  };
  connect({.maxReads = 2}, {.maxReads = 2});
  readAtOnce(8);
  for (int i = 0; i < 8; ++i) EXPECT_EQ(a->status(), IBV_WC_SUCCESS);
  connect({.maxReads = 4}, {.maxReads = 2});
  readAtOnce(3);
  EXPECT_EQ(a->status(), IBV_WC_REM_INV_REQ_ERR);
  EXPECT_EQ(a->status(), IBV_WC_WR_FLUSH_ERR);
}

// ---- states

TEST_F(SoftwareRnicDouble, State_OutOfOrderOrIncomplete_IsRefused) {
  a = std::make_unique<RnicEnd>();
  b = std::make_unique<RnicEnd>();
  const auto modify = [this](ibv_qp_attr wanted, int mask) {
    return verbs.modifyQueuePair(a->queuePair, &wanted, mask);
  };
  ASSERT_EQ(a->toInit(), 0);
  EXPECT_EQ(a->toReadyToSend(), EINVAL);
  EXPECT_EQ(b->toReadyToReceive(*a), EINVAL);
  EXPECT_EQ(a->post(IBV_WR_SEND, 1, {}), EINVAL);
  const ibv_qp_attr wanted = a->readyToReceive(*b);
  for (int bit = 1; bit <= kMask; bit <<= 1) {
    if ((kMask & bit) == 0) continue;
    EXPECT_EQ(modify(wanted, kMask & ~bit), EINVAL) << bit;
  }
  ibv_qp_attr otherPort = wanted, otherGid = wanted, moreReads = wanted;
  otherPort.ah_attr.port_num = 2;
  otherGid.ah_attr.grh.sgid_index = 1;
  moreReads.max_dest_rd_atomic = 17;
  for (const ibv_qp_attr& wrong : {otherPort, otherGid, moreReads}) EXPECT_EQ(modify(wrong, kMask), EINVAL);
  EXPECT_EQ(a->queuePair->state, IBV_QPS_INIT);
  ASSERT_EQ(modify(wanted, kMask), 0);
  EXPECT_EQ(a->toInit(), EINVAL);
  EXPECT_EQ(a->post(IBV_WR_SEND, 1, {}), EINVAL);
  ASSERT_EQ(a->toReadyToSend(), 0);
  ASSERT_EQ(a->toError(), 0);
  EXPECT_EQ(a->toReadyToSend(), EINVAL);
}

TEST_F(SoftwareRnicDouble, Error_Requested_FlushesBothQueuesInOrder) {
  connect();
  rnic.setPaused(true);
  for (std::uint64_t id = 0; id < 6; ++id)
    ASSERT_EQ(id < 3 ? a->post(IBV_WR_SEND, id, {}, 0) : a->postReceive(id, {}), 0);
  ASSERT_EQ(a->toError(), 0);
  EXPECT_TRUE(a->isQuiet());  // as on hardware, it takes a while
  rnic.setPaused(false);
  for (std::uint64_t id = 0; id < 6; ++id) {
    const ibv_wc flushed = a->completion();
    EXPECT_EQ(std::pair(flushed.wr_id, flushed.status), std::pair(id, IBV_WC_WR_FLUSH_ERR));
  }
}

// ---- peers that do not answer

TEST_F(SoftwareRnicDouble, Peer_GoneOrInError_TimesOutAfterTheConfiguredTries) {
  for (const bool isGone : {true, false}) {
    connect();
    const auto before = rnic.counters().retransmissions;
    const auto start = std::chrono::steady_clock::now();
    ASSERT_EQ(isGone ? verbs.destroyQueuePair(std::exchange(b->queuePair, nullptr)) : b->toError(), 0);
    ASSERT_EQ(touch(*a, 1), 0);
    EXPECT_EQ(a->status(), IBV_WC_RETRY_EXC_ERR);
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
  EXPECT_EQ(std::pair(a->status(), b->status()), std::pair(IBV_WC_SUCCESS, IBV_WC_SUCCESS));
  connect({.rnrRetries = 3});
  const auto before = rnic.counters().rnrNaks;
  ASSERT_EQ(a->post(IBV_WR_SEND, 0x123456789, {}, 0), 0);
  const ibv_wc failed = a->completion();  // although it was not signalled
  EXPECT_EQ(std::pair(failed.status, failed.wr_id), std::pair(IBV_WC_RNR_RETRY_EXC_ERR, std::uint64_t{0x123456789}));
  EXPECT_EQ(rnic.counters().rnrNaks - before, 4U);
  // An error's opcode and length mean nothing.
  EXPECT_TRUE((failed.opcode & IBV_WC_RECV) != 0 && failed.byte_len != 0);
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
  for (std::uint64_t id = 0; id < 5; ++id) ASSERT_EQ(touch(*a, id), 0);
  EXPECT_EQ(a->asyncEvent(), IBV_EVENT_CQ_ERR);
  EXPECT_EQ(a->asyncEvent(), IBV_EVENT_QP_FATAL);
  for (std::uint64_t id = 0; id < 4; ++id) EXPECT_EQ(a->completion().wr_id, id);
  EXPECT_TRUE(a->isQuiet());
}

using SoftwareRnicDeathTest = SoftwareRnicDouble;

TEST_F(SoftwareRnicDeathTest, Destroy_TwiceOrWithUnacknowledgedEvents_EndsTheProcess) {
  ::testing::FLAGS_gtest_death_test_style = "threadsafe";
  const auto destroyTooEarly = [this] {
    connect();
    ASSERT_EQ(ibv_req_notify_cq(b->completions, 0), 0);
    deliver();
    takeEvent(*b, 0);
    verbs.destroyQueuePair(b->queuePair);
    verbs.destroyCompletionQueue(b->completions);
  };
  const auto destroyTwice = [this] {
    connect();
    for (int time = 0; time < 2; ++time) verbs.destroyQueuePair(a->queuePair);
  };
  EXPECT_DEATH(destroyTooEarly(), "completion queue is destroyed with 1 events read and 0 acknowledged");
  EXPECT_DEATH(destroyTwice(), "broken invariant");
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

// When destroy returns nothing touches the memory any more, whatever the peer still asks for: a sanitizer would see it.
TEST_F(SoftwareRnicDouble, QueuePair_DestroyedInMidTraffic_MemoryMayGoAtOnce) {
  for (int round = 0; round < 20; ++round) {
    connect({.maxSends = 64});
    Bytes memory(1000000), there(1000000);
    const ibv_sge here = RnicEnd::part(a->expose(memory));
    ibv_mr* const remote = b->expose(there);
    for (std::uint64_t id = 0; id < 64; ++id)
      ASSERT_EQ(a->post(IBV_WR_RDMA_READ, id, {here}, IBV_SEND_SIGNALED, remote), 0);
    for (int polled = 0; polled < round; ++polled) ASSERT_EQ(a->status(), IBV_WC_SUCCESS);
    b.reset();
    there = Bytes();
    ASSERT_EQ(verbs.destroyQueuePair(std::exchange(a->queuePair, nullptr)), 0);
    memory = Bytes();
    a.reset();
  }
}

}  // namespace
}  // namespace gloo_bypass::test
