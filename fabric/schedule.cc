#include "fabric/schedule.h"

#include <algorithm>

namespace gloo_bypass::fabric {

Schedule::Schedule(const Description& description)
    : hosts_(description.hosts.size()), start_(description.edges), current_(start_), changes_(description.events) {
  for (std::size_t i = 0; i < changes_.size(); ++i) {
    moments_.push_back({changes_[i].at, i});
    if (changes_[i].lasts) moments_.push_back({changes_[i].at + *changes_[i].lasts, i});
  }
  std::stable_sort(moments_.begin(), moments_.end(), [](const Moment& a, const Moment& b) { return a.time < b.time; });
}

std::optional<Duration> Schedule::next() const {
  if (nextMoment_ == moments_.size()) return std::nullopt;
  return moments_[nextMoment_].time;
}

std::vector<EdgeUpdate> Schedule::due(Duration elapsed) {
  const std::size_t first = nextMoment_;
  while (nextMoment_ < moments_.size() && moments_[nextMoment_].time <= elapsed) ++nextMoment_;
  std::vector<EdgeUpdate> updates;
  if (first == nextMoment_) return updates;
  for (std::size_t from = 0; from < hosts_; ++from) {
    for (std::size_t to = 0; to < hosts_; ++to) {
      const EdgeId edge{from, to};
      const bool touched =
          std::any_of(moments_.begin() + static_cast<std::ptrdiff_t>(first),
                      moments_.begin() + static_cast<std::ptrdiff_t>(nextMoment_),
                      [&](const Moment& moment) { return changes_[moment.change].edges.contains(edge); });
      if (!touched) continue;
      EdgeModel model = modelAt(start_[from * hosts_ + to], changes_, edge, elapsed);
      if (model == current_[from * hosts_ + to]) continue;
      current_[from * hosts_ + to] = model;
      updates.push_back({edge, model});
    }
  }
  return updates;
}

EdgeModel modelAt(const EdgeModel& start, std::span<const ScheduledChange> changes, EdgeId edge, Duration elapsed) {
  EdgeModel model = start;
  for (const ScheduledChange& each : changes) {
    if (each.at > elapsed) break;
    const bool ended = each.lasts && elapsed >= each.at + *each.lasts;
    if (!ended && each.edges.contains(edge)) each.change.applyTo(model);
  }
  return model;
}

}  // namespace gloo_bypass::fabric
