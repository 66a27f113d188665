#include "collectives/schedule/choices.h"

#include <algorithm>
#include <array>
#include <bit>
#include <optional>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "collectives/schedule/hosts.h"
#include "transport/base/printable.h"

namespace gloo_bypass::collectives {
namespace {

using Json = nlohmann::json;

constexpr const char* kVersionKey = "gloo_bypass_choices";
constexpr int kVersion = 1;
constexpr std::size_t kMostRules = 512, kMostWhy = 200;

constexpr std::size_t kAny = SIZE_MAX;
constexpr std::size_t kKiB = 1024, kMiB = 1024 * kKiB;

const std::vector<Rule>& builtInRules() {
  constexpr int kAll = INT_MAX;
  constexpr int kMostOnRails = 64;  // more were not measured: a rank exchanges messages with every host
  constexpr const char* kCrossesOnce = "few trips and few bytes between hosts, over all their ranks at a time";
  static const std::vector<Rule> rules = {
      {Kind::kAllReduce, 16 * kKiB, kMostOnRails, true, Algorithm::kTwoLevelOneShot,
       "short: one message each way between hosts"},
      {Kind::kAllReduce, 256 * kKiB, 8, true, Algorithm::kTwoLevelOneShot, "few messages, and few between hosts"},
      {Kind::kAllReduce, kAny, kMostOnRails, true, Algorithm::kTwoLevelRails, kCrossesOnce},
      {Kind::kAllReduce, 16 * kKiB, 4, false, Algorithm::kOneShot,
       "short: one network round costs more than the bytes"},
      {Kind::kAllReduce, 4 * kKiB, 16, false, Algorithm::kOneShot,
       "short: one network round costs more than the bytes"},
      {Kind::kAllReduce, kMiB, 16, false, Algorithm::kDirect, "two rounds, and each byte is added once"},
      {Kind::kAllReduce, kMiB, kAll, false, Algorithm::kHalvingDoubling, "many ranks: few rounds, few messages"},
      {Kind::kAllReduce, kAny, kAll, false, Algorithm::kRing,
       "long: least bytes, and one peer at a time sends to a rank"},
      {Kind::kAllReduce, kAny, kAll, false, Algorithm::kDirect, "it adds in the order of ranks"},
      {Kind::kReduce, kMiB, kAll, false, Algorithm::kBinomial, "short: few rounds, few messages"},
      {Kind::kReduce, kAny, kMostOnRails, true, Algorithm::kTwoLevelRails, kCrossesOnce},
      {Kind::kReduce, kAny, kAll, false, Algorithm::kDirect, "long: all ranks add a part"},
      {Kind::kReduceScatter, 64 * kKiB, 16, true, Algorithm::kDirect, "short: one round"},
      {Kind::kReduceScatter, kAny, kMostOnRails, true, Algorithm::kTwoLevelRails, kCrossesOnce},
      {Kind::kReduceScatter, kMiB, 16, false, Algorithm::kDirect, "one round"},
      {Kind::kReduceScatter, kAny, kAll, false, Algorithm::kRing, "long: one peer at a time sends to a rank"},
      {Kind::kReduceScatter, kAny, kAll, false, Algorithm::kDirect, "it adds in the order of ranks"},
      {Kind::kAllGather, 64 * kKiB, 16, true, Algorithm::kDirect, "short: one round"},
      {Kind::kAllGather, kAny, kMostOnRails, true, Algorithm::kTwoLevelRails, kCrossesOnce},
      {Kind::kAllGather, kMiB, 16, false, Algorithm::kDirect, "one round"},
      {Kind::kAllGather, kAny, kAll, false, Algorithm::kRing, "long: one peer at a time sends to a rank"},
      {Kind::kGather, kAny, kAll, false, Algorithm::kDirect, "all data goes to one rank, whatever the way"},
      {Kind::kBroadcast, 256 * kKiB, kAll, false, Algorithm::kBinomial, "short: few rounds"},
      {Kind::kBroadcast, kAny, kMostOnRails, true, Algorithm::kTwoLevelRails, kCrossesOnce},
      {Kind::kBroadcast, kAny, kAll, false, Algorithm::kScatterAllGather,
       "long: no rank sends more than twice the data"},
      {Kind::kScatter, kAny, kAll, false, Algorithm::kDirect, "all data comes from one rank, whatever the way"},
      {Kind::kAllToAll, kAny, kAll, false, Algorithm::kDirect, "each block goes straight to its rank"},
      {Kind::kBarrier, kAny, kMostOnRails, true, Algorithm::kTwoLevelRails, "one trip between hosts"},
      {Kind::kBarrier, kAny, kAll, false, Algorithm::kDissemination, "few rounds"},
  };
  return rules;
}

// A slice sets at most about two parts a rank aside, several slices at a time. Where a step adds several messages,
// these lie there until all have arrived, and should stay in the cache. Elsewhere a message is added while it arrives,
// and a long one is cheap: over UDP with packets of 1,500 bytes, parts of 1 MiB were 10 % faster than parts of 256 KiB.
constexpr std::size_t kSliceBytes = 8 * kMiB, kSliceBytesOfManySums = 2 * kMiB;
constexpr std::size_t kMostPartBytes = kMiB, kLeastPartBytes = 4 * kKiB;
// Longer messages wait for the receiver's grant (GLOO_BYPASS_RENDEZVOUS_BYTES). Up to four that do not wait are faster
// than one that does.
constexpr std::size_t kUnaskedBytes = 32 * kKiB;
constexpr std::size_t kMostUnaskedParts = 4;

// Whether one of its steps does, of any kind, with so many ranks that no algorithm can do without.
std::array<bool, kAlgorithms> findThoseThatAddSeveral() {
  constexpr int kRanks = 8;
  std::array<bool, kAlgorithms> found{};
  for (const AlgorithmRow& row : algorithms()) {
    for (int rank = 0; rank < kRanks; ++rank) {
      const Schedule schedule = row.make({.rank = rank, .size = kRanks});
      const bool adds = std::any_of(schedule.steps.begin(), schedule.steps.end(), [](const Step& step) {
        return step.action == Action::kReduce && step.peers.size() > 2;
      });
      if (adds) found[static_cast<std::size_t>(row.algorithm)] = true;
    }
  }
  return found;
}

bool addsSeveralMessages(Algorithm algorithm) {
  static const std::array<bool, kAlgorithms> several = findThoseThatAddSeveral();
  return several[static_cast<std::size_t>(algorithm)];
}

Error wrong(std::string text) { return {ErrorScope::kSession, ErrorCode::kConfiguration, std::move(text)}; }

std::optional<Kind> kindNamed(std::string_view name) {
  for (int kind = 0; kind < kKinds; ++kind) {
    if (name == nameOf(static_cast<Kind>(kind))) return static_cast<Kind>(kind);
  }
  return std::nullopt;
}

std::string algorithmsOf(std::optional<Kind> kind) {
  std::string names;
  for (int i = 0; i < kAlgorithms; ++i) {
    const auto algorithm = static_cast<Algorithm>(i);
    if (kind && findAlgorithm(*kind, algorithm) == nullptr) continue;
    if (!names.empty()) names += ", ";
    names += nameOf(algorithm);
  }
  return names;
}

Rule ruleOf(const AlgorithmRow& row) {
  Rule rule;
  rule.kind = row.kind;
  rule.algorithm = row.algorithm;
  return rule;
}

// The row that these texts name.
Result<Rule> ruleNamed(std::string_view kindName, std::string_view algorithmName) {
  const auto kind = kindNamed(kindName);
  if (!kind) return wrong(fmt::format("there is no operation '{}'", printable(kindName)));
  const auto algorithm = algorithmNamed(algorithmName);
  const AlgorithmRow* row = algorithm ? findAlgorithm(*kind, *algorithm) : nullptr;
  if (row == nullptr) {
    return wrong(fmt::format("there is no algorithm '{}' for {}: use one of {}", printable(algorithmName),
                             nameOf(*kind), algorithmsOf(kind)));
  }
  return ruleOf(*row);
}

// Throws Json::exception for a field of another type.
Result<Rule> ruleIn(const Json& json) {
  auto rule = ruleNamed(json.at("kind").get<std::string>(), json.at("algorithm").get<std::string>());
  if (!rule) return rule;
  Rule made = std::move(rule).value();
  if (json.contains("up_to_bytes")) {
    if (!json["up_to_bytes"].is_number_unsigned()) return wrong("up_to_bytes is no number of bytes");
    made.upToBytes = json["up_to_bytes"].get<std::size_t>();
  }
  if (json.contains("up_to_ranks")) {
    if (!json["up_to_ranks"].is_number_unsigned() || json["up_to_ranks"] > INT_MAX)
      return wrong("up_to_ranks is no number of ranks");
    made.upToRanks = json["up_to_ranks"].get<int>();
  }
  made.sharedHostsOnly = json.value("shared_hosts_only", false);
  made.ownHostsOnly = json.value("own_hosts_only", false);
  made.why = printable(json.value("why", std::string()).substr(0, kMostWhy));
  return made;
}

Json jsonOf(const Rule& rule) {
  Json json{{"kind", nameOf(rule.kind)}, {"algorithm", nameOf(rule.algorithm)}, {"why", rule.why}};
  if (rule.upToBytes != kAny) json["up_to_bytes"] = rule.upToBytes;
  if (rule.upToRanks != INT_MAX) json["up_to_ranks"] = rule.upToRanks;
  if (rule.sharedHostsOnly) json["shared_hosts_only"] = true;
  if (rule.ownHostsOnly) json["own_hosts_only"] = true;
  return json;
}

}  // namespace

Choice choiceOf(Algorithm algorithm, int size) {
  // Rails may cross to far hosts, which long slices fill; between near ones shorter slices were not faster.
  const bool addsSeveral = addsSeveralMessages(algorithm) && algorithm != Algorithm::kTwoLevelRails;
  const std::size_t slice = addsSeveral ? kSliceBytesOfManySums : kSliceBytes;
  const std::size_t each = slice / static_cast<std::size_t>(std::max(1, size));
  return {.algorithm = algorithm,
          .partBytes = std::bit_floor(std::clamp(each, kLeastPartBytes, kMostPartBytes)),
          .mostSlices = addsSeveral ? kSlicesUnderWay : kMostSlicesUnderWay};
}

bool shareHosts(std::span<const int> hostOf) {
  if (hostOf.empty()) return false;
  const Hosts hosts(0, hostOf);
  return hosts.count() > 1 && hosts.mostRanks() > 1;
}

ChoiceTable::ChoiceTable() = default;

Result<ChoiceTable> ChoiceTable::parse(std::string_view text) {
  ChoiceTable table;
  const Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object() || !json.contains(kVersionKey)) return wrong("this is no table of choices, which tune writes");
  if (json[kVersionKey] != kVersion)
    return wrong(fmt::format("this table has another version than {}: measure it anew", kVersion));
  std::size_t at = 0;
  try {
    const Json& rules = json.at("rules");
    if (!rules.is_array() || rules.size() > kMostRules)
      return wrong(fmt::format("rules must be a list of at most {}", kMostRules));
    for (const Json& rule : rules) {
      auto made = ruleIn(rule);
      if (!made) return wrong(fmt::format("rule {}: {}", at, made.error().message));
      table.rules_.push_back(std::move(made).value());
      ++at;
    }
    table.inOrder_ = json.value("in_order", false);
  } catch (const Json::exception& error) {
    return wrong(fmt::format("rule {}: {}", at, printable(error.what())));
  }
  return table;
}

void ChoiceTable::prefer(std::vector<Rule> rules) {
  rules_.insert(rules_.begin(), std::make_move_iterator(rules.begin()), std::make_move_iterator(rules.end()));
}

void ChoiceTable::prefer(Algorithm algorithm) { (void)prefer(std::string_view(nameOf(algorithm))); }

Status ChoiceTable::prefer(std::string_view names) {
  std::vector<Rule> preferred;
  for (std::string_view left = names; !left.empty();) {
    const std::string_view one = left.substr(0, left.find(','));
    left.remove_prefix(std::min(left.size(), one.size() + 1));
    const std::size_t equals = one.find('=');
    if (equals != std::string_view::npos) {
      auto rule = ruleNamed(one.substr(0, equals), one.substr(equals + 1));
      if (!rule) return rule.error();
      preferred.push_back(std::move(rule).value());
      continue;
    }
    const auto algorithm = algorithmNamed(one);
    if (!algorithm) {
      return wrong(
          fmt::format("there is no algorithm '{}': use one of {}", printable(one), algorithmsOf(std::nullopt)));
    }
    for (const AlgorithmRow& row : algorithms()) {
      if (row.algorithm == *algorithm) preferred.push_back(ruleOf(row));
    }
  }
  for (Rule& rule : preferred) rule.why = "chosen by name";
  prefer(std::move(preferred));
  return {};
}

Status ChoiceTable::addsInOrderOfRanks() const {
  for (const Rule& rule : rules_) {
    if (findAlgorithm(rule.kind, rule.algorithm)->addsInOrder) continue;
    return wrong(fmt::format("{} by {} does not add in the order of ranks", nameOf(rule.kind), nameOf(rule.algorithm)));
  }
  return {};
}

const Rule& ChoiceTable::ruleFor(const Circumstances& circumstances) const {
  const auto fits = [&](const Rule& rule) {
    return rule.kind == circumstances.kind && circumstances.bytes <= rule.upToBytes &&
           circumstances.ranks <= rule.upToRanks && (!rule.sharedHostsOnly || circumstances.sharedHosts) &&
           (!rule.ownHostsOnly || !circumstances.sharedHosts) &&
           (!inOrder_ || findAlgorithm(rule.kind, rule.algorithm)->addsInOrder);
  };
  const auto own = std::find_if(rules_.begin(), rules_.end(), fits);
  return own != rules_.end() ? *own : *std::find_if(builtInRules().begin(), builtInRules().end(), fits);
}

Choice ChoiceTable::choose(const Circumstances& circumstances) const {
  Choice choice = choiceOf(ruleFor(circumstances).algorithm, circumstances.ranks);
  const std::size_t each = circumstances.bytes / static_cast<std::size_t>(std::max(1, circumstances.ranks));
  if (each > kUnaskedBytes && each <= kMostUnaskedParts * kUnaskedBytes)
    choice.partBytes = std::min(choice.partBytes, kUnaskedBytes);
  return choice;
}

std::string ChoiceTable::explain(const Circumstances& circumstances) const {
  const Rule& rule = ruleFor(circumstances);
  std::string limits;
  if (rule.upToBytes != kAny) {
    limits += rule.upToBytes % kKiB == 0 ? fmt::format(" up to {} KiB", rule.upToBytes / kKiB)
                                         : fmt::format(" up to {} bytes", rule.upToBytes);
  }
  if (rule.upToRanks != INT_MAX) limits += fmt::format(" up to {} ranks", rule.upToRanks);
  if (rule.sharedHostsOnly) limits += " with several ranks a host";
  if (rule.ownHostsOnly) limits += " where no ranks share a host";
  return fmt::format("{} of {} bytes among {} ranks: {} ({}). {}; the rule holds{}", nameOf(circumstances.kind),
                     circumstances.bytes, circumstances.ranks, nameOf(rule.algorithm),
                     findAlgorithm(rule.kind, rule.algorithm)->cost, rule.why,
                     limits.empty() ? " for all that no rule before it takes" : limits);
}

std::string ChoiceTable::text() const {
  Json json{{kVersionKey, kVersion}, {"in_order", inOrder_}, {"rules", Json::array()}};
  for (const Rule& rule : rules_) json["rules"].push_back(jsonOf(rule));
  return json.dump();
}

}  // namespace gloo_bypass::collectives
