#include "transport/verbs/rail_queues.h"

#include <fcntl.h>
#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <random>
#include <utility>

#include "transport/verbs/memory_limit.h"

namespace gloo_bypass::verbs {
namespace {

constexpr unsigned kMaxReadDepth = 16;
constexpr std::uint8_t kHopLimit = 64;
constexpr std::uint8_t kMinRnrTimer = 12;            // 0.64 ms; unused, since credits keep a receive posted
constexpr std::uint8_t kRnrRetries = 6;              // finite (7 would be for ever)
constexpr std::uint32_t kSoftRoceVendor = 0xffffff;  // Linux' rxe_param.h: RXE_VENDOR_ID

}  // namespace

Result<std::unique_ptr<RailQueues>> RailQueues::make(const VerbsApi& api, Rail rail) {
  std::unique_ptr<RailQueues> queues(new RailQueues(api, std::move(rail)));
  if (Status status = queues->open(); !status) return status;
  return queues;
}

Status RailQueues::failed(const char* what) const {
  return Status(ErrorScope::kDevice, ErrorCode::kUnavailable,
                fmt::format("RDMA device {}: {}: {}", rail_.deviceName, what, std::strerror(errno)));
}

Status RailQueues::open() {
  if ((errno = api_.queryDevice(rail_.context.get(), &limits_)) != 0) return failed("its limits cannot be read");
  domain_ = api_.allocProtectionDomain(rail_.context.get());
  if (domain_ == nullptr) return failed("no protection domain");
  const int events = rail_.context->async_fd;
  (void)fcntl(events, F_SETFL, fcntl(events, F_GETFL) | O_NONBLOCK);
  auto completions = CompletionQueues::make(api_, rail_.context.get(), rail_.deviceName, limits_);
  if (!completions) return completions.error();
  completions_ = std::move(completions).value();
  windows_ = std::make_unique<MemoryWindows>(domain_);
  return {};
}

bool RailQueues::inSoftware() const { return limits_.vendor_id == kSoftRoceVendor; }

RailQueues::~RailQueues() {
  completions_.reset();
  windows_.reset();
  if (domain_ != nullptr) (void)api_.freeProtectionDomain(domain_);
}

bool RailQueues::takeEvent(ibv_async_event* event) {
  // ibv_get_async_event logs nothing and fails with EAGAIN if the descriptor is not readable.
  if (api_.getAsyncEvent(rail_.context.get(), event) != 0) return false;
  api_.ackAsyncEvent(event);
  return true;
}

Result<std::unique_ptr<QueuePair>> QueuePair::make(const VerbsApi& api, RailQueues& queues, ibv_cq* completions,
                                                   const Depths& depths, const RdmaConfig& config) {
  std::unique_ptr<QueuePair> made(new QueuePair(api, queues, config));
  ibv_qp_init_attr init{};
  init.qp_type = IBV_QPT_RC;
  init.send_cq = init.recv_cq = completions;
  init.cap.max_send_wr = depths.sends;
  init.cap.max_send_sge = 1;
  init.cap.max_recv_wr = std::max(depths.receives, 1u);
  init.cap.max_recv_sge = 1;
  init.cap.max_inline_data = depths.inlineBytes;
  made->pair_ = api.createQueuePair(queues.domain(), &init);
  if (made->pair_ == nullptr && depths.inlineBytes > 0) {
    init.cap.max_inline_data = 0;
    made->pair_ = api.createQueuePair(queues.domain(), &init);
  }
  if (made->pair_ == nullptr) {
    const int error = errno;
    return Status(
        ErrorScope::kDevice, ErrorCode::kExhausted,
        fmt::format("RDMA device {}: no queue pair more ({}); it allows {} queue pairs to all processes "
                    "together: make fewer connections{}",
                    queues.rail().deviceName, std::strerror(error), queues.limits().max_qp, lockedMemoryHint(error)));
  }
  made->inlineBytes_ = init.cap.max_inline_data;
  made->firstPsn_ = std::random_device()() & 0xffffff;

  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_INIT;
  attributes.port_num = queues.rail().port;
  attributes.qp_access_flags = depths.readable ? IBV_ACCESS_REMOTE_READ : 0;  // peers never write
  if (const int error = api.modifyQueuePair(made->pair_, &attributes,
                                            IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
      error != 0) {
    return made->failed("the queue pair cannot be initialised", error);
  }
  return made;
}

QueuePair::~QueuePair() {
  if (pair_ != nullptr) (void)api_.destroyQueuePair(pair_);
}

Status QueuePair::failed(const char* what, int error) const {
  return Status(ErrorScope::kSession, ErrorCode::kUnavailable,
                fmt::format("RDMA device {}: {}: {}", queues_.rail().deviceName, what, std::strerror(error)));
}

unsigned QueuePair::ownReadDepth() const {
  return std::clamp(static_cast<unsigned>(queues_.limits().max_qp_rd_atom), 1u, kMaxReadDepth);
}

RailAddress QueuePair::address() const {
  const Rail& rail = queues_.rail();
  RailAddress address;
  static_assert(sizeof rail.gid.raw == std::tuple_size_v<GidBytes>);
  std::memcpy(address.gid.data(), rail.gid.raw, address.gid.size());
  address.queuePair = pair_->qp_num;
  address.firstPsn = firstPsn_;
  address.lid = rail.attributes.lid;
  address.mtu = static_cast<std::uint8_t>(rail.attributes.active_mtu);
  address.linkLayer = rail.attributes.link_layer;
  address.readDepth = static_cast<std::uint8_t>(ownReadDepth());
  return address;
}

Status QueuePair::connect(const RailAddress& peer) {
  const Rail& rail = queues_.rail();
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_RTR;
  attributes.path_mtu = static_cast<ibv_mtu>(std::min<int>(rail.attributes.active_mtu, peer.mtu));
  attributes.dest_qp_num = peer.queuePair;
  attributes.rq_psn = peer.firstPsn;
  attributes.max_dest_rd_atomic = static_cast<std::uint8_t>(ownReadDepth());
  attributes.min_rnr_timer = kMinRnrTimer;
  attributes.ah_attr.port_num = rail.port;
  attributes.ah_attr.sl = static_cast<std::uint8_t>(config_.serviceLevel);
  attributes.ah_attr.dlid = peer.lid;
  if (rail.attributes.link_layer == IBV_LINK_LAYER_ETHERNET || peer.lid == 0) {
    attributes.ah_attr.is_global = 1;
    std::memcpy(attributes.ah_attr.grh.dgid.raw, peer.gid.data(), peer.gid.size());
    attributes.ah_attr.grh.sgid_index = rail.gidIndex;
    attributes.ah_attr.grh.hop_limit = kHopLimit;
    attributes.ah_attr.grh.traffic_class = static_cast<std::uint8_t>(config_.trafficClass);
  }
  if (const int error = api_.modifyQueuePair(pair_, &attributes,
                                             IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                                                 IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
      error != 0) {
    return failed("there is no path to the peer's GID (queue pair to RTR)", error);
  }
  readDepth_ = std::clamp(static_cast<unsigned>(queues_.limits().max_qp_init_rd_atom), 1u,
                          std::min<unsigned>(kMaxReadDepth, peer.readDepth));
  attributes = {};
  attributes.qp_state = IBV_QPS_RTS;
  attributes.sq_psn = firstPsn_;
  attributes.timeout = static_cast<std::uint8_t>(config_.timeoutExponent);
  attributes.retry_cnt = static_cast<std::uint8_t>(config_.retryCount);
  attributes.rnr_retry = kRnrRetries;
  attributes.max_rd_atomic = static_cast<std::uint8_t>(readDepth_);
  if (const int error = api_.modifyQueuePair(pair_, &attributes,
                                             IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                                                 IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC);
      error != 0) {
    return failed("the queue pair cannot send (to RTS)", error);
  }
  return {};
}

Status QueuePair::post(ibv_send_wr* list) {
  ibv_send_wr* bad = nullptr;
  const int error = ibv_post_send(pair_, list, &bad);
  return error == 0 ? Status() : failed("work cannot be posted", error);
}

Status QueuePair::postReceives(ibv_recv_wr* list) {
  ibv_recv_wr* bad = nullptr;
  const int error = ibv_post_recv(pair_, list, &bad);
  return error == 0 ? Status() : failed("receives cannot be posted", error);
}

}  // namespace gloo_bypass::verbs
