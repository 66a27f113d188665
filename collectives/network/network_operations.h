// What an executor between hosts does, but for waiting: begins and advances operations, tells and hears what ranks call
// and why they fail, and holds the program's own messages. It knows no clock: network_executor.h waits in real time,
// the simulator (tools/simulation/hunt) in virtual time.
//
// Its user waits for one operation at a time, the current one. Those that were announced begin before their turn, up to
// kMostAtOnce at a time, each when all slices of the one before have begun: over a long path operations that do not
// need each other's results take the time of one. A barrier waits for its turn.
//
//   announce() any number of the operations to come, in their order
//   begin() -> advance() after anything that happened, until settled()        -> outcome()
//              after kLongWait without an end: tellWhatIsCalled()                 |
//              at the deadline: timeOut()                                         v
//              in the end, if it failed: wait for wordsHaveLeft(), at most kLastWords, then cancel()
//
// Thread: the engine's exclusive access, but for failure().
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <deque>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <tuple>
#include <vector>

#include "collectives/network/mailbox.h"
#include "collectives/network/operation_run.h"
#include "collectives/network/outgoing_copies.h"
#include "collectives/network/peer.h"
#include "collectives/schedule/choices.h"
#include "transport/base/time.h"

namespace gloo_bypass::collectives {

class NetworkOperations final : private PeerEvents, private TransferOwner {
 public:
  // From here on a wait is long: ranks compare what they have called.
  static constexpr Duration kLongWait = std::chrono::milliseconds(200);
  // How long a failing rank waits for its word to leave, before it takes its buffers back.
  static constexpr Duration kLastWords = std::chrono::milliseconds(50);

  static constexpr std::size_t kMostAtOnce = 8;

  // `hostOf`: the host of each rank, for two-level algorithms; empty: all on one.
  NetworkOperations(int rank, int size, std::vector<int> hostOf, ChoiceTable choices);
  NetworkOperations(const NetworkOperations&) = delete;
  NetworkOperations& operator=(const NetworkOperations&) = delete;
  // Messages of the program that have not ended end with kCancelled; leaves the peers in good order. Only the
  // destructor may follow.
  void leave();

  // By rank; null: this one. Whoever made this connects them.
  const std::vector<std::unique_ptr<Peer>>& peers() const { return peers_; }
  // Null once the group has failed: *failure() says why.
  Mailbox* mailbox() { return failure_ ? nullptr : &mailbox_; }

  // An operation among all ranks: begin() of this call follows the current one and what was announced before.
  void announce(const Call& call);
  // The next operation is the current one: begins, if it has not. `ranks` empty: among all ranks, under the next
  // number. Else among these, in their order, where the call's root and blocks are places in `ranks`, under a number
  // above that of every earlier one; nothing is announced then. False: this operation is lost.
  bool begin(const Call& call, std::span<const int> ranks = {}, std::uint64_t number = 0);
  void advance();
  // The current operation has ended, or is lost.
  bool settled() const { return isLost() || isOver(current_); }
  void tellWhatIsCalled();
  // It has not settled `after` its begin. The error names ranks that have not come, as far as this rank can know: after
  // kLongWait ranks that wait have said that they are there, and those whose part is done have answered.
  void timeOut(const Call& call, Duration after);
  // Of the current operation, which has settled. A failure that came after its end is the next operation's.
  Status outcome() const { return isOver(current_) ? Status() : *failure_; }

  void abort();
  // For good: operations from `firstLost` on are lost, those before may still end well. The first reason stays; the
  // others hear it.
  void fail(Error error, std::uint64_t firstLost);
  bool wordsHaveLeft() const { return copies_.idle(); }
  // Nothing that has begun is under way.
  bool idle() const;
  // The current operation has failed: its buffers, and those of the ones that were announced, are not touched any more.
  void cancel();

  // Any thread: the error if this operation is lost.
  Status failure(std::uint64_t number) const {
    if (number < firstLost_.load(std::memory_order_acquire)) return {};
    return *failure_;  // constant from then on
  }
  const std::optional<Error>& failure() const { return failure_; }

 private:
  // Operations that a peer may still ask about.
  static constexpr std::size_t kRemembered = 64;
  // The number of no operation.
  static constexpr std::uint64_t kNone = std::numeric_limits<std::uint64_t>::max();

  struct Called {
    std::uint64_t number = 0;
    DescriptionWords words;
  };
  // A header of a peer from which this rank expects none: they have called different things, and if neither waits for
  // the other nobody else notices.
  struct Stray {
    Transfer transfer;
    std::unique_ptr<std::byte[]> bytes;  // null: there is none
    std::optional<std::size_t> length;   // once it is here
  };

  std::vector<std::unique_ptr<Peer>> makePeers();
  // Whether the current operation is lost.
  bool isLost() const { return current_ >= firstLost_; }
  // Of one that has begun.
  bool isOver(std::uint64_t number) const;
  OperationRun* runOf(std::uint64_t number) const;  // null: it is over, and another one has its run
  OperationRun& freeRun();
  std::uint64_t firstUnfinished() const;  // of those that have begun; the next number if all have ended
  void beginNext(const Call& call, std::span<const int> ranks, std::uint64_t number);
  void beginAhead();
  const Schedule& scheduleFor(const Call& call, const Choice& choice, std::span<const int> ranks, Place place);
  void tell(Peer& peer, std::uint64_t number);
  bool areAll(std::span<const int> ranks) const {
    return ranks.empty() || (ranks.size() == peers_.size() && std::is_sorted(ranks.begin(), ranks.end()));
  }
  bool takesPart(int rank) const;
  std::vector<int> awaited(Duration after) const;
  void failIf(const Status& status, std::uint64_t number);
  void fail(Error error) { fail(std::move(error), firstUnfinished()); }
  void onControl(Peer& peer, const ControlMessage& message) override;
  void onPeerFailed(const Peer& peer, const ControlMessage& message);
  void onHeader(Peer& peer, std::uint32_t operation) override;
  void onProgramMessage(Peer& peer, std::uint32_t tag) override;
  void onTransferEnd(Transfer&, std::size_t length) noexcept override { stray_.length = length; }
  void judgeHeadersAhead();
  void receiveStray(Peer& peer, std::uint32_t operation);
  void judgeStray();
  void onEnded(Peer& peer) override;

  const int rank_, size_;
  const std::vector<int> hostOf_;
  const ChoiceTable choices_;
  Stray stray_;
  const std::vector<std::unique_ptr<Peer>> peers_;  // by rank; null: this one
  OutgoingCopies copies_;
  std::array<std::unique_ptr<OperationRun>, kMostAtOnce> runs_;  // made when first needed
  Mailbox mailbox_;
  const bool sharedHosts_;
  std::map<std::tuple<Kind, Algorithm, int, std::vector<int>>, Schedule> schedules_;
  std::array<Called, kRemembered> called_{};
  std::vector<int> subset_;       // that the last one begun is among; empty: all ranks
  std::uint64_t operations_ = 0;  // the number of the last one begun
  std::uint64_t current_ = 0;     // of the one that the user waits for
  std::deque<Call> coming_;       // announced, and not begun
  std::optional<Error> failure_;
  // The first operation that it ends. Others read it, and then failure_.
  std::atomic<std::uint64_t> firstLost_{kNone};
};

}  // namespace gloo_bypass::collectives
