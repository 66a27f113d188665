#include "collectives/network/slice_run.h"

#include <cstring>

#include "collectives/reduce.h"

namespace gloo_bypass::collectives {

void SliceRun::begin(const Schedule& schedule, const DataLayout& layout, std::size_t index, int rank,
                     TransferOwner& owner, std::uint32_t slot, const Call& call, int divisor) {
  schedule_ = &schedule;
  layout_ = &layout;
  index_ = index;
  rank_ = rank;
  unfinished_ = true;
  stepsLeft_ = schedule.steps.size();
  steps_.assign(stepsLeft_, {});
  transfers_.clear();
  asides_.clear();
  reserved_ = asideBytes_ = 0;
  for (std::size_t i = 0; i < schedule.steps.size(); ++i) {
    const Step& step = schedule.steps[i];
    StepState& state = steps_[i];
    state.waitsFor = step.waitsFor;
    state.firstTransfer = transfers_.size();
    state.region = layout.region(index, step.parts);
    const bool empty = index > 0 && state.region.count == 0;
    for (std::size_t place = 0; place < step.peers.size(); ++place) {
      Transfer& transfer = transfers_.emplace_back();
      transfer.owner = &owner;
      transfer.bytes = state.region.count * layout.elementBytes();
      transfer.slot = slot;
      transfer.step = static_cast<std::uint32_t>(i);
      transfer.place = static_cast<std::uint32_t>(place);
      state.missing += !empty && step.peers[place] != rank;
    }
    reserve(step, state);
  }
  arriving_.resize(transfers_.size());
  const std::size_t divided = reserved_;
  for (int part = 0; divisor > 0 && part < schedule.parts; ++part) {
    const Region region = layout.region(index, {part, part + 1});
    if (region.input != nullptr) reserved_ += region.count * layout.elementBytes();
  }
  asideBytes_ += reserved_ - divided;
  if (reserved_ > memoryBytes_) {
    memory_ = std::make_unique_for_overwrite<std::byte[]>(reserved_);
    memoryBytes_ = reserved_;
  }
  places_.clear();
  for (int part = 0; part < schedule.parts; ++part) places_.push_back(layout.region(index, {part, part + 1}).input);
  if (divisor > 0) divide(memory_.get() + divided, call, divisor);
}

// One part behind the other, as they lie in a vector: a step may send several.
void SliceRun::divide(std::byte* to, const Call& call, int divisor) {
  for (int part = 0; part < schedule_->parts; ++part) {
    const Region region = layout_->region(index_, {part, part + 1});
    if (region.input == nullptr) continue;
    const std::size_t bytes = region.count * layout_->elementBytes();
    if (bytes > 0) std::memcpy(to, region.input, bytes);
    collectives::finish(call.reduction, call.type, to, region.count, divisor);
    places_[static_cast<std::size_t>(part)] = to;
    to += bytes;
  }
}

void SliceRun::reserve(const Step& step, const StepState& state) {
  const std::size_t before = reserved_;
  for (const int peer : step.peers) {
    Aside& aside = asides_.emplace_back();
    const bool inPlace =
        step.action == Action::kSend || (step.action == Action::kReceive && state.region.output != nullptr);
    if (inPlace || peer == rank_ || state.region.count == 0) continue;
    aside.offset = reserved_;
    reserved_ += (state.region.count * layout_->elementBytes() + kLine - 1) / kLine * kLine;
  }
  const bool addsOnArrival =
      step.action == Action::kReduce && step.peers.size() == 2 && step.waitsFor == 0 && state.region.output != nullptr;
  if (!addsOnArrival) asideBytes_ += reserved_ - before;
}

const std::byte* SliceRun::source(std::size_t step) const {
  return places_[static_cast<std::size_t>(schedule_->steps[step].parts.begin)];
}

std::byte* SliceRun::target(std::size_t step, std::size_t place) {
  const Aside& aside = asides_[steps_[step].firstTransfer + place];
  if (aside.offset == kNone && aside.elsewhere == nullptr) return steps_[step].region.output;
  return at(aside);
}

void SliceRun::placeElsewhere(std::size_t step, std::size_t place, std::byte* where) {
  asides_[steps_[step].firstTransfer + place].elsewhere = where;
}

void SliceRun::received(std::size_t step) { setPlaces(step, target(step, 0)); }

std::byte* SliceRun::result(std::size_t step) {
  if (std::byte* const output = steps_[step].region.output; output != nullptr) return output;
  return target(step, schedule_->steps[step].peers.front() == rank_ ? 1 : 0);
}

BytesConsumer SliceRun::reduceOnArrival(std::size_t step, std::size_t place, const Call& call, Reduction reduction,
                                        int size) {
  const Step& what = schedule_->steps[step];
  const bool ownFirst = what.peers.front() == rank_;
  const bool addsToOwn =
      what.action == Action::kReduce && what.peers.size() == 2 && (ownFirst || what.peers[1] == rank_);
  if (!addsToOwn || steps_[step].waitsFor > 0 || steps_[step].region.count == 0) return {};
  const std::size_t transfer = steps_[step].firstTransfer + place;
  asides_[transfer].reduced = true;
  return arriving_[transfer].begin({.reduction = reduction,
                                    .type = call.type,
                                    .ranks = size,
                                    .own = source(step),
                                    .ownFirst = ownFirst,
                                    .result = result(step)});
}

void SliceRun::reduced(std::size_t step, const Call& call, Reduction reduction, int size) {
  const Step& what = schedule_->steps[step];
  const Region& region = steps_[step].region;
  if (region.count == 0) return;
  sources_.clear();
  bool onArrival = false;
  for (std::size_t place = 0; place < what.peers.size(); ++place) {
    onArrival = onArrival || asides_[steps_[step].firstTransfer + place].reduced;
    sources_.push_back(what.peers[place] == rank_ ? source(step) : target(step, place));
  }
  std::byte* const sum = result(step);
  if (!onArrival) reduce(reduction, call.type, sum, sources_, region.count, size);
  setPlaces(step, sum);
}

void SliceRun::setPlaces(std::size_t step, const std::byte* begin) {
  const Parts& parts = schedule_->steps[step].parts;
  for (int part = parts.begin; part < parts.end; ++part) {
    const std::size_t before = layout_->region(index_, {parts.begin, part}).count * layout_->elementBytes();
    places_[static_cast<std::size_t>(part)] = begin == nullptr ? nullptr : begin + before;
  }
}

void SliceRun::finish(const Call& call, int divisor) {
  unfinished_ = false;
  for (int part = 0; part < schedule_->parts; ++part) {
    const Region region = layout_->region(index_, {part, part + 1});
    if (region.output == nullptr || region.count == 0) continue;
    const std::byte* place = places_[static_cast<std::size_t>(part)];
    if (place != region.output) std::memcpy(region.output, place, region.count * layout_->elementBytes());
    if (divisor > 0) collectives::finish(call.reduction, call.type, region.output, region.count, divisor);
  }
}

}  // namespace gloo_bypass::collectives
