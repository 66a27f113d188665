#include "trainer/distributed/sharding/sharded_parallel.h"

#include <algorithm>
#include <stdexcept>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/utils/lambda_post_hook.h>
#include <torch/csrc/autograd/variable.h>

#include "trainer/distributed/clipping.h"

namespace gloo_bypass::trainer {
namespace {

// Bounds the memory of what is on its way; one for each of c10d's threads, and one to come.
constexpr size_t kReductionsInFlight = 3;
constexpr double kMebibyte = 1 << 20;

}  // namespace

// One hook a parameter, called when autograd has accumulated its gradient. Accumulators live as long as somebody holds
// them.
struct ShardedParallel::Hooks {
  // A shared_ptr, in newer releases an intrusive_ptr.
  using Accumulator = decltype(torch::autograd::impl::grad_accumulator(std::declval<const at::Tensor&>()));
  std::vector<std::pair<Accumulator, uintptr_t>> accumulators;
  ~Hooks() {
    for (const auto& [node, key] : accumulators) {
      node->del_post_hook(key);
    }
  }
};

// Stage 3. A block's parameters are gathered before its forward and released after it, gathered again when backward
// reaches its output and released with its last gradient. The head's stay from its forward to its backward, which
// follows at once. The next unit's gathering begins before this one is computed: in forward unit 0, the blocks
// in their order, unit 0 for the head; in backward the blocks before this one.
class ShardedParallel::Residence final : public PartRunner {
 public:
  explicit Residence(ShardedParallel& owner) : owner_(owner) {}

  at::Tensor run(ForwardPart part, size_t unit, const at::Tensor& x, const PartComputation& compute) override {
    owner_.gather(unit);
    if (part != ForwardPart::kHead) {
      owner_.gatherAhead((unit + 1) % owner_.units_.size());
    }
    auto output = compute(x);
    if (part == ForwardPart::kHead && output.requires_grad()) {
      return output;
    }
    owner_.units_[unit].release();
    if (part == ForwardPart::kBlock && output.requires_grad()) {
      output.register_hook([this, unit](const at::Tensor&) {
        if (unit + 1 == owner_.units_.size()) {
          owner_.units_[0].release();  // the head's backward is done
        }
        owner_.gather(unit);
        if (unit > 1) {
          owner_.gatherAhead(unit - 1);
        }
      });
    }
    return output;
  }

 private:
  ShardedParallel& owner_;
};

ShardedParallel::ShardedParallel(Gpt2& model, const Gpt2& weights, AdamW& optimizer, std::vector<FlatUnit>& units,
                                 GroupCommunicator& communicator, const Options& options)
    : Parallelism(optimizer),
      units_(units),
      communicator_(communicator),
      stage_(options.sharding.zero),
      pieceBytes_(static_cast<int64_t>(options.bucketCapMb * kMebibyte)),
      places_(model.named().size()),
      hooks_(std::make_unique<Hooks>()),
      gradientsReady_(units.size()),
      localGradients_(units.size()),
      accumulates_(units.size()) {
  const auto indices = model.units();
  for (size_t u = 0; u < units_.size(); ++u) {
    receiveWeights(u, weights, indices[u]);
    units_[u].fillShard();
    units_[u].release();
    for (size_t i = 0; i < indices[u].size(); ++i) {
      places_[indices[u][i]] = {u, i};
      const auto accumulator = torch::autograd::impl::grad_accumulator(units_[u].parameters()[i]);
      const auto key = accumulator->add_post_hook(std::make_unique<torch::autograd::utils::LambdaPostHook>(
          [this, u](const torch::autograd::variable_list& outputs, const torch::autograd::variable_list&) {
            gradientReady(u);
            return outputs;
          }));
      hooks_->accumulators.emplace_back(accumulator, key);
    }
  }
  if (stage_ == 3) {
    residence_ = std::make_unique<Residence>(*this);
    model.runPartsBy(residence_.get());
  }
}

ShardedParallel::~ShardedParallel() = default;

// `indices`: of the unit's parameters among the weights.
void ShardedParallel::receiveWeights(size_t unit, const Gpt2& weights, const std::vector<size_t>& indices) {
  const at::NoGradGuard noGrad;
  const auto whole = units_[unit].whole().detach();
  if (optimizer_.masters().empty()) {
    communicator_.broadcast({whole});
    return;
  }
  const auto& master = optimizer_.parameters()[unit];
  const auto flat = at::zeros(whole.sizes(), master.options().requires_grad(false));
  for (size_t i = 0; i < indices.size(); ++i) {
    const auto& weight = weights.named()[indices[i]].second;
    if (communicator_.rank() == 0) {  // the others' have no memory
      units_[unit].viewOf(flat, i).copy_(weight);
      dropMemory(weight);
    }
  }
  communicator_.broadcast({flat});
  master.copy_(units_[unit].shardOf(flat));
  whole.copy_(flat);
}

std::vector<Piece> ShardedParallel::piecesOf(size_t unit) const {
  const int64_t elements = units_[unit].shardElements();
  const auto bytes = static_cast<int64_t>(units_[unit].whole().nbytes());
  const int64_t count = std::clamp<int64_t>((bytes + pieceBytes_ - 1) / pieceBytes_, 1, elements);
  std::vector<Piece> pieces;
  for (int64_t i = 0; i < count; ++i) {
    pieces.emplace_back(elements * i / count, elements * (i + 1) / count);
  }
  return pieces;
}

void ShardedParallel::beforeBackward(bool synchronise, const at::Tensor& /*loss*/) {
  isReducing_ = synchronise || stage_ > 1;
  isFinishQueued_ = false;
  std::fill(gradientsReady_.begin(), gradientsReady_.end(), size_t{0});
  if (stage_ == 3) {
    gatherAhead(units_.size() - 1);  // beside the head's backward
  }
}

void ShardedParallel::gradientReady(size_t unit) {
  if (!isReducing_) {
    return;
  }
  if (!isFinishQueued_) {  // as c10d's reducer: backward returns when all is reduced
    torch::autograd::Engine::get_default_engine().queue_callback([this] { settleAll(); });
    isFinishQueued_ = true;
  }
  if (++gradientsReady_[unit] == units_[unit].parameters().size()) {
    reduce(unit);
    units_[unit].release();
  }
}

// Hands the unit's gradients over. As DDP does, they are divided by N before they are added.
void ShardedParallel::reduce(size_t unit) {
  const at::NoGradGuard noGrad;
  const auto& parameters = units_[unit].parameters();
  const int ranks = communicator_.worldSize();
  auto flat = at::zeros_like(units_[unit].whole(), at::TensorOptions().requires_grad(false));
  for (size_t i = 0; i < parameters.size(); ++i) {
    auto place = units_[unit].viewOf(flat, i);
    at::mul_out(place, parameters[i].grad(), at::scalar_tensor(1.0 / ranks, at::kDouble));
    parameters[i].mutable_grad() = at::Tensor();
  }
  const auto& shard = units_[unit].shard();
  if (stage_ == 1) {
    localGradients_[unit] = flat;
    shard.mutable_grad() = units_[unit].shardOf(flat);
  } else {
    accumulates_[unit] = shard.grad().defined();
    if (!accumulates_[unit]) {
      shard.mutable_grad() = at::empty_like(shard, at::TensorOptions().requires_grad(false));
    }
  }
  const auto byRank = flat.view({ranks, -1});
  for (const auto& [begin, end] : piecesOf(unit)) {
    while (reductions_.size() >= kReductionsInFlight) {
      settleOldest();
    }
    const auto rows = byRank.slice(1, begin, end).contiguous();
    reductions_.push_back({PendingCollective::reduceScatter(communicator_, rows), unit, begin});
  }
}

void ShardedParallel::settleOldest() {
  const at::NoGradGuard noGrad;
  auto& [pending, unit, begin] = reductions_.front();
  const auto sum = pending.wait();
  auto gradient = units_[unit].shard().grad().narrow(0, begin, sum.numel());
  if (stage_ > 1 && accumulates_[unit]) {
    gradient.add_(sum);
  } else {
    gradient.copy_(sum);
  }
  reductions_.pop_front();
}

void ShardedParallel::settleAll() {
  while (!reductions_.empty()) {
    settleOldest();
  }
}

double ShardedParallel::clipGradients(double maxNorm) {
  takeGradients();
  std::vector<at::Tensor> gradients;
  for (const auto& parameter : optimizer_.parameters()) {
    gradients.push_back(parameter.grad());
  }
  return clipTogether(communicator_, gradients, gradients, maxNorm);
}

void ShardedParallel::takeGradients() {
  optimizer_.takeGradients([this](bool isHere) { return communicator_.meanOverRanks(isHere ? 1 : 0) > 0; });
}

void ShardedParallel::updateParameters() {
  takeGradients();
  optimizer_.step();
  optimizer_.clearGradients();
  std::fill(localGradients_.begin(), localGradients_.end(), at::Tensor());
  gathered_ = at::Tensor();
  if (stage_ < 3) {
    for (size_t unit = 0; unit < units_.size(); ++unit) {
      gather(unit);
    }
  }
}

void ShardedParallel::gather(size_t unit) {
  if (ahead_) {
    if (ahead_->first != unit) {
      throw std::logic_error("ZeRO: a forward or backward in another order than its units");
    }
    ahead_->second.finish();
    ahead_.reset();
  } else if (stage_ < 3 || !units_[unit].isWhole()) {
    UnitGather(communicator_, units_[unit], piecesOf(unit)).finish();
  }
}

void ShardedParallel::gatherAhead(size_t unit) {
  if (!units_[unit].isWhole()) {
    ahead_.emplace(unit, UnitGather(communicator_, units_[unit], piecesOf(unit)));
  }
}

int64_t ShardedParallel::synchronisedBytes(const std::vector<at::Tensor>& /*parameters*/) const {
  int64_t bytes = 0;
  for (const auto& unit : units_) {
    bytes += static_cast<int64_t>(unit.whole().nbytes());
  }
  return bytes;
}

HeldBytes ShardedParallel::heldBytes(const std::vector<at::Tensor>& parameters) const {
  HeldBytes held = Parallelism::heldBytes(parameters);  // gradients: what the parameters themselves still have
  held.parameters = 0;
  for (const auto& unit : units_) {
    held.parameters += unit.heldBytes();
    // At stage 1 the shard's gradient is a view: its storage is the whole unit's.
    held.gradients += unit.shard().grad().defined() ? static_cast<int64_t>(unit.shard().grad().storage().nbytes()) : 0;
  }
  return held;
}

at::Tensor ShardedParallel::whole(StateKind kind, size_t index) {
  const size_t unit = places_[index].first;
  switch (kind) {
    case StateKind::kWeight:
      return optimizer_.masters().empty() ? wholeParameter({}, index) : wholeOf(optimizer_.parameters()[unit], index);
    case StateKind::kFirstMoment:
      return wholeOf(optimizer_.firstMoments()[unit], index);
    case StateKind::kSecondMoment:
      return wholeOf(optimizer_.secondMoments()[unit], index);
  }
  return {};
}

at::Tensor ShardedParallel::wholeParameter(const at::Tensor& /*held*/, size_t index) {
  const auto [unit, place] = places_[index];
  return units_[unit].isWhole() ? units_[unit].parameters()[place] : wholeOf(units_[unit].shard(), index);
}

at::Tensor ShardedParallel::wholeOf(const at::Tensor& shard, size_t index) {
  const auto [unit, place] = places_[index];
  if (!gathered_.defined() || !gatheredOf_.is_same(shard)) {
    const at::NoGradGuard noGrad;
    const auto values = shard.detach();
    gathered_ = at::Tensor();  // before the next one is made
    gathered_ = at::empty(units_[unit].whole().sizes(), values.options());
    PendingCollective::allGather(communicator_, values, units_[unit].pieces(gathered_, 0, values.numel())).wait();
    gatheredOf_ = shard;
  }
  return units_[unit].viewOf(gathered_, place);
}

void ShardedParallel::loadMoments(const MomentSource& source) {
  const at::NoGradGuard noGrad;
  for (const auto kind : {StateKind::kFirstMoment, StateKind::kSecondMoment}) {
    const auto& moments = kind == StateKind::kFirstMoment ? optimizer_.firstMoments() : optimizer_.secondMoments();
    for (size_t unit = 0; unit < units_.size(); ++unit) {
      const auto flat = at::zeros(units_[unit].whole().sizes(), moments[unit].options());
      for (size_t index = 0; source && index < places_.size(); ++index) {
        if (places_[index].first == unit) {
          units_[unit].viewOf(flat, places_[index].second).copy_(source(kind, index));
        }
      }
      communicator_.broadcast({flat});
      moments[unit].copy_(units_[unit].shardOf(flat));
    }
  }
}

}  // namespace gloo_bypass::trainer
