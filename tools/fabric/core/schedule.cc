#include "tools/fabric/core/schedule.h"

#include <algorithm>

#include "transport/base/seconds.h"

namespace gloo_bypass::fabric {
namespace {

// A queue that takes longer to drain counts as one of this: a sum of two must not overflow.
constexpr Duration kLongestDrain = std::chrono::hours(24);

Duration longestWay(const EdgeModel& model) {
  Duration drain{0};
  if (model.rateBitsPerSecond > 0) {
    const double seconds = static_cast<double>(model.queueBytes) * 8 / static_cast<double>(model.rateBitsPerSecond);
    const std::chrono::duration<double> bounded(std::min(seconds, secondsOf(kLongestDrain)));
    drain = std::chrono::duration_cast<Duration>(bounded);
  }
  return model.delay + model.jitter + model.reorderDelay + drain;
}

// f(edge, model): what each edge is at the start, and each time that it changes.
template <typename F>
void forEachModel(const Description& description, F&& f) {
  const std::size_t hosts = description.hosts.size();
  for (std::size_t i = 0; i < description.edges.size(); ++i) f(EdgeId{i / hosts, i % hosts}, description.edges[i]);
  Schedule schedule(description);
  while (const std::optional<Duration> at = schedule.next()) {
    for (const EdgeUpdate& update : schedule.due(*at)) f(update.edge, update.model);
  }
}

}  // namespace

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

Duration longestRoundTrip(const Description& description) {
  const std::size_t hosts = description.hosts.size();
  std::vector<Duration> longest(description.edges.size(), Duration{0});
  forEachModel(description, [&](EdgeId edge, const EdgeModel& model) {
    Duration& way = longest[edge.from * hosts + edge.to];
    way = std::max(way, longestWay(model));
  });
  Duration found{0};
  for (std::size_t from = 0; from < hosts; ++from) {
    for (std::size_t to = from + 1; to < hosts; ++to) {
      found = std::max(found, longest[from * hosts + to] + longest[to * hosts + from]);
    }
  }
  return found;
}

NarrowestEdges narrowestEdges(const Description& description) {
  NarrowestEdges found;
  const auto narrow = [](std::uint64_t& least, std::uint64_t value) {
    if (value > 0 && (least == 0 || value < least)) least = value;
  };
  forEachModel(description, [&](EdgeId edge, const EdgeModel& model) {
    if (edge.from == edge.to || model.rateBitsPerSecond == 0) return;
    narrow(found.rateBitsPerSecond, model.rateBitsPerSecond);
    narrow(found.queueBytes, model.queueBytes);
  });
  return found;
}

}  // namespace gloo_bypass::fabric
