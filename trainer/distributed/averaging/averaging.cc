#include "trainer/distributed/averaging/averaging.h"

#include <cmath>

#include <ATen/ATen.h>
#include <nlohmann/json.hpp>

#include "trainer/distributed/averaging/asynchronous.h"
#include "trainer/distributed/averaging/central.h"
#include "trainer/distributed/averaging/flat.h"
#include "trainer/distributed/averaging/gossip.h"
#include "trainer/distributed/averaging/local_sgd.h"

namespace gloo_bypass::trainer {

using Clock = std::chrono::steady_clock;

Averaging::Averaging(const Gpt2& model, AdamW& optimizer, GroupCommunicator& communicator)
    : Parallelism(optimizer), named_(model.named()), parameters_(model.parameters()), communicator_(communicator) {
  communicator.broadcast(parameters_);
}

void Averaging::beginStep(int64_t step) {
  step_ = step;
  seconds_ = 0;
  exchangesBefore_ = exchanges_;
  distance_.reset();
}

at::Tensor Averaging::meanOverRanks(const at::Tensor& flat) {
  auto mean = flat.div(communicator_.worldSize());  // before they are added, as DistributedDataParallel does
  communicator_.sum(mean);
  const double apart = (flat - mean).norm().item<double>();
  distance_ = std::sqrt(communicator_.meanOverRanks(apart * apart));
  return mean;
}

void Averaging::finish() {
  if (ranksAgree()) return;
  setValues(parameters_, meanOverRanks(flat(parameters_)));
}

void Averaging::addMetrics(nlohmann::json& record) const {
  record["t_average_s"] = seconds_;
  record["averaged"] = exchanges_ > exchangesBefore_;
  record["distance"] = distance_ ? nlohmann::json(*distance_) : nlohmann::json(nullptr);
}

void Averaging::addSummary(nlohmann::json& record) const {
  record["synchronisations"] = exchanges_;
  record["distance"] = distance_ ? nlohmann::json(*distance_) : nlohmann::json(nullptr);
}

RankState Averaging::rankState() const {
  RankState state;
  for (std::size_t i = 0; i < named_.size(); ++i) {
    const auto& [name, parameter] = named_[i];
    state.emplace_back("model." + name, parameter);
    state.emplace_back("exp_avg." + name, optimizer_.firstMoments()[i]);
    state.emplace_back("exp_avg_sq." + name, optimizer_.secondMoments()[i]);
  }
  return state;
}

Averaging::Exchange::Exchange(Averaging& owner, Part part) : owner_(owner), part_(part), begin_(Clock::now()) {}

Averaging::Exchange::~Exchange() {
  owner_.seconds_ += std::chrono::duration<double>(Clock::now() - begin_).count();
  if (part_ == Part::kLast) ++owner_.exchanges_;
}

std::unique_ptr<Parallelism> makeAveraging(const Options& options, const Gpt2& model, AdamW& optimizer,
                                           GroupCommunicator& communicator) {
  const AveragingOptions& chosen = options.averaging;
  switch (chosen.method) {
    case AveragingMethod::kNone:
      return nullptr;
    case AveragingMethod::kLocalSgd:
      return std::make_unique<LocalSgd>(model, optimizer, communicator, chosen.innerSteps);
    case AveragingMethod::kDiLoCo:
      return std::make_unique<DiLoCo>(model, optimizer, communicator, chosen);
    case AveragingMethod::kCentral:
      return std::make_unique<Central>(model, optimizer, communicator);
    case AveragingMethod::kAsynchronous:
      return std::make_unique<Asynchronous>(model, optimizer, communicator, options);
    case AveragingMethod::kGossip:
      return std::make_unique<Gossip>(model, optimizer, communicator, chosen.topology, options.seed);
  }
  return nullptr;
}

}  // namespace gloo_bypass::trainer
