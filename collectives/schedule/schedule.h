// A schedule says, for one rank, who sends which part to whom and when. Pure: no clock, thread, buffer or count.
//
// A part is an index range of the data: the vector of an all-reduce is cut into as many parts as the algorithm wants;
// in an all-gather part p is rank p's block; in an all-to-all part s * size + d is the block from rank s to rank d. A
// rank holds the parts of its input at first. A step that receives overwrites or reduces what the rank holds, and the
// executor decides where that lies: in the rank's output, or, where it wants none, apart for each step. A step that
// sends several parts of a vector finds them in one place; of blocks a step has one.
//
// Whoever executes a schedule may start a step as soon as the steps in its `after` have ended, whatever its round:
// rounds order the steps and are for people. The n-th message that a sends to b is the n-th that b receives from a, so
// messages need no further name.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace gloo_bypass::collectives {

// Parts begin, begin + 1, ..., end - 1. Neighbouring parts of a vector are neighbours in memory.
struct Parts {
  int begin = 0, end = 0;
  int size() const { return end - begin; }
  bool overlaps(const Parts& other) const { return begin < other.end && other.begin < end; }
  bool operator==(const Parts&) const = default;
};

constexpr Parts onePart(int part) { return {part, part + 1}; }

enum class Action : std::uint8_t {
  kSend,     // to peers[0], what the rank holds
  kReceive,  // from peers[0], in the place of what the rank holds
  kReduce,   // receives from all peers but the rank itself; holds then ((peers[0] op peers[1]) op peers[2]) ...
};

struct Step {
  int round = 0;
  Action action = Action::kSend;
  Parts parts;
  std::vector<int> peers;    // ranks; those of kReduce include this rank, in the order of additions
  std::vector<int> numbers;  // of the message to or from each peer, from 0; -1: this rank itself
  int waitsFor = 0;          // number of earlier steps that must have ended
  std::vector<int> before;   // later steps that wait for this one
};

struct Schedule {
  int parts = 0;
  std::vector<Step> steps;  // by round; within one, sends first
};

// Where a rank stands in a group.
struct Place {
  int rank = 0, size = 1;
  int root = 0;
  std::span<const int> hostOf{};  // the host of each rank, for two-level algorithms; empty: all on one
};

// Collects steps, and finishes the schedule: sorts them, numbers messages, finds which steps wait for which. Two steps
// conflict if their parts overlap and one of them changes what the rank holds.
class ScheduleBuilder {
 public:
  ScheduleBuilder(int rank, int parts) : rank_(rank) { schedule_.parts = parts; }

  void send(int round, Parts parts, int peer) { add(round, Action::kSend, parts, {peer}); }
  void receive(int round, Parts parts, int peer) { add(round, Action::kReceive, parts, {peer}); }
  // `peers` without this rank: nothing is added to what arrives.
  void reduce(int round, Parts parts, std::vector<int> peers) { add(round, Action::kReduce, parts, std::move(peers)); }
  // The steps of another schedule for the same parts, `rounds` later; its rank i is ranks[i] here.
  void append(const Schedule& inner, std::span<const int> ranks, int rounds);

  // The first round after all steps until now.
  int nextRound() const;
  Schedule finish() &&;

 private:
  void add(int round, Action action, Parts parts, std::vector<int> peers) {
    schedule_.steps.push_back({round, action, parts, std::move(peers), {}, 0, {}});
  }

  const int rank_;
  Schedule schedule_;
};

}  // namespace gloo_bypass::collectives
