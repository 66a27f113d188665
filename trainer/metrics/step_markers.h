// Sends the two datagrams that mark a step's all-reduce in captures (transport/wire/step_marker.h).
//
// One socket a step, bound to the step's source port. Sending never waits: what cannot be sent is counted, and training
// goes on. Any thread, one at a time: the owner serialises the calls.
#pragma once

#include <netinet/in.h>
#include <cstdint>
#include <string>

#include <nlohmann/json_fwd.hpp>

#include "transport/base/file_descriptor.h"

namespace gloo_bypass::trainer {

class StepMarkers {
 public:
  // Throws ProgramError where the address is wrong or no route leads there.
  explicit StepMarkers(std::string address);

  // Before a step: what can fail and take time.
  void prepare(uint64_t step);
  void sendFirst() { send(false); }
  void sendLast() { send(true); }

  uint64_t failed() const { return failed_; }
  // {"sent", "failed", "last_error"}
  nlohmann::json toJson() const;
  const std::string& lastError() const { return lastError_; }
  // A line on stderr where some were not sent.
  void complainOfFailures() const;

 private:
  void send(bool last);
  void fail(const char* what, int error);

  std::string address_;
  sockaddr_in destination_;
  FileDescriptor socket_;
  uint64_t step_ = 0, sent_ = 0, failed_ = 0;
  std::string lastError_;
};

}  // namespace gloo_bypass::trainer
