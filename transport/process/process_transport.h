// The transports of this process, one a back-end. PyTorch makes a Device for every process group, but DPDK's
// environment starts once a process, and an adapter's queues and registered memory are worth sharing: so all devices of
// a back-end share one Transport, made with the first device and kept until the process exits.
//
//   none --acquire--> live --exit--> statistics written, transport destroyed (or left alone if a device still uses it)
//     |                 |
//     +----- fork ------+--> the child starts at `none`; if the parent had begun to make its transport, the child's
//     acquire fails
//
// Thread: any. Nothing here is ever destroyed, so that exit handlers, static destructors and Python's finalisation may
// come in any order.
#pragma once

#include <sys/types.h>

#include <array>
#include <chrono>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "transport/base/config.h"
#include "transport/base/status.h"
#include "transport/channel/back_end.h"
#include "transport/channel/message_channel.h"
#include "transport/process/metrics_exporter.h"

namespace gloo_bypass {

class ProcessTransport {
 public:
  static constexpr std::size_t kMostBackEnds = 8;

  // The process's own. A forked child has another one than its parent. Registers the exit handler.
  static ProcessTransport& instance();

  // For tests; a process uses instance().
  ProcessTransport() = default;
  ProcessTransport(const ProcessTransport&) = delete;
  ProcessTransport& operator=(const ProcessTransport&) = delete;

  // The back-end's live transport, or a new one, whose operations are timed if the configuration asks for histograms.
  // `backEnd` must live as long as the process (transport/process/back_ends.h's do); it is known by its name. The first
  // configuration with a target for metrics starts their export. Errors: kConfiguration if the live one has another
  // configuration (both values named); kUnavailable in a forked child whose parent had begun to make its own; the
  // exporter's; the back-end's.
  Result<std::shared_ptr<Transport>> acquire(const BackEnd& backEnd, const TransportConfig& config);

  // Whether acquire would make no transport: the back-end's is live, or was begun by a process that this one was forked
  // from.
  bool settled(const BackEnd& backEnd);

  // The report of the live transport as JSON (transport/process/report_json.h); "{}" if there is none; of several, an
  // object with each one's under its back-end's name.
  std::string countersJson();
  // Of this back-end; nothing if it has no live transport.
  std::optional<TransportReport> report(const BackEnd& backEnd);

  // Writes the statistics and metrics that the configuration asks for, ends their export, and lets go of the
  // transports. Bounded: what gets on may take `total`, many connections on a busy machine need it; what has stood
  // still, without any processor time, for `standstill` is waiting for what will not come. Either is left alone with a
  // line on stderr.
  struct ShutDownBounds {
    std::chrono::milliseconds standstill{5'000}, total{60'000};
  };
  void shutDown() noexcept { shutDown(ShutDownBounds{}); }
  void shutDown(const ShutDownBounds& bounds) noexcept;

  // As after fork, in the child: forgets (without destroying) what the parent had.
  void becomeChildOf(pid_t parent) noexcept;

  // A back-end and its transport, held for the time of a call.
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
    bool saidOneInterface = false;         // that other interfaces than config's are not used
    pid_t inheritedFrom = 0;               // the ancestor whose transport this process may not use; 0: none
  };

  Status startExporter(const TransportConfig& config);
  void stopExporter(std::unique_lock<std::mutex>& lock);
  Slot& slotOf(const BackEnd& backEnd);
  std::vector<Live> liveTransports();

  std::mutex mutex_;  // guards all below
  std::array<Slot, kMostBackEnds> slots_;
  std::unique_ptr<MetricsExporter> exporter_;  // null: no metrics are asked for
  std::string exportedTo_, exportedRank_;      // of the last exporter
  bool ended_ = false;                         // shutDown ran
};

}  // namespace gloo_bypass
