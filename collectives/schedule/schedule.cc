#include "collectives/schedule/schedule.h"

#include <algorithm>
#include <map>
#include <utility>

namespace gloo_bypass::collectives {
namespace {

bool writes(const Step& step) { return step.action != Action::kSend; }

// Messages to and from a peer are counted apart.
void numberMessages(int rank, std::vector<Step>& steps) {
  std::map<int, int> sent, received;
  for (Step& step : steps) {
    for (const int peer : step.peers) {
      step.numbers.push_back(peer == rank ? -1 : (writes(step) ? received : sent)[peer]++);
    }
  }
}

void findConflicts(std::vector<Step>& steps) {
  for (std::size_t later = 1; later < steps.size(); ++later) {
    for (std::size_t earlier = 0; earlier < later; ++earlier) {
      if (!steps[earlier].parts.overlaps(steps[later].parts)) continue;
      if (!writes(steps[earlier]) && !writes(steps[later])) continue;
      steps[earlier].before.push_back(static_cast<int>(later));
      steps[later].waitsFor++;
    }
  }
}

}  // namespace

void ScheduleBuilder::append(const Schedule& inner, std::span<const int> ranks, int rounds) {
  for (const Step& step : inner.steps) {
    std::vector<int> peers;
    for (const int peer : step.peers) peers.push_back(ranks[static_cast<std::size_t>(peer)]);
    add(step.round + rounds, step.action, step.parts, std::move(peers));
  }
}

int ScheduleBuilder::nextRound() const {
  int next = 0;
  for (const Step& step : schedule_.steps) next = std::max(next, step.round + 1);
  return next;
}

Schedule ScheduleBuilder::finish() && {
  std::stable_sort(schedule_.steps.begin(), schedule_.steps.end(), [](const Step& a, const Step& b) {
    return std::pair(a.round, writes(a)) < std::pair(b.round, writes(b));
  });
  numberMessages(rank_, schedule_.steps);
  findConflicts(schedule_.steps);
  return std::move(schedule_);
}

}  // namespace gloo_bypass::collectives
