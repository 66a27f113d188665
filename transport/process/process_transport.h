// The transports of this process, one a back-end. PyTorch makes a Device for every process group, but DPDK's
// environment starts once a process, and an adapter's queues and registered memory are worth sharing. So all devices of
// a back-end share one Transport: the first device makes it, and it lives until the process exits.
//
//   none --acquire--> live --exit--> statistics written, transport destroyed (or left alone if a device still uses it)
//     |                 |
//     +----- fork ------+--> the child starts at `none`; if the parent had begun to make its transport, the child's
//                            acquire fails
//
// Thread: any. Nothing here is ever destroyed, so that exit handlers, static destructors and Python's finalisation may
// come in any order.
#pragma once

#include <sys/types.h>

#include <array>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "transport/base/config.h"
#include "transport/base/mutex.h"
#include "transport/base/status.h"
#include "transport/channel/back_end.h"
#include "transport/channel/message_channel.h"
#include "transport/process/metrics_exporter.h"

namespace gloo_bypass {

class ProcessTransport {
 public:
  static constexpr std::size_t kMostBackEnds = 8;

  // The process's only one; a forked child gets its own. Registers the exit handler.
  static ProcessTransport& instance();

  // For tests; a process uses instance().
  ProcessTransport() = default;
  ProcessTransport(const ProcessTransport&) = delete;
  ProcessTransport& operator=(const ProcessTransport&) = delete;

  // The back-end's live transport, or a new one; if the configuration asks for histograms, its operations are timed.
  // `backEnd` must live as long as the process (those of transport/process/back_ends.h do); its name identifies it. The
  // first configuration with a target for metrics starts their export. Errors: kConfiguration if the live one has
  // another configuration (with both values); kUnavailable in a forked child if its parent had begun to make its own;
  // the exporter's; the back-end's.
  Result<std::shared_ptr<Transport>> acquire(const BackEnd& backEnd, const TransportConfig& config);

  // Whether acquire would make no transport: the back-end has a live one, or an ancestor of this forked process had
  // begun to make one.
  bool settled(const BackEnd& backEnd);

  // The report of the live transport as JSON (transport/process/report_json.h); "{}" if there is none; for several, an
  // object with a report under each back-end's name.
  std::string countersJson();
  // The report of this back-end; nullopt if it has no live transport.
  std::optional<TransportReport> report(const BackEnd& backEnd);

  // Writes the configured statistics and metrics, ends their export, and releases the transports. Bounded: a shut-down
  // that progresses may take `total`, which many connections on a busy machine need. If it stands still, without using
  // the processor, for `standstill`, it waits for something that will not come. Beyond a bound it is abandoned, with a
  // line on stderr.
  struct ShutDownBounds {
    std::chrono::milliseconds standstill{5'000}, total{60'000};
  };
  void shutDown() noexcept { shutDown(ShutDownBounds{}); }
  void shutDown(const ShutDownBounds& bounds) noexcept;

  // For the child after fork: forgets the parent's transports without destroying them.
  void becomeChildOf(pid_t parent) noexcept GLOO_BYPASS_UNCHECKED;

  // A back-end and its transport, held during a call.
  struct Live {
    const BackEnd* backEnd;
    std::shared_ptr<Transport> transport;
    std::string statsTarget;
  };

 private:
  struct Slot {
    const BackEnd* backEnd = nullptr;      // null: free, and so are all after it
    std::shared_ptr<Transport> transport;  // null: none yet, or shut down
    TransportConfig config;                // of transport
    bool begun = false;                    // the factory has been called in this process
    bool saidOneInterface = false;         // whether the line on unused further interfaces is printed
    pid_t inheritedFrom = 0;               // the ancestor that made a transport this process may not use; 0: none
  };

  Status startExporter(const TransportConfig& config) GLOO_BYPASS_REQUIRES(mutex_);
  void stopExporter() GLOO_BYPASS_REQUIRES(mutex_);
  Slot& slotOf(const BackEnd& backEnd) GLOO_BYPASS_REQUIRES(mutex_);
  std::vector<Live> liveTransports();

  Mutex mutex_;
  std::array<Slot, kMostBackEnds> slots_ GLOO_BYPASS_GUARDED_BY(mutex_);
  std::unique_ptr<MetricsExporter> exporter_ GLOO_BYPASS_GUARDED_BY(mutex_);  // null: no metrics are configured
  std::string exportedTo_ GLOO_BYPASS_GUARDED_BY(mutex_), exportedRank_ GLOO_BYPASS_GUARDED_BY(mutex_);  // the last one
  bool ended_ GLOO_BYPASS_GUARDED_BY(mutex_) = false;                                                    // shutDown ran
};

}  // namespace gloo_bypass
