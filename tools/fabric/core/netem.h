// A description in the words of Linux' traffic control, for hosts whose frames do not cross the fabric's switch: RDMA
// over SoftRoCE, in a guest. Pure: it makes texts; who runs them needs CAP_NET_ADMIN and the kernel's netem, tbf, prio
// and u32.
//
//   root prio -- band 1: what no filter takes (ARP)
//             +- band 2 + i: u32 filter on the i-th other host's address -> netem (loss, delay, corruption) -> tbf
//             (rate, queue)
//
// What netem does otherwise than the emulator: delay comes before the rate, which is the same but for jitter; after a
// pause tbf lets 16 KiB go at once, or at over 1.3 Gbit/s what goes in 0.1 ms; corruption flips one bit of the whole
// frame; its random numbers have no seed. What it cannot do is refused:
// duplication (its copies go through the whole queue again, and newer kernels refuse it beside other edges), reordering
// (it sends early, not late), delays over 250 s, queues shorter than a frame, and more than 15 other hosts.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "tools/fabric/core/description.h"
#include "transport/base/status.h"

namespace gloo_bypass::fabric {

// Commands without characters that a shell treats specially, each for one call of tc, in order.
struct NetemPlan {
  struct Change {
    Duration at;  // since the start
    std::vector<std::string> commands;
  };

  std::vector<std::string> setUp;  // the interface has no qdisc of its own before
  std::vector<Change> changes;     // ascending times
  std::string removal;             // takes all of it away
};

// What `host` (its rank) sends, on its `interface`.
Result<NetemPlan> netemPlan(const Description& description, std::size_t host, std::string_view interface);

// Plans of several interfaces of one machine as one, each change at its time.
NetemPlan together(const std::vector<NetemPlan>& plans);

// A script for sh that sets the plan up, and then waits for and makes each change; it stops at the first command that
// fails.
std::string netemScript(const NetemPlan& plan);

}  // namespace gloo_bypass::fabric
