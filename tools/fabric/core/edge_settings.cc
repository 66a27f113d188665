#include "tools/fabric/core/edge_settings.h"

#include "tools/fabric/core/quantity.h"

namespace gloo_bypass::fabric {
namespace {

constexpr Duration kMaxDelay = std::chrono::hours(1);
constexpr std::uint64_t kMaxQueueBytes = std::uint64_t{1} << 40;
constexpr std::uint64_t kMaxOverheadBytes = 1024;

template <typename T, typename U>
Status store(const Result<T>& parsed, std::optional<U>& target) {
  if (!parsed) return parsed.error();
  target = static_cast<U>(parsed.value());
  return {};
}

Status storeDuration(std::string_view text, std::optional<Duration>& target) {
  return store(parseDuration(text, Duration{0}, kMaxDelay), target);
}

Status storeShare(std::string_view text, std::optional<double>& target) { return store(parsePercentage(text), target); }

Status storeQueue(std::string_view text, std::optional<std::uint64_t>& target) {
  if (text == "unlimited") {
    target = 0;
    return {};
  }
  const Result<std::uint64_t> parsed = parseBytes(text, 1, kMaxQueueBytes);
  if (!parsed) {
    Error error = parsed.error();
    error.message += ", or \"unlimited\"";
    return error;
  }
  return store(parsed, target);
}

struct Setting {
  std::string_view name;
  Status (*set)(EdgeChange& change, std::string_view text);
};

constexpr Setting kSettings[] = {
    {"rate",
     [](EdgeChange& change, std::string_view text) { return store(parseRate(text), change.rateBitsPerSecond); }},
    {"overhead",
     [](EdgeChange& change, std::string_view text) {
       return store(parseBytes(text, 0, kMaxOverheadBytes), change.overheadBytes);
     }},
    {"queue", [](EdgeChange& change, std::string_view text) { return storeQueue(text, change.queueBytes); }},
    {"delay", [](EdgeChange& change, std::string_view text) { return storeDuration(text, change.delay); }},
    {"jitter", [](EdgeChange& change, std::string_view text) { return storeDuration(text, change.jitter); }},
    {"loss", [](EdgeChange& change, std::string_view text) { return storeShare(text, change.loss); }},
    {"burst_enter", [](EdgeChange& change, std::string_view text) { return storeShare(text, change.burstEnter); }},
    {"burst_leave", [](EdgeChange& change, std::string_view text) { return storeShare(text, change.burstLeave); }},
    {"burst_loss", [](EdgeChange& change, std::string_view text) { return storeShare(text, change.burstLoss); }},
    {"duplication", [](EdgeChange& change, std::string_view text) { return storeShare(text, change.duplication); }},
    {"reordering", [](EdgeChange& change, std::string_view text) { return storeShare(text, change.reordering); }},
    {"reorder_delay",
     [](EdgeChange& change, std::string_view text) { return storeDuration(text, change.reorderDelay); }},
    {"corruption", [](EdgeChange& change, std::string_view text) { return storeShare(text, change.corruption); }},
};

const Setting* find(std::string_view key) {
  for (const Setting& each : kSettings) {
    if (each.name == key) return &each;
  }
  return nullptr;
}

}  // namespace

void EdgeChange::applyTo(EdgeModel& model) const {
  const auto take = [](const auto& from, auto& to) {
    if (from) to = *from;
  };
  take(rateBitsPerSecond, model.rateBitsPerSecond);
  take(delay, model.delay);
  take(jitter, model.jitter);
  take(reorderDelay, model.reorderDelay);
  take(loss, model.loss);
  take(burstEnter, model.burstEnter);
  take(burstLeave, model.burstLeave);
  take(burstLoss, model.burstLoss);
  take(duplication, model.duplication);
  take(reordering, model.reordering);
  take(corruption, model.corruption);
  take(queueBytes, model.queueBytes);
  take(overheadBytes, model.overheadBytes);
  take(up, model.up);
}

Status setEdge(EdgeChange& change, std::string_view key, std::string_view text) { return find(key)->set(change, text); }

bool isEdgeSetting(std::string_view key) { return find(key) != nullptr; }

const std::vector<std::string>& edgeSettingNames() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> list;
    for (const Setting& each : kSettings) list.emplace_back(each.name);
    return list;
  }();
  return names;
}

}  // namespace gloo_bypass::fabric
