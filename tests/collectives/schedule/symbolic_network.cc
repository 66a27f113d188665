#include "tests/collectives/schedule/symbolic_network.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

namespace gloo_bypass::collectives::test {

bool SymbolicNetwork::isInput(Kind kind, int size, int root, int rank, int part) {
  switch (kind) {
    case Kind::kAllReduce:
    case Kind::kReduce:
    case Kind::kReduceScatter:
    case Kind::kBarrier:
      return true;
    case Kind::kAllGather:
    case Kind::kGather:
      return part == rank;
    case Kind::kBroadcast:
    case Kind::kScatter:
      return rank == root;
    case Kind::kAllToAll:
      return part / size == rank;
  }
  return false;
}

SymbolicNetwork::SymbolicNetwork(Kind kind, const std::vector<Schedule>& schedules, int root, std::uint64_t seed)
    : kind_(kind), schedules_(schedules), random_(seed), ranks_(schedules.size()) {
  const int size = static_cast<int>(schedules.size());
  for (int rank = 0; rank < size; ++rank) {
    const Schedule& schedule = schedules[at(rank)];
    Rank& state = ranks_[at(rank)];
    state.held.resize(at(schedule.parts));
    state.written.resize(at(schedule.parts), false);
    for (int part = 0; part < schedule.parts; ++part) {
      if (!isInput(kind, size, root, rank, part)) continue;
      state.held[at(part)] = {std::to_string(rank), std::vector<int>(schedules.size(), 0)};
      state.held[at(part)].contributions[at(rank)] = 1;
    }
    for (std::size_t i = 0; i < schedule.steps.size(); ++i) {
      const Step& step = schedule.steps[i];
      StepState& s = state.steps.emplace_back();
      s.waitsFor = step.waitsFor;
      s.arrived.resize(step.peers.size());
      for (std::size_t p = 0; p < step.peers.size(); ++p) {
        if (step.action == Action::kSend || step.peers[p] == rank) continue;
        s.missing++;
        receivers_[{step.peers[p], rank, step.numbers[p]}] = {static_cast<int>(i), p};
      }
      if (s.waitsFor == 0) ready_.emplace_back(rank, static_cast<int>(i));
    }
  }
}

std::string SymbolicNetwork::run() {
  // So many tries each that every message has had its turn.
  constexpr std::size_t kMostInVain = 1000;
  std::size_t inVain = 0;
  while (fault_.empty() && (!ready_.empty() || !underWay_.empty())) {
    const std::size_t pick = random_() % (ready_.size() + underWay_.size());
    if (pick >= ready_.size()) {
      const std::size_t before = underWay_.size();
      deliver(pick - ready_.size());
      inVain = underWay_.size() == before ? inVain + 1 : 0;
      if (inVain > kMostInVain * before) return "what is under way is received by no one";
      continue;
    }
    const auto [rank, step] = std::exchange(ready_[pick], ready_.back());
    ready_.pop_back();
    start(rank, step);
  }
  if (!fault_.empty()) return fault_;
  for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
    for (std::size_t i = 0; i < ranks_[rank].steps.size(); ++i) {
      if (!ranks_[rank].steps[i].ended) return fmt::format("rank {} never ends step {}", rank, i);
    }
  }
  return receivers_.empty() ? "" : "a receive has no send";
}

void SymbolicNetwork::start(int rank, int index) {
  const Step& step = stepOf(rank, index);
  Rank& state = ranks_[at(rank)];
  state.steps[at(index)].started = true;
  // A range lies in one piece of memory: all of it in the input, or all of it written since.
  const auto written = [&](int part) { return static_cast<bool>(state.written[at(part)]); };
  for (int part = step.parts.begin; part < step.parts.end; ++part) {
    if (step.action != Action::kReceive && written(part) != written(step.parts.begin)) {
      return fail(fmt::format("rank {} step {}: the range lies in two pieces", rank, index));
    }
  }
  if (step.action != Action::kSend) {
    if (state.steps[at(index)].missing == 0) reduce(rank, index);
    return;
  }
  Message message{rank, step.peers[0], index, step.parts, {}, random_() % 2 == 0};
  for (int part = step.parts.begin; part < step.parts.end; ++part) {
    if (state.held[at(part)].sum.empty())
      return fail(fmt::format("rank {} sends part {} before it has it", rank, part));
    message.values.push_back(state.held[at(part)]);
  }
  if (!receivers_.contains({rank, message.to, step.numbers[0]})) {
    return fail(fmt::format("rank {} step {}: rank {} does not receive it", rank, index, message.to));
  }
  underWay_.push_back(message);
  if (!message.sendEndsOnArrival) end(rank, index);
}

// Whatever is under way may arrive next. A receive into what the rank holds is posted once its step may start; a
// message for a reduction is set aside.
void SymbolicNetwork::deliver(std::size_t which) {
  const Message message = underWay_[which];
  const auto receiver = receivers_.find({message.from, message.to, stepOf(message.from, message.step).numbers[0]});
  const auto [index, place] = receiver->second;
  const Step& step = stepOf(message.to, index);
  if (step.parts != message.parts)
    return fail(fmt::format("rank {} sends other parts than {} expects", message.from, message.to));
  if (step.round != stepOf(message.from, message.step).round) return fail("the rounds of a message differ");
  StepState& state = ranks_[at(message.to)].steps[at(index)];
  if (step.action == Action::kReceive && !state.started) return;  // later
  underWay_.erase(underWay_.begin() + static_cast<std::ptrdiff_t>(which));
  receivers_.erase(receiver);
  state.arrived[place] = message.values;
  if (--state.missing == 0 && state.started) reduce(message.to, index);
  if (message.sendEndsOnArrival) end(message.from, message.step);
}

void SymbolicNetwork::reduce(int rank, int index) {
  const Step& step = stepOf(rank, index);
  Rank& state = ranks_[at(rank)];
  for (int part = step.parts.begin; part < step.parts.end; ++part) {
    Value result;
    for (std::size_t p = 0; p < step.peers.size(); ++p) {
      const Value& one =
          step.peers[p] == rank ? state.held[at(part)] : state.steps[at(index)].arrived[p][at(part - step.parts.begin)];
      if (result.sum.empty()) {
        result = one;
        continue;
      }
      result.sum = fmt::format("({}+{})", result.sum, one.sum);
      for (std::size_t i = 0; i < one.contributions.size(); ++i) result.contributions[i] += one.contributions[i];
    }
    // Only the barrier may count a rank twice; its text would grow beyond all bounds.
    if (kind_ == Kind::kBarrier) result.sum = "come";
    state.held[at(part)] = result;
    state.written[at(part)] = true;
  }
  end(rank, index);
}

void SymbolicNetwork::end(int rank, int index) {
  ranks_[at(rank)].steps[at(index)].ended = true;
  for (const int later : stepOf(rank, index).before) {
    if (--ranks_[at(rank)].steps[at(later)].waitsFor == 0) ready_.emplace_back(rank, later);
  }
}

}  // namespace gloo_bypass::collectives::test
