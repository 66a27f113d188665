// When a bucket's gradients became ready.
//
// c10d does not say which parameters a bucket holds, but how it cuts them: consecutive pieces of one list, handed over
// in the list's order. In the first backward that synchronises the list is the parameters, last registered first; after
// that one (of a static graph after the second) it is the order in which gradients became ready in it (reducer.cpp,
// rebuild_buckets; autograd's order on a CPU is the graph's, the same on all ranks). Pieces are found by their bytes;
// where they do not fit, nothing is said. One thread at a time.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace gloo_bypass::trainer {

class BucketReadiness {
 public:
  using Time = std::chrono::steady_clock::time_point;
  struct Interval {
    Time first, last;  // gradients of the bucket
  };

  // Bytes of each parameter's gradient, in the order of registration. After which backward buckets are cut anew; 0:
  // never.
  explicit BucketReadiness(std::vector<int64_t> parameterBytes, int64_t rebuiltAfter = 1);

  // Of a parameter, in a backward; the last time counts.
  void gradientReady(size_t parameter, Time when) { ready_[parameter] = when; }

  // After a backward that synchronised: the interval of each bucket, in the order in which buckets were handed over.
  // Empty where the bytes do not cut the list, or a gradient was not ready.
  std::optional<std::vector<Interval>> ofBuckets(const std::vector<int64_t>& bucketBytes);

 private:
  std::optional<std::vector<Interval>> cut(const std::vector<int64_t>& bucketBytes) const;

  std::vector<int64_t> parameterBytes_;
  std::vector<std::optional<Time>> ready_;  // by parameter
  std::vector<size_t> order_;               // of parameters, as buckets are cut from it
  int64_t rebuiltAfter_, backwards_ = 0;
};

}  // namespace gloo_bypass::trainer
