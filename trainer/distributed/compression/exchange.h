// c10d's communication hook: buckets go through a compressor instead of the all-reduce, while backward goes on.
//
// The reducer hands a bucket over on autograd's thread as soon as its gradients are ready. Threads of its own compress
// and exchange it: one bucket is compressed while another is on the wire. The reducer fills buckets in the same order
// at all ranks, and their collectives follow each other in that order, which a chain of callbacks would not promise.
// Errors of a collective reach the reducer, and with it backward().
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

// Of one rank in one step.
struct CompressionCost {
  int64_t sentBytes = 0;  // handed to the process group
  // Of all buckets; two may be at work at the same time.
  double compressSeconds = 0, decompressSeconds = 0;

  CompressionCost& operator+=(const CompressionCost& other) {
    sentBytes += other.sentBytes;
    compressSeconds += other.compressSeconds;
    decompressSeconds += other.decompressSeconds;
    return *this;
  }
};

class CompressedExchange {
 public:
  // Registers the hook. The reducer must have no other, and end before this object does; model and communicator outlive
  // both.
  // Before step `plainSteps` gradients are summed as they are. `mayUndo`: undoStep() may be called; takes as much
  // memory as state() does.
  CompressedExchange(std::unique_ptr<Compressor> compressor, int64_t plainSteps, bool mayUndo, const Gpt2& model,
                     GroupCommunicator& communicator, c10d::Reducer& reducer);
  ~CompressedExchange();
  CompressedExchange(const CompressedExchange&) = delete;
  CompressedExchange& operator=(const CompressedExchange&) = delete;

  // At a step's begin; from 0. Training thread, no bucket being exchanged: as of all below.
  void beginStep(int64_t step);
  // Before the backward that synchronises.
  void beginBackward();
  // Since beginStep().
  CompressionCost cost() const;
  RankState state() const;
  // The step is left out: what the compressor keeps is as beginBackward() found it.
  void undoStep();
  // Compressor's.
  void scaleOwed(double factor);

 private:
  class Worker;
  std::shared_ptr<Worker> worker_;
};

}  // namespace gloo_bypass::trainer
