#include "trainer/distributed/sharding/flat_unit.h"

#include <utility>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/CPUAllocator.h>

namespace gloo_bypass::trainer {
namespace {

// A shard is a multiple of this: each begins as aligned as an allocation, and vector loops have no remainder.
constexpr int64_t kShardElements = 16;

int64_t roundUp(int64_t value, int64_t multiple) { return (value + multiple - 1) / multiple * multiple; }

}  // namespace

FlatUnit::FlatUnit(std::vector<at::Tensor> parameters, int rank, int ranks, bool ownShard)
    : parameters_(std::move(parameters)), rank_(rank), ranks_(ranks), ownShard_(ownShard) {
  const at::NoGradGuard noGrad;
  int64_t elements = 0;
  for (const auto& parameter : parameters_) {
    offsets_.push_back(elements);
    elements += parameter.numel();
  }
  whole_ = at::zeros({roundUp(elements, ranks * kShardElements)}, parameters_[0].options().requires_grad(false));
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const auto view = viewOf(whole_, i);
    view.copy_(parameters_[i]);
    parameters_[i].set_data(view);
  }
  shard_ = ownShard_ ? shardOf(whole_).clone() : shardOf(whole_).detach();
  shard_.set_requires_grad(true);
}

std::vector<at::Tensor> FlatUnit::pieces(const at::Tensor& flat, int64_t begin, int64_t end) const {
  std::vector<at::Tensor> pieces;
  for (int rank = 0; rank < ranks_; ++rank) {
    pieces.push_back(flat.narrow(0, rank * shardElements() + begin, end - begin));
  }
  return pieces;
}

at::Tensor FlatUnit::shardOf(const at::Tensor& flat) const {
  const int64_t elements = flat.numel() / ranks_;
  return flat.narrow(0, rank_ * elements, elements);
}

at::Tensor FlatUnit::viewOf(const at::Tensor& flat, size_t i) const {
  return flat.narrow(0, offsets_[i], parameters_[i].numel()).view(parameters_[i].sizes());
}

void FlatUnit::release() {
  if (ownShard_ && isWhole_) {
    dropMemory(whole_);
    isWhole_ = false;
  }
}

// The storage stays the same object, so that the parameters, and what autograd has saved of them, see the new memory.
void FlatUnit::materialize() {
  if (!isWhole_) {
    const size_t bytes = whole_.nbytes();
    whole_.storage().set_data_ptr_noswap(c10::GetCPUAllocator()->allocate(bytes));
    whole_.storage().set_nbytes(bytes);
    isWhole_ = true;
  }
}

void FlatUnit::fillShard() {
  if (ownShard_) {
    const at::NoGradGuard noGrad;
    shard_.copy_(shardOf(whole_));
  }
}

int64_t FlatUnit::heldBytes() const {
  return static_cast<int64_t>(whole_.storage().nbytes() + (ownShard_ ? shard_.storage().nbytes() : 0));
}

void dropMemory(const at::Tensor& tensor) {
  tensor.storage().set_data_ptr_noswap(at::DataPtr(nullptr, at::kCPU));
  tensor.storage().set_nbytes(size_t{0});
}

std::vector<FlatUnit> layOutUnits(const Gpt2& model, int64_t zero, int rank, int ranks) {
  std::vector<FlatUnit> units;
  if (zero == 0) {
    return units;
  }
  for (const auto& indices : model.units()) {
    std::vector<at::Tensor> parameters;
    for (const size_t i : indices) {
      parameters.push_back(model.named()[i].second);
    }
    units.emplace_back(std::move(parameters), rank, ranks, zero == 3);
  }
  return units;
}

std::vector<at::Tensor> shardsOf(const std::vector<FlatUnit>& units) {
  std::vector<at::Tensor> shards;
  for (const auto& unit : units) {
    shards.push_back(unit.shard());
  }
  return shards;
}

}  // namespace gloo_bypass::trainer
