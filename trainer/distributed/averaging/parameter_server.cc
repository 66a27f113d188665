#include "trainer/distributed/averaging/parameter_server.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include <fmt/format.h>

#include "tools/common/error.h"
#include "trainer/distributed/averaging/flat.h"

namespace gloo_bypass::trainer {

using Clock = std::chrono::steady_clock;

double penaltyOf(StalenessPenalty penalty, int64_t staleness) {
  constexpr double kDecay = 0.1;
  switch (penalty) {
    case StalenessPenalty::kInverse:
      return 1 / static_cast<double>(std::max<int64_t>(staleness, 1));
    case StalenessPenalty::kExponential:
      return std::exp(-kDecay * static_cast<double>(staleness));
    case StalenessPenalty::kNone:
      break;
  }
  return 1;
}

ParameterServer::ParameterServer(std::unique_ptr<AdamW> optimizer, int worldSize, int64_t updates,
                                 const AveragingOptions& options, std::chrono::duration<double> patience)
    : optimizer_(std::move(optimizer)),
      options_(options),
      patience_(patience),
      steps_(static_cast<size_t>(worldSize)),
      version_(updates) {}

ParameterServer::Answer ParameterServer::push(int rank, const at::Tensor& gradient, int64_t version, double rate) {
  std::unique_lock lock(mutex_);
  if (failure_) std::rethrow_exception(failure_);
  if (version < 0 || version > version_) {
    throw ProgramError(fmt::format("rank {} sent a gradient of the parameters after update {}, of {} so far", rank,
                                   version, version_));
  }
  Answer answer{.parameters = {}, .staleness = version_ - version};
  optimizer_->setLearningRate(rate * penaltyOf(options_.stalenessPenalty, answer.staleness));
  auto parameters = optimizer_->parameters();
  setGradients(parameters, gradient);
  optimizer_->step();
  optimizer_->clearGradients();  // they are views of what is the caller's
  answer.update = ++version_;
  ++steps_.at(static_cast<size_t>(rank));
  lastStep_ = Clock::now();
  changed_.notify_all();

  const auto begin = Clock::now();
  waitForSlowest(lock, rank);
  answer.withheldSeconds = std::chrono::duration<double>(Clock::now() - begin).count();
  answer.parameters = flat(parameters);
  answer.version = version_;
  return answer;
}

void ParameterServer::waitForSlowest(std::unique_lock<std::mutex>& lock, int rank) {
  if (options_.stalenessBound < 0) return;
  const int64_t own = steps_[static_cast<size_t>(rank)];
  const auto slowest = [&] { return std::min_element(steps_.begin(), steps_.end()); };
  if (!changed_.wait_for(lock, patience_, [&] { return failure_ || own - *slowest() <= options_.stalenessBound; })) {
    throwStandstill(rank);
  }
  if (failure_) std::rethrow_exception(failure_);
}

void ParameterServer::throwStandstill(int rank) const {
  const auto slowest = std::min_element(steps_.begin(), steps_.end());
  throw ProgramError(
      fmt::format("rank {} has done {} steps and waits for rank {}, which has done {} and none for {:g} s", rank,
                  steps_[static_cast<size_t>(rank)], slowest - steps_.begin(), *slowest, patience_.count()));
}

bool ParameterServer::awaitOthers(int rank, std::chrono::duration<double> limit) {
  std::unique_lock lock(mutex_);
  const int64_t own = steps_.at(static_cast<size_t>(rank));
  const auto haveCome = [&] { return *std::min_element(steps_.begin(), steps_.end()) >= own; };
  changed_.wait_for(lock, limit, [&] { return failure_ || haveCome(); });
  if (failure_) std::rethrow_exception(failure_);
  if (!haveCome() && Clock::now() - lastStep_ > patience_) throwStandstill(rank);
  return haveCome();
}

void ParameterServer::fail(std::exception_ptr reason) {
  const std::lock_guard lock(mutex_);
  if (!failure_) failure_ = std::move(reason);
  changed_.notify_all();
}

}  // namespace gloo_bypass::trainer
