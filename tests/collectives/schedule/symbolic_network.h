// Runs the schedules of all ranks in a network that delivers messages in random order, with symbols for values.
//
// A value is the text of its additions, "((0+1)+2)", and how often it contains each rank. Sends complete when the
// network says so: some at once, some only when the peer has taken the message, as over a link that grants.
#pragma once

#include <cstdint>
#include <map>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "collectives/operation.h"
#include "collectives/schedule/catalogue.h"

namespace gloo_bypass::collectives::test {

struct Value {
  std::string sum;  // empty: nothing is held
  std::vector<int> contributions;
};

class SymbolicNetwork {
 public:
  SymbolicNetwork(Kind kind, const std::vector<Schedule>& schedules, int root, std::uint64_t seed);

  // To the end, or until no rank can go on. What was wrong, in one line; empty: nothing.
  std::string run();
  const Value& value(int rank, int part) const { return ranks_[at(rank)].held[at(part)]; }

  // Whether the rank holds the part before the first step, as operation.h's table of inputs says.
  static bool isInput(Kind kind, int size, int root, int rank, int part);

 private:
  struct StepState {
    int waitsFor = 0;
    int missing = 0;  // messages
    bool started = false, ended = false;
    std::vector<std::vector<Value>> arrived;  // for each peer
  };
  struct Rank {
    std::vector<Value> held;
    std::vector<bool> written;  // by a step: it lies in the output, no longer in the input
    std::vector<StepState> steps;
  };
  struct Message {
    int from = 0, to = 0, step = 0;
    Parts parts;
    std::vector<Value> values;
    bool sendEndsOnArrival = false;
  };
  static std::size_t at(int index) { return static_cast<std::size_t>(index); }
  const Step& stepOf(int rank, int step) const { return schedules_[at(rank)].steps[at(step)]; }

  void start(int rank, int step);
  void deliver(std::size_t message);
  void end(int rank, int step);
  void reduce(int rank, int step);
  void fail(std::string what) {
    if (fault_.empty()) fault_ = std::move(what);
  }

  const Kind kind_;
  const std::vector<Schedule>& schedules_;
  std::mt19937_64 random_;
  std::vector<Rank> ranks_;
  std::vector<Message> underWay_;
  std::vector<std::pair<int, int>> ready_;                                      // rank, step
  std::map<std::tuple<int, int, int>, std::pair<int, std::size_t>> receivers_;  // from, to, number: step, peer's place
  std::string fault_;
};

}  // namespace gloo_bypass::collectives::test
