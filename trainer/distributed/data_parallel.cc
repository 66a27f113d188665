#include "trainer/distributed/data_parallel.h"

#include <algorithm>
#include <optional>
#include <tuple>
#include <utility>

#include <ATen/ATen.h>
#include <torch/csrc/autograd/engine.h>
#include <nlohmann/json.hpp>
#include <torch/csrc/distributed/c10d/logger.hpp>

#include "plugin/compatibility/torch/reducer.h"
#include "trainer/distributed/compression/exchange.h"
#include "trainer/distributed/compression/gathered_sums.h"

namespace gloo_bypass::trainer {
namespace {

constexpr double kMebibyte = 1 << 20;

c10::intrusive_ptr<c10d::ProcessGroup> share(GroupCommunicator& communicator) {
  return c10::intrusive_ptr<c10d::ProcessGroup>::reclaim_copy(&communicator.processGroup());
}

}  // namespace

struct DataParallel::Torch {
  std::optional<CompressedExchange> exchange;  // in place of all-reduces; ends after the reducer
  std::shared_ptr<c10d::Reducer> reducer;
  std::shared_ptr<c10d::Logger> logger;  // the reducer calls it, unchecked, where parameters are unused
  bool compresses = false, findsUnused = false;
  int64_t rebuildsAfter = 1;          // backwards that synchronise
  bool isFirstOfStaticGraph = false;  // the next one of them
  int64_t gradientBytes = 0;
};

DataParallel::DataParallel(const Gpt2& model, AdamW& optimizer, GroupCommunicator& communicator, const Options& options)
    : Parallelism(optimizer), torch_(std::make_unique<Torch>()) {
  std::vector<at::Tensor> parameters;
  torch_version::ReducerOptions reducer;
  for (const auto& [name, parameter] : model.named()) {
    if (parameter.numel() > 0) {  // else another rank's, of a pipeline
      reducer.parameterNames[parameters.size()] = name;
      parameters.push_back(parameter);
      torch_->gradientBytes += static_cast<int64_t>(parameter.nbytes());
    }
  }
  c10d::verify_params_across_processes(share(communicator), parameters, {});
  communicator.broadcast(parameters);
  communicator.broadcast(optimizer.masters());

  const auto first = static_cast<size_t>(options.firstBucketMb * kMebibyte);
  const auto cap = static_cast<size_t>(options.bucketCapMb * kMebibyte);
  const std::vector<bool> sparse(parameters.size(), false);
  std::tie(reducer.buckets, reducer.bucketLimits) =
      c10d::compute_bucket_assignment_by_size(parameters, {first, cap}, sparse);
  // Backward finishes the last parameters first.
  std::reverse(reducer.buckets.begin(), reducer.buckets.end());
  std::reverse(reducer.bucketLimits.begin(), reducer.bucketLimits.end());
  reducer.bucketCapBytes = static_cast<int64_t>(cap);
  reducer.firstBucketBytes = static_cast<int64_t>(first);
  reducer.gradientAsBucketView = options.gradientAsBucketView;
  reducer.findUnusedParameters = torch_->findsUnused = options.findUnusedParameters;
  torch_->rebuildsAfter = options.rebuildsBucketsAfter();
  torch_->reducer = torch_version::makeReducer(parameters, share(communicator), std::move(reducer));
  torch_->logger = std::make_shared<c10d::Logger>(torch_->reducer);
  torch_->reducer->set_logger(torch_->logger);
  if (options.staticGraph) {
    torch_->reducer->set_static_graph();
    torch_->isFirstOfStaticGraph = true;
  }
  torch_->compresses = options.compression.isUsed();
  if (torch_->compresses) {
    torch_->exchange.emplace(makeCompressor(options.compression, model.named(), options.seed),
                             options.compression.plainSteps(), options.precision.isScaled(), model, communicator,
                             *torch_->reducer);
  } else if (options.sums != Sums::kReduced) {
    torch_->exchange.emplace(std::make_unique<GatheredSums>(options.sums == Sums::kCompensated), 0, /*mayUndo=*/false,
                             model, communicator, *torch_->reducer);
  }
}

DataParallel::~DataParallel() = default;

// c10d cuts its buckets anew when it has seen in which order gradients become ready: in the first backward, of a static
// graph in the second, never where it looks for unused parameters.
int64_t DataParallel::learningBackwards() const { return torch_->rebuildsAfter; }

void DataParallel::beforeForward(bool synchronise) {
  if (synchronise) {
    torch_->reducer->prepare_for_forward();
  }
  // After the first synchronised backward: buckets in the order in which gradients really became ready.
  torch_->reducer->rebuild_buckets();
}

void DataParallel::beforeBackward(bool synchronise, const at::Tensor& loss) {
  if (!synchronise) {
    return;
  }
  if (torch_->exchange) {
    torch_->exchange->beginBackward();
  }
  torch_->reducer->prepare_for_backward(torch_->findsUnused ? std::vector{loss} : std::vector<at::Tensor>());
  if (std::exchange(torch_->isFirstOfStaticGraph, false)) {
    // The reducer learns from this backward which parameters are used, and reduces all when it has ended.
    loss.register_hook([this](const at::Tensor&) {
      torch::autograd::Engine::get_default_engine().queue_callback([this] { torch_->reducer->delay_all_reduce(); });
    });
  }
}

void DataParallel::beginStep(int64_t step) {
  if (torch_->exchange) {
    torch_->exchange->beginStep(step);
  }
}

void DataParallel::updateParameters() {
  const double scale = optimizer_.lossScale();
  Parallelism::updateParameters();
  if (!torch_->compresses) {
    return;
  }
  if (optimizer_.stepsLeftOut() > 0) {
    torch_->exchange->undoStep();
  }
  if (optimizer_.lossScale() != scale) {
    torch_->exchange->scaleOwed(optimizer_.lossScale() / scale);
  }
}

void DataParallel::addMetrics(nlohmann::json& record) const {
  if (torch_->compresses) {
    const CompressionCost cost = torch_->exchange->cost();
    record["compressed_bytes"] = cost.sentBytes;
    record["compression_ratio"] = static_cast<double>(torch_->gradientBytes) / static_cast<double>(cost.sentBytes);
    record["t_compress_s"] = cost.compressSeconds;
    record["t_decompress_s"] = cost.decompressSeconds;
  }
}

RankState DataParallel::rankState() const { return torch_->exchange ? torch_->exchange->state() : RankState(); }

}  // namespace gloo_bypass::trainer
