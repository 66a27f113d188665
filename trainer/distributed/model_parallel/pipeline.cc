#include "trainer/distributed/model_parallel/pipeline.h"

#include <algorithm>
#include <utility>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include "trainer/distributed/model_parallel/graph_step.h"

namespace gloo_bypass::trainer {

std::vector<Pass> pipelinePasses(ModelParallelism method, int rank, int ranks, int64_t microBatches) {
  const int64_t ahead =
      method == ModelParallelism::kGpipe ? microBatches : std::min<int64_t>(ranks - 1 - rank, microBatches);
  std::vector<Pass> passes;
  for (int64_t forward = 0; forward < microBatches + ahead; ++forward) {
    if (forward < microBatches) {
      passes.push_back({Pass::Kind::kForward, forward});
    }
    if (forward >= ahead) {
      passes.push_back({Pass::Kind::kBackward, forward - ahead});
    }
  }
  return passes;
}

Pipeline::Pipeline(Gpt2& model, const Gpt2* whole, AdamW& optimizer, ModelMesh mesh, const Options& options)
    : SharedModel(model, whole, optimizer, std::move(mesh), options),
      method_(options.modelParallel.method),
      share_(method_, communicator_.rank(), communicator_.worldSize(), model.config()),
      tokenEmbedding_(model.named().front().second),
      hidden_(model.config().hidden),
      positions_(0),
      stepPositions_(options.batchSize * options.seqLength),
      mostOutgoing_(static_cast<size_t>(2 * options.accumulate)) {
  model.runPartsBy(this);
}

at::Tensor Pipeline::run(ForwardPart part, size_t unit, const at::Tensor& x, const PartComputation& compute) {
  if (part == ForwardPart::kEmbedding && !isFirst()) {
    // A tensor that wants a gradient, so that there is a backward.
    const auto anchor = at::zeros({}, tokenEmbedding_.options().requires_grad(false)).set_requires_grad(true);
    return withBackward(anchor, take(activations_, rankBefore()), [this](const at::Tensor& gradient) {
      send(gradient, rankBefore());
      return at::Tensor();
    });
  }
  if (part == ForwardPart::kBlock && !share_.hasBlock(static_cast<int64_t>(unit) - 1)) {
    return x;
  }
  if (part == ForwardPart::kHead && !isLast()) {
    send(x, rankAfter());
    // In the place of the loss: 0, with whatever gradient the next rank sends.
    return withBackward(x, at::zeros({}, x.options().requires_grad(false)),
                        [this](const at::Tensor& /*gradient*/) { return take(gradients_, rankAfter()); });
  }
  return compute(x);
}

std::vector<Pass> Pipeline::planPasses(int64_t microBatches) {
  if (!isFirst()) {
    activations_.announced = microBatches;
    receiveAhead(activations_, rankBefore());
  }
  if (!isLast()) {
    gradients_.announced = microBatches;
    receiveAhead(gradients_, rankAfter());
  }
  return pipelinePasses(method_, communicator_.rank(), communicator_.worldSize(), microBatches);
}

void Pipeline::send(const at::Tensor& tensor, int rank) {
  // Within a step there are fewer, so that no rank waits here for one that waits for it; an evaluation's all go the
  // same way.
  while (outgoing_.size() >= mostOutgoing_) {
    waiting([&] { outgoing_.front().transfer->wait(); });
    outgoing_.pop_front();
  }
  outgoing_.push_back({tensor.detach().contiguous(), nullptr});
  outgoing_.back().transfer = communicator_.startSend(outgoing_.back().tensor, rank);
  handedOver(tensor);
}

Pipeline::Incoming Pipeline::startReceive(int64_t positions, int from) {
  Incoming incoming{at::empty({positions, hidden_}, tokenEmbedding_.options().requires_grad(false)), nullptr};
  incoming.transfer = communicator_.startReceive(incoming.tensor, from);
  return incoming;
}

void Pipeline::receiveAhead(Inbox& inbox, int from) {
  if (inbox.announced > 0) {
    inbox.ahead = startReceive(stepPositions_, from);
    --inbox.announced;
  }
}

at::Tensor Pipeline::take(Inbox& inbox, int from) {
  Incoming incoming = inbox.ahead.transfer ? std::move(inbox.ahead) : startReceive(positions_, from);
  waiting([&] { incoming.transfer->wait(); });
  receiveAhead(inbox, from);
  return incoming.tensor;
}

void Pipeline::completeBackward(StepMetrics& metrics) {
  const at::NoGradGuard noGrad;
  const auto begin = std::chrono::steady_clock::now();
  waiting([&] {
    for (const auto& sent : outgoing_) {
      sent.transfer->wait();
    }
    outgoing_.clear();
    if (isFirst() != isLast()) {
      const int other = isFirst() ? communicator_.worldSize() - 1 : 0;
      const auto& gradient = tokenEmbedding_.grad();
      handedOver(gradient);
      std::vector<at::Tensor> theirs{at::empty_like(gradient)};
      communicator_.exchange(gradient.contiguous(), {other}, theirs, {other});
      gradient.add_(theirs[0]);
    }
    auto loss = at::tensor({metrics.loss.value_or(0), metrics.weightedLoss}, at::kDouble);
    communicator_.broadcast(loss, communicator_.worldSize() - 1);
    metrics.loss = loss[0].item<double>();
    metrics.weightedLoss = loss[1].item<double>();
  });
  metrics.backwardSeconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

}  // namespace gloo_bypass::trainer
