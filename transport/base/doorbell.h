// Ends the sleep of a thread that polls descriptors. Other processes can ring too: they get the end to ring at.
//
// This is a socket pair, not an eventfd. Two processes that share an eventfd share its O_NONBLOCK: either can clear it
// and so make the other block in write() or read(). Here each call says that it must not block (MSG_DONTWAIT).
//
// The owner's own wakes use the end that peers have too. A peer that shuts it down (shutdown()) disables all rings, the
// owner's own included, for as long as the doorbell lives: each sleep then lasts until another descriptor is ready, or
// to its bound.
//
// Any thread.
#pragma once

#include "transport/base/file_descriptor.h"
#include "transport/base/status.h"

namespace gloo_bypass {

class Doorbell {
 public:
  Doorbell();
  // The constructor rings and listens once: a call that a sandbox refuses fails here, not later as a ring that no one
  // hears. Errors name the call: kExhausted, kUnavailable.
  const Status& made() const { return made_; }

  // For poll(): readable after a ring.
  int heardAt() const { return heard_.get(); }
  // For other processes. Each of them can also keep the others from being heard: bound every sleep.
  int rungAt() const { return rung_.get(); }
  void ring() const { ring(rung_.get()); }
  // Drops the rings that are waiting, since each would end one more sleep at once. At most 16, since a peer may go on
  // ringing.
  void quiet() const;

  // Rings another process's doorbell.
  static void ring(int descriptor);
  // Whether a descriptor from another process is a doorbell, so that ring() cannot block.
  static bool isOne(int descriptor);

 private:
  FileDescriptor heard_, rung_;
  Status made_;
};

}  // namespace gloo_bypass
