// What the software adapter refuses, and how operations and connections fail on it.
#include <algorithm>

#include "tests/transport/verbs/rnic_end.h"

namespace gloo_bypass::test {
using namespace verbs;
namespace {

using Bytes = std::vector<std::byte>;

constexpr int kEverything = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;

class SoftwareRnicErrors : public SoftwareRnicTest {
 protected:
  // One request with a region of 4096 bytes at either end; its status at a.
  ibv_wc_status request(ibv_wr_opcode opcode, int localAccess, int remoteAccess, std::size_t remoteOffset = 0) {
    local_.resize(4096);
    remote_.resize(4096);
    ibv_mr* const here = a->expose(local_, localAccess);
    ibv_mr* const there = b->expose(remote_, remoteAccess);
    EXPECT_EQ(a->post(opcode, 1, {RnicEnd::part(here, 0, 1024)}, IBV_SEND_SIGNALED, there, remoteOffset), 0);
    return a->status();
  }
  ibv_wc_status write() { return request(IBV_WR_RDMA_WRITE, kEverything, kEverything); }
  // Both ends can do nothing any more.
  void expectBroken() {
    EXPECT_EQ(a->post(IBV_WR_SEND, 100, {}), 0);
    EXPECT_EQ(b->post(IBV_WR_SEND, 100, {}), 0);
    EXPECT_EQ(a->status(), IBV_WC_WR_FLUSH_ERR);
    EXPECT_EQ(b->status(), IBV_WC_WR_FLUSH_ERR);
  }

  Bytes local_, remote_;
};

TEST_F(SoftwareRnicErrors, LocalKey_Unknown_IsAProtectionError) {
  connect();
  Bytes memory(64);
  ibv_sge segment = RnicEnd::part(a->expose(memory));
  segment.lkey ^= 1;
  ASSERT_EQ(a->post(IBV_WR_SEND, 1, {segment}), 0);
  ASSERT_EQ(b->postReceive(1, {}), 0);
  EXPECT_EQ(a->status(), IBV_WC_LOC_PROT_ERR);
}

TEST_F(SoftwareRnicErrors, LocalRange_BeyondTheRegion_IsAProtectionError) {
  connect();
  Bytes memory(64), there(64);
  ibv_sge segment = RnicEnd::part(a->expose(memory));
  ++segment.length;
  ASSERT_EQ(a->post(IBV_WR_RDMA_WRITE, 1, {segment}, 0, b->expose(there)), 0);
  EXPECT_EQ(a->status(), IBV_WC_LOC_PROT_ERR);
}

TEST_F(SoftwareRnicErrors, LocalRegion_OfAnotherDomain_IsAProtectionError) {
  connect();
  Bytes memory(64), there(64);
  ibv_pd* const other = verbs.allocProtectionDomain(a->context);
  ibv_mr* const region = verbs.registerMemory(other, memory.data(), memory.size(), kEverything);
  ASSERT_EQ(a->post(IBV_WR_RDMA_WRITE, 1, {RnicEnd::part(region)}, 0, b->expose(there)), 0);
  EXPECT_EQ(a->status(), IBV_WC_LOC_PROT_ERR);
  EXPECT_EQ(verbs.deregisterMemory(region), 0);
  EXPECT_EQ(verbs.freeProtectionDomain(other), 0);
}

TEST_F(SoftwareRnicErrors, Read_IntoARegionOneMayNotWrite_IsAProtectionError) {
  connect();
  EXPECT_EQ(request(IBV_WR_RDMA_READ, 0, kEverything), IBV_WC_LOC_PROT_ERR);
}

TEST_F(SoftwareRnicErrors, Write_OutOfARegionOneMayNotWrite_Succeeds) {
  connect();
  EXPECT_EQ(request(IBV_WR_RDMA_WRITE, 0, kEverything), IBV_WC_SUCCESS);
}

TEST_F(SoftwareRnicErrors, Receive_RegionNotWritable_FailsAtBothEnds) {
  connect();
  Bytes memory(64), there(64);
  ASSERT_EQ(b->postReceive(3, {RnicEnd::part(b->expose(there, 0))}), 0);
  ASSERT_EQ(a->post(IBV_WR_SEND, 1, {RnicEnd::part(a->expose(memory))}), 0);
  EXPECT_EQ(a->status(), IBV_WC_REM_OP_ERR);
  EXPECT_EQ(b->status(), IBV_WC_LOC_PROT_ERR);
  expectBroken();
}

struct Refusal {
  ibv_wr_opcode opcode;
  int remoteAccess;
  std::size_t remoteOffset;
};

class SoftwareRnicRemoteAccess : public SoftwareRnicErrors, public ::testing::WithParamInterface<Refusal> {};

TEST_P(SoftwareRnicRemoteAccess, OutsideOfWhatWasGranted_IsRefusedAndBreaksBothEnds) {
  connect();
  EXPECT_EQ(request(GetParam().opcode, kEverything, GetParam().remoteAccess, GetParam().remoteOffset),
            IBV_WC_REM_ACCESS_ERR);
  EXPECT_EQ(b->asyncEvent(), IBV_EVENT_QP_ACCESS_ERR);
  EXPECT_TRUE(std::all_of(remote_.begin(), remote_.end(), [](std::byte value) { return value == std::byte{0}; }));
  expectBroken();
}

INSTANTIATE_TEST_SUITE_P(
    Requests, SoftwareRnicRemoteAccess,
    ::testing::Values(Refusal{IBV_WR_RDMA_WRITE, kEverything, 4096 - 1023},
                      Refusal{IBV_WR_RDMA_WRITE, kEverything, std::size_t{0} - 1},
                      Refusal{IBV_WR_RDMA_WRITE, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ, 0},
                      Refusal{IBV_WR_RDMA_WRITE_WITH_IMM, IBV_ACCESS_LOCAL_WRITE, 0},
                      Refusal{IBV_WR_RDMA_READ, kEverything, 4000},
                      Refusal{IBV_WR_RDMA_READ, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE, 0}));

TEST_F(SoftwareRnicErrors, RemoteRegion_DeregisteredBeforeExecution_IsRefused) {
  connect();
  Bytes memory(64), there(64);
  ibv_mr* const region = verbs.registerMemory(b->domain, there.data(), there.size(), kEverything);
  rnic.setPaused(true);
  ASSERT_EQ(a->post(IBV_WR_RDMA_WRITE, 1, {RnicEnd::part(a->expose(memory))}, 0, region), 0);
  ASSERT_EQ(verbs.deregisterMemory(region), 0);
  rnic.setPaused(false);
  EXPECT_EQ(a->status(), IBV_WC_REM_ACCESS_ERR);
}

TEST_F(SoftwareRnicErrors, RemoteAccess_NotGrantedToTheQueuePair_IsAnInvalidRequest) {
  connect({}, {.access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ});
  EXPECT_EQ(write(), IBV_WC_REM_INV_REQ_ERR);
  EXPECT_EQ(b->asyncEvent(), IBV_EVENT_QP_REQ_ERR);
}

TEST_F(SoftwareRnicErrors, PathMtu_DifferentAtTheEnds_OnlyShortMessagesPass) {
  connect({.mtu = IBV_MTU_512}, {.mtu = IBV_MTU_1024});
  Bytes memory(513), there(513);
  ibv_mr* const here = a->expose(memory);
  ibv_mr* const remote = b->expose(there);
  ASSERT_EQ(a->post(IBV_WR_RDMA_WRITE, 1, {RnicEnd::part(here, 0, 512)}, IBV_SEND_SIGNALED, remote), 0);
  EXPECT_EQ(a->status(), IBV_WC_SUCCESS);
  ASSERT_EQ(a->post(IBV_WR_RDMA_WRITE, 1, {RnicEnd::part(here)}, IBV_SEND_SIGNALED, remote), 0);
  EXPECT_EQ(a->status(), IBV_WC_REM_INV_REQ_ERR);
}

TEST_F(SoftwareRnicErrors, Reads_MoreOutstandingThanThePeerTakes_AreRefused) {
  connect({.maxReads = 4}, {.maxReads = 2});
  Bytes memory(64), there(64);
  const ibv_sge here = RnicEnd::part(a->expose(memory));
  ibv_mr* const remote = b->expose(there);
  for (int round = 0; round < 2; ++round) {
    rnic.setPaused(true);
    for (std::uint64_t id = 0; id < (round == 0 ? 2U : 3U); ++id) {
      ASSERT_EQ(a->post(IBV_WR_RDMA_READ, id, {here}, IBV_SEND_SIGNALED, remote), 0);
    }
    rnic.setPaused(false);
    if (round > 0) break;
    EXPECT_EQ(a->status(), IBV_WC_SUCCESS);
    EXPECT_EQ(a->status(), IBV_WC_SUCCESS);
  }
  EXPECT_EQ(a->status(), IBV_WC_REM_INV_REQ_ERR);
  EXPECT_EQ(a->status(), IBV_WC_WR_FLUSH_ERR);
  EXPECT_EQ(a->status(), IBV_WC_WR_FLUSH_ERR);
}

TEST_F(SoftwareRnicErrors, Reads_WithinOurOwnLimit_AreHeldBackNotRefused) {
  connect({.maxReads = 2}, {.maxReads = 2});
  Bytes memory(64), there(64);
  const ibv_sge here = RnicEnd::part(a->expose(memory));
  ibv_mr* const remote = b->expose(there);
  rnic.setPaused(true);
  for (std::uint64_t id = 0; id < 8; ++id)
    ASSERT_EQ(a->post(IBV_WR_RDMA_READ, id, {here}, IBV_SEND_SIGNALED, remote), 0);
  rnic.setPaused(false);
  for (int i = 0; i < 8; ++i) EXPECT_EQ(a->status(), IBV_WC_SUCCESS);
}

TEST_F(SoftwareRnicErrors, Read_NoneAllowed_IsALocalError) {
  connect({.maxReads = 0});
  EXPECT_EQ(request(IBV_WR_RDMA_READ, kEverything, kEverything), IBV_WC_LOC_QP_OP_ERR);
}

// ---- states

TEST_F(SoftwareRnicErrors, State_AttributeMissing_IsRefused) {
  a = std::make_unique<RnicEnd>();
  b = std::make_unique<RnicEnd>();
  ASSERT_EQ(a->toInit(), 0);
  for (int bit = 1; bit < (1 << 21); bit <<= 1) {
    if ((RnicEnd::kReadyToReceiveMask & bit) == 0) continue;
    ibv_qp_attr wanted = a->readyToReceive(*b);
    EXPECT_EQ(verbs.modifyQueuePair(a->queuePair, &wanted, RnicEnd::kReadyToReceiveMask & ~bit), EINVAL) << bit;
  }
  ibv_qp_attr wanted = a->readyToReceive(*b);
  EXPECT_EQ(verbs.modifyQueuePair(a->queuePair, &wanted, RnicEnd::kReadyToReceiveMask | IBV_QP_TIMEOUT), EINVAL);
  EXPECT_EQ(a->queuePair->state, IBV_QPS_INIT);
  EXPECT_EQ(verbs.modifyQueuePair(a->queuePair, &wanted, RnicEnd::kReadyToReceiveMask), 0);
  EXPECT_EQ(a->queuePair->state, IBV_QPS_RTR);
}

TEST_F(SoftwareRnicErrors, State_ValueOutOfRange_IsRefused) {
  a = std::make_unique<RnicEnd>();
  b = std::make_unique<RnicEnd>();
  SoftwareDeviceOptions narrow = rnic.device("soft0");
  narrow.activeMtu = IBV_MTU_1024;
  rnic.changeDevice("soft0", narrow);
  ASSERT_EQ(a->toInit(), 0);
  const auto refuses = [this](const std::function<void(ibv_qp_attr&)>& change) {
    ibv_qp_attr wanted = a->readyToReceive(*b);
    wanted.path_mtu = IBV_MTU_1024;
    change(wanted);
    return verbs.modifyQueuePair(a->queuePair, &wanted, RnicEnd::kReadyToReceiveMask) == EINVAL;
  };
  EXPECT_TRUE(refuses([](ibv_qp_attr& wanted) { wanted.path_mtu = IBV_MTU_2048; }));
  EXPECT_TRUE(refuses([](ibv_qp_attr& wanted) { wanted.ah_attr.is_global = 0; }));
  EXPECT_TRUE(refuses([](ibv_qp_attr& wanted) { wanted.ah_attr.grh.sgid_index = 1; }));
  EXPECT_TRUE(refuses([](ibv_qp_attr& wanted) { wanted.ah_attr.port_num = 2; }));
  EXPECT_TRUE(refuses([](ibv_qp_attr& wanted) { wanted.max_dest_rd_atomic = 17; }));
  EXPECT_TRUE(refuses([](ibv_qp_attr& wanted) { wanted.min_rnr_timer = 32; }));
  EXPECT_FALSE(refuses([](ibv_qp_attr&) {}));
}

TEST_F(SoftwareRnicErrors, State_OutOfOrder_IsRefused) {
  a = std::make_unique<RnicEnd>();
  b = std::make_unique<RnicEnd>();
  EXPECT_EQ(a->toReadyToReceive(*b), EINVAL);
  EXPECT_EQ(a->toReadyToSend(), EINVAL);
  EXPECT_EQ(a->post(IBV_WR_SEND, 1, {}), EINVAL);
  ASSERT_EQ(a->toInit(), 0);
  EXPECT_EQ(a->toReadyToSend(), EINVAL);
  EXPECT_EQ(a->post(IBV_WR_SEND, 1, {}), EINVAL);
  ASSERT_EQ(a->toReadyToReceive(*b), 0);
  EXPECT_EQ(a->toInit(), EINVAL);
  EXPECT_EQ(a->post(IBV_WR_SEND, 1, {}), EINVAL);
  ASSERT_EQ(a->toReadyToSend(), 0);
  ASSERT_EQ(a->toError(), 0);
  EXPECT_EQ(a->toReadyToSend(), EINVAL);
}

TEST_F(SoftwareRnicErrors, ReadyToReceive_NotYetToSend_ReceivesAndTells) {
  a = std::make_unique<RnicEnd>();
  b = std::make_unique<RnicEnd>();
  ASSERT_EQ(a->toInit(), 0);
  ASSERT_EQ(b->toInit(), 0);
  ASSERT_EQ(a->toReadyToReceive(*b), 0);
  ASSERT_EQ(b->toReadyToReceive(*a), 0);
  ASSERT_EQ(a->toReadyToSend(), 0);
  EXPECT_EQ(write(), IBV_WC_SUCCESS);
  EXPECT_EQ(b->asyncEvent(), IBV_EVENT_COMM_EST);
}

TEST_F(SoftwareRnicErrors, Error_Requested_FlushesEverythingInOrder) {
  connect();
  rnic.setPaused(true);
  for (std::uint64_t id = 0; id < 5; ++id) ASSERT_EQ(a->post(IBV_WR_SEND, id, {}, 0), 0);
  ASSERT_EQ(a->toError(), 0);
  EXPECT_TRUE(a->isQuiet());  // as on hardware, it takes a while
  rnic.setPaused(false);
  for (std::uint64_t id = 0; id < 5; ++id) {
    const ibv_wc flushed = a->completion();
    EXPECT_EQ(flushed.wr_id, id);
    EXPECT_EQ(flushed.status, IBV_WC_WR_FLUSH_ERR);
  }
}

TEST_F(SoftwareRnicErrors, Reset_AfterAnError_ForgetsAndConnectsAgain) {
  connect();
  rnic.setPaused(true);
  ASSERT_EQ(a->post(IBV_WR_SEND, 1, {}), 0);
  for (RnicEnd* const end : {a.get(), b.get()}) {
    ibv_qp_attr wanted{};
    wanted.qp_state = IBV_QPS_RESET;
    ASSERT_EQ(verbs.modifyQueuePair(end->queuePair, &wanted, IBV_QP_STATE), 0);
  }
  rnic.setPaused(false);
  join(*a, *b);
  EXPECT_EQ(write(), IBV_WC_SUCCESS);
  EXPECT_TRUE(a->isQuiet());
}

// ---- peers that do not answer

TEST_F(SoftwareRnicErrors, Peer_Destroyed_TimesOutAfterTheConfiguredTries) {
  connect({.timeout = 8, .retries = 2});
  const auto start = std::chrono::steady_clock::now();
  verbs.destroyQueuePair(b->queuePair);
  b->queuePair = nullptr;
  EXPECT_EQ(write(), IBV_WC_RETRY_EXC_ERR);
  EXPECT_EQ(rnic.counters().retransmissions, 2U);
  EXPECT_GE(std::chrono::steady_clock::now() - start, 3 * 256 * std::chrono::nanoseconds(4096));
}

TEST_F(SoftwareRnicErrors, Peer_InError_TimesOut) {
  connect();
  ASSERT_EQ(b->toError(), 0);
  EXPECT_EQ(write(), IBV_WC_RETRY_EXC_ERR);
}

TEST_F(SoftwareRnicErrors, Peer_NotReadyToReceive_TimesOut) {
  a = std::make_unique<RnicEnd>();
  b = std::make_unique<RnicEnd>();
  ASSERT_EQ(a->toInit(), 0);
  ASSERT_EQ(b->toInit(), 0);
  ASSERT_EQ(a->toReadyToReceive(*b), 0);
  ASSERT_EQ(a->toReadyToSend(), 0);
  EXPECT_EQ(write(), IBV_WC_RETRY_EXC_ERR);
}

TEST_F(SoftwareRnicErrors, Peer_ConnectedToSomebodyElse_TimesOut) {
  RnicEnd other;
  connect();
  ASSERT_EQ(other.toInit(), 0);
  ASSERT_EQ(other.toReadyToReceive(*b), 0);  // b does not know of it
  ASSERT_EQ(other.toReadyToSend(), 0);
  ASSERT_EQ(other.post(IBV_WR_SEND, 1, {}), 0);
  EXPECT_EQ(other.status(), IBV_WC_RETRY_EXC_ERR);
  EXPECT_EQ(write(), IBV_WC_SUCCESS);
}

TEST_F(SoftwareRnicErrors, PacketSequence_NotTheOneThePeerExpects_TimesOut) {
  a = std::make_unique<RnicEnd>();
  b = std::make_unique<RnicEnd>();
  ASSERT_EQ(a->toInit(), 0);
  ASSERT_EQ(b->toInit(), 0);
  ASSERT_EQ(a->toReadyToReceive(*b), 0);
  ibv_qp_attr wanted = b->readyToReceive(*a);
  ++wanted.rq_psn;
  ASSERT_EQ(verbs.modifyQueuePair(b->queuePair, &wanted, RnicEnd::kReadyToReceiveMask), 0);
  ASSERT_EQ(a->toReadyToSend(), 0);
  EXPECT_EQ(write(), IBV_WC_RETRY_EXC_ERR);
}

TEST_F(SoftwareRnicErrors, Gid_GoneFromTheTable_TimesOut) {
  connect({}, {.device = "soft1"});
  SoftwareDeviceOptions changed = rnic.device("soft1");
  changed.gids[0].gid = mappedGid("127.0.0.3");
  rnic.changeDevice("soft1", changed);
  EXPECT_EQ(write(), IBV_WC_RETRY_EXC_ERR);
}

// ---- faults on demand

TEST_F(SoftwareRnicErrors, KillQueuePair_PeerSends_TimesOutAndTheDeadStaysSilent) {
  connect();
  rnic.setPaused(true);
  ASSERT_EQ(b->post(IBV_WR_SEND, 9, {}), 0);
  rnic.killQueuePair(b->queuePair->qp_num);
  rnic.setPaused(false);
  EXPECT_EQ(write(), IBV_WC_RETRY_EXC_ERR);
  EXPECT_TRUE(b->isQuiet());
  ASSERT_EQ(b->toError(), 0);
  EXPECT_EQ(b->status(), IBV_WC_WR_FLUSH_ERR);
}

TEST_F(SoftwareRnicErrors, KillContext_OthersOfTheDevice_GoOn) {
  connect();
  auto c = std::make_unique<RnicEnd>();
  auto d = std::make_unique<RnicEnd>();
  join(*c, *d);
  rnic.killContext(b->context);
  EXPECT_EQ(write(), IBV_WC_RETRY_EXC_ERR);
  a = std::move(c);
  b = std::move(d);
  EXPECT_EQ(write(), IBV_WC_SUCCESS);
}

TEST_F(SoftwareRnicErrors, Port_DownAndUpInTime_TheRequestIsRepeated) {
  connect({.retries = 3}, {.device = "soft1"});
  Bytes memory = patterned(300000, 1), there(300000);
  rnic.losePort("soft1", 3);
  EXPECT_EQ(b->asyncEvent(), IBV_EVENT_PORT_ERR);
  ASSERT_EQ(a->post(IBV_WR_RDMA_WRITE, 1, {RnicEnd::part(a->expose(memory))}, IBV_SEND_SIGNALED, b->expose(there)), 0);
  EXPECT_EQ(b->asyncEvent(), IBV_EVENT_PORT_ACTIVE);
  EXPECT_EQ(a->status(), IBV_WC_SUCCESS);
  EXPECT_EQ(memory, there);
  EXPECT_EQ(rnic.counters().retransmissions, 3U);
}

TEST_F(SoftwareRnicErrors, Port_StaysDown_RetriesRunOut) {
  connect();
  rnic.setPort("soft0", false);
  EXPECT_EQ(write(), IBV_WC_RETRY_EXC_ERR);
  ibv_port_attr port{};
  ASSERT_EQ(verbs.queryPort(a->context, 1, &port), 0);
  EXPECT_EQ(port.state, IBV_PORT_DOWN);
}

TEST_F(SoftwareRnicErrors, RemoveDevice_Connected_EverythingFailsAndCanBeDestroyed) {
  connect({}, {.device = "soft1"});
  rnic.setPaused(true);
  ASSERT_EQ(b->post(IBV_WR_SEND, 1, {}), 0);
  rnic.removeDevice("soft1");
  rnic.setPaused(false);
  EXPECT_EQ(b->status(), IBV_WC_WR_FLUSH_ERR);
  EXPECT_EQ(b->asyncEvent(), IBV_EVENT_DEVICE_FATAL);
  Bytes memory(8);
  EXPECT_EQ(verbs.registerMemory(b->domain, memory.data(), 8, 0), nullptr);
  EXPECT_EQ(errno, EIO);
  EXPECT_EQ(verbs.createCompletionQueue(b->context, 1, nullptr, nullptr, 0), nullptr);
  EXPECT_EQ(verbs.allocProtectionDomain(b->context), nullptr);
  EXPECT_EQ(b->toError(), EIO);
  ibv_port_attr port{};
  EXPECT_EQ(verbs.queryPort(b->context, 1, &port), EIO);
  int count = 0;
  verbs.freeDeviceList(verbs.getDeviceList(&count));
  EXPECT_EQ(count, 1);
  ASSERT_EQ(a->post(IBV_WR_SEND, 1, {}), 0);
  EXPECT_EQ(a->status(), IBV_WC_RETRY_EXC_ERR);
}

TEST_F(SoftwareRnicErrors, FailOperation_TheThirdWrite_FailsAndTheRestIsFlushed) {
  connect();
  Bytes memory(64), there(64);
  const ibv_sge here = RnicEnd::part(a->expose(memory));
  ibv_mr* const remote = b->expose(there);
  rnic.failOperation({.context = a->context, .opcode = IBV_WR_RDMA_WRITE, .skip = 2, .status = IBV_WC_REM_OP_ERR});
  rnic.setPaused(true);
  for (int i = 0; i < 5; ++i) {
    ASSERT_EQ(a->post(IBV_WR_RDMA_READ, 0, {here}, 0, remote), 0);
    ASSERT_EQ(a->post(IBV_WR_RDMA_WRITE, 0, {here}, IBV_SEND_SIGNALED, remote), 0);
  }
  rnic.setPaused(false);
  EXPECT_EQ(a->status(), IBV_WC_SUCCESS);
  EXPECT_EQ(a->status(), IBV_WC_SUCCESS);
  EXPECT_EQ(a->status(), IBV_WC_REM_OP_ERR);
  EXPECT_EQ(a->status(), IBV_WC_WR_FLUSH_ERR);
}

TEST_F(SoftwareRnicErrors, FailOperation_AcknowledgementLost_TheDataArrivedAllTheSame) {
  connect();
  Bytes memory = patterned(64, 1), there(64);
  ASSERT_EQ(b->postReceive(1, {RnicEnd::part(b->expose(there))}), 0);
  rnic.failOperation({.delivered = true});
  ASSERT_EQ(a->post(IBV_WR_SEND, 1, {RnicEnd::part(a->expose(memory))}), 0);
  EXPECT_EQ(a->status(), IBV_WC_RETRY_EXC_ERR);
  EXPECT_EQ(b->status(), IBV_WC_SUCCESS);
  EXPECT_EQ(memory, there);
}

TEST_F(SoftwareRnicErrors, Latency_Set_NoCompletionBefore) {
  connect();
  constexpr auto kLatency = std::chrono::milliseconds(5);
  rnic.setLatency(kLatency);
  Bytes memory(64), there(64);
  const ibv_sge here = RnicEnd::part(a->expose(memory));
  ibv_mr* const remote = b->expose(there);
  const auto start = std::chrono::steady_clock::now();
  for (std::uint64_t id = 0; id < 4; ++id)
    ASSERT_EQ(a->post(IBV_WR_RDMA_WRITE, id, {here}, IBV_SEND_SIGNALED, remote), 0);
  for (std::uint64_t id = 0; id < 4; ++id) EXPECT_EQ(a->completion().wr_id, id);
  EXPECT_GE(std::chrono::steady_clock::now() - start, kLatency);
}

}  // namespace
}  // namespace gloo_bypass::test
