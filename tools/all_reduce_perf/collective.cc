#include "tools/all_reduce_perf/collective.h"

#include <algorithm>
#include <array>
#include <vector>

#include <gloo/allreduce.h>
#include <gloo/allreduce_halving_doubling.h>
#include <gloo/allreduce_ring_chunked.h>
#include <gloo/math.h>

#include "tools/all_reduce_perf/check_pattern.h"
#include "tools/common/error.h"

namespace gloo_bypass {
namespace {

using ReduceFunction = void (*)(void*, const void*, const void*, std::size_t);

// In the order of ReduceOp.
template <typename T>
ReduceFunction reduceFunction(ReduceOp op) {
  constexpr ReduceFunction kFunctions[] = {&::gloo::sum<T>, &::gloo::product<T>, &::gloo::min<T>, &::gloo::max<T>};
  return kFunctions[static_cast<std::size_t>(op)];
}

template <typename T>
const ::gloo::ReductionFunction<T>* boundFunction(ReduceOp op) {
  using Functions = ::gloo::ReductionFunction<T>;
  return std::array{Functions::sum, Functions::product, Functions::min, Functions::max}[static_cast<std::size_t>(op)];
}

template <typename T>
class UnboundAllReduce : public Collective {
 public:
  UnboundAllReduce(const CollectiveOptions& options, std::shared_ptr<::gloo::Context> context, std::uint32_t* nextTag,
                   T* data, std::size_t count)
      : options_(options), context_(std::move(context)), nextTag_(nextTag), data_(data), count_(count) {}

  void run() override {
    ::gloo::AllreduceOptions call(context_);
    call.setReduceFunction(reduceFunction<T>(options_.reduceOp));
    call.setTag((*nextTag_)++);
    call.setTimeout(options_.timeout);
    using Algorithm = ::gloo::AllreduceOptions::Algorithm;
    call.setAlgorithm(options_.algorithm == AllReduceAlgorithm::kBcube ? Algorithm::BCUBE : Algorithm::RING);
    if (options_.segmentBytes != 0) call.setMaxSegmentSize(options_.segmentBytes);
    call.setOutputs(std::vector<T*>{data_}, count_);
    ::gloo::allreduce(call);
  }

 private:
  CollectiveOptions options_;
  std::shared_ptr<::gloo::Context> context_;
  std::uint32_t* nextTag_;
  T* data_;
  std::size_t count_;
};

class BoundAllReduce : public Collective {
 public:
  explicit BoundAllReduce(std::unique_ptr<::gloo::Algorithm> algorithm) : algorithm_(std::move(algorithm)) {}
  void run() override { algorithm_->run(); }

 private:
  std::unique_ptr<::gloo::Algorithm> algorithm_;
};

// Calls body with a null pointer of the element's type.
template <typename Body>
auto withType(DataType type, Body body) {
  switch (type) {
    case DataType::kInt8:
      return body(static_cast<std::int8_t*>(nullptr));
    case DataType::kUint8:
      return body(static_cast<std::uint8_t*>(nullptr));
    case DataType::kInt32:
      return body(static_cast<std::int32_t*>(nullptr));
    case DataType::kInt64:
      return body(static_cast<std::int64_t*>(nullptr));
    case DataType::kHalf:
      return body(static_cast<::gloo::float16*>(nullptr));
    case DataType::kFloat:
      return body(static_cast<float*>(nullptr));
    case DataType::kDouble:
      return body(static_cast<double*>(nullptr));
  }
  throw ProgramError("no such element type");
}

}  // namespace

std::unique_ptr<Collective> makeCollective(const CollectiveOptions& options,
                                           const std::shared_ptr<::gloo::Context>& context, std::uint32_t* nextTag,
                                           void* data, std::size_t count) {
  return withType(options.dataType, [&]<typename T>(T*) -> std::unique_ptr<Collective> {
    T* elements = static_cast<T*>(data);
    const std::vector<T*> pointers{elements};
    const auto* function = boundFunction<T>(options.reduceOp);
    switch (options.algorithm) {
      case AllReduceAlgorithm::kHalvingDoubling:
        return std::make_unique<BoundAllReduce>(std::make_unique<::gloo::AllreduceHalvingDoubling<T>>(
            context, pointers, static_cast<int>(count), function));
      case AllReduceAlgorithm::kRingChunked:
        return std::make_unique<BoundAllReduce>(
            std::make_unique<::gloo::AllreduceRingChunked<T>>(context, pointers, static_cast<int>(count), function));
      case AllReduceAlgorithm::kRing:
      case AllReduceAlgorithm::kBcube:
        break;
    }
    return std::make_unique<UnboundAllReduce<T>>(options, context, nextTag, elements, count);
  });
}

void fillFixedPoint(const CollectiveOptions& options, void* data, std::size_t count) {
  const int value = options.reduceOp == ReduceOp::kSum ? 0 : 1;
  withType(options.dataType, [&]<typename T>(T*) { std::fill_n(static_cast<T*>(data), count, toElement<T>(value)); });
}

void fillCheck(const CollectiveOptions& options, void* data, std::size_t count, int rank, int ranks,
               std::uint64_t iteration) {
  const CheckPattern pattern(options.reduceOp, ranks, iteration);
  withType(options.dataType,
           [&]<typename T>(T*) { fillPattern(std::span<T>(static_cast<T*>(data), count), pattern, rank); });
}

std::uint64_t countWrong(const CollectiveOptions& options, const void* data, std::size_t count, int ranks,
                         std::uint64_t iteration) {
  const CheckPattern pattern(options.reduceOp, ranks, iteration);
  return withType(options.dataType, [&]<typename T>(T*) {
    return countWrong(std::span<const T>(static_cast<const T*>(data), count), pattern);
  });
}

}  // namespace gloo_bypass
