// Private to software_rnic: queue pairs and their states.
//
//   RESET --> INIT --> RTR --> RTS      and from any to RESET or ERR; hardware itself goes to ERR
#include <cstring>

#include "tests/support/software_rnic_fabric.h"
#include "tests/support/software_rnic_verbs.h"

namespace gloo_bypass::test {
namespace {

constexpr int kMaxTimerCode = 31;
constexpr int kMaxRetries = 7;
constexpr std::uint32_t kMaxQueuePairNumber = 0xffffff;

// 0 or an errno.
int checkWanted(const ibv_qp_init_attr& wanted, const SoftwareDeviceOptions& options) {
  const auto within = [](std::uint32_t value, int limit) { return value <= static_cast<std::uint32_t>(limit); };
  if (wanted.qp_type != IBV_QPT_RC || wanted.srq != nullptr || wanted.sq_sig_all != 0) return EOPNOTSUPP;
  if (wanted.send_cq == nullptr || wanted.recv_cq == nullptr) return EINVAL;
  const ibv_qp_cap& cap = wanted.cap;
  if (!within(cap.max_send_wr, options.maxQueuePairRequests) || !within(cap.max_send_sge, options.maxScatterGather) ||
      !within(cap.max_inline_data, options.maxInlineBytes)) {
    return EINVAL;
  }
  return within(cap.max_recv_wr, options.maxQueuePairRequests) && within(cap.max_recv_sge, options.maxScatterGather)
             ? 0
             : EINVAL;
}

void changeUsers(const SoftQueuePair& qp, int by) {
  static_cast<SoftProtectionDomain*>(qp.pd)->users += by;
  static_cast<SoftCompletionQueue*>(qp.send_cq)->users += by;
  static_cast<SoftCompletionQueue*>(qp.recv_cq)->users += by;
}

ibv_qp* createQueuePair(ibv_pd* pd, ibv_qp_init_attr* wanted) {
  Fabric& fabric = Fabric::instance();
  const Fabric::Lock lock(fabric);
  auto* const context = static_cast<SoftContext*>(pd->context);
  if (context->soft->removed) return refuseWith<ibv_qp>(EIO);
  if (const int error = checkWanted(*wanted, context->soft->options); error != 0) return refuseWith<ibv_qp>(error);
  const auto existing = std::count_if(fabric.queuePairs.begin(), fabric.queuePairs.end(), [context](const auto& entry) {
    return Fabric::onDevice(*entry.second->owner, *context->soft);
  });
  if (existing >= context->soft->options.maxQueuePairs) return refuseWith<ibv_qp>(ENOMEM);
  auto qp = std::make_unique<SoftQueuePair>();
  qp->context = context;
  qp->owner = context;
  qp->qp_context = wanted->qp_context;
  qp->pd = pd;
  qp->send_cq = wanted->send_cq;
  qp->recv_cq = wanted->recv_cq;
  qp->qp_num = fabric.nextNumber++;  // never used again, so that a late packet finds nobody
  GLOO_BYPASS_CHECK(qp->qp_num <= kMaxQueuePairNumber);
  qp->state = IBV_QPS_RESET;
  qp->qp_type = wanted->qp_type;
  qp->limits = wanted->cap;
  qp->receives.maxRequests = qp->limits.max_recv_wr;
  qp->receives.maxSegments = qp->limits.max_recv_sge;
  changeUsers(*qp, 1);
  fabric.queuePairByNumber.emplace(qp->qp_num, qp.get());
  return fabric.queuePairs.add(std::move(qp));
}

int destroyQueuePair(ibv_qp* queuePair) {
  Fabric& fabric = Fabric::instance();
  SoftQueuePair* qp = nullptr;
  {
    const Fabric::Lock lock(fabric);
    qp = fabric.queuePairs.find(queuePair);
    if (qp == nullptr) return 0;
    const auto boundHere = [qp](const auto& entry) { return entry.second->queuePair == qp; };
    if (std::any_of(fabric.windows.begin(), fabric.windows.end(), boundHere)) return EBUSY;
    // From here on nothing is read or written for it.
    qp->dead = true;
    fabric.forget(*qp);
    fabric.queuePairByNumber.erase(qp->qp_num);
    forgetAsyncEvents(qp->context, &decltype(ibv_async_event::element)::qp, queuePair, isQueuePairEvent);
  }
  awaitAcknowledgements(qp->asyncEvents, "queue pair");
  const Fabric::Lock lock(fabric);
  // The device may have failed meanwhile.
  fabric.forget(*qp);
  forgetAsyncEvents(qp->context, &decltype(ibv_async_event::element)::qp, queuePair, isQueuePairEvent);
  changeUsers(*qp, -1);
  fabric.queuePairs.remove(queuePair);
  return 0;
}

// Which attributes a transition needs and which it allows (InfiniBand volume 1, table 94).
struct Transition {
  ibv_qp_state from;
  ibv_qp_state to;
  int required;
  int optional;
};

constexpr Transition kTransitions[] = {
    {IBV_QPS_RESET, IBV_QPS_INIT, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS, 0},
    {IBV_QPS_INIT, IBV_QPS_INIT, 0, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS},
    {IBV_QPS_INIT, IBV_QPS_RTR,
     IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER,
     IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX},
    {IBV_QPS_RTR, IBV_QPS_RTS,
     IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC,
     IBV_QP_CUR_STATE | IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS | IBV_QP_MIN_RNR_TIMER | IBV_QP_PATH_MIG_STATE},
    {IBV_QPS_RTS, IBV_QPS_RTS, 0,
     IBV_QP_CUR_STATE | IBV_QP_ACCESS_FLAGS | IBV_QP_ALT_PATH | IBV_QP_PATH_MIG_STATE | IBV_QP_MIN_RNR_TIMER},
};

bool isAllowed(ibv_qp_state from, ibv_qp_state to, int mask) {
  mask &= ~IBV_QP_STATE;
  if (to == IBV_QPS_RESET || to == IBV_QPS_ERR) return mask == 0;
  return std::any_of(std::begin(kTransitions), std::end(kTransitions), [&](const Transition& transition) {
    return transition.from == from && transition.to == to && (mask & transition.required) == transition.required &&
           (mask & ~(transition.required | transition.optional)) == 0;
  });
}

bool areValid(const ibv_qp_attr& wanted, int mask, const SoftwareDeviceOptions& options) {
  const auto given = [mask](int flag) { return (mask & flag) != 0; };
  if (given(IBV_QP_PORT) && wanted.port_num != 1) return false;
  if (given(IBV_QP_PKEY_INDEX) && wanted.pkey_index != 0) return false;
  if (given(IBV_QP_PATH_MTU) && (wanted.path_mtu < IBV_MTU_256 || wanted.path_mtu > options.activeMtu)) return false;
  if (given(IBV_QP_MAX_QP_RD_ATOMIC) && wanted.max_rd_atomic > options.maxReads) return false;
  if (given(IBV_QP_MAX_DEST_RD_ATOMIC) && wanted.max_dest_rd_atomic > options.maxReads) return false;
  if (given(IBV_QP_TIMEOUT) && wanted.timeout > kMaxTimerCode) return false;
  if (given(IBV_QP_MIN_RNR_TIMER) && wanted.min_rnr_timer > kMaxTimerCode) return false;
  if (given(IBV_QP_RETRY_CNT) && wanted.retry_cnt > kMaxRetries) return false;
  if (given(IBV_QP_RNR_RETRY) && wanted.rnr_retry > kMaxRetries) return false;
  if (given(IBV_QP_DEST_QPN) && wanted.dest_qp_num > kMaxQueuePairNumber) return false;
  if (!given(IBV_QP_AV)) return true;
  // RoCE has no other addresses than GIDs.
  const ibv_ah_attr& path = wanted.ah_attr;
  static constexpr ibv_gid kEmpty{};
  return path.is_global == 1 && path.port_num == 1 && path.grh.sgid_index < options.gids.size() &&
         std::memcmp(&options.gids[path.grh.sgid_index].gid, &kEmpty, sizeof(kEmpty)) != 0;
}

void apply(SoftQueuePair& qp, const ibv_qp_attr& wanted, int mask) {
  ibv_qp_attr& kept = qp.attributes;
  const auto given = [mask](int flag) { return (mask & flag) != 0; };
  if (given(IBV_QP_ACCESS_FLAGS)) kept.qp_access_flags = wanted.qp_access_flags;
  if (given(IBV_QP_AV)) {
    kept.ah_attr = wanted.ah_attr;
    qp.localGid = qp.owner->soft->options.gids[wanted.ah_attr.grh.sgid_index].gid;
  }
  if (given(IBV_QP_PATH_MTU)) kept.path_mtu = wanted.path_mtu;
  if (given(IBV_QP_DEST_QPN)) kept.dest_qp_num = wanted.dest_qp_num;
  if (given(IBV_QP_RQ_PSN)) kept.rq_psn = wanted.rq_psn & kMaxQueuePairNumber;
  if (given(IBV_QP_SQ_PSN)) kept.sq_psn = wanted.sq_psn & kMaxQueuePairNumber;
  if (given(IBV_QP_MAX_QP_RD_ATOMIC)) kept.max_rd_atomic = wanted.max_rd_atomic;
  if (given(IBV_QP_MAX_DEST_RD_ATOMIC)) kept.max_dest_rd_atomic = wanted.max_dest_rd_atomic;
  if (given(IBV_QP_MIN_RNR_TIMER)) kept.min_rnr_timer = wanted.min_rnr_timer;
  if (given(IBV_QP_TIMEOUT)) kept.timeout = wanted.timeout;
  if (given(IBV_QP_RETRY_CNT)) kept.retry_cnt = wanted.retry_cnt;
  if (given(IBV_QP_RNR_RETRY)) kept.rnr_retry = wanted.rnr_retry;
}

// Everything outstanding goes without completion.
void clear(Fabric& fabric, SoftQueuePair& qp) {
  fabric.forget(qp);
  const std::lock_guard lock(qp.guard);
  qp.sends.clear();
  qp.queuedReads = 0;
  qp.scheduled = false;
  qp.room = std::make_shared<QueueRoom>();
  qp.execution.reset();
  qp.unreported = 0;
  qp.receiving.reset();
  qp.heardInReadyToReceive = false;
  qp.attributes = {};
  const std::lock_guard receivesLock(qp.receives.guard);
  qp.receives.requests.clear();
  qp.receives.room = std::make_shared<QueueRoom>();
}

int modifyQueuePair(ibv_qp* queuePair, ibv_qp_attr* wanted, int mask) {
  Fabric& fabric = Fabric::instance();
  const Fabric::Lock lock(fabric);
  SoftQueuePair* const qp = fabric.queuePairs.find(queuePair);
  if (qp == nullptr) return EINVAL;
  const SoftDevice& device = *qp->owner->soft;
  if (device.removed) return EIO;
  const ibv_qp_state from = qp->hardwareState;
  const ibv_qp_state to = (mask & IBV_QP_STATE) != 0 ? wanted->qp_state : from;
  if ((mask & IBV_QP_CUR_STATE) != 0 && wanted->cur_qp_state != from) return EINVAL;
  if (!isAllowed(from, to, mask) || !areValid(*wanted, mask, device.options)) return EINVAL;
  apply(*qp, *wanted, mask);
  queuePair->state = to;
  if (to == IBV_QPS_ERR) {
    fabric.fail(*qp);
    return 0;
  }
  qp->hardwareState = to;
  if (to == IBV_QPS_RESET) clear(fabric, *qp);
  return 0;
}

}  // namespace

void fillQueueVerbs(verbs::VerbsApi& api) {
  api.createQueuePair = createQueuePair;
  api.modifyQueuePair = modifyQueuePair;
  api.destroyQueuePair = destroyQueuePair;
}

}  // namespace gloo_bypass::test
