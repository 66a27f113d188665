#include "trainer/distributed/model_parallel/shared_model.h"

#include <algorithm>
#include <utility>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <nlohmann/json.hpp>

#include "trainer/distributed/clipping.h"
#include "trainer/distributed/model_parallel/pipeline.h"
#include "trainer/distributed/model_parallel/tensor_parallel.h"

namespace gloo_bypass::trainer {
namespace {

// The piece's values in the whole parameter; a view.
at::Tensor viewOf(const at::Tensor& whole, const HeldPiece& piece) {
  return whole.view({piece.outer, piece.extent, piece.inner}).narrow(1, piece.begin, piece.length);
}

}  // namespace

SharedModel::SharedModel(Gpt2& model, const Gpt2* whole, AdamW& optimizer, ModelMesh mesh, const Options& options)
    : Parallelism(optimizer),
      mesh_(std::move(mesh)),
      communicator_(mesh_.parts()),
      parameters_(model.parameters()),
      pieces_(parameters_.size()) {
  const auto shapes = model.config().parameters();
  for (int rank = 0; rank < communicator_.worldSize(); ++rank) {
    const ModelShare share(options.modelParallel.method, rank, communicator_.worldSize(), model.config());
    for (size_t i = 0; i < shapes.size(); ++i) {
      pieces_[i].push_back(share.of(shapes[i]));
    }
  }
  for (size_t i = 0; i < shapes.size(); ++i) {
    wholeSizes_.push_back(shapes[i].sizes);
    distribute(parameters_[i], whole != nullptr ? whole->named()[i].second : at::Tensor(), i);
  }
  if (mesh_.copies() != nullptr) {
    copies_ = std::make_unique<DataParallel>(model, optimizer, *mesh_.copies(), options);
  }
}

void SharedModel::beforeForward(bool synchronise) {
  if (copies_) {
    copies_->beforeForward(synchronise);
  }
}

void SharedModel::beforeBackward(bool synchronise, const at::Tensor& loss) {
  if (copies_) {
    copies_->beforeBackward(synchronise, loss);
  }
}

void SharedModel::distribute(const at::Tensor& held, const at::Tensor& whole, size_t index) {
  const at::NoGradGuard noGrad;
  auto values = whole.defined() ? whole.detach() : at::empty(wholeSizes_[index], held.options().requires_grad(false));
  mesh_.all().broadcast(values, 0);
  const auto& piece = pieces_[index][static_cast<size_t>(communicator_.rank())];
  if (piece.length > 0) {
    held.copy_(viewOf(values, piece).reshape(held.sizes()));
  }
}

at::Tensor SharedModel::assembled(const at::Tensor& held, size_t index) {
  const at::NoGradGuard noGrad;
  const auto& pieces = pieces_[index];
  const auto& own = pieces[static_cast<size_t>(communicator_.rank())];
  if (std::all_of(pieces.begin(), pieces.end(), [](const auto& piece) { return piece.isWhole(); })) {
    return held;
  }
  const auto options = held.options().requires_grad(false);
  assembled_ = own.isWhole() ? held.detach() : at::empty(wholeSizes_[index], options);
  for (int rank = 0; rank < communicator_.worldSize(); ++rank) {
    const auto& piece = pieces[static_cast<size_t>(rank)];
    if (piece.isCopy || piece.length == 0) {
      continue;
    }
    auto values = rank == communicator_.rank() ? held.detach() : at::empty(piece.sizes, options);
    communicator_.broadcast(values, rank);
    if (!own.isWhole()) {
      const auto view = viewOf(assembled_, piece);
      view.copy_(values.view(view.sizes()));
    }
  }
  return assembled_;
}

void SharedModel::loadMoments(const MomentSource& source) {
  for (size_t i = 0; i < parameters_.size(); ++i) {
    for (const auto kind : {StateKind::kFirstMoment, StateKind::kSecondMoment}) {
      distribute(Parallelism::whole(kind, i), source ? source(kind, i) : at::Tensor(), i);
    }
  }
}

double SharedModel::clipGradients(double maxNorm) {
  std::vector<at::Tensor> gradients, counted;
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const auto& piece = pieces_[i][static_cast<size_t>(communicator_.rank())];
    if (piece.length > 0) {
      gradients.push_back(parameters_[i].grad());
    }
    if (piece.length > 0 && !piece.isCopy) {
      counted.push_back(parameters_[i].grad());
    }
  }
  return clipTogether(communicator_, gradients, counted, maxNorm);
}

void SharedModel::beginStep(int64_t /*step*/) {
  waits_.clear();
  waitedSeconds_ = 0;
  exchangedBytes_ = 0;
}

void SharedModel::addMetrics(nlohmann::json& record) const {
  record["t_wait_s"] = waitedSeconds_;
  record["exchanged_bytes"] = exchangedBytes_;
}

std::unique_ptr<SharedModel> makeSharedModel(Gpt2& model, const Gpt2* whole, AdamW& optimizer,
                                             GroupCommunicator& communicator, const Options& options) {
  ModelMesh mesh(communicator, options.modelParallel);
  if (options.modelParallel.isPipeline()) {
    return std::make_unique<Pipeline>(model, whole, optimizer, std::move(mesh), options);
  }
  return std::make_unique<TensorParallel>(model, whole, optimizer, std::move(mesh), options);
}

}  // namespace gloo_bypass::trainer
