// Ends the sleep of a thread that waits for descriptors, from other processes too: they are given the end to ring at.
//
// A pair of sockets and no eventfd: what two processes share has one O_NONBLOCK, which each can take back, and then
// wait in write() or read() for as long as the other likes. Here each call says by itself that it does not wait
// (MSG_DONTWAIT).
//
// The owner's own wakes go through the end that is given away too. A peer that shuts it down (shutdown()) ends all
// rings, the owner's own included, for as long as the doorbell lives: each sleep then lasts until a descriptor beside
// it is ready, or to its bound.
//
// Any thread.
#pragma once

#include "transport/base/file_descriptor.h"
#include "transport/base/status.h"

namespace gloo_bypass {

class Doorbell {
 public:
  Doorbell();
  // Rings and listens once: a call that a sandbox refuses fails here, and not as a ring that nobody hears. Errors name
  // the call: kExhausted, kUnavailable.
  const Status& made() const { return made_; }

  // To poll: readable once somebody has rung.
  int heardAt() const { return heard_.get(); }
  // To give away. Whoever has it can also keep others from being heard; who sleeps must not do so without a bound.
  int rungAt() const { return rung_.get(); }
  void ring() const { ring(rung_.get()); }
  // Silences what was rung: each ring that was left would end one more sleep at once. At most 16 rings, since a peer
  // may go on ringing.
  void quiet() const;

  // Another process's.
  static void ring(int descriptor);
  // Whether a descriptor from another process is one, so that ring() cannot wait.
  static bool isOne(int descriptor);

 private:
  FileDescriptor heard_, rung_;
  Status made_;
};

}  // namespace gloo_bypass
