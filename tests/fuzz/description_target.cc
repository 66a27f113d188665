// All later code must be able to work with an accepted description of a fabric.
#include <algorithm>
#include <cctype>
#include <set>
#include <string>
#include <string_view>

#include "tests/fuzz/fuzz_target.h"
#include "tools/fabric/core/description.h"
#include "tools/fabric/core/netem.h"
#include "tools/fabric/core/schedule.h"
#include "transport/base/check.h"

namespace gloo_bypass::fuzz {
namespace {

using namespace gloo_bypass::fabric;

constexpr std::size_t kMaxFlags = 20;
constexpr std::size_t kMaxUpdates = 5'000;  // of all edges together; more take too long for one input
constexpr int kFrames = 20;

// Text; after a zero byte flags, one a line: SECTION VALUE.
DescriptionInput inputOf(std::span<const std::uint8_t> bytes) {
  DescriptionInput input;
  const std::string all(bytes.begin(), bytes.end());
  const std::size_t zero = std::min(all.find('\0'), all.size());
  input.text = all.substr(0, zero);
  input.name = "fuzzed.toml";
  for (std::size_t at = zero + 1; at < all.size() && input.flags.size() < kMaxFlags;) {
    const std::size_t end = std::min(all.find('\n', at), all.size());
    const std::string line = all.substr(at, end - at);
    const std::size_t blank = std::min(line.find(' '), line.size());
    input.flags.push_back({line.substr(0, blank), line.substr(std::min(blank + 1, line.size()))});
    at = end + 1;
  }
  return input;
}

void checkModel(const EdgeModel& model) {
  for (const double share : {model.loss, model.burstEnter, model.burstLeave, model.burstLoss, model.duplication,
                             model.reordering, model.corruption}) {
    GLOO_BYPASS_CHECK(share >= 0 && share <= 1);
  }
  for (const Duration each : {model.delay, model.jitter, model.reorderDelay}) {
    GLOO_BYPASS_CHECK(each >= Duration{0} && each <= std::chrono::hours(3));
  }
  GLOO_BYPASS_CHECK(model.rateBitsPerSecond <= EdgeEmulator::kMaxRateBitsPerSecond);
}

void checkHosts(const Description& description) {
  const std::size_t count = description.hosts.size();
  GLOO_BYPASS_CHECK(count >= 2 && count <= kMaxHosts && description.edges.size() == count * count);
  std::set<std::string> names;
  std::set<std::uint32_t> addresses;
  for (const HostDescription& host : description.hosts) {
    names.insert(host.name);
    addresses.insert(host.ipv4);
    GLOO_BYPASS_CHECK(host.prefixLength == description.hosts.front().prefixLength);
  }
  GLOO_BYPASS_CHECK(names.size() == count && addresses.size() == count);
}

// No character that a shell would treat specially.
void checkCommand(const std::string& command) {
  GLOO_BYPASS_CHECK(std::all_of(command.begin(), command.end(), [](char each) {
    return std::isalnum(static_cast<unsigned char>(each)) != 0 ||
           std::string_view(" .:/%-").find(each) != std::string_view::npos;
  }));
}

void drive(const Description& description) {
  constexpr TimePoint kStart = TimePoint{} + std::chrono::hours(1);
  EdgeEmulator edge = description.makeEdge(0, 1);
  for (int i = 0; i < kFrames; ++i) (void)edge.offer(kStart, 1'514);
  Schedule schedule(description);
  Duration last{-1};
  std::size_t updates = 0;
  while (const std::optional<Duration> at = schedule.next()) {
    GLOO_BYPASS_CHECK(*at > last);
    last = *at;
    for (const EdgeUpdate& update : schedule.due(*at)) {
      checkModel(update.model);
      ++updates;
      if (update.edge == EdgeId{0, 1}) edge.setModel(update.model);
    }
    for (int i = 0; i < kFrames; ++i) (void)edge.offer(kStart + *at, 1'514);
    if (updates > kMaxUpdates) return;
  }
  GLOO_BYPASS_CHECK(edge.counters().offered == edge.counters().accepted + edge.counters().lost());
  const auto plan = netemPlan(description, 0, "eth0");
  if (!plan.ok()) return;
  for (const std::string& command : plan.value().setUp) checkCommand(command);
  for (const NetemPlan::Change& change : plan.value().changes) {
    for (const std::string& command : change.commands) checkCommand(command);
  }
}

}  // namespace

void fuzzDescription(std::span<const std::uint8_t> input) {
  const Result<Description> result = parseDescription(inputOf(input));
  if (!result.ok()) {
    const std::string& message = result.error().message;
    GLOO_BYPASS_CHECK(!message.empty() && std::none_of(message.begin(), message.end(), [](char each) {
      return static_cast<unsigned char>(each) < 0x20;
    }));
    return;
  }
  checkHosts(result.value());
  for (std::size_t i = 0; i < result.value().edges.size(); ++i) checkModel(result.value().edges[i]);
  drive(result.value());
}

}  // namespace gloo_bypass::fuzz
