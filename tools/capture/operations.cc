#include "tools/capture/operations.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <string>
#include <tuple>
#include <utility>

#include <fmt/format.h>

namespace gloo_bypass::capture {
namespace {

using Index = std::uint32_t;

// Sessions in groups, each named by one of its sessions.
class Groups {
 public:
  explicit Groups(const std::vector<OperationSession>& sessions) : leads_(sessions.size()), pairs_(sessions.size()) {
    std::iota(leads_.begin(), leads_.end(), Index{0});
    for (std::size_t i = 0; i < sessions.size(); ++i) pairs_[i].emplace(sessions[i].from, sessions[i].to);
  }

  Index of(Index session) {
    while (leads_[session] != session) session = leads_[session] = leads_[leads_[session]];
    return session;
  }
  // Not if both have a session from one and the same rank to another.
  void join(Index a, Index b) {
    a = of(a);
    b = of(b);
    if (a == b) return;
    if (pairs_[a].size() < pairs_[b].size()) std::swap(a, b);
    for (const auto& pair : pairs_[b])
      if (pairs_[a].contains(pair)) return;
    pairs_[a].merge(pairs_[b]);
    leads_[b] = a;
  }

 private:
  std::vector<Index> leads_;
  std::vector<std::set<std::pair<RankAddress, RankAddress>>> pairs_;
};

// Indices of parts, by session and number. A session has each number once.
class PartsBySession {
 public:
  explicit PartsBySession(const std::vector<OperationPart>& parts) : parts_(parts), order_(parts.size()) {
    std::iota(order_.begin(), order_.end(), Index{0});
    std::stable_sort(order_.begin(), order_.end(), [&](Index a, Index b) { return keyOf(a) < keyOf(b); });
  }
  const OperationPart* find(Index session, std::uint64_t number) const {
    const std::pair key(session, number);
    const auto found =
        std::lower_bound(order_.begin(), order_.end(), key, [&](Index a, const auto& k) { return keyOf(a) < k; });
    return found != order_.end() && keyOf(*found) == key ? &parts_[*found] : nullptr;
  }

 private:
  std::pair<Index, std::uint64_t> keyOf(Index part) const { return {parts_[part].session, parts_[part].number}; }

  const std::vector<OperationPart>& parts_;
  std::vector<Index> order_;
};

bool mayBeTheSame(const OperationPart& a, const OperationPart& b) {
  return !a.description || !b.description || a.description == b.description;
}

// Joins `part`'s session, which begins with it, to those of its group that began before.
void joinOthers(const OperationPart& part, const std::vector<OperationSession>& sessions,
                const std::vector<Index>& before, const PartsBySession& bySession, Groups& groups) {
  const OperationSession& own = sessions[part.session];
  std::vector<std::pair<CaptureTime, Index>> candidates;
  for (const Index other : before) {
    const OperationSession& with = sessions[other];
    const bool shares = own.from == with.from || own.from == with.to || own.to == with.from || own.to == with.to;
    const OperationPart* const same = shares ? bySession.find(other, part.number) : nullptr;
    if (same == nullptr || !mayBeTheSame(part, *same)) continue;
    const CaptureTime apart =
        std::max(part.totals.first, same->totals.first) - std::min(part.totals.first, same->totals.first);
    candidates.emplace_back(apart, other);
  }
  std::sort(candidates.begin(), candidates.end());
  std::set<Index> tried;  // each group once, which bounds the time that a crafted capture takes
  for (const auto& [apart, other] : candidates) {
    if (tried.insert(groups.of(other)).second) groups.join(part.session, other);
  }
}

Groups groupsOf(const OperationParts& parts) {
  Groups groups(parts.sessions());
  const PartsBySession bySession(parts.parts());
  std::vector<Index> before;
  std::vector<bool> known(parts.sessions().size());
  for (const OperationPart& part : parts.parts()) {
    if (known[part.session]) continue;
    known[part.session] = true;
    joinOthers(part, parts.sessions(), before, bySession, groups);
    before.push_back(part.session);
  }
  return groups;
}

void addPart(const OperationPart& part, Operation& operation) {
  operation.totals += part.totals;
  if (!part.description) return;
  if (operation.description) {
    operation.agreed = operation.agreed && operation.description == part.description;
  } else {
    operation.description = part.description;
    operation.algorithm = part.algorithm;
  }
}

void addRanks(std::map<RankAddress, OperationTotals>& sent, Operation& operation, std::vector<OperationRank>& ranks) {
  operation.ranksBegin = ranks.size();
  operation.lastStart = operation.totals.first;
  for (const auto& [rank, totals] : sent) {
    ranks.push_back({rank, totals});
    operation.lastStart = std::max(operation.lastStart, totals.first);
  }
  operation.ranksEnd = ranks.size();
  sent.clear();
}

}  // namespace

double Operation::seconds() const { return secondsOf(totals.last - totals.first); }
double Operation::skewSeconds() const { return secondsOf(lastStart - totals.first); }

Operations operationsOf(const OperationParts& parts) {
  Operations found;
  Groups groups = groupsOf(parts);
  const auto keyOf = [&](Index part) {
    return std::pair(groups.of(parts.parts()[part].session), parts.parts()[part].number);
  };
  std::vector<Index> order(parts.parts().size());
  std::iota(order.begin(), order.end(), Index{0});
  std::stable_sort(order.begin(), order.end(), [&](Index a, Index b) { return keyOf(a) < keyOf(b); });
  std::map<RankAddress, OperationTotals> sent;
  for (std::size_t i = 0; i < order.size(); ++i) {
    const OperationPart& part = parts.parts()[order[i]];
    const auto key = keyOf(order[i]);
    if (i == 0 || keyOf(order[i - 1]) != key) {
      if (i > 0) addRanks(sent, found.all.back(), found.ranks);
      found.all.push_back({.group = key.first, .number = key.second});
    }
    addPart(part, found.all.back());
    sent[parts.sessions()[part.session].from] += part.totals;
  }
  if (!found.all.empty()) addRanks(sent, found.all.back(), found.ranks);
  std::stable_sort(found.all.begin(), found.all.end(),
                   [](const Operation& a, const Operation& b) { return a.totals.first < b.totals.first; });
  std::map<std::uint32_t, std::uint32_t> numbers;
  for (Operation& operation : found.all) {
    operation.group =
        numbers.try_emplace(operation.group, static_cast<std::uint32_t>(numbers.size() + 1)).first->second;
  }
  found.groups = static_cast<std::uint32_t>(numbers.size());
  return found;
}

std::string callText(const Operation& operation) {
  if (!operation.description) return "?";
  const std::string text = fmt::format("{} ({})", collectives::textOf(*operation.description),
                                       collectives::nameOf(operation.algorithm.value_or(collectives::Algorithm{})));
  return operation.agreed ? text : text + ", and another call: ranks disagree";
}

std::vector<CallStatistics> callStatistics(const Operations& operations) {
  std::map<std::tuple<bool, std::uint64_t, std::uint64_t, int>, std::size_t> indices;
  struct Values {
    const Operation* example;
    std::vector<double> bytes, seconds, skews;
    std::uint64_t bytesInAll = 0, repeatedBytes = 0;
  };
  std::vector<Values> calls;
  for (const Operation& operation : operations.all) {
    const bool known = operation.description.has_value();
    const auto words = known ? collectives::wordsOf(*operation.description) : collectives::DescriptionWords{};
    const int algorithm = operation.algorithm ? static_cast<int>(*operation.algorithm) : -1;
    const auto [place, isNew] = indices.try_emplace({known, words.first, words.count, algorithm}, calls.size());
    if (isNew) calls.push_back({&operation, {}, {}, {}});
    Values& values = calls[place->second];
    values.bytes.push_back(static_cast<double>(operation.totals.bytes));
    values.seconds.push_back(operation.seconds());
    values.skews.push_back(operation.skewSeconds());
    values.bytesInAll += operation.totals.bytes;
    values.repeatedBytes += operation.totals.repeatedBytes;
  }
  std::vector<CallStatistics> statistics;
  for (Values& values : calls) {
    const std::size_t count = values.bytes.size();
    statistics.push_back({values.example, count, spreadOf(std::move(values.bytes)), spreadOf(std::move(values.seconds)),
                          spreadOf(std::move(values.skews)), values.bytesInAll, values.repeatedBytes});
  }
  return statistics;
}

}  // namespace gloo_bypass::capture
