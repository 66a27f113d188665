// Private to software_rnic: posting and polling, which take only the locks of their own queues.
#include "tests/support/software_rnic_data_path.h"

#include <cstring>

#include "tests/support/software_rnic_fabric.h"

namespace gloo_bypass::test {

int ReceiveQueue::post(const ibv_recv_wr* list, ibv_recv_wr** bad) {
  const std::lock_guard lock(guard);
  for (const ibv_recv_wr* wr = list; wr != nullptr; wr = wr->next) {
    *bad = const_cast<ibv_recv_wr*>(wr);
    if (wr->num_sge < 0 || static_cast<std::uint32_t>(wr->num_sge) > maxSegments) return EINVAL;
    if (room->used >= maxRequests) return ENOMEM;
    ++room->used;
    requests.push_back({wr->wr_id, {wr->sg_list, wr->sg_list + wr->num_sge}});
  }
  return 0;
}

std::optional<ReceiveRequest> ReceiveQueue::take() {
  const std::lock_guard lock(guard);
  if (requests.empty()) return std::nullopt;
  std::optional<ReceiveRequest> request(std::move(requests.front()));
  requests.pop_front();
  return request;
}

namespace {

// Those that the back-end uses.
bool isSupported(ibv_wr_opcode opcode) {
  return opcode == IBV_WR_SEND || opcode == IBV_WR_RDMA_READ || opcode == IBV_WR_BIND_MW || opcode == IBV_WR_LOCAL_INV;
}

// Of a memory window: nothing is sent. 0 or an errno.
int takeLocalRequest(const ibv_send_wr& wr, SendRequest& request) {
  if (wr.num_sge != 0 || (wr.send_flags & IBV_SEND_INLINE) != 0) return EINVAL;
  if (wr.opcode == IBV_WR_LOCAL_INV) {
    request.remoteKey = wr.invalidate_rkey;
    return 0;
  }
  if (wr.bind_mw.mw == nullptr || wr.bind_mw.mw->type != IBV_MW_TYPE_2 || wr.bind_mw.bind_info.mr == nullptr) {
    return EINVAL;
  }
  request.remoteKey = wr.bind_mw.mw->rkey;
  request.newKey = wr.bind_mw.rkey;
  request.bind = wr.bind_mw.bind_info;
  return 0;
}

// 0 or an errno.
int takeRequest(const SoftQueuePair& qp, const ibv_send_wr& wr, SendRequest& request) {
  if (!isSupported(wr.opcode)) return EINVAL;
  if (wr.num_sge < 0 || static_cast<std::uint32_t>(wr.num_sge) > qp.limits.max_send_sge) return EINVAL;
  request.id = wr.wr_id;
  request.opcode = wr.opcode;
  request.flags = wr.send_flags;
  if (wr.opcode == IBV_WR_BIND_MW || wr.opcode == IBV_WR_LOCAL_INV) return takeLocalRequest(wr, request);
  request.remoteAddress = wr.wr.rdma.remote_addr;
  request.remoteKey = wr.wr.rdma.rkey;
  request.segments.assign(wr.sg_list, wr.sg_list + wr.num_sge);
  for (const ibv_sge& segment : request.segments) request.length += segment.length;
  if ((wr.send_flags & IBV_SEND_INLINE) == 0) return 0;
  if (wr.opcode == IBV_WR_RDMA_READ || request.length > qp.limits.max_inline_data) return EINVAL;
  request.inlineData.reserve(request.length);
  for (const ibv_sge& segment : request.segments) {
    const auto* const begin = reinterpret_cast<const std::byte*>(segment.addr);
    request.inlineData.insert(request.inlineData.end(), begin, begin + segment.length);
  }
  return 0;
}

int postSend(ibv_qp* queuePair, ibv_send_wr* list, ibv_send_wr** bad) {
  auto& qp = *static_cast<SoftQueuePair*>(queuePair);
  const Duration latency(Fabric::instance().latency);
  const TimePoint due = latency.count() == 0 ? TimePoint{} : rnicNow() + latency;
  bool ring = false;
  int error = 0;
  {
    const std::lock_guard lock(qp.guard);
    const ibv_qp_state state = qp.hardwareState;
    if (state != IBV_QPS_RTS && state != IBV_QPS_ERR) {
      *bad = list;
      return EINVAL;
    }
    for (ibv_send_wr* wr = list; wr != nullptr; wr = wr->next) {
      SendRequest request;
      request.due = due;
      error = takeRequest(qp, *wr, request);
      if (error == 0 && qp.room->used >= qp.limits.max_send_wr) error = ENOMEM;
      if (error != 0) {
        *bad = wr;
        break;
      }
      ++qp.room->used;
      qp.queuedReads += request.opcode == IBV_WR_RDMA_READ ? 1 : 0;
      qp.sends.push_back(std::move(request));
    }
    if (!qp.sends.empty() && !qp.scheduled) ring = qp.scheduled = true;
  }
  if (ring) Fabric::instance().ringDoorbell(qp);
  return error;
}

int postReceive(ibv_qp* queuePair, ibv_recv_wr* list, ibv_recv_wr** bad) {
  auto& qp = *static_cast<SoftQueuePair*>(queuePair);
  const ibv_qp_state state = qp.hardwareState;
  if (state == IBV_QPS_RESET) {
    *bad = list;
    return EINVAL;
  }
  const int error = qp.receives.post(list, bad);
  if (qp.hardwareState == IBV_QPS_ERR) {
    const Fabric::Lock lock(Fabric::instance());
    if (!Fabric::instance().queuePairs.contains(&qp)) return error;
    Fabric::instance().reschedule(qp);  // to flush them
  }
  return error;
}

int pollCompletions(ibv_cq* queue, int maxEntries, ibv_wc* entries) {
  auto& cq = *static_cast<SoftCompletionQueue*>(queue);
  const std::lock_guard lock(cq.guard);
  int count = 0;
  for (; count < maxEntries && !cq.entries.empty(); ++count) {
    const Completion& completion = cq.entries.front();
    entries[count] = completion.entry;
    completion.room->used -= completion.slots;
    cq.entries.pop_front();
  }
  return count;
}

int requestNotification(ibv_cq* queue, int solicitedOnly) {
  if (solicitedOnly != 0) return EINVAL;  // nobody asks for it
  auto& cq = *static_cast<SoftCompletionQueue*>(queue);
  const std::lock_guard lock(cq.guard);
  cq.armed = true;
  return 0;
}

}  // namespace

void fillDataPath(ibv_context_ops& operations) {
  operations.post_send = postSend;
  operations.post_recv = postReceive;
  operations.poll_cq = pollCompletions;
  operations.req_notify_cq = requestNotification;
}

}  // namespace gloo_bypass::test
