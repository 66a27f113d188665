// The resources that all channels share on one device: protection domain, completion queues, events; RAII, in the order
// that verbs requires. And one reliable-connected queue pair.
//
// Thread: every method needs the progress engine's exclusive access; any thread may poll the descriptors.
// Source: InfiniBand Architecture Specification, volume 1, 10.3.1 (states of a queue pair); ibv_modify_qp(3).
#pragma once

#include <cstdint>
#include <memory>

#include "transport/base/config.h"
#include "transport/base/status.h"
#include "transport/verbs/completion_queues.h"
#include "transport/verbs/device_selection.h"
#include "transport/verbs/memory_windows.h"
#include "transport/verbs/rdma_address.h"
#include "transport/verbs/verbs_api.h"

namespace gloo_bypass::verbs {

class RailQueues {
 public:
  static Result<std::unique_ptr<RailQueues>> make(const VerbsApi& api, Rail rail);
  ~RailQueues();
  RailQueues(const RailQueues&) = delete;
  RailQueues& operator=(const RailQueues&) = delete;

  const Rail& rail() const { return rail_; }
  const ibv_device_attr& limits() const { return limits_; }
  // SoftRoCE: the processor that posts a request also carries it out, mostly before ibv_post_send returns.
  bool inSoftware() const;
  ibv_pd* domain() const { return domain_; }
  CompletionQueues& completions() const { return *completions_; }
  MemoryWindows& windows() const { return *windows_; }
  int eventFd() const { return rail_.context->async_fd; }
  // Next asynchronous event, already acknowledged. False: none waits.
  bool takeEvent(ibv_async_event* event);

 private:
  RailQueues(const VerbsApi& api, Rail rail) : api_(api), rail_(std::move(rail)) {}
  Status open();
  Status failed(const char* what) const;

  const VerbsApi& api_;
  Rail rail_;
  ibv_device_attr limits_{};
  ibv_pd* domain_ = nullptr;
  std::unique_ptr<CompletionQueues> completions_;
  std::unique_ptr<MemoryWindows> windows_;  // in domain_
};

class QueuePair {
 public:
  struct Depths {
    unsigned sends = 0;        // work requests
    unsigned receives = 0;     // 0: nothing is ever received on it
    unsigned inlineBytes = 0;  // requested; the device may grant less
    bool readable = false;     // the peer may READ over it what is registered for that, or has a window bound on it
  };
  // In INIT: drops the peer's messages until connect(). `completions` must have room for both depths. Errors:
  // kExhausted if the device allows no more.
  static Result<std::unique_ptr<QueuePair>> make(const VerbsApi& api, RailQueues& queues, ibv_cq* completions,
                                                 const Depths& depths, const RdmaConfig& config);
  // After it nothing touches the memory of its requests any more.
  ~QueuePair();
  QueuePair(const QueuePair&) = delete;
  QueuePair& operator=(const QueuePair&) = delete;

  RailAddress address() const;
  std::uint32_t number() const { return pair_->qp_num; }
  unsigned inlineBytes() const { return inlineBytes_; }
  // How many READs may be outstanding to this peer.
  unsigned readDepth() const { return readDepth_; }

  // Moves to RTR and RTS: from now on it receives and may send.
  Status connect(const RailAddress& peer);
  // Posts a list, linked by `next`: all of it, or an error.
  Status post(ibv_send_wr* list);
  Status postReceives(ibv_recv_wr* list);

 private:
  QueuePair(const VerbsApi& api, RailQueues& queues, const RdmaConfig& config)
      : api_(api), queues_(queues), config_(config) {}
  Status failed(const char* what, int error) const;
  unsigned ownReadDepth() const;

  const VerbsApi& api_;
  RailQueues& queues_;
  const RdmaConfig config_;
  ibv_qp* pair_ = nullptr;
  std::uint32_t firstPsn_ = 0;
  unsigned inlineBytes_ = 0;
  unsigned readDepth_ = 0;
};

}  // namespace gloo_bypass::verbs
