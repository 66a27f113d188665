// The ranks of a run, and what every run exchanges between them, whatever the method.
//
// This class is a rank alone (--no-ddp): its exchanges end at once, with its own values. GroupCommunicator
// (group_communicator.h) is one rank of several. Collectives must be called by every rank, in the same order. The
// owner calls from one thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>
#include <nlohmann/json_fwd.hpp>

#include "trainer/distributed/all_reduce_window.h"
#include "trainer/metrics/byte_counter.h"

namespace gloo_bypass::trainer {

class Communicator {
 public:
  Communicator() = default;
  virtual ~Communicator() = default;
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  virtual int rank() const { return 0; }
  virtual int worldSize() const { return 1; }
  bool isRoot() const { return rank() == 0; }
  // As GLOO_DEVICE_TRANSPORT names it; "none" for a rank alone.
  virtual std::string transport() const { return "none"; }
  // Who runs them, as --collectives names it; "none" for a rank alone.
  virtual std::string collectives() const { return "none"; }

  virtual void barrier() {}
  virtual double meanOverRanks(double value) { return value; }
  // Every rank's value, by rank; all must have the same length.
  virtual std::vector<std::string> gather(const std::string& value) { return {value}; }
  // Adds up over the ranks, in place.
  virtual void sum(at::Tensor& /*tensor*/) {}
  // Rank 0's values to all ranks, in messages of at most 250 MiB, as DDP broadcasts.
  virtual void broadcast(const std::vector<at::Tensor>& /*tensors*/) {}
  // Returns when the tensor is sent, or here. Contiguous tensors, of the same size and dtype at both ends. A rank alone
  // has nobody to call them for.
  virtual void send(const at::Tensor& /*tensor*/, int /*rank*/) {}
  virtual void receive(const at::Tensor& /*tensor*/, int /*rank*/) {}

  // Times the gradients' all-reduces from here to endWindow(). `step` 0: belongs to no step, never marked.
  // `gradientBytes`: of all buckets of a step together, by which the last one is known.
  virtual void beginWindow(uint64_t /*step*/, int64_t /*gradientBytes*/) {}
  // Call after backward has returned: every all-reduce has completed then, its timestamp may be microseconds away.
  virtual AllReduceWindow endWindow() { return {}; }
  // From the next window on, windows say when each bucket was handed over and done.
  virtual void recordBuckets() {}
  // Of the run, between windows: "step_markers" where this rank sent some.
  virtual void addSummary(nlohmann::json& /*record*/) const {}

  // Since the ranks connected; nothing where nobody counts.
  virtual std::optional<ByteCounts> byteCounts() { return std::nullopt; }
  virtual const char* byteSource() const { return "none"; }
  // Throws ProgramError unless bytes went over the transport named, and none over another one, as the plug-in counts.
  virtual void requireBytesOverTransport() const {}
};

}  // namespace gloo_bypass::trainer
