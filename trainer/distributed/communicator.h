// Rendezvous and the process group of one rank.
//
// The process group is PyTorch's own ProcessGroupGloo on the device that c10d's registry makes, so that
// GLOO_DEVICE_TRANSPORT and GLOO_SOCKET_IFNAME mean what they mean in Python. It is derived from only to take
// timestamps of the gradient all-reduces and, when asked, to hand Gloo another segment size than c10d does.
// The owner calls from one thread; the group's worker threads call back into the timer only.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "trainer/config/options.h"
#include "trainer/distributed/rank_environment.h"
#include "trainer/metrics/byte_counter.h"
#include "trainer/metrics/step_markers.h"

namespace at {
class Tensor;
}

namespace c10d {
class ProcessGroup;
}

namespace gloo_bypass::trainer {

struct BucketTimes {
  std::chrono::steady_clock::time_point handedOver, done;
  // When a thread of the process group began its ring, which sends at once; none for what is no all-reduce of the
  // reducer's.
  std::optional<std::chrono::steady_clock::time_point> begun;
  int64_t bytes = 0;
};

// The all-reduces between two beginWindow() calls. All zero when there were none.
struct AllReduceWindow {
  std::chrono::steady_clock::time_point firstHandedOver, lastHandedOver, lastDone;
  int64_t buckets = 0;
  int64_t bytes = 0;              // of gradients handed over
  std::vector<BucketTimes> each;  // in the order of handing over; empty without recordBuckets()
};

// A tensor on its way between two ranks, which another thread than the waiting one may give up.
class Transfer {
 public:
  virtual ~Transfer() = default;
  // False: given up. Throws where the other rank is gone or took longer than --timeout.
  virtual bool wait() = 0;
  virtual void giveUp() = 0;
};

// A bucket's number in its window; none where no window was open.
using BucketTicket = std::optional<size_t>;

// Makes sure that c10d's registry knows the transport that GLOO_DEVICE_TRANSPORT names, loading the plug-in when
// it does not; returns the transport's name ("TCP" when the variable is unset). Throws ProgramError, never falls
// back to another transport. Loading twice is harmless.
std::string prepareTransport(const Options& options);

class Communicator {
 public:
  // Meets the other ranks and connects to them. Throws ProgramError when they do not come in time, disagree on
  // world size or options, or the port is taken. All waits are bounded by the options' two timeouts.
  Communicator(const RankEnvironment& environment, const Options& options, const nlohmann::json& trajectory);
  ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  int rank() const;
  int worldSize() const;
  const std::string& transport() const { return transport_; }
  c10d::ProcessGroup& processGroup();

  void barrier();
  double meanOverRanks(double value);
  // Every rank's value, by rank; all must have the same length.
  std::vector<std::string> gather(const std::string& value);

  // For what takes the place of the reducer's all-reduce; they belong to no window. Any one thread beside the owner's.
  // Sums in place; (n), uint8, of the same length at all ranks: by rank.
  void sum(at::Tensor& tensor);
  // Contiguous, of the same size and dtype at all ranks: the root's values.
  void broadcast(at::Tensor& tensor, int root);
  std::vector<at::Tensor> gather(const at::Tensor& bytes);
  // Waits until it is sent, or here. Of contiguous tensors, of the same size and dtype at both ends.
  void send(const at::Tensor& tensor, int rank);
  void receive(at::Tensor& tensor, int rank);
  // The same without waiting; any number of threads. The tensor must be there until it is waited for or forgotten.
  std::unique_ptr<Transfer> startSend(const at::Tensor& tensor, int rank);
  std::unique_ptr<Transfer> startReceive(at::Tensor& tensor, int rank);
  // Sends one tensor to some and hears from others, at once: heard[i] from receiveFrom[i].
  void exchange(const at::Tensor& own, const std::vector<int>& sendTo, std::vector<at::Tensor>& heard,
                const std::vector<int>& receiveFrom);
  // Around what takes the place of a bucket's all-reduce: the bucket is the window's as if it were all-reduced.
  BucketTicket bucketHandedOver(int64_t bytes);
  void bucketDone(const BucketTicket& ticket);

  // `step` 0: of no step, never marked. `gradientBytes`: what all buckets of a step hold together, by which the last
  // one is known.
  void beginWindow(uint64_t step, int64_t gradientBytes);
  // Call after backward returned: every all-reduce has completed then, its timestamp may be microseconds away.
  AllReduceWindow endWindow();

  // From the next window on, windows say when each bucket was handed over and done.
  void recordBuckets();

  // Null unless this rank marks steps. To be looked at between windows.
  const StepMarkers* stepMarkers() const;

  ByteCounter& byteCounter() { return *byteCounter_; }
  // Throws ProgramError unless bytes went over the transport named, and none over another one, as the plug-in counts.
  void requireBytesOverTransport() const;

 private:
  struct Group;  // keeps c10d's headers out of this one
  std::string transport_;
  std::unique_ptr<Group> group_;
  std::unique_ptr<ByteCounter> byteCounter_;
};

}  // namespace gloo_bypass::trainer
