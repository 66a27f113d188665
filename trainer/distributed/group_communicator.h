// One rank of several: rendezvous and c10d's process group.
//
// The group is PyTorch's own ProcessGroupGloo or, with --collectives own, our collectives (process_groups.h).
// GLOO_DEVICE_TRANSPORT and GLOO_SOCKET_IFNAME mean what they mean in Python. The group takes timestamps of the
// gradients' all-reduces and reduce-scatters. The owner calls from one thread; the group's threads only stamp times.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "trainer/config/options.h"
#include "trainer/distributed/communicator.h"
#include "trainer/distributed/rank_environment.h"

namespace c10d {
class ProcessGroup;
}

namespace gloo_bypass::trainer {

// A tensor on its way between two ranks. Another thread than the waiting one may give it up.
class Transfer {
 public:
  virtual ~Transfer() = default;
  // False: given up. Throws where the other rank is gone or took longer than --timeout.
  virtual bool wait() = 0;
  virtual void giveUp() = 0;
};

// Makes sure that c10d's registry knows the transport that GLOO_DEVICE_TRANSPORT names, loading the plug-in when
// it does not; returns the transport's name ("TCP" when the variable is unset). Throws ProgramError, also where the
// options' collectives do not go over it, and never falls back to another transport. Loading twice is harmless.
std::string prepareTransport(const Options& options);

class GroupCommunicator final : public Communicator {
 public:
  // Meets the other ranks and connects to them. Throws ProgramError when they do not come in time, disagree on
  // world size or `agreement`, or the port is taken. The options' two timeouts bound all waits.
  GroupCommunicator(const RankEnvironment& environment, const Options& options, const nlohmann::json& agreement);
  ~GroupCommunicator() override;
  // These ranks, this one among them, as a group of their own, in which they count from 0 in this order. All of them
  // must call it, and no two groups of a run have the same ranks. This group counts the bytes of both and times their
  // gradients; the new one counts none. Throws as the constructor does.
  std::unique_ptr<GroupCommunicator> subgroup(const std::vector<int>& ranks);

  int rank() const override;
  int worldSize() const override;
  std::string transport() const override { return transport_; }
  std::string collectives() const override;
  c10d::ProcessGroup& processGroup();

  void barrier() override;
  double meanOverRanks(double value) override;
  std::vector<std::string> gather(const std::string& value) override;
  void broadcast(const std::vector<at::Tensor>& tensors) override;

  // For a replacement of the reducer's all-reduce, from one thread at a time beside the owner's. They belong to no
  // window.
  void sum(at::Tensor& tensor) override;
  // Contiguous, of the same size and dtype at all ranks: the root's values.
  void broadcast(at::Tensor& tensor, int root);
  // Tensors of bytes of the same length at all ranks; by rank.
  std::vector<at::Tensor> gather(const at::Tensor& bytes);
  void send(const at::Tensor& tensor, int rank) override;
  void receive(const at::Tensor& tensor, int rank) override;
  // The same without waiting; any number of threads. The tensor must stay until it is waited for or given up.
  std::unique_ptr<Transfer> startSend(const at::Tensor& tensor, int rank);
  std::unique_ptr<Transfer> startReceive(at::Tensor& tensor, int rank);
  // Sends one tensor to some ranks and hears from others, at once: heard[i] from receiveFrom[i].
  void exchange(const at::Tensor& own, const std::vector<int>& sendTo, std::vector<at::Tensor>& heard,
                const std::vector<int>& receiveFrom);
  // Call around a replacement for a bucket's all-reduce, so that it is timed.
  BucketTicket bucketHandedOver(int64_t bytes);
  void bucketDone(const BucketTicket& ticket);

  void beginWindow(uint64_t step, int64_t gradientBytes) override;
  AllReduceWindow endWindow() override;
  void recordBuckets() override;
  void addSummary(nlohmann::json& record) const override;

  std::optional<ByteCounts> byteCounts() override { return byteCounter_ ? byteCounter_->read() : std::nullopt; }
  const char* byteSource() const override { return byteCounter_ ? byteCounter_->source() : "none"; }
  void requireBytesOverTransport() const override;

 private:
  struct Group;  // keeps c10d's headers out of this one

  GroupCommunicator(const GroupCommunicator& all, const std::vector<int>& ranks);
  // Over the group's store.
  void connect(int rank, int worldSize);
  void countBytes();

  const std::string transport_;
  const Collectives collectives_;
  const std::chrono::milliseconds timeout_;
  const size_t segmentBytes_;
  std::unique_ptr<Group> group_;
  std::unique_ptr<ByteCounter> byteCounter_;
};

}  // namespace gloo_bypass::trainer
