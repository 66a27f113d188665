// Runs collective operations among a fixed set of ranks: through memory within a host (memory/), over message channels
// (network/), or through both (hierarchical/). A Group (group.h) has one.
//
// Thread: one at a time calls run(); announce() and abort() from any. Every rank runs the same operations in the same
// order.
#pragma once

#include "collectives/operation.h"
#include "transport/base/status.h"
#include "transport/base/time.h"

namespace gloo_bypass::collectives {

class Executor {
 public:
  virtual ~Executor() = default;

  // Blocks until this rank's part is done. `call` is sound (faultOf). Errors, each of one line, after which no buffer
  // is touched any more and the executor has failed for good (later calls return the same error):
  //   kInvalidArgument   ranks called different operations: names this rank, the other, and both calls
  //   kPeerVanished      a rank ended: names it
  //   kPeerClosed        a rank left the group in good order while others go on
  //   kTimedOut          the deadline passed: names a rank that had not come
  //   kCancelled         abort() was called here
  //   kPeerViolatedProtocol
  // After an exception no buffer is touched any more either, and run() must not be called again.
  virtual Status run(const Call& call, TimePoint deadline) = 0;

  // Does what needs no waiting of a small operation: peers can complete theirs, whenever this rank comes to wait. True:
  // run() of the same call follows, and nothing else before it. False: nothing was done.
  virtual bool begin(const Call&) { return false; }

  // run() of this call follows those that run or were announced before, and nothing else before it. An executor may
  // begin it while it runs these. `call`'s blocks stay where they are until its run() has returned.
  virtual void announce(const Call&) noexcept {}

  // Ends a waiting run() at once, and every later one. Peers fail too: they see that this rank has aborted.
  virtual void abort() noexcept = 0;
};

}  // namespace gloo_bypass::collectives
