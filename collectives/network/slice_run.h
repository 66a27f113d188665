// A run of a schedule over one slice of the data: which steps have ended, and where each part lies by now. It posts
// nothing; operation_run.h moves the messages.
//
// A part lies in the call's input until a step receives or reduces it; then in the output, or in memory of the run's
// own where the call wants no output. That memory holds at most what the schedule sets aside of one slice, and the next
// slice uses it again.
//
// A message that is added to this rank's own part, and to nothing else, is added while it arrives if nothing else needs
// the place of the sum any more. Else it lands in that memory, and is added from there.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <vector>

#include "collectives/network/arriving_reduction.h"
#include "collectives/network/data_layout.h"
#include "collectives/network/peer.h"
#include "collectives/operation.h"
#include "collectives/schedule/schedule.h"

namespace gloo_bypass::collectives {

class SliceRun {
 public:
  struct StepState {
    int waitsFor = 0;  // earlier steps
    int missing = 0;   // messages
    bool started = false;
    std::size_t firstTransfer = 0;
    Region region;
  };

  // `schedule` and `layout` must outlive the run. A step without data has no messages, except in the first slice: its
  // messages say which operation they belong to. `divisor`: what this rank adds is divided by it first, in memory of
  // the run's own; 0: is not.
  void begin(const Schedule& schedule, const DataLayout& layout, std::size_t index, int rank, TransferOwner& owner,
             std::uint32_t slot, const Call& call, int divisor);
  bool active() const { return stepsLeft_ > 0 || unfinished_; }
  bool stepsOver() const { return stepsLeft_ == 0; }
  std::size_t index() const { return index_; }
  // Of its own memory, what it needs if all goes well: messages that are added to a rank's own input while they arrive
  // take none, unless the sum is another rank's.
  std::size_t asideBytes() const { return asideBytes_; }
  std::vector<StepState>& steps() { return steps_; }
  // To or from the step's peers[place].
  Transfer& transfer(std::size_t step, std::size_t place) { return transfers_[steps_[step].firstTransfer + place]; }
  std::vector<Transfer>& transfers() { return transfers_; }
  const std::vector<Transfer>& transfers() const { return transfers_; }

  const std::byte* source(std::size_t step) const;                             // of what a step sends
  std::byte* target(std::size_t step, std::size_t place);                      // of a message
  void placeElsewhere(std::size_t step, std::size_t place, std::byte* where);  // it is there already

  // Before the receive of a message: what adds it while it arrives; without a function it lands at target().
  BytesConsumer reduceOnArrival(std::size_t step, std::size_t place, const Call& call, Reduction reduction, int size);

  // All messages of the step are here. `reduction` as for reduceOnArrival().
  void received(std::size_t step);
  void reduced(std::size_t step, const Call& call, Reduction reduction, int size);
  void endStep() { --stepsLeft_; }
  // After the last step: copies to the output what no step has put there, and divides sums by `divisor` for averages;
  // 0: does not.
  void finish(const Call& call, int divisor);

 private:
  static constexpr std::size_t kNone = std::numeric_limits<std::size_t>::max(), kLine = 64;
  struct Aside {
    std::size_t offset = kNone;  // in memory_
    std::byte* elsewhere = nullptr;
    bool reduced = false;  // on arrival
  };
  void reserve(const Step& step, const StepState& state);
  void divide(std::byte* to, const Call& call, int divisor);
  std::byte* result(std::size_t step);  // of a reduction
  std::byte* at(const Aside& aside) const {
    return aside.elsewhere != nullptr ? aside.elsewhere : memory_.get() + aside.offset;
  }
  void setPlaces(std::size_t step, const std::byte* begin);

  const Schedule* schedule_ = nullptr;
  const DataLayout* layout_ = nullptr;
  std::size_t index_ = 0, stepsLeft_ = 0;
  bool unfinished_ = false;
  int rank_ = 0;
  std::vector<StepState> steps_;
  std::vector<Transfer> transfers_;
  std::vector<Aside> asides_;  // for each transfer
  std::vector<ArrivingReduction> arriving_;
  std::vector<const std::byte*> places_;   // of each part
  std::vector<const std::byte*> sources_;  // of one sum
  std::unique_ptr<std::byte[]> memory_;
  std::size_t memoryBytes_ = 0, reserved_ = 0, asideBytes_ = 0;
};

}  // namespace gloo_bypass::collectives
