#include "tools/tune/fastest.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include <fmt/format.h>

namespace gloo_bypass {
namespace {

using collectives::isTwoLevel;
using collectives::Kind;
using collectives::nameOf;
using collectives::Rule;

// By size, what was measured of one kind and number of ranks.
using Sizes = std::map<std::size_t, std::vector<Measured>>;

const Measured& fastestOf(const std::vector<Measured>& candidates) {
  return *std::min_element(candidates.begin(), candidates.end(),
                           [](const Measured& a, const Measured& b) { return a.microseconds < b.microseconds; });
}

std::string reasonFor(const Measured& chosen, const std::vector<Measured>& candidates) {
  std::string text = fmt::format("{:.1f} us for {} bytes", chosen.microseconds, chosen.bytes);
  const Measured* next = nullptr;
  for (const Measured& other : candidates) {
    if (other.algorithm == chosen.algorithm) continue;
    if (next == nullptr || other.microseconds < next->microseconds) next = &other;
  }
  if (next != nullptr) text += fmt::format(", {} {:.1f} us", nameOf(next->algorithm), next->microseconds);
  return text;
}

std::vector<Rule> rulesOf(const Sizes& sizes, double tolerance, int upToRanks) {
  std::vector<Rule> rules;
  const Measured* before = nullptr;
  for (const auto& [bytes, candidates] : sizes) {
    const Measured* chosen = &fastestOf(candidates);
    if (before != nullptr) {
      const auto same = std::find_if(candidates.begin(), candidates.end(), [&](const Measured& candidate) {
        return candidate.algorithm == before->algorithm;
      });
      if (same != candidates.end() && same->microseconds <= (1 + tolerance) * chosen->microseconds) chosen = &*same;
    }
    if (before == nullptr || chosen->algorithm != before->algorithm) {
      if (before != nullptr) {
        rules.back().upToBytes = static_cast<std::size_t>(std::sqrt(static_cast<double>(before->bytes) *  //
                                                                    static_cast<double>(bytes)));
      }
      Rule rule;
      rule.kind = chosen->kind;
      rule.upToRanks = upToRanks;
      rule.algorithm = chosen->algorithm;
      rule.why = reasonFor(*chosen, candidates);
      rules.push_back(std::move(rule));
    }
    before = chosen;
  }
  return rules;
}

bool hasTwoLevels(const Sizes& sizes) {
  return std::any_of(sizes.begin(), sizes.end(), [](const auto& each) {
    return std::any_of(each.second.begin(), each.second.end(),
                       [](const Measured& one) { return isTwoLevel(one.algorithm); });
  });
}

Sizes withoutTwoLevels(Sizes sizes) {
  for (auto& [bytes, candidates] : sizes)
    std::erase_if(candidates, [](const Measured& one) { return isTwoLevel(one.algorithm); });
  std::erase_if(sizes, [](const auto& each) { return each.second.empty(); });
  return sizes;
}

}  // namespace

std::vector<Rule> fastestRules(std::vector<Measured> measured, double tolerance) {
  std::map<Kind, std::map<int, Sizes>> sorted;
  for (Measured& one : measured) sorted[one.kind][one.ranks][one.bytes].push_back(one);
  std::vector<Rule> rules;
  for (const auto& [kind, byRanks] : sorted) {
    for (const auto& [ranks, sizes] : byRanks) {
      const int upToRanks = ranks == byRanks.rbegin()->first ? INT_MAX : ranks;
      std::vector<Rule> found = rulesOf(sizes, tolerance, upToRanks);
      const bool wins =
          std::any_of(found.begin(), found.end(), [](const Rule& rule) { return isTwoLevel(rule.algorithm); });
      if (wins) {
        for (Rule& rule : found) rule.sharedHostsOnly = true;
        rules.insert(rules.end(), found.begin(), found.end());
        found = rulesOf(withoutTwoLevels(sizes), tolerance, upToRanks);
      }
      for (Rule& rule : found) rule.ownHostsOnly = wins || !hasTwoLevels(sizes);
      rules.insert(rules.end(), found.begin(), found.end());
    }
  }
  return rules;
}

}  // namespace gloo_bypass
