#include "tools/simulation/worlds/group_rank.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

namespace gloo_bypass::sim {
namespace {

using collectives::NetworkOperations;
using collectives::OperationCase;

std::vector<int> hostsOf(const Script& script) {
  std::vector<int> hosts;
  for (int rank = 0; rank < script.ranks && script.hosts > 1; ++rank)
    hosts.push_back(rank * script.hosts / script.ranks);
  return hosts;
}

constexpr Duration kMostBeforeLeaving = std::chrono::milliseconds(50);

collectives::ChoiceTable choicesOf(const Script& script) {
  collectives::ChoiceTable choices;
  if (!script.algorithms.empty()) (void)choices.prefer(script.algorithms);  // parseScript() has looked at it
  return choices;
}

}  // namespace

GroupRank::GroupRank(Simulation& simulation, const Script& script, int rank, std::vector<Host*> hosts)
    : simulation_(simulation),
      script_(script),
      rank_(rank),
      random_(mixBits(script.seed * Script::kMostRanks + static_cast<std::uint64_t>(rank) + 0x67726f7570)),
      transport_(simulation, std::move(hosts), [this] { requestTurn(); }),
      operations_(rank, script.ranks, hostsOf(script), choicesOf(script)) {
  for (const auto& peer : operations_.peers()) {
    if (peer != nullptr) (void)peer->open(transport_, {.localRank = rank, .peerRank = peer->rank()});
  }
}

// Whoever waits is woken by an event, and looks a moment later.
void GroupRank::requestTurn() {
  if (turnDue_) return;
  turnDue_ = true;
  const Duration turn = script_.rank(rank_).turn;
  simulation_.after(Duration(static_cast<Duration::rep>(random_.uniform() * static_cast<double>(turn.count()))),
                    [this] {
                      turnDue_ = false;
                      this->turn();
                    });
}

void GroupRank::resume() {
  paused_ = false;
  if (turnWaits_) requestTurn();
  turnWaits_ = false;
}

void GroupRank::vanish() {
  vanished_ = true;
  stage_ = Stage::kOver;
}

void GroupRank::abort() {
  abortDue_ = true;
  requestTurn();
}

void GroupRank::end() {
  stage_ = Stage::kOver;
  // While others may still need what it has sent.
  wait(Duration(static_cast<Duration::rep>(random_.uniform() * static_cast<double>(kMostBeforeLeaving.count()))));
}

void GroupRank::turn() {
  if (vanished_ || left_) return;
  if (paused_) {
    turnWaits_ = true;
    return;
  }
  if (std::exchange(abortDue_, false)) operations_.abort();
  const TimePoint now = simulation_.now();
  switch (stage_) {
    case Stage::kConnecting:
      return lookAtPeers();
    case Stage::kPausing:
      if (now >= stageEndsAt_) callNext();
      return;
    case Stage::kCalling:
      return lookAtCall();
    case Stage::kWithdrawing:
      if (!operations_.wordsHaveLeft() && now < stageEndsAt_) return;
      operations_.cancel();
      return endCall(false);
    case Stage::kOver:
      if (now < stageEndsAt_) return;
      left_ = true;
      return operations_.leave();
  }
}

// A group is made once all ranks are connected.
void GroupRank::lookAtPeers() {
  bool all = true;
  for (const auto& peer : operations_.peers()) {
    if (peer == nullptr) continue;
    // Who has met all others may have left again.
    if (peer->ended() != nullptr && !peer->connected()) {
      failure_ = *peer->ended();
      end();
      return;
    }
    all = all && peer->connected();
  }
  if (all) pauseBeforeNext();
}

void GroupRank::wait(Duration atMost) {
  stageEndsAt_ = simulation_.now() + atMost;
  simulation_.after(atMost, [this] { requestTurn(); });
}

void GroupRank::pauseBeforeNext() {
  if (succeeded_ == script_.operations.size()) {
    end();
    return;
  }
  stage_ = Stage::kPausing;
  wait(Duration(static_cast<Duration::rep>(random_.uniform() * static_cast<double>(operation().pause.count()))));
}

// The first operation that has not started.
collectives::Call& GroupRank::startNext() {
  const OperationScript& script = script_.operations[called_.size()];
  const bool differs = script.differs == rank_;
  const OperationCase what{script.kind,   script.type,   script.count + (differs ? 1 : 0), script_.ranks, script.root,
                           script.uneven, script.inPlace};
  called_.push_back(std::make_unique<Called>(Called{what, collectives::buffersFor(what, rank_), differs, {}}));
  collectives::Call& call = called_.back()->buffers.call();
  call.reduction = script.reduction;
  return call;
}

void GroupRank::callNext() {
  const collectives::Call& call = called_.size() == succeeded_ ? startNext() : called_[succeeded_]->buffers.call();
  began_ = simulation_.now();
  if (!operations_.begin(call)) {
    failure_ = *operations_.failure();
    stage_ = Stage::kWithdrawing;
    wait(operations_.idle() ? Duration{0} : NetworkOperations::kLastWords);
    return;
  }
  const std::size_t ahead = succeeded_ + 1 + script_.rank(rank_).ahead;
  while (called_.size() < std::min(ahead, script_.operations.size())) operations_.announce(startNext());
  stage_ = Stage::kCalling;
  askAt_ = began_ + NetworkOperations::kLongWait;
  simulation_.after(NetworkOperations::kLongWait, [this] { requestTurn(); });
  wait(script_.callTimeout);
  requestTurn();
}

// As NetworkExecutor::run does, with the same limits.
void GroupRank::lookAtCall() {
  operations_.advance();
  const TimePoint now = simulation_.now();
  if (!operations_.settled() && now >= askAt_) {
    askAt_ = kNever;
    operations_.tellWhatIsCalled();
  }
  if (now >= stageEndsAt_) operations_.timeOut(called_[succeeded_]->buffers.call(), now - began_);
  if (!operations_.settled()) return;
  if (operations_.outcome().ok()) return endCall(true);
  failure_ = *operations_.failure();
  stage_ = Stage::kWithdrawing;
  wait(NetworkOperations::kLastWords);
  requestTurn();
}

void GroupRank::endCall(bool well) {
  if (!well) {
    keepOutputs();
    end();
    return;
  }
  Called& call = *called_[succeeded_];
  call.afterwards = call.buffers.outputMemory();
  if (!call.differs) {
    const std::string fault = collectives::faultOf(call.what, rank_, call.buffers.call().reduction, call.buffers);
    if (!fault.empty()) faults_.push_back(fmt::format("operation {}: {}", succeeded_, fault));
  }
  ++succeeded_;
  pauseBeforeNext();
}

// Of operations that will not end any more.
void GroupRank::keepOutputs() {
  for (std::size_t i = succeeded_; i < called_.size(); ++i) called_[i]->afterwards = called_[i]->buffers.outputMemory();
}

std::vector<std::string> GroupRank::faults() const {
  std::vector<std::string> all = faults_;
  for (std::size_t i = 0; i < called_.size(); ++i) {
    const Called& call = *called_[i];
    if (!call.afterwards.empty() && call.buffers.outputMemory() != call.afterwards) {
      all.push_back(fmt::format("rank {} operation {}: an output changed after its operation", rank_, i));
    }
  }
  return all;
}

}  // namespace gloo_bypass::sim
