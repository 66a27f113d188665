// c10d's Reducer, which DistributedDataParallel drives.
//
// Debian 12's package lacks a header that it includes: stand_in/ declares what it needs from there.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <vector>

#include <torch/csrc/distributed/c10d/reducer.hpp>

namespace gloo_bypass::torch_version {

struct ReducerOptions {
  std::vector<std::vector<size_t>> buckets;
  std::vector<size_t> bucketLimits;  // in bytes, one a bucket
  int64_t bucketCapBytes = 0;
  int64_t firstBucketBytes = 0;
  bool gradientAsBucketView = false;
  bool findUnusedParameters = false;
  std::unordered_map<size_t, std::string> parameterNames;
};

// All gradients are dense. In PyTorch 1.13 and 2.6 the constructor takes the buckets' limits.
// In 2.14 it takes none, and three more arguments: skip unused parameters, Python reducer, caps for rebuilding (none:
// by the two caps).
template <typename Reducer = c10d::Reducer>
std::unique_ptr<Reducer> makeReducer(const std::vector<at::Tensor>& parameters,
                                     const c10::intrusive_ptr<c10d::ProcessGroup>& group, ReducerOptions options) {
  using Buckets = std::vector<std::vector<size_t>>;
  using Names = std::unordered_map<size_t, std::string>;
  using Group = c10::intrusive_ptr<c10d::ProcessGroup>;
  const std::vector<bool> sparse(parameters.size(), false);
  if constexpr (std::is_constructible_v<Reducer, std::vector<at::Tensor>, Buckets, std::vector<size_t>, Group,
                                        std::vector<bool>, int64_t, bool, bool, Names, int64_t>) {
    return std::make_unique<Reducer>(parameters, std::move(options.buckets), std::move(options.bucketLimits), group,
                                     sparse, options.bucketCapBytes, options.findUnusedParameters,
                                     options.gradientAsBucketView, std::move(options.parameterNames),
                                     options.firstBucketBytes);
  } else {
    constexpr bool kSkipUnused = false, kPythonReducer = false;
    return std::make_unique<Reducer>(parameters, std::move(options.buckets), group, sparse, options.bucketCapBytes,
                                     options.findUnusedParameters, options.gradientAsBucketView,
                                     std::move(options.parameterNames), options.firstBucketBytes, kSkipUnused,
                                     kPythonReducer, std::vector<int64_t>{});
  }
}

}  // namespace gloo_bypass::torch_version
