// What a work request does on the software adapter: data, order, completions, bounds, and what is refused.
#include <gmock/gmock.h>

#include <algorithm>
#include <cstring>

#include "tests/transport/verbs/rnic_end.h"

namespace gloo_bypass::test {
using namespace verbs;
namespace {

using Bytes = std::vector<std::byte>;
using ::testing::HasSubstr;

TEST_F(SoftwareRnicTest, Send_IntoReceive_ArrivesWithLengthAndSource) {
  connect();
  Bytes sent = patterned(1000, 1), received(4096);
  ibv_mr* const from = a->expose(sent);
  ibv_mr* const to = b->expose(received);
  ASSERT_EQ(b->postReceive(7, {RnicEnd::part(to)}), 0);
  ASSERT_EQ(a->post(IBV_WR_SEND, 8, {RnicEnd::part(from)}), 0);

  const ibv_wc arrival = b->completion();
  EXPECT_EQ(arrival.status, IBV_WC_SUCCESS);
  EXPECT_EQ(arrival.wr_id, 7U);
  EXPECT_EQ(arrival.opcode, IBV_WC_RECV);
  EXPECT_EQ(arrival.byte_len, 1000U);
  EXPECT_EQ(arrival.qp_num, b->queuePair->qp_num);
  EXPECT_EQ(arrival.wc_flags & IBV_WC_WITH_IMM, 0U);
  const ibv_wc departure = a->completion();
  EXPECT_EQ(departure.status, IBV_WC_SUCCESS);
  EXPECT_EQ(departure.wr_id, 8U);
  EXPECT_EQ(departure.opcode, IBV_WC_SEND);
  EXPECT_TRUE(std::equal(sent.begin(), sent.end(), received.begin()));
  EXPECT_EQ(received[1000], std::byte{0});
}

TEST_F(SoftwareRnicTest, SendWithImmediate_Arrives_CarriesItUnchanged) {
  connect();
  Bytes sent = patterned(8, 1), received(8);
  ASSERT_EQ(b->postReceive(1, {RnicEnd::part(b->expose(received))}), 0);
  ASSERT_EQ(
      a->post(IBV_WR_SEND_WITH_IMM, 2, {RnicEnd::part(a->expose(sent))}, IBV_SEND_SIGNALED, nullptr, 0, 0x01020304), 0);
  const ibv_wc arrival = b->completion();
  EXPECT_EQ(arrival.wc_flags & IBV_WC_WITH_IMM, static_cast<unsigned>(IBV_WC_WITH_IMM));
  EXPECT_EQ(arrival.imm_data, 0x01020304U);
}

TEST_F(SoftwareRnicTest, ScatterGather_UnevenParts_KeepTheOrderOfBytes) {
  connect();
  Bytes sent = patterned(300, 2), received(300);
  ibv_mr* const from = a->expose(sent);
  ibv_mr* const to = b->expose(received);
  ASSERT_EQ(b->postReceive(1, {RnicEnd::part(to, 0, 7), RnicEnd::part(to, 7)}), 0);
  ASSERT_EQ(a->post(IBV_WR_SEND, 2,
                    {RnicEnd::part(from, 0, 100), RnicEnd::part(from, 100, 0), RnicEnd::part(from, 100, 200)}),
            0);
  EXPECT_EQ(b->completion().byte_len, 300U);
  EXPECT_EQ(sent, received);
}

TEST_F(SoftwareRnicTest, Write_LargeMessage_GoesToOffsetWithoutReceive) {
  connect();
  Bytes sent = patterned(1000000, 3), target(1000100);
  ibv_mr* const to = b->expose(target);
  ASSERT_EQ(a->post(IBV_WR_RDMA_WRITE, 1, {RnicEnd::part(a->expose(sent))}, IBV_SEND_SIGNALED, to, 50), 0);
  const ibv_wc done = a->completion();
  EXPECT_EQ(done.status, IBV_WC_SUCCESS);
  EXPECT_EQ(done.opcode, IBV_WC_RDMA_WRITE);
  EXPECT_TRUE(b->isQuiet());
  EXPECT_TRUE(std::equal(sent.begin(), sent.end(), target.begin() + 50));
  EXPECT_EQ(target[49], std::byte{0});
  EXPECT_EQ(target[1000050], std::byte{0});
}

TEST_F(SoftwareRnicTest, WriteWithImmediate_Arrives_ConsumesAReceive) {
  connect();
  Bytes sent = patterned(100, 4), target(100), unused(1);
  ASSERT_EQ(b->postReceive(5, {RnicEnd::part(b->expose(unused))}), 0);
  ASSERT_EQ(a->post(IBV_WR_RDMA_WRITE_WITH_IMM, 1, {RnicEnd::part(a->expose(sent))}, 0, b->expose(target), 0, 99), 0);
  const ibv_wc arrival = b->completion();
  EXPECT_EQ(arrival.wr_id, 5U);
  EXPECT_EQ(arrival.opcode, IBV_WC_RECV_RDMA_WITH_IMM);
  EXPECT_EQ(arrival.byte_len, 100U);
  EXPECT_EQ(arrival.imm_data, 99U);
  EXPECT_EQ(sent, target);
  EXPECT_EQ(unused[0], std::byte{0});
}

TEST_F(SoftwareRnicTest, Read_LargeMessage_FetchesWithoutCompletionThere) {
  connect({}, {.device = "soft1"});
  Bytes source = patterned(700000, 5), fetched(700000);
  ASSERT_EQ(a->post(IBV_WR_RDMA_READ, 1, {RnicEnd::part(a->expose(fetched))}, IBV_SEND_SIGNALED,
                    b->expose(source, IBV_ACCESS_REMOTE_READ)),
            0);
  const ibv_wc done = a->completion();
  EXPECT_EQ(done.status, IBV_WC_SUCCESS);
  EXPECT_EQ(done.opcode, IBV_WC_RDMA_READ);
  EXPECT_TRUE(b->isQuiet());
  EXPECT_EQ(source, fetched);
  EXPECT_EQ(rnic.counters().operations[IBV_WR_RDMA_READ], 1U);
  EXPECT_EQ(rnic.counters().bytes, 700000U);
}

TEST_F(SoftwareRnicTest, EmptyMessage_OfEachKind_IsCompletedWithoutKey) {
  connect();
  ASSERT_EQ(b->postReceive(1, {}), 0);
  ASSERT_EQ(a->post(IBV_WR_SEND, 1, {}), 0);
  ASSERT_EQ(a->post(IBV_WR_RDMA_WRITE, 2, {}), 0);
  ASSERT_EQ(a->post(IBV_WR_RDMA_READ, 3, {}), 0);
  for (std::uint64_t id = 1; id <= 3; ++id) {
    const ibv_wc done = a->completion();
    EXPECT_EQ(done.status, IBV_WC_SUCCESS);
    EXPECT_EQ(done.wr_id, id);
  }
  EXPECT_EQ(b->completion().byte_len, 0U);
}

// The data leave when the request is executed: a program that writes to the buffer before the completion sends
// something else.
TEST_F(SoftwareRnicTest, Send_BufferChangedBeforeExecution_SendsTheNewContents) {
  connect();
  Bytes sent = patterned(32, 1), received(32), inlined(32);
  ibv_mr* const from = a->expose(sent);
  ASSERT_EQ(b->postReceive(1, {RnicEnd::part(b->expose(received))}), 0);
  ASSERT_EQ(b->postReceive(2, {RnicEnd::part(b->expose(inlined))}), 0);
  rnic.setPaused(true);
  ASSERT_EQ(a->post(IBV_WR_SEND, 1, {RnicEnd::part(from)}), 0);
  ibv_sge unregistered = RnicEnd::part(from);
  unregistered.lkey = 0;  // not looked at for inline data
  ASSERT_EQ(a->post(IBV_WR_SEND, 2, {unregistered}, IBV_SEND_SIGNALED | IBV_SEND_INLINE), 0);
  const Bytes before = sent;
  std::fill(sent.begin(), sent.end(), std::byte{0xee});
  EXPECT_TRUE(b->isQuiet());
  rnic.setPaused(false);
  EXPECT_EQ(b->completion().wr_id, 1U);
  EXPECT_EQ(b->completion().wr_id, 2U);
  EXPECT_EQ(received, sent);
  EXPECT_EQ(inlined, before);
  EXPECT_EQ(rnic.counters().inlineOperations, 1U);
}

TEST_F(SoftwareRnicTest, Requests_ManyOfAllKinds_CompleteInOrderOfPosting) {
  connect({.maxSends = 64, .signalAll = true});
  Bytes memory = patterned(200000, 1), there(200000);
  ibv_mr* const local = a->expose(memory);
  ibv_mr* const remote = b->expose(there);
  Bytes landing(64);
  ibv_mr* const into = b->expose(landing);
  for (std::uint64_t i = 0; i < 15; ++i) ASSERT_EQ(b->postReceive(100 + i, {RnicEnd::part(into)}), 0);
  for (std::uint64_t i = 0; i < 15; ++i) {
    ASSERT_EQ(a->post(IBV_WR_RDMA_WRITE, 4 * i, {RnicEnd::part(local)}, 0, remote), 0);
    ASSERT_EQ(a->post(IBV_WR_SEND, 4 * i + 1, {RnicEnd::part(local, i, 8)}, 0), 0);
    ASSERT_EQ(a->post(IBV_WR_RDMA_READ, 4 * i + 2, {RnicEnd::part(local, 64)}, 0, remote, 64), 0);
    ASSERT_EQ(a->post(IBV_WR_RDMA_WRITE, 4 * i + 3, {RnicEnd::part(local, 0, 8)}, 0, remote), 0);
  }
  for (std::uint64_t id = 0; id < 60; ++id) {
    const ibv_wc done = a->completion();
    ASSERT_EQ(done.status, IBV_WC_SUCCESS);
    ASSERT_EQ(done.wr_id, id);
  }
  for (std::uint64_t i = 0; i < 15; ++i)
    EXPECT_EQ(b->completion().wr_id, 100 + i);  // the shared queue is first in, first out
}

TEST_F(SoftwareRnicTest, Unsignalled_OnlyTheSignalledOneCompletes_AndFreesTheSlots) {
  connect({.maxSends = 4});
  Bytes memory(64), there(64);
  const ibv_sge local = RnicEnd::part(a->expose(memory));
  ibv_mr* const remote = b->expose(there);
  for (std::uint64_t id = 0; id < 3; ++id) ASSERT_EQ(a->post(IBV_WR_RDMA_WRITE, id, {local}, 0, remote), 0);
  ASSERT_EQ(a->post(IBV_WR_RDMA_WRITE, 3, {local}, IBV_SEND_SIGNALED, remote), 0);
  // All executed or not: nothing is free before the completion is polled.
  EXPECT_EQ(a->post(IBV_WR_RDMA_WRITE, 4, {local}, IBV_SEND_SIGNALED, remote), ENOMEM);
  EXPECT_EQ(a->completion().wr_id, 3U);
  EXPECT_TRUE(a->isQuiet());
  for (std::uint64_t id = 5; id < 9; ++id)
    EXPECT_EQ(a->post(IBV_WR_RDMA_WRITE, id, {local}, IBV_SEND_SIGNALED, remote), 0);
  for (std::uint64_t id = 5; id < 9; ++id) EXPECT_EQ(a->completion().wr_id, id);
}

TEST_F(SoftwareRnicTest, UnsignalledOnly_QueueFull_StaysFull) {
  connect({.maxSends = 2});
  Bytes memory(64), there(64);
  const ibv_sge local = RnicEnd::part(a->expose(memory));
  ibv_mr* const remote = b->expose(there);
  ASSERT_EQ(a->post(IBV_WR_RDMA_WRITE, 0, {local}, 0, remote), 0);
  ASSERT_EQ(a->post(IBV_WR_RDMA_WRITE, 1, {local}, 0, remote), 0);
  ASSERT_TRUE(eventually([this] { return rnic.counters().operations[IBV_WR_RDMA_WRITE] == 2; }));
  EXPECT_EQ(a->post(IBV_WR_RDMA_WRITE, 2, {local}, IBV_SEND_SIGNALED, remote), ENOMEM);
}

TEST_F(SoftwareRnicTest, PostSend_WrongRequests_AreRefusedAndNamed) {
  connect({.maxSends = 4, .maxSendSegments = 2, .maxInlineBytes = 16});
  Bytes memory(64), there(64);
  const ibv_sge local = RnicEnd::part(a->expose(memory));
  ibv_mr* const remote = b->expose(there);
  EXPECT_EQ(a->post(IBV_WR_RDMA_WRITE, 0, {local, local, local}, 0, remote), EINVAL);
  EXPECT_EQ(a->post(IBV_WR_RDMA_WRITE, 0, {local}, IBV_SEND_INLINE, remote), EINVAL);
  EXPECT_EQ(a->post(IBV_WR_RDMA_READ, 0, {RnicEnd::part(a->regions[0], 0, 8)}, IBV_SEND_INLINE, remote), EINVAL);
  EXPECT_EQ(a->post(IBV_WR_ATOMIC_FETCH_AND_ADD, 0, {local}, 0, remote), EINVAL);

  ibv_send_wr good{}, second{}, wrong{};
  good.opcode = second.opcode = IBV_WR_RDMA_WRITE;
  good.next = &second;
  second.send_flags = IBV_SEND_SIGNALED;
  second.wr_id = 2;
  second.next = &wrong;
  wrong.opcode = IBV_WR_BIND_MW;
  ibv_send_wr* bad = nullptr;
  EXPECT_EQ(ibv_post_send(a->queuePair, &good, &bad), EINVAL);
  EXPECT_EQ(bad, &wrong);
  EXPECT_EQ(a->completion().wr_id, 2U);  // what came before it in the list was taken
}

TEST_F(SoftwareRnicTest, ReceiveQueue_Full_IsRefusedUntilACompletionIsPolled) {
  connect({}, {.maxReceives = 2});
  Bytes memory(8), there(8);
  const ibv_sge into = RnicEnd::part(b->expose(there));
  EXPECT_EQ(b->postReceive(1, {into}), 0);
  EXPECT_EQ(b->postReceive(2, {into}), 0);
  EXPECT_EQ(b->postReceive(3, {into}), ENOMEM);
  EXPECT_EQ(b->postReceive(4, {into, into, into}), EINVAL);
  ASSERT_EQ(a->post(IBV_WR_SEND, 1, {RnicEnd::part(a->expose(memory))}), 0);
  EXPECT_EQ(a->status(), IBV_WC_SUCCESS);
  EXPECT_EQ(b->postReceive(3, {into}), ENOMEM);
  EXPECT_EQ(b->completion().wr_id, 1U);
  EXPECT_EQ(b->postReceive(3, {into}), 0);
}

TEST_F(SoftwareRnicTest, ReceiveQueue_InError_IsFlushed) {
  connect();
  Bytes memory = patterned(8, 1), there(8);
  const ibv_sge into = RnicEnd::part(b->expose(there));
  for (std::uint64_t id = 1; id <= 3; ++id) ASSERT_EQ(b->postReceive(id, {into}), 0);
  ASSERT_EQ(a->post(IBV_WR_SEND, 1, {RnicEnd::part(a->expose(memory))}), 0);
  EXPECT_EQ(b->completion().wr_id, 1U);
  EXPECT_EQ(memory, there);
  ASSERT_EQ(b->toError(), 0);
  for (std::uint64_t id = 2; id <= 3; ++id) {
    const ibv_wc flushed = b->completion();
    EXPECT_EQ(flushed.wr_id, id);
    EXPECT_EQ(flushed.status, IBV_WC_WR_FLUSH_ERR);
  }
  ASSERT_EQ(b->postReceive(4, {into}), 0);
  EXPECT_EQ(b->status(), IBV_WC_WR_FLUSH_ERR);
}

TEST_F(SoftwareRnicTest, ReceiverNotReady_PostedInTime_TheMessageArrives) {
  connect({.rnrRetries = 7});
  Bytes memory = patterned(8, 1), there(8);
  ASSERT_EQ(a->post(IBV_WR_SEND, 1, {RnicEnd::part(a->expose(memory))}), 0);
  ASSERT_TRUE(eventually([this] { return rnic.counters().rnrNaks >= 20; }));
  EXPECT_TRUE(a->isQuiet());  // 7 means for ever
  ASSERT_EQ(b->postReceive(1, {RnicEnd::part(b->expose(there))}), 0);
  EXPECT_EQ(a->status(), IBV_WC_SUCCESS);
  EXPECT_EQ(b->status(), IBV_WC_SUCCESS);
  EXPECT_EQ(memory, there);
}

TEST_F(SoftwareRnicTest, ReceiverNotReady_ForGood_FailsAfterTheConfiguredRetries) {
  connect({.rnrRetries = 3});
  Bytes memory(8), there(8);
  const ibv_sge local = RnicEnd::part(a->expose(memory));
  ASSERT_EQ(a->post(IBV_WR_SEND, 1, {local}, 0), 0);
  EXPECT_EQ(a->status(), IBV_WC_RNR_RETRY_EXC_ERR);  // although it was not signalled
  EXPECT_EQ(rnic.counters().rnrNaks, 4U);
  ASSERT_EQ(a->post(IBV_WR_SEND, 2, {local}), 0);
  EXPECT_EQ(a->status(), IBV_WC_WR_FLUSH_ERR);
}

TEST_F(SoftwareRnicTest, WriteWithImmediate_NoReceivePosted_WritesAndThenFails) {
  connect({.rnrRetries = 0});
  Bytes memory = patterned(100000, 1), there(100000);
  ASSERT_EQ(a->post(IBV_WR_RDMA_WRITE_WITH_IMM, 1, {RnicEnd::part(a->expose(memory))}, 0, b->expose(there)), 0);
  EXPECT_EQ(a->status(), IBV_WC_RNR_RETRY_EXC_ERR);
  EXPECT_EQ(memory, there);
}

TEST_F(SoftwareRnicTest, Send_LongerThanTheReceive_FailsAtBothEnds) {
  connect();
  Bytes memory(9), there(8), spare(8);
  ASSERT_EQ(b->postReceive(1, {RnicEnd::part(b->expose(there))}), 0);
  ASSERT_EQ(b->postReceive(2, {RnicEnd::part(b->expose(spare))}), 0);
  const ibv_sge local = RnicEnd::part(a->expose(memory));
  rnic.setPaused(true);
  ASSERT_EQ(a->post(IBV_WR_SEND, 1, {local}), 0);
  ASSERT_EQ(a->post(IBV_WR_SEND, 2, {local}), 0);
  rnic.setPaused(false);
  EXPECT_EQ(a->status(), IBV_WC_REM_INV_REQ_ERR);
  EXPECT_EQ(a->status(), IBV_WC_WR_FLUSH_ERR);
  const ibv_wc arrival = b->completion();
  EXPECT_EQ(arrival.status, IBV_WC_LOC_LEN_ERR);
  EXPECT_EQ(arrival.wr_id, 1U);
  const ibv_wc flushed = b->completion();
  EXPECT_EQ(flushed.status, IBV_WC_WR_FLUSH_ERR);
  EXPECT_EQ(flushed.wr_id, 2U);
}

TEST_F(SoftwareRnicTest, Send_LongerThanTheDeviceAllows_IsALocalError) {
  SoftwareDeviceOptions small = rnic.device("soft0");
  small.maxMessageBytes = 4096;
  rnic.changeDevice("soft0", small);
  connect();
  Bytes memory(4097), there(8192);
  ASSERT_EQ(a->post(IBV_WR_RDMA_WRITE, 1, {RnicEnd::part(a->expose(memory))}, 0, b->expose(there)), 0);
  EXPECT_EQ(a->status(), IBV_WC_LOC_LEN_ERR);
}

// An error has no opcode, length or flags that mean anything.
TEST_F(SoftwareRnicTest, FailedCompletion_OtherFields_AreGarbage) {
  connect({.rnrRetries = 0});
  ASSERT_EQ(a->post(IBV_WR_SEND, 0x123456789, {}), 0);
  const ibv_wc failed = a->completion();
  EXPECT_EQ(failed.wr_id, 0x123456789U);
  EXPECT_EQ(failed.qp_num, a->queuePair->qp_num);
  EXPECT_NE(failed.opcode & IBV_WC_RECV, 0);
  EXPECT_NE(failed.byte_len, 0U);
}

}  // namespace
}  // namespace gloo_bypass::test
