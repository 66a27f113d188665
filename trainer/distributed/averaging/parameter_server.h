// The central rank of asynchronous SGD: holds the parameters and their optimiser, and counts each rank's steps.
//
// Every gradient is applied as it comes, in a step of AdamW of its own (Dean et al., Large Scale Distributed Deep
// Networks, 2012, section 4.1). It was computed from parameters that have been updated since: its staleness is how
// often. Two ways to keep that in bounds: a rank that is more than `bound` steps ahead of the slowest waits for it (Ho
// et al., Stale Synchronous Parallel, 2013, section 3), and a stale gradient's rate may fall with its staleness. Any
// thread may push, each on behalf of one rank.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trainer/config/options.h"
#include "trainer/optimizer/optimizer.h"

namespace gloo_bypass::trainer {

// What a gradient's rate is multiplied by: 1 / staleness (Zhang et al., Staleness-aware Async-SGD, 2016, equation 6),
// or exp(-0.1 staleness) (as Chan and Lane, Distributed Asynchronous Optimization of Convolutional Neural Networks,
// 2014).
double penaltyOf(StalenessPenalty penalty, int64_t staleness);

class ParameterServer {
 public:
  // Owns the optimiser and updates its parameters; `updates` have been made before. No wait takes longer than
  // `patience`.
  ParameterServer(std::unique_ptr<AdamW> optimizer, int worldSize, int64_t updates, const AveragingOptions& options,
                  std::chrono::duration<double> patience);

  struct Answer {
    at::Tensor parameters;       // (n): a copy
    int64_t version = 0;         // updates that are in them
    int64_t update = 0;          // the number of this one, from 1
    int64_t staleness = 0;       // updates between the parameters that the gradient is of and this one
    double withheldSeconds = 0;  // waited for slower ranks
  };
  // A step of `rank`: applies its gradient (n), of the parameters of `version`, and returns when the rank may begin its
  // next step. Throws ProgramError for a version that never was and for ranks that do not come within the patience, and
  // fail()'s reason.
  Answer push(int rank, const at::Tensor& gradient, int64_t version, double rate);

  // Whether all ranks have made as many steps as `rank`, after waiting for at most `limit`. Throws ProgramError where
  // none has made one within the patience, and fail()'s reason.
  bool awaitOthers(int rank, std::chrono::duration<double> limit);

  // Every push() and awaitOthers() that waits or begins from now on throws this.
  void fail(std::exception_ptr reason);

  // Between pushes only.
  const AdamW& optimizer() const { return *optimizer_; }
  int64_t version() const { return version_; }

 private:
  void waitForSlowest(std::unique_lock<std::mutex>& lock, int rank);
  [[noreturn]] void throwStandstill(int rank) const;

  const std::unique_ptr<AdamW> optimizer_;
  const AveragingOptions options_;
  const std::chrono::duration<double> patience_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<int64_t> steps_;                                                         // by rank
  std::chrono::steady_clock::time_point lastStep_ = std::chrono::steady_clock::now();  // of any
  int64_t version_;
  std::exception_ptr failure_;
};

}  // namespace gloo_bypass::trainer
