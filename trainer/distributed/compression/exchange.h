// c10d's communication hook: buckets go through a compressor instead of the all-reduce, while backward goes on.
//
// The reducer hands a bucket over on autograd's thread as soon as its gradients are ready. A thread of its own
// compresses and exchanges one bucket after the other: the reducer fills them in the same order at all ranks, and so
// their collectives come in the same order, which a chain of callbacks would not promise. Errors of a collective reach
// the reducer, and with it backward().
#pragma once

#include <cstdint>
#include <memory>

#include "trainer/distributed/compression/compressor.h"
#include "trainer/distributed/group_communicator.h"
#include "trainer/model/gpt2.h"

namespace c10d {
class Reducer;
}

namespace gloo_bypass::trainer {

class CompressedExchange {
 public:
  // Registers the hook. The reducer must have no other, and end before this object does; model and communicator outlive
  // both.
  CompressedExchange(const CompressionOptions& options, const Gpt2& model, GroupCommunicator& communicator,
                     uint64_t seed, c10d::Reducer& reducer);
  ~CompressedExchange();
  CompressedExchange(const CompressedExchange&) = delete;
  CompressedExchange& operator=(const CompressedExchange&) = delete;

  // Before the backward that synchronises; from 0. Training thread, no bucket being exchanged: as of all below.
  void beginStep(int64_t step);
  // Of this rank, handed to the process group since beginStep().
  int64_t sentBytes() const;
  RankState state() const;

 private:
  class Worker;
  std::shared_ptr<Worker> worker_;
};

}  // namespace gloo_bypass::trainer
