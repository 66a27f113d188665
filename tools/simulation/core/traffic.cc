#include "tools/simulation/core/traffic.h"

#include <algorithm>
#include <map>

#include "tools/simulation/core/random.h"

namespace gloo_bypass::sim {
namespace {

PlannedMessage planMessage(const TrafficModel& model, std::size_t budget, std::uint64_t number, Random& random) {
  PlannedMessage m;
  const double choice = random.uniform();
  if (choice < 0.15 && model.announced) {
    m.kind = KeyKind::kAnnounced;
    m.cancelSend = random.chance(0.3);
  } else if (choice < 0.3 && model.persistent) {
    m.kind = KeyKind::kPersistent;
  } else if (choice < 0.4 && model.withdrawn) {
    m.kind = KeyKind::kWithdrawn;
    m.key = number;
  } else {
    m.key = random.below(static_cast<std::uint64_t>(model.ordinaryKeys));
  }
  const std::size_t maximum = std::max<std::size_t>(2, std::min(model.maxMessageBytes, budget));
  m.length = random.chance(0.05) ? 0 : static_cast<std::size_t>(random.logUniform(1, static_cast<double>(maximum)));
  m.room = random.chance(0.5) ? 0 : random.below(1000);
  const auto within = [&] {
    return Duration(static_cast<Duration::rep>(random.uniform() * static_cast<double>(model.spread.count())));
  };
  m.sendAt = within();
  m.receiveAt = within();
  m.confirmed = random.chance(0.3);
  m.consumes = m.kind != KeyKind::kPersistent && random.chance(0.5);
  return m;
}

// Over keys, receives are posted in any order.
void orderReceives(std::vector<PlannedMessage>& messages) {
  std::map<std::uint64_t, std::vector<std::size_t>> keys;
  for (std::size_t i = 0; i < messages.size(); ++i) {
    if (messages[i].kind == KeyKind::kOrdinary) keys[messages[i].key].push_back(i);
  }
  for (auto& [key, indices] : keys) {
    std::vector<Duration> times;
    for (const std::size_t i : indices) times.push_back(messages[i].receiveAt);
    std::sort(times.begin(), times.end());
    for (std::size_t k = 0; k < indices.size(); ++k) messages[indices[k]].receiveAt = times[k];
  }
}

}  // namespace

void orderTraffic(std::vector<PlannedMessage>& messages) {
  std::stable_sort(messages.begin(), messages.end(),
                   [](const PlannedMessage& a, const PlannedMessage& b) { return a.sendAt < b.sendAt; });
  orderReceives(messages);
}

std::vector<PlannedMessage> planTraffic(const TrafficModel& model, std::uint64_t seed) {
  Random random(seed);
  std::vector<PlannedMessage> messages;
  std::size_t plannedBytes = 0;
  for (int i = 0; i < model.messages && plannedBytes < model.totalBytes; ++i) {
    messages.push_back(planMessage(model, model.totalBytes - plannedBytes, messages.size(), random));
    plannedBytes += messages.back().length;
  }
  orderTraffic(messages);
  return messages;
}

}  // namespace gloo_bypass::sim
