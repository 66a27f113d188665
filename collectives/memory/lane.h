// One thread's rounds with its peers of the same host. In a round each rank publishes once, then waits for all others.
//
//   stage (write own slot and line) -> publish (number the line) -> await (all peers' lines have that number) -> read
//
// Lines and slots alternate between two, and no acknowledgement is needed: who has published round k + 1 has read all
// of round k, and nobody writes for round k + 2 before all have published k + 1.
//
// Thread: one. The waiting policy is in lane.cc.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

#include "collectives/memory/segment.h"
#include "collectives/operation.h"
#include "transport/base/status.h"
#include "transport/base/time.h"

namespace gloo_bypass::collectives {

// How long a rank that waits looks before it sleeps. Looks yield the core to whoever wants it.
struct Patience {
  Duration looking = std::chrono::microseconds(0);
  // Of a rank whose threads have cores of their own, and of one that shares them: there a sleeper makes room.
  static Patience withOwnCore() { return {std::chrono::milliseconds(2)}; }
  static Patience withSharedCore() { return {std::chrono::microseconds(0)}; }
};

class Lane {
 public:
  // `problem` looks for what ends a wait: the group has failed, a peer that has not come to this lane's round has
  // ended, or the deadline passed. Called some thousand times a second while a wait lasts, with the peer that is waited
  // for, and with one of those after it in turn.
  using Problem = std::function<Status(const Lane& lane, int peer)>;

  Lane(Segment& segment, int rank, int index, Patience patience, Problem problem);

  // Where to write what peers shall read in the next round.
  std::byte* slot() const { return segment_.slot(rank_, index_, round_ + 1); }
  std::byte* payload() const { return segment_.line(rank_, index_, round_ + 1).payload; }
  // Begins the next round, with this description of the operation.
  void publish(const DescriptionWords& words);
  // Waits for all peers. An error is `problem`'s, or kInvalidArgument without a text if a peer described another
  // operation; differing() names it.
  Status await();
  bool hasCome(int peer) const {
    return segment_.line(peer, index_, round_).round.load(std::memory_order_acquire) == round_;
  }

  // Of a peer, in the round that was awaited last, until this rank publishes the next but one.
  const std::byte* slotOf(int peer) const { return segment_.slot(peer, index_, round_); }
  const std::byte* payloadOf(int peer) const { return segment_.line(peer, index_, round_).payload; }
  // In the round before that.
  const std::byte* earlierSlotOf(int peer) const { return segment_.slot(peer, index_, round_ - 1); }
  DescriptionWords wordsOf(int peer) const { return segment_.line(peer, index_, round_).words; }
  // The peer that described another operation in the round awaited last; -1: none.
  int differing() const { return differing_; }

 private:
  Status awaitPeer(int peer);
  Status awaitSlowly(int peer, Line& line);
  Status problemAmong(int peer, int& later);

  Segment& segment_;
  const int rank_, index_;
  const Patience patience_;
  const Problem problem_;
  std::uint32_t round_ = 0;
  DescriptionWords words_;  // of this round
  int differing_ = -1;
  int handedOver_ = 0;  // how sure it is that a peer runs on this core
};

}  // namespace gloo_bypass::collectives
