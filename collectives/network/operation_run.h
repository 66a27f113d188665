// Runs an operation, and later another one, over the peers' channels: says and checks what ranks call, moves the
// messages of a schedule, adds what arrives.
//
//   run of a slice:   a step waits for earlier steps of its slice -> started -> its messages are here -> ended
//   with a peer:      our first message to it begins with a header; its payloads are received once its header agrees
//
// Several slices are under way at a time, so that a step of one fills the pauses of another.
//
// Thread: the engine's exclusive access. Messages that end only queue; advance() does the work, on a thread that waits
// for the operation.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "collectives/network/data_layout.h"
#include "collectives/network/outgoing_copies.h"
#include "collectives/network/peer.h"
#include "collectives/network/slice_run.h"
#include "collectives/operation.h"
#include "collectives/schedule/choices.h"

namespace gloo_bypass::collectives {

class OperationRun final : private TransferOwner {
 public:
  // Slices beyond kSlicesUnderWay begin only while all of them together set aside no more than this.
  static constexpr std::size_t kMostAsideBytes = 64u << 20;

  // `peers` by rank, null for this rank; they and `copies` must outlive this.
  OperationRun(int rank, std::span<const std::unique_ptr<Peer>> peers, OutgoingCopies& copies);

  struct Order {
    std::uint64_t number = 0;  // of the operation, the same in every rank
    Choice choice;
    const Schedule* schedule = nullptr;  // must outlive the operation
    int place = 0, size = 1;             // of this rank among those that take part
  };
  // Errors, here and of advance(): kInvalidArgument, kPeerViolatedProtocol, a peer's end. They name the rank; then call
  // cancel().
  Status begin(const Call& call, const Order& order);
  Status advance();
  bool over() const { return !active_; }
  std::uint64_t number() const { return order_.number; }  // of the operation begun last; 0: none
  bool allSlicesHaveBegun() const { return !active_ || nextSlice_ == layout_->slices(); }
  // Whether neither writes what the other one reads or writes. May say no where they do not.
  bool isIndependentOf(const Call& other) const;
  // The call's buffers are not touched any more.
  void cancel();

  // The error if the operation has messages under way to or from this peer, which has ended.
  const Error* needs(const Peer& peer) const;
  // What a peer has called; error: something else than this operation, under its number.
  Status compare(const Peer& peer, std::uint64_t number, const DescriptionWords& words) const;
  // Of the ranks from which messages come: those that have not come; if all have, those whose data is missing.
  std::vector<int> awaited() const;
  // The operation begun last has messages from this peer.
  bool expects(const Peer& peer) const { return partners_[static_cast<std::size_t>(peer.rank())].receives > 0; }
  // Its first message is here.
  bool hasCome(const Peer& peer) const { return partners_[static_cast<std::size_t>(peer.rank())].agrees; }

 private:
  struct Partner {
    std::uint32_t sends = 0, receives = 0;  // messages a slice
    std::uint64_t sendBytes = 0, receiveBytes = 0;
    bool said = false;     // our header
    bool agrees = false;   // its header is here
    bool inlined = false;  // with the first payload behind it
    Transfer header;
    std::unique_ptr<std::byte[]> headerBytes;  // OutgoingCopies::kMostBytes
  };
  struct Ended {
    Transfer* transfer;
    std::size_t length;
  };

  void onTransferEnd(Transfer& transfer, std::size_t length) noexcept override {
    ended_.push_back({&transfer, length});
  }

  Partner& partner(int rank) { return partners_[static_cast<std::size_t>(rank)]; }
  Peer& peer(int rank) const { return *peers_[static_cast<std::size_t>(rank)]; }
  MessageKey keyOf(const SliceRun& slice, std::uint32_t perSlice, int number) const;
  void countMessages();
  Status awaitHeaders();
  Status beginSlices();
  bool allowAnotherSlice();
  Status take(const Ended& ended);
  Status takeHeader(int rank, std::size_t length);
  OperationHeader headerFor(const Partner& with) const;
  Status checkHeader(int rank, const OperationHeader& header) const;
  Status start(std::uint32_t slot, std::uint32_t step);
  Status send(SliceRun& slice, std::uint32_t slot, std::uint32_t step);
  Status receive(SliceRun& slice, std::uint32_t step, std::size_t place);
  Status receiveAllFrom(int rank);
  // What steps add with: an average divides at the end, or first, unless each sum has all ranks in it.
  Reduction stepReduction() const { return averages_ ? Reduction::kSum : call_.reduction; }
  void complete(SliceRun& slice, std::uint32_t slot, std::uint32_t step);
  void endStep(SliceRun& slice, std::uint32_t slot, std::uint32_t step);

  const int rank_;
  const std::span<const std::unique_ptr<Peer>> peers_;
  OutgoingCopies& copies_;
  std::vector<Partner> partners_;  // by rank

  bool active_ = false;
  Call call_;
  Order order_;
  DescriptionWords words_;
  std::optional<DataLayout> layout_;
  bool averages_ = false;      // sums, which are divided once, by the number of ranks
  bool dividesFirst_ = false;  // what ranks add, not their sum
  std::array<SliceRun, kMostSlicesUnderWay> slices_;
  std::size_t slicesAtOnce_ = kSlicesUnderWay;
  std::size_t nextSlice_ = 0, slicesLeft_ = 0;
  bool sends_ = false;  // anything, in this operation
  std::size_t sendsUnderWay_ = 0;
  std::vector<Ended> ended_;
  std::vector<std::pair<std::uint32_t, std::uint32_t>> ready_;   // slot, step
  std::vector<std::pair<std::uint32_t, std::uint32_t>> noRoom_;  // sends that wait for a copy's end
};

}  // namespace gloo_bypass::collectives
