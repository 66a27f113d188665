// The table that chooses an algorithm by kind, size, ranks and place. The built-in one is a guess that suits most
// links; `tune` (tools/tune) measures one for a network and writes it as text. Pure.
#pragma once

#include <climits>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/schedule/catalogue.h"
#include "transport/base/status.h"

namespace gloo_bypass::collectives {

struct Choice {
  Algorithm algorithm = Algorithm::kDirect;
  // Data beyond this a part is done in slices, several at a time, so that a rank sets a bounded amount aside.
  std::size_t partBytes = 0;
  std::size_t mostSlices = 1;  // at a time; kSlicesUnderWay of them unless nothing is left to send (operation_run.h)
};
// Slices that a rank has under way at a time, so that a step of one fills the pauses of another.
inline constexpr std::size_t kSlicesUnderWay = 4, kMostSlicesUnderWay = 16;
Choice choiceOf(Algorithm algorithm, int size);

// Whether there are several hosts and one of them has several ranks. The host of each rank; empty: all on one.
bool shareHosts(std::span<const int> hostOf);

// What a choice depends on; the same in every rank.
struct Circumstances {
  Kind kind = Kind::kBarrier;
  std::size_t bytes = 0;  // of the vector, or of all blocks together
  int ranks = 1;
  bool sharedHosts = false;  // shareHosts()
};

struct Rule {
  Kind kind = Kind::kBarrier;
  std::size_t upToBytes = SIZE_MAX;
  int upToRanks = INT_MAX;
  bool sharedHostsOnly = false;  // if shareHosts()
  Algorithm algorithm = Algorithm::kDirect;
  std::string why;            // for people
  bool ownHostsOnly = false;  // if shareHosts() is false

  bool operator==(const Rule&) const = default;
};

class ChoiceTable {
 public:
  // The built-in rules.
  ChoiceTable();

  // Rules of a text as text() writes it, before the built-in ones. The text is hostile until checked. Error:
  // kConfiguration, what is wrong and where, without the text's source.
  static Result<ChoiceTable> parse(std::string_view text);

  // These come before all others.
  void prefer(std::vector<Rule> rules);
  // For every kind that has it.
  void prefer(Algorithm algorithm);
  // By name: "ring", or "all-reduce=ring,broadcast=binomial". Errors: kConfiguration.
  Status prefer(std::string_view names);
  // From here on only algorithms that add in the order of ranks, as flat shared memory does: then the bits of a result
  // depend on the inputs and the number of ranks alone. Other rules hold no more.
  void keepOrderOfRanks() { inOrder_ = true; }
  // kConfiguration if one of these rules, without the built-in ones, adds in another order.
  Status addsInOrderOfRanks() const;
  bool keepsOrderOfRanks() const { return inOrder_; }

  Choice choose(const Circumstances& circumstances) const;
  // "all-reduce of 8192 bytes among 2 ranks: one-shot (1 round, ...). short: ...; the rule holds up to 16 KiB ..."
  std::string explain(const Circumstances& circumstances) const;

  // JSON: {"gloo_bypass_choices": 1, "in_order": false, "rules": [{"kind": "all-reduce", "up_to_bytes": 16384,
  // "up_to_ranks": 4, "own_hosts_only": true, "algorithm": "one-shot", "why": "..."}]}. A limit that is absent is none.
  std::string text() const;

  bool operator==(const ChoiceTable&) const = default;

 private:
  const Rule& ruleFor(const Circumstances& circumstances) const;

  std::vector<Rule> rules_;  // before the built-in ones
  bool inOrder_ = false;
};

}  // namespace gloo_bypass::collectives
