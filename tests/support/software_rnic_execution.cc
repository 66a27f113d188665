// Private to software_rnic: what the adapter does with a work request.
#include <cstring>
#include <span>
#include <utility>

#include "tests/support/software_rnic_fabric.h"

namespace gloo_bypass::test {
namespace {

// A message is executed in pieces of this size, taking turns with other queue pairs. Large enough to copy at memory
// speed, small enough that control verbs wait some ten microseconds.
constexpr std::uint64_t kPieceBytes = 64 * 1024;
constexpr int kInfiniteRnrRetries = 7;

using Spans = std::vector<std::span<std::byte>>;

// The 5-bit encoding of the receiver-not-ready timer (InfiniBand volume 1, table 46), in units of 10 us.
Duration rnrDelay(std::uint8_t code) {
  static constexpr std::array<int, 32> kTensOfMicroseconds{
      65536, 1,   2,   3,   4,    6,    8,    12,   16,   24,   32,   48,    64,    96,    128,   192,
      256,   384, 512, 768, 1024, 1536, 2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152};
  return std::chrono::microseconds(10) * kTensOfMicroseconds[code & 31];
}

std::uint64_t total(const std::vector<ibv_sge>& segments) {
  std::uint64_t bytes = 0;
  for (const ibv_sge& segment : segments) bytes += segment.length;
  return bytes;
}

std::size_t mtuBytes(ibv_mtu mtu) { return std::size_t{128} << mtu; }

// One step of the queue pair at the head of the run queue. Lives as long as the step.
class Stepper {
 public:
  Stepper(Fabric& fabric, SoftQueuePair& qp) : fabric_(fabric), qp_(qp) {}

  Step step() {
    if (qp_.hardwareState == IBV_QPS_ERR) return flush();
    if (qp_.hardwareState != IBV_QPS_RTS || qp_.dead) return unschedule();
    if (!qp_.execution && !begin()) return early_ ? Step::kWait : Step::kIdle;
    Execution& execution = *qp_.execution;
    if (execution.delivered) return succeed();
    if (execution.timerRunning) {
      if (execution.retriesLeft == 0) return failRequest(IBV_WC_RETRY_EXC_ERR);
      --execution.retriesLeft;
      ++fabric_.counters.retransmissions;
    }
    if (!execution.checked) {
      if (const ibv_wc_status status = check(execution); status != IBV_WC_SUCCESS) return failRequest(status);
      execution.checked = true;
    }
    if (request().opcode == IBV_WR_BIND_MW) return bind() ? succeed() : failRequest(IBV_WC_MW_BIND_ERR);
    if (request().opcode == IBV_WR_LOCAL_INV) return invalidate() ? succeed() : failRequest(IBV_WC_LOC_QP_OP_ERR);
    SoftQueuePair* const peer = findPeer();
    if (peer == nullptr) return lost();
    if (execution.timerRunning) {
      execution.timerRunning = false;
      execution.retriesLeft = qp_.attributes.retry_cnt;
    }
    hear(*peer);
    return transfer(*peer);
  }

 private:
  SendRequest& request() { return qp_.execution->request; }

  Step unschedule() {
    const std::lock_guard lock(qp_.guard);
    qp_.scheduled = false;
    return Step::kIdle;
  }

  // False: the queue is empty, or its head is not due yet (early_).
  bool begin() {
    const std::lock_guard lock(qp_.guard);
    if (qp_.sends.empty()) {
      qp_.scheduled = false;
      return false;
    }
    if (const TimePoint due = qp_.sends.front().due; due != TimePoint{} && due > rnicNow()) {
      early_ = true;
      qp_.resumeAt = due;
      return false;
    }
    qp_.execution.emplace();
    qp_.execution->request = std::move(qp_.sends.front());
    qp_.execution->retriesLeft = qp_.attributes.retry_cnt;
    qp_.execution->rnrRetriesLeft = qp_.attributes.rnr_retry;
    qp_.sends.pop_front();
    return true;
  }

  // What is known before the first packet leaves.
  ibv_wc_status check(Execution& execution) {
    if (request().length > qp_.owner->soft->options.maxMessageBytes) return IBV_WC_LOC_LEN_ERR;
    if (request().opcode == IBV_WR_RDMA_READ && qp_.attributes.max_rd_atomic == 0) return IBV_WC_LOC_QP_OP_ERR;
    for (auto fault = fabric_.faults.begin(); fault != fabric_.faults.end(); ++fault) {
      if (fault->context != nullptr && fault->context != qp_.owner) continue;
      if (fault->opcode && *fault->opcode != request().opcode) continue;
      if (fault->skip > 0) {
        --fault->skip;
        continue;
      }
      const OperationFault struck = *fault;
      fabric_.faults.erase(fault);
      execution.acknowledgementLate = struck.late;
      if (struck.late > Duration{}) break;
      if (!struck.delivered) return struck.status;
      execution.acknowledgementLost = true;
      execution.lostStatus = struck.status;
      break;
    }
    return IBV_WC_SUCCESS;
  }

  // Null: no window has this key.
  SoftWindow* windowOf(std::uint32_t key) {
    const auto found = fabric_.windowByIndex.find(key >> 8);
    return found != fabric_.windowByIndex.end() && found->second->key == key ? found->second : nullptr;
  }

  // What InfiniBand volume 1, 10.6.7.2, asks of a bind of type 2.
  bool bind() {
    const SendRequest& wanted = request();
    SoftWindow* const window = windowOf(wanted.remoteKey);
    if (window == nullptr || window->region != nullptr || window->pd != qp_.pd) return false;
    if (wanted.newKey >> 8 != window->key >> 8 || wanted.newKey == window->key) return false;
    if (!fabric_.regions.contains(wanted.bind.mr)) return false;
    SoftRegion& region = *fabric_.regions.find(wanted.bind.mr);
    const auto begin = reinterpret_cast<std::uintptr_t>(region.addr);
    const ibv_mw_bind_info& part = wanted.bind;
    if (part.length == 0 || part.addr < begin || part.length > region.length ||
        part.addr - begin > region.length - part.length) {
      return false;
    }
    if (region.pd != qp_.pd || (region.access & IBV_ACCESS_MW_BIND) == 0) return false;
    window->key = wanted.newKey;
    window->region = &region;
    window->queuePair = &qp_;
    window->address = part.addr;
    window->length = part.length;
    window->access = static_cast<int>(part.mw_access_flags);
    ++region.windows;
    return true;
  }

  bool invalidate() {
    SoftWindow* const window = windowOf(request().remoteKey);
    if (window == nullptr || window->region == nullptr || window->queuePair != &qp_) return false;
    Fabric::unbind(*window);
    return true;
  }

  // Null: packets get no answer.
  SoftQueuePair* findPeer() {
    const SoftDevice& device = *qp_.owner->soft;
    if (!device.reachable() || !hasGid(device, qp_.localGid)) return nullptr;
    const auto found = fabric_.queuePairByNumber.find(qp_.attributes.dest_qp_num);
    if (found == fabric_.queuePairByNumber.end()) return nullptr;
    SoftQueuePair& peer = *found->second;
    const ibv_qp_state state = peer.hardwareState;
    const SoftDevice& remote = *peer.owner->soft;
    const bool answers = !peer.dead && (state == IBV_QPS_RTR || state == IBV_QPS_RTS) && remote.reachable();
    const bool addressed = answers && hasGid(remote, qp_.attributes.ah_attr.grh.dgid) &&
                           sameGid(peer.localGid, qp_.attributes.ah_attr.grh.dgid) &&
                           sameGid(peer.attributes.ah_attr.grh.dgid, qp_.localGid) &&
                           peer.attributes.dest_qp_num == qp_.qp_num && peer.attributes.rq_psn == qp_.attributes.sq_psn;
    return addressed ? &peer : nullptr;
  }

  static bool sameGid(const ibv_gid& a, const ibv_gid& b) { return std::memcmp(a.raw, b.raw, sizeof(a.raw)) == 0; }
  static bool hasGid(const SoftDevice& device, const ibv_gid& gid) {
    return std::any_of(device.options.gids.begin(), device.options.gids.end(),
                       [&gid](const SoftwareGid& entry) { return sameGid(entry.gid, gid); });
  }

  void hear(SoftQueuePair& peer) {
    if (peer.hardwareState != IBV_QPS_RTR || peer.heardInReadyToReceive) return;
    peer.heardInReadyToReceive = true;
    fabric_.raise(peer, IBV_EVENT_COMM_EST);
  }

  Step wait(Duration duration) {
    qp_.resumeAt = rnicNow() + duration;
    return Step::kWait;
  }

  Step lost() {
    fabric_.tryLost();
    qp_.execution->timerRunning = true;
    if (qp_.attributes.timeout == 0) {  // no timer: for ever
      qp_.resumeAt = kNever;
      return Step::kWait;
    }
    return wait(std::chrono::nanoseconds(4096) * (std::int64_t{1} << qp_.attributes.timeout));
  }

  Step receiverNotReady(const SoftQueuePair& peer) {
    Execution& execution = *qp_.execution;
    ++fabric_.counters.rnrNaks;
    if (execution.rnrRetriesLeft == 0) return failRequest(IBV_WC_RNR_RETRY_EXC_ERR);
    if (qp_.attributes.rnr_retry != kInfiniteRnrRetries) --execution.rnrRetriesLeft;
    return wait(rnrDelay(peer.attributes.min_rnr_timer));
  }

  Step transfer(SoftQueuePair& peer) {
    const std::size_t mtu = std::min(mtuBytes(qp_.attributes.path_mtu), mtuBytes(peer.attributes.path_mtu));
    if (qp_.attributes.path_mtu != peer.attributes.path_mtu && request().length > mtu) {
      return refuse(peer, IBV_WC_REM_INV_REQ_ERR, IBV_EVENT_QP_REQ_ERR);
    }
    return request().opcode == IBV_WR_SEND ? send(peer) : read(peer);
  }

  std::uint64_t pieceBytes() { return std::min(kPieceBytes, request().length - qp_.execution->offset); }

  bool takeReceive(SoftQueuePair& peer) {
    if (!peer.receiving) peer.receiving = peer.receives.take();
    return peer.receiving.has_value();
  }

  Step send(SoftQueuePair& peer) {
    Spans from, to;
    if (!gather(from)) return failRequest(IBV_WC_LOC_PROT_ERR);
    if (!takeReceive(peer)) return receiverNotReady(peer);
    if (request().length > total(peer.receiving->segments)) {
      return refuse(peer, IBV_WC_REM_INV_REQ_ERR, std::nullopt, IBV_WC_LOC_LEN_ERR);
    }
    if (!resolve(peer.receiving->segments, peer.pd, IBV_ACCESS_LOCAL_WRITE, to)) {
      return refuse(peer, IBV_WC_REM_OP_ERR, std::nullopt, IBV_WC_LOC_PROT_ERR);
    }
    copy(from, to);
    if (qp_.execution->offset < request().length) return Step::kAgain;
    completeReceive(peer, IBV_WC_SUCCESS);
    return succeed();
  }

  Step read(SoftQueuePair& peer) {
    if ((peer.attributes.qp_access_flags & IBV_ACCESS_REMOTE_READ) == 0) {
      return refuse(peer, IBV_WC_REM_INV_REQ_ERR, IBV_EVENT_QP_REQ_ERR);
    }
    // Hardware has requested all that it may by now.
    std::uint32_t outstanding = 0;
    {
      const std::lock_guard lock(qp_.guard);
      outstanding = std::min<std::uint32_t>(qp_.queuedReads, qp_.attributes.max_rd_atomic);
    }
    if (outstanding > peer.attributes.max_dest_rd_atomic) {
      return refuse(peer, IBV_WC_REM_INV_REQ_ERR, IBV_EVENT_QP_REQ_ERR);
    }
    Spans from, to;
    if (!resolveRemote(peer, from)) {
      return refuse(peer, IBV_WC_REM_ACCESS_ERR, IBV_EVENT_QP_ACCESS_ERR);
    }
    // Where the data go is looked at when they come back.
    if (!resolve(request().segments, qp_.pd, IBV_ACCESS_LOCAL_WRITE, to)) return failRequest(IBV_WC_LOC_PROT_ERR);
    copy(from, to);
    return qp_.execution->offset < request().length ? Step::kAgain : succeed();
  }

  // `address` on, `length` long, is in the region of `key`, which belongs to `domain` and allows `access`.
  bool permitted(std::uint32_t key, std::uint64_t address, std::uint64_t length, const ibv_pd* domain, int access) {
    const auto found = fabric_.regionByKey.find(key);
    if (found == fabric_.regionByKey.end()) return false;
    const SoftRegion& region = *found->second;
    const auto begin = reinterpret_cast<std::uintptr_t>(region.addr);
    return region.pd == domain && (region.access & access) == access && address >= begin && length <= region.length &&
           address - begin <= region.length - length;
  }

  bool resolve(const std::vector<ibv_sge>& segments, const ibv_pd* domain, int access, Spans& spans) {
    for (const ibv_sge& segment : segments) {
      if (segment.length == 0) continue;
      if (!permitted(segment.lkey, segment.addr, segment.length, domain, access)) return false;
      spans.emplace_back(reinterpret_cast<std::byte*>(segment.addr), segment.length);
    }
    return true;
  }

  bool gather(Spans& spans) {
    if ((request().flags & IBV_SEND_INLINE) == 0) return resolve(request().segments, qp_.pd, 0, spans);
    spans.emplace_back(request().inlineData);
    return true;
  }

  bool resolveRemote(const SoftQueuePair& peer, Spans& spans) {
    const SendRequest& wanted = request();
    if (wanted.length == 0) return true;  // the key is not looked at
    if (const SoftWindow* const window = windowOf(wanted.remoteKey)) {
      if (window->region == nullptr || window->queuePair != &peer || (window->access & IBV_ACCESS_REMOTE_READ) == 0 ||
          wanted.remoteAddress < window->address || wanted.length > window->length ||
          wanted.remoteAddress - window->address > window->length - wanted.length) {
        return false;
      }
      spans.emplace_back(reinterpret_cast<std::byte*>(wanted.remoteAddress), wanted.length);
      return true;
    }
    if (!permitted(wanted.remoteKey, wanted.remoteAddress, wanted.length, peer.pd, IBV_ACCESS_REMOTE_READ))
      return false;
    spans.emplace_back(reinterpret_cast<std::byte*>(wanted.remoteAddress), wanted.length);
    return true;
  }

  // The next piece, from and to the execution's offset in each.
  void copy(const Spans& from, const Spans& to) {
    std::uint64_t left = pieceBytes();
    auto [source, sourceOffset] = locate(from);
    auto [sink, sinkOffset] = locate(to);
    qp_.execution->offset += left;
    while (left > 0) {
      const std::size_t size =
          std::min<std::size_t>({left, from[source].size() - sourceOffset, to[sink].size() - sinkOffset});
      std::memmove(to[sink].data() + sinkOffset, from[source].data() + sourceOffset, size);
      left -= size;
      advance(from, source, sourceOffset, size);
      advance(to, sink, sinkOffset, size);
    }
  }

  std::pair<std::size_t, std::size_t> locate(const Spans& spans) {
    std::size_t index = 0;
    std::uint64_t offset = qp_.execution->offset;
    while (index < spans.size() && offset >= spans[index].size()) offset -= spans[index++].size();
    return {index, offset};
  }

  static void advance(const Spans& spans, std::size_t& index, std::size_t& offset, std::size_t size) {
    offset += size;
    if (offset == spans[index].size()) {
      ++index;
      offset = 0;
    }
  }

  // Everything but id, status and queue pair is undefined when there was an error: garbage, so that nobody gets used to
  // it. The opcode looks like a receive's for a send, and the other way round.
  static ibv_wc failedEntry(std::uint64_t id, ibv_wc_status status, std::uint32_t number, bool isSend) {
    ibv_wc entry;
    std::memset(static_cast<void*>(&entry), 0x5a, sizeof(entry));
    entry.wr_id = id;
    entry.status = status;
    entry.opcode = isSend ? IBV_WC_TM_NO_TAG : IBV_WC_TSO;
    entry.vendor_err = 0;
    entry.qp_num = number;
    return entry;
  }

  static ibv_wc_opcode completed(ibv_wr_opcode opcode) {
    switch (opcode) {
      case IBV_WR_SEND:
        return IBV_WC_SEND;
      case IBV_WR_BIND_MW:
        return IBV_WC_BIND_MW;
      case IBV_WR_LOCAL_INV:
        return IBV_WC_LOCAL_INV;
      default:
        return IBV_WC_RDMA_READ;
    }
  }

  void completeReceive(SoftQueuePair& peer, ibv_wc_status status) {
    Completion completion;
    completion.room = peer.receives.room;
    completion.slots = 1;
    if (status != IBV_WC_SUCCESS) {
      completion.entry = failedEntry(peer.receiving->id, status, peer.qp_num, false);
    } else {
      completion.entry.wr_id = peer.receiving->id;
      completion.entry.opcode = IBV_WC_RECV;
      completion.entry.byte_len = static_cast<std::uint32_t>(request().length);
      completion.entry.qp_num = peer.qp_num;
      completion.entry.src_qp = qp_.qp_num;
    }
    peer.receiving.reset();
    ++fabric_.counters.receives;
    fabric_.complete(peer.recv_cq, std::move(completion));
  }

  void completeSend(const SendRequest& done, ibv_wc_status status) {
    Completion completion;
    completion.room = qp_.room;
    completion.slots = qp_.unreported + 1;
    qp_.unreported = 0;
    if (status == IBV_WC_SUCCESS) {
      completion.entry.wr_id = done.id;
      completion.entry.opcode = completed(done.opcode);
      completion.entry.byte_len = static_cast<std::uint32_t>(done.length);
      completion.entry.qp_num = qp_.qp_num;
    } else {
      completion.entry = failedEntry(done.id, status, qp_.qp_num, true);
    }
    fabric_.complete(qp_.send_cq, std::move(completion));
  }

  void leaveQueue(const SendRequest& done) {
    if (done.opcode != IBV_WR_RDMA_READ) return;
    const std::lock_guard lock(qp_.guard);
    --qp_.queuedReads;
  }

  Step succeed() {
    if (const Duration late = std::exchange(qp_.execution->acknowledgementLate, {}); late > Duration{}) {
      qp_.execution->delivered = true;
      return wait(late);
    }
    if (qp_.execution->acknowledgementLost) return failRequest(qp_.execution->lostStatus);
    SendRequest& done = request();
    auto& counters = fabric_.counters;
    ++counters.operations[done.opcode];
    counters.bytes += done.length;
    counters.inlineOperations += (done.flags & IBV_SEND_INLINE) != 0 ? 1 : 0;
    leaveQueue(done);
    if ((done.flags & IBV_SEND_SIGNALED) != 0) {
      completeSend(done, IBV_WC_SUCCESS);
    } else {
      ++qp_.unreported;
    }
    qp_.execution.reset();
    return Step::kAgain;
  }

  Step failRequest(ibv_wc_status status) {
    leaveQueue(request());
    completeSend(request(), status);
    qp_.execution.reset();
    fabric_.fail(qp_);
    return Step::kIdle;  // it was put into the run queue, to flush the rest
  }

  // The responder found fault with the request: both ends are in error.
  Step refuse(SoftQueuePair& peer, ibv_wc_status status, std::optional<ibv_event_type> event,
              ibv_wc_status receiveStatus = IBV_WC_WR_FLUSH_ERR) {
    if (peer.receiving) completeReceive(peer, receiveStatus);
    if (event) fabric_.raise(peer, *event);
    fabric_.fail(peer);
    return failRequest(status);
  }

  Step flush() {
    if (qp_.execution) {
      completeSend(request(), IBV_WC_WR_FLUSH_ERR);
      qp_.execution.reset();
    }
    std::deque<SendRequest> left;
    {
      const std::lock_guard lock(qp_.guard);
      left.swap(qp_.sends);
      qp_.queuedReads = 0;
      qp_.scheduled = false;
    }
    for (const SendRequest& request : left) completeSend(request, IBV_WC_WR_FLUSH_ERR);
    while (qp_.receiving || takeReceive(qp_)) {
      completeReceive(qp_, IBV_WC_WR_FLUSH_ERR);
    }
    return Step::kIdle;
  }

  Fabric& fabric_;
  SoftQueuePair& qp_;
  bool early_ = false;
};

}  // namespace

Step executeStep(Fabric& fabric, SoftQueuePair& qp) { return Stepper(fabric, qp).step(); }

}  // namespace gloo_bypass::test
