#include "tools/fabric/core/netem.h"

#include <fmt/format.h>

#include <algorithm>

#include "tools/fabric/core/description_source.h"
#include "tools/fabric/core/network_address.h"
#include "tools/fabric/core/quantity.h"
#include "tools/fabric/core/schedule.h"
#include "transport/base/seconds.h"

namespace gloo_bypass::fabric {
namespace {

constexpr std::size_t kMaxOthers = 15;  // prio has 16 bands
// Packets in flight and in the queue together: none is to be lost for this; the queue's limit is tbf's.
constexpr std::uint64_t kNetemLimitPackets = 10'000'000;
// With a rate of its own netem keeps frames in order, which it does not beside jitter, or when a delay falls while
// frames are under way. This one costs a frame under 0.2 us.
constexpr std::uint64_t kOrderKeepingRate = 100'000'000'000;
// What tbf may send at once: above the largest frame it must be, above the rate in one timer's lateness it should be.
constexpr std::uint64_t kMinBurstBytes = 16 * 1024;
constexpr std::uint64_t kBurstsPerSecond = 10'000;
constexpr Duration kMaxDelay = std::chrono::seconds(250);  // tc has 32 bits of ticks of 64 ns
constexpr Duration kMaxJitter = std::chrono::seconds(4);   // netem narrows half of it to 31 bits of nanoseconds
constexpr std::uint64_t kUnlimitedQueueBytes = 0xffff'ffff;
constexpr std::uint64_t kMinQueueBytes = 10'000;  // a frame, jumbo ones included

Error refuse(std::string message) { return Error{ErrorScope::kDevice, ErrorCode::kConfiguration, std::move(message)}; }

// tc of 2023 knows no nanoseconds, but parts of a microsecond.
std::string exactly(Duration duration) { return fmt::format("{}us", static_cast<double>(duration.count()) / 1e3); }
std::string share(double probability) { return fmt::format("{:.9g}%", probability * 100); }

class Plan {
 public:
  Plan(const Description& description, std::size_t host, std::string_view interface)
      : description_(description), host_(host), interface_(interface) {}

  Result<NetemPlan> make() {
    if (!isInterfaceName(interface_)) return refuse(fmt::format("\"{}\" is no interface's name", interface_));
    for (std::size_t to = 0; to < description_.hosts.size(); ++to) {
      if (to != host_) others_.push_back(to);
    }
    if (others_.size() > kMaxOthers) {
      return refuse(
          fmt::format("netem on {}: {} has {} other hosts, and tc's prio has bands for {}; describe fewer hosts",
                      interface_, description_.hosts[host_].name, others_.size(), kMaxOthers));
    }
    NetemPlan plan;
    plan.setUp.push_back(
        fmt::format("tc qdisc add dev {} root handle 1: prio bands {} priomap 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0",
                    interface_, others_.size() + 1));
    for (const std::size_t to : others_) {
      const EdgeModel& model = description_.edge(host_, to);
      if (Status status = addEdge(plan.setUp, to, model, nullptr); !status) return status.error();
      plan.setUp.push_back(
          fmt::format("tc filter add dev {} parent 1: protocol ip prio 1 u32 match ip dst {}/32 flowid 1:{:x}",
                      interface_, ipv4Text(description_.hosts[to].ipv4), band(to)));
    }
    if (Status status = addChanges(plan.changes); !status) return status.error();
    plan.removal = fmt::format("tc qdisc del dev {} root", interface_);
    return plan;
  }

 private:
  static bool isInterfaceName(std::string_view text) {
    return !text.empty() && text.size() <= 15 && text != "." && text != ".." &&
           text.find_first_not_of(std::string(kNameCharacters) + '@') == std::string_view::npos;
  }

  // Bands count from 1; the first is nobody's.
  std::size_t band(std::size_t to) const {
    return 2 + static_cast<std::size_t>(std::find(others_.begin(), others_.end(), to) - others_.begin());
  }
  std::string netemHandle(std::size_t to) const { return fmt::format("{:x}:", 0x100 + band(to)); }
  std::string tbfHandle(std::size_t to) const { return fmt::format("{:x}:", 0x200 + band(to)); }

  // `before`: the model in force, whose qdiscs are there; null: none are.
  Status addEdge(std::vector<std::string>& commands, std::size_t to, const EdgeModel& model,
                 const EdgeModel* before) const {
    if (Status status = checkExpressible(to, model); !status) return status;
    const char* const verb = before == nullptr ? "add" : "change";
    commands.push_back(fmt::format("tc qdisc {} dev {} parent 1:{:x} handle {} netem limit {}{}{}", verb, interface_,
                                   band(to), netemHandle(to), kNetemLimitPackets, netemWords(model),
                                   endingWords(model, before)));
    const bool hasRate = model.rateBitsPerSecond > 0;
    const bool hadRate = before != nullptr && before->rateBitsPerSecond > 0;
    if (hasRate) {
      commands.push_back(fmt::format("tc qdisc {} dev {} parent {}1 handle {} tbf {}", hadRate ? "change" : "add",
                                     interface_, netemHandle(to), tbfHandle(to), tbfWords(model)));
    } else if (hadRate) {
      commands.push_back(
          fmt::format("tc qdisc del dev {} parent {}1 handle {}", interface_, netemHandle(to), tbfHandle(to)));
    }
    return {};
  }

  Status addChanges(std::vector<NetemPlan::Change>& changes) const {
    Schedule schedule(description_);
    std::vector<EdgeModel> current;
    for (std::size_t to = 0; to < description_.hosts.size(); ++to) current.push_back(description_.edge(host_, to));
    while (const std::optional<Duration> at = schedule.next()) {
      NetemPlan::Change change{*at, {}};
      for (const EdgeUpdate& update : schedule.due(*at)) {
        if (update.edge.from != host_) continue;
        EdgeModel& model = current[update.edge.to];
        if (Status status = addEdge(change.commands, update.edge.to, update.model, &model); !status) return status;
        model = update.model;
      }
      if (!change.commands.empty()) changes.push_back(std::move(change));
    }
    return {};
  }

  // What the kernel cannot do of this model; empty if it can all.
  static std::string beyondNetem(const EdgeModel& model) {
    if (model.duplication > 0) return "duplication: its copies would go through all queues again; leave it out";
    if (model.reordering > 0) return "reordering: it sends some frames early, where a fabric's are late; leave it out";
    if (model.delay + model.jitter > kMaxDelay) {
      return fmt::format("a delay of {}; give at most {}", durationText(model.delay + model.jitter),
                         durationText(kMaxDelay));
    }
    if (model.jitter > kMaxJitter) {
      return fmt::format("a jitter of {}; give at most {}", durationText(model.jitter), durationText(kMaxJitter));
    }
    if (model.rateBitsPerSecond > 0 && model.queueBytes > 0 && model.queueBytes < kMinQueueBytes) {
      return fmt::format("a queue of {}: tbf would lose every frame longer than that; give at least {}",
                         bytesText(model.queueBytes), bytesText(kMinQueueBytes));
    }
    return "";
  }

  Status checkExpressible(std::size_t to, const EdgeModel& model) const {
    const std::string fault = beyondNetem(model);
    if (fault.empty()) return {};
    return refuse(fmt::format("edge {}: netem on {} cannot do {}, or use a transport whose frames cross the fabric",
                              description_.edgeName(host_, to), interface_, fault));
  }

  // A change puts back all that it does not mention, but this.
  static std::string endingWords(const EdgeModel& model, const EdgeModel* before) {
    return before != nullptr && before->corruption > 0 && model.corruption == 0 ? " corrupt 0%" : "";
  }

  static std::string netemWords(const EdgeModel& model) {
    if (!model.up) return " loss 100%";
    const Duration half = model.jitter / 2;
    std::string words = fmt::format(" delay {}", exactly(model.delay + half));
    if (half > Duration{0}) words += fmt::format(" {}", exactly(half));
    words += fmt::format(" rate {}bit", kOrderKeepingRate);
    if (model.burstEnter > 0) {
      // netem's words: p, r, the loss in the bad state, the loss in the good one.
      const double bad = 1 - (1 - model.burstLoss) * (1 - model.loss);
      words += fmt::format(" loss gemodel {} {} {} {}", share(model.burstEnter), share(model.burstLeave), share(bad),
                           share(model.loss));
    } else if (model.loss > 0) {
      words += fmt::format(" loss {}", share(model.loss));
    }
    if (model.corruption > 0) words += fmt::format(" corrupt {}", share(model.corruption));
    return words;
  }

  static std::string tbfWords(const EdgeModel& model) {
    const std::uint64_t burst = std::max(kMinBurstBytes, model.rateBitsPerSecond / 8 / kBurstsPerSecond);
    const std::uint64_t queue =
        model.queueBytes == 0 ? kUnlimitedQueueBytes : std::min(model.queueBytes, kUnlimitedQueueBytes);
    std::string words = fmt::format("rate {}bit burst {}b limit {}b", model.rateBitsPerSecond, burst, queue);
    if (model.overheadBytes > 0) words += fmt::format(" overhead {}", model.overheadBytes);
    return words;
  }

  const Description& description_;
  const std::size_t host_;
  const std::string interface_;
  std::vector<std::size_t> others_;
};

}  // namespace

Result<NetemPlan> netemPlan(const Description& description, std::size_t host, std::string_view interface) {
  return Plan(description, host, interface).make();
}

NetemPlan together(const std::vector<NetemPlan>& plans) {
  NetemPlan all;
  for (const NetemPlan& plan : plans) {
    all.setUp.insert(all.setUp.end(), plan.setUp.begin(), plan.setUp.end());
    all.changes.insert(all.changes.end(), plan.changes.begin(), plan.changes.end());
    all.removal += (all.removal.empty() ? "" : "; ") + plan.removal;
  }
  std::stable_sort(all.changes.begin(), all.changes.end(),
                   [](const NetemPlan::Change& a, const NetemPlan::Change& b) { return a.at < b.at; });
  return all;
}

std::string netemScript(const NetemPlan& plan) {
  std::string script = fmt::format("# for root; {} removes it\nset -e\n", plan.removal);
  const auto add = [&](const std::vector<std::string>& commands) {
    for (const std::string& command : commands) script += command + '\n';
  };
  add(plan.setUp);
  Duration now{0};
  for (const NetemPlan::Change& change : plan.changes) {
    script += fmt::format("sleep {:.6f}  # until {}\n", secondsOf(change.at - now), durationText(change.at));
    now = change.at;
    add(change.commands);
  }
  return script;
}

}  // namespace gloo_bypass::fabric
