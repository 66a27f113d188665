#include "tools/fabric/core/edge_settings.h"

#include <type_traits>

#include "tools/fabric/core/quantity.h"

namespace gloo_bypass::fabric {
namespace {

constexpr Duration kMaxDelay = std::chrono::hours(1);
constexpr std::uint64_t kMaxQueueBytes = std::uint64_t{1} << 40;
constexpr std::uint64_t kMaxOverheadBytes = 1024;

Result<Duration> parseDelay(std::string_view text) { return parseDuration(text, Duration{0}, kMaxDelay); }

Result<std::uint64_t> parseOverhead(std::string_view text) { return parseBytes(text, 0, kMaxOverheadBytes); }

Result<std::uint64_t> parseQueue(std::string_view text) {
  if (text == "unlimited") return std::uint64_t{0};
  const Result<std::uint64_t> parsed = parseBytes(text, 1, kMaxQueueBytes);
  if (parsed) return parsed;
  Error error = parsed.error();
  error.message += ", or \"unlimited\"";
  return error;
}

// Sets a member of a change to what a text says.
template <auto kMember, auto kParse>
Status store(EdgeChange& change, std::string_view text) {
  const auto parsed = kParse(text);
  if (!parsed) return parsed.error();
  using Value = typename std::remove_reference_t<decltype(change.*kMember)>::value_type;
  change.*kMember = static_cast<Value>(parsed.value());
  return {};
}

struct Setting {
  std::string_view name;
  Status (*set)(EdgeChange& change, std::string_view text);
};

constexpr Setting kSettings[] = {
    {"rate", store<&EdgeChange::rateBitsPerSecond, parseRate>},
    {"overhead", store<&EdgeChange::overheadBytes, parseOverhead>},
    {"queue", store<&EdgeChange::queueBytes, parseQueue>},
    {"delay", store<&EdgeChange::delay, parseDelay>},
    {"jitter", store<&EdgeChange::jitter, parseDelay>},
    {"loss", store<&EdgeChange::loss, parsePercentage>},
    {"burst_enter", store<&EdgeChange::burstEnter, parsePercentage>},
    {"burst_leave", store<&EdgeChange::burstLeave, parsePercentage>},
    {"burst_loss", store<&EdgeChange::burstLoss, parsePercentage>},
    {"duplication", store<&EdgeChange::duplication, parsePercentage>},
    {"reordering", store<&EdgeChange::reordering, parsePercentage>},
    {"reorder_delay", store<&EdgeChange::reorderDelay, parseDelay>},
    {"corruption", store<&EdgeChange::corruption, parsePercentage>},
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
