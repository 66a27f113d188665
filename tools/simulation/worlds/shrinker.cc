#include "tools/simulation/worlds/shrinker.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

namespace gloo_bypass::sim {
namespace {

class Shrinker {
 public:
  Shrinker(const Script& script, const Finding& finding, std::size_t mostTries, const std::function<bool()>& goOn)
      : best_{script, finding}, mostTries_(mostTries), goOn_(goOn) {}

  Shrunk run() {
    for (bool smaller = true; smaller && mayTry();) {
      smaller = dropLines(&Script::faults);
      smaller = dropLines(&Script::messages) || smaller;
      smaller = dropLines(&Script::operations) || smaller;
      smaller = dropLines(&Script::edges) || smaller;
      smaller = dropLines(&Script::settings) || smaller;
      smaller = dropLines(&Script::pairs) || smaller;
      smaller = dropRanks() || smaller;
      smaller = resetFields() || smaller;
      smaller = lowerQuantities() || smaller;
    }
    return std::move(best_);
  }

 private:
  bool mayTry() const { return best_.tried < mostTries_ && goOn_(); }

  // Whether the candidate breaks the same promise; then it is the best.
  bool keep(const Script& changed) {
    if (!mayTry()) return false;
    // As its text says it, which rounds times: what is printed is what was run.
    auto parsed = parseScript(textOf(changed));
    if (!parsed || parsed.value() == best_.script) return false;
    Script candidate = std::move(parsed).value();
    ++best_.tried;
    WorldResult result = runWorld(candidate);
    for (Finding& finding : result.findings) {
      if (finding.judgement != best_.finding.judgement || finding.promise != best_.finding.promise) continue;
      best_.script = std::move(candidate);
      best_.finding = std::move(finding);
      return true;
    }
    return false;
  }

  template <typename Change>
  bool change(Change&& apply) {
    Script candidate = best_.script;
    apply(candidate);
    return keep(candidate);
  }

  // All, then halves, quarters, and so on to single lines.
  template <typename Line>
  bool dropLines(std::vector<Line> Script::* lines) {
    bool any = false;
    for (std::size_t length = (best_.script.*lines).size(); length > 0; length /= 2) {
      for (std::size_t begin = 0; begin < (best_.script.*lines).size() && mayTry();) {
        const bool dropped = change([&](Script& script) {
          auto& all = script.*lines;
          const auto first = all.begin() + static_cast<std::ptrdiff_t>(begin);
          all.erase(first, first + static_cast<std::ptrdiff_t>(std::min(length, all.size() - begin)));
        });
        any = any || dropped;
        if (!dropped) begin += length;
      }
    }
    return any;
  }

  // A rank with all that names it; those above move down.
  bool dropRanks() {
    bool any = false;
    for (int rank = best_.script.ranks - 1; rank >= 0 && best_.script.ranks > 2; --rank) {
      any = change([rank](Script& script) { dropRank(script, rank); }) || any;
    }
    return any;
  }

  static void dropRank(Script& script, int rank) {
    const auto down = [rank](int& other) { other -= other > rank ? 1 : 0; };
    const auto between = [&](auto& lines) {
      std::erase_if(lines, [rank](const auto& line) { return line.from == rank || line.to == rank; });
      for (auto& line : lines) {
        down(line.from);
        down(line.to);
      }
    };
    --script.ranks;
    script.hosts = std::min(script.hosts, script.ranks);
    std::erase_if(script.settings, [rank](const auto& line) { return line.rank == rank; });
    for (RankScript& line : script.settings) down(line.rank);
    std::erase_if(script.faults, [rank](const FaultScript& line) { return line.rank == rank; });
    for (FaultScript& line : script.faults) down(line.rank);
    between(script.pairs);
    between(script.edges);
    between(script.messages);
    between(script.faults);
    for (OperationScript& line : script.operations) {
      if (line.root == rank) line.root = 0;
      down(line.root);
      if (line.differs == rank) line.differs = -1;
      down(line.differs);
    }
  }

  // ---- Fields, to their defaults.

  template <typename Line, typename Owner, typename Value>
  bool resetField(std::vector<Line> Script::* lines, Value Owner::* field) {
    static const Line kDefault{};
    bool any = false;
    for (std::size_t i = 0; i < (best_.script.*lines).size(); ++i) {
      if ((best_.script.*lines)[i].*field == kDefault.*field) continue;
      any = change([&](Script& script) { (script.*lines)[i].*field = kDefault.*field; }) || any;
    }
    return any;
  }

  template <typename Line, typename Value>
  bool unsetEdge(std::vector<Line> Script::* lines, std::optional<Value> fabric::EdgeChange::* field) {
    bool any = false;
    for (std::size_t i = 0; i < (best_.script.*lines).size(); ++i) {
      if (!((best_.script.*lines)[i].settings.*field)) continue;
      any = change([&](Script& script) { ((script.*lines)[i].settings.*field).reset(); }) || any;
    }
    return any;
  }

  template <typename Line>
  bool unsetEdges(std::vector<Line> Script::* lines) {
    using E = fabric::EdgeChange;
    bool any = unsetEdge(lines, &E::rateBitsPerSecond);
    any = unsetEdge(lines, &E::queueBytes) || any;
    any = unsetEdge(lines, &E::delay) || any;
    any = unsetEdge(lines, &E::jitter) || any;
    any = unsetEdge(lines, &E::reorderDelay) || any;
    any = unsetEdge(lines, &E::loss) || any;
    any = unsetEdge(lines, &E::burstEnter) || any;
    any = unsetEdge(lines, &E::duplication) || any;
    any = unsetEdge(lines, &E::reordering) || any;
    return unsetEdge(lines, &E::corruption) || any;
  }

  bool resetFields() {
    using R = RankScript;
    bool any = resetField(&Script::settings, &R::startAt);
    any = resetField(&Script::settings, &R::turn) || any;
    any = resetField(&Script::settings, &R::congestion) || any;
    any = resetField(&Script::settings, &R::fec) || any;
    any = resetField(&Script::settings, &R::fecPercent) || any;
    any = resetField(&Script::settings, &R::checksum) || any;
    any = resetField(&Script::settings, &R::eagerBytes) || any;
    any = resetField(&Script::settings, &R::bufferBytes) || any;
    any = resetField(&Script::settings, &R::rendezvousBytes) || any;
    any = resetField(&Script::settings, &R::peerTimeout) || any;
    any = resetField(&Script::settings, &R::ahead) || any;
    any = resetField(&Script::settings, &R::lacks) || any;
    any = resetField(&Script::pairs, &PairScript::rails) || any;
    any = resetField(&Script::pairs, &PairScript::datagramBytes) || any;
    any = resetField(&Script::pairs, &PairScript::lossless) || any;
    any = resetField(&Script::pairs, &PairScript::keyPackets) || any;
    any = resetField(&Script::faults, &FaultScript::notice) || any;
    any = unsetEdges(&Script::edges) || any;
    any = unsetEdges(&Script::faults) || any;
    using M = MessageScript;
    any = resetField(&Script::messages, &M::kind) || any;
    any = resetField(&Script::messages, &M::key) || any;
    any = resetField(&Script::messages, &M::room) || any;
    any = resetField(&Script::messages, &M::sendAt) || any;
    any = resetField(&Script::messages, &M::receiveAt) || any;
    any = resetField(&Script::messages, &M::cancelSend) || any;
    any = resetField(&Script::messages, &M::confirmed) || any;
    any = resetField(&Script::messages, &M::consumes) || any;
    using O = OperationScript;
    any = resetField(&Script::operations, &O::kind) || any;
    any = resetField(&Script::operations, &O::type) || any;
    any = resetField(&Script::operations, &O::reduction) || any;
    any = resetField(&Script::operations, &O::root) || any;
    any = resetField(&Script::operations, &O::uneven) || any;
    any = resetField(&Script::operations, &O::inPlace) || any;
    any = resetField(&Script::operations, &O::pause) || any;
    any = change([](Script& script) { script.algorithms.clear(); }) || any;
    any = change([](Script& script) { script.hosts = 1; }) || any;
    return change([](Script& script) { script.callTimeout = Script{}.callTimeout; }) || any;
  }

  // ---- Numbers: a tenth, or a half.

  template <typename Line, typename Owner, typename Value>
  bool lower(std::vector<Line> Script::* lines, Value Owner::* field) {
    bool any = false;
    for (std::size_t i = 0; i < (best_.script.*lines).size(); ++i) {
      for (const int divisor : {10, 2}) {
        while ((best_.script.*lines)[i].*field / divisor != Value{} &&
               change([&](Script& script) { (script.*lines)[i].*field = (script.*lines)[i].*field / divisor; })) {
          any = true;
        }
      }
    }
    return any;
  }

  bool lowerQuantities() {
    bool any = lower(&Script::messages, &MessageScript::length);
    any = lower(&Script::operations, &OperationScript::count) || any;
    any = lower(&Script::faults, &FaultScript::length) || any;
    return any;
  }

  Shrunk best_;
  const std::size_t mostTries_;
  const std::function<bool()>& goOn_;
};

}  // namespace

Shrunk shrink(const Script& script, const Finding& finding, std::size_t mostTries, const std::function<bool()>& goOn) {
  return Shrinker(script, finding, mostTries, goOn).run();
}

}  // namespace gloo_bypass::sim
