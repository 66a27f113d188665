#include "tests/transport/verbs/rnic_end.h"

#include <poll.h>

#include <thread>

#include "transport/base/check.h"

namespace gloo_bypass::test {
using namespace verbs;
namespace {

using Clock = std::chrono::steady_clock;

ibv_context* open(const std::string& name) {
  const VerbsApi& verbs = softwareVerbs();
  ibv_device** const list = verbs.getDeviceList(nullptr);
  ibv_context* context = nullptr;
  for (ibv_device** device = list; *device != nullptr && context == nullptr; ++device) {
    if (verbs.getDeviceName(*device) == name) context = verbs.openDevice(*device);
  }
  verbs.freeDeviceList(list);
  GLOO_BYPASS_CHECK(context != nullptr);
  return context;
}

}  // namespace

RnicEnd::RnicEnd(const EndOptions& wanted) : options(wanted) {
  const VerbsApi& verbs = softwareVerbs();
  context = open(options.device);
  ibv_gid_entry entry{};
  if (verbs.queryGidTable(context, &entry, 1, 0, sizeof(entry)) == 1) gid = entry.gid;
  domain = verbs.allocProtectionDomain(context);
  channel = verbs.createCompletionChannel(context);
  completions = verbs.createCompletionQueue(context, options.completions, this, channel, 0);
  ibv_qp_init_attr init{};
  init.send_cq = init.recv_cq = completions;
  init.qp_type = IBV_QPT_RC;
  init.cap = {options.maxSends, options.maxReceives, options.maxSendSegments, 2, options.maxInlineBytes};
  queuePair = verbs.createQueuePair(domain, &init);
  GLOO_BYPASS_CHECK(queuePair != nullptr);
}

RnicEnd::~RnicEnd() {
  const VerbsApi& verbs = softwareVerbs();
  if (queuePair != nullptr) {
    EXPECT_EQ(verbs.destroyQueuePair(queuePair), 0);
  }
  if (completions != nullptr) {
    EXPECT_EQ(verbs.destroyCompletionQueue(completions), 0);
  }
  if (channel != nullptr) {
    EXPECT_EQ(verbs.destroyCompletionChannel(channel), 0);
  }
  for (ibv_mr* const region : regions) EXPECT_EQ(verbs.deregisterMemory(region), 0);
  EXPECT_EQ(verbs.freeProtectionDomain(domain), 0);
  EXPECT_EQ(verbs.closeDevice(context), 0);
}

int RnicEnd::toInit() {
  ibv_qp_attr wanted{};
  wanted.qp_state = IBV_QPS_INIT;
  wanted.port_num = 1;
  wanted.qp_access_flags = static_cast<unsigned>(options.access);
  return softwareVerbs().modifyQueuePair(queuePair, &wanted,
                                         IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
}

ibv_qp_attr RnicEnd::readyToReceive(const RnicEnd& peer) const {
  ibv_qp_attr wanted{};
  wanted.qp_state = IBV_QPS_RTR;
  wanted.path_mtu = options.mtu;
  wanted.dest_qp_num = peer.queuePair->qp_num;
  wanted.rq_psn = peer.options.packetSequence;
  wanted.max_dest_rd_atomic = options.maxReads;
  wanted.min_rnr_timer = options.rnrTimer;
  wanted.ah_attr.is_global = 1;
  wanted.ah_attr.port_num = 1;
  wanted.ah_attr.grh.dgid = peer.gid;
  wanted.ah_attr.grh.hop_limit = 64;
  return wanted;
}

int RnicEnd::toReadyToReceive(const RnicEnd& peer) {
  ibv_qp_attr wanted = readyToReceive(peer);
  return softwareVerbs().modifyQueuePair(queuePair, &wanted, kReadyToReceiveMask);
}

int RnicEnd::toReadyToSend() {
  ibv_qp_attr wanted{};
  wanted.qp_state = IBV_QPS_RTS;
  wanted.timeout = options.timeout;
  wanted.retry_cnt = options.retries;
  wanted.rnr_retry = options.rnrRetries;
  wanted.sq_psn = options.packetSequence;
  wanted.max_rd_atomic = options.maxReads;
  return softwareVerbs().modifyQueuePair(
      queuePair, &wanted,
      IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC);
}

int RnicEnd::toError() {
  ibv_qp_attr wanted{};
  wanted.qp_state = IBV_QPS_ERR;
  return softwareVerbs().modifyQueuePair(queuePair, &wanted, IBV_QP_STATE);
}

ibv_mr* RnicEnd::expose(std::vector<std::byte>& memory, int access) {
  ibv_mr* const region = softwareVerbs().registerMemory(domain, memory.data(), memory.size(), access);
  GLOO_BYPASS_CHECK(region != nullptr);
  regions.push_back(region);
  return region;
}

ibv_sge RnicEnd::part(const ibv_mr* region, std::size_t offset, std::size_t length) {
  if (length == SIZE_MAX) length = region->length - offset;
  return {reinterpret_cast<std::uintptr_t>(region->addr) + offset, static_cast<std::uint32_t>(length), region->lkey};
}

int RnicEnd::post(ibv_wr_opcode opcode, std::uint64_t id, std::vector<ibv_sge> segments, unsigned flags,
                  const ibv_mr* remote, std::size_t remoteOffset) {
  ibv_send_wr request{};
  request.wr_id = id;
  request.sg_list = segments.data();
  request.num_sge = static_cast<int>(segments.size());
  request.opcode = opcode;
  request.send_flags = flags;
  if (remote != nullptr) {
    request.wr.rdma.remote_addr = reinterpret_cast<std::uintptr_t>(remote->addr) + remoteOffset;
    request.wr.rdma.rkey = remote->rkey;
  }
  ibv_send_wr* bad = nullptr;
  return ibv_post_send(queuePair, &request, &bad);
}

int RnicEnd::postReceive(std::uint64_t id, std::vector<ibv_sge> segments) {
  ibv_recv_wr request{};
  request.wr_id = id;
  request.sg_list = segments.data();
  request.num_sge = static_cast<int>(segments.size());
  ibv_recv_wr* bad = nullptr;
  return ibv_post_recv(queuePair, &request, &bad);
}

ibv_wc RnicEnd::completion() {
  const auto limit = Clock::now() + kRnicPatience;
  ibv_wc entry{};
  while (ibv_poll_cq(completions, 1, &entry) == 0) {
    if (Clock::now() > limit) {
      ADD_FAILURE() << "no completion";
      entry.status = IBV_WC_GENERAL_ERR;
      break;
    }
    std::this_thread::yield();
  }
  return entry;
}

bool RnicEnd::isQuiet() {
  ibv_wc entry{};
  return ibv_poll_cq(completions, 1, &entry) == 0;
}

std::optional<ibv_event_type> RnicEnd::asyncEvent() {
  pollfd readable{context->async_fd, POLLIN, 0};
  if (::poll(&readable, 1, static_cast<int>(std::chrono::milliseconds(kRnicPatience).count())) != 1)
    return std::nullopt;
  ibv_async_event event{};
  if (softwareVerbs().getAsyncEvent(context, &event) != 0) return std::nullopt;
  softwareVerbs().ackAsyncEvent(&event);
  return event.event_type;
}

void join(RnicEnd& a, RnicEnd& b) {
  EXPECT_EQ(a.toInit(), 0);
  EXPECT_EQ(b.toInit(), 0);
  EXPECT_EQ(a.toReadyToReceive(b), 0);
  EXPECT_EQ(b.toReadyToReceive(a), 0);
  EXPECT_EQ(a.toReadyToSend(), 0);
  EXPECT_EQ(b.toReadyToSend(), 0);
}

bool eventually(const std::function<bool()>& condition) {
  const auto limit = Clock::now() + kRnicPatience;
  while (!condition()) {
    if (Clock::now() > limit) return false;
    std::this_thread::yield();
  }
  return true;
}

std::vector<std::byte> patterned(std::size_t size, int seed) {
  std::vector<std::byte> bytes(size);
  for (std::size_t i = 0; i < size; ++i)
    bytes[i] = static_cast<std::byte>((i * 31 + static_cast<std::size_t>(seed) * 17 + i / 251) & 0xff);
  return bytes;
}

}  // namespace gloo_bypass::test
