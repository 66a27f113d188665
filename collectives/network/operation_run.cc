#include "collectives/network/operation_run.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include <fmt/format.h>

#include "collectives/reduce.h"

namespace gloo_bypass::collectives {
namespace {

Status wrong(ErrorCode code, std::string message) { return {ErrorScope::kDevice, code, std::move(message)}; }

// All memory between the first and the last byte of some blocks.
struct Extent {
  std::uintptr_t begin = UINTPTR_MAX, end = 0;
  bool overlaps(const Extent& other) const { return begin < other.end && other.begin < end; }
};
template <typename Byte>
Extent extentOf(std::span<const BasicBlock<Byte>> blocks, std::size_t elementBytes) {
  Extent extent;
  for (const BasicBlock<Byte>& block : blocks) {
    if (block.count == 0) continue;
    const auto begin = reinterpret_cast<std::uintptr_t>(block.data);
    extent.begin = std::min(extent.begin, begin);
    extent.end = std::max(extent.end, begin + block.count * elementBytes);
  }
  return extent;
}

}  // namespace

OperationRun::OperationRun(int rank, std::span<const std::unique_ptr<Peer>> peers, OutgoingCopies& copies)
    : rank_(rank), peers_(peers), copies_(copies), partners_(peers.size()) {
  for (Partner& with : partners_) with.header.owner = this;
}

Status OperationRun::begin(const Call& call, const Order& order) {
  active_ = true;
  call_ = call;
  order_ = order;
  words_ = wordsOf(describe(call));
  layout_.emplace(call, order.place, order.size, order.schedule->parts, order.choice.partBytes);
  const bool sumsAtOnce =
      order.size <= 2 || order.choice.algorithm == Algorithm::kOneShot || order.choice.algorithm == Algorithm::kDirect;
  averages_ = reduces(call.kind) && call.reduction == Reduction::kAverage && !sumsAtOnce;
  dividesFirst_ = averages_ && averagesOverflow(call.reduction, call.type);
  nextSlice_ = sendsUnderWay_ = 0;
  slicesAtOnce_ = kSlicesUnderWay;
  slicesLeft_ = layout_->slices();
  countMessages();
  for (const auto& other : peers_) {
    if (other == nullptr || !other->lastCall) continue;
    if (Status same = compare(*other, other->lastCall->operation, other->lastCall->description); !same.ok())
      return same;
  }
  // Slices first: a header that is here already is compared with the first slice's messages.
  if (Status begun = beginSlices(); !begun.ok()) return begun;
  if (Status posted = awaitHeaders(); !posted.ok()) return posted;
  return advance();
}

void OperationRun::countMessages() {
  sends_ = false;
  for (Partner& with : partners_) {
    with.sends = with.receives = 0;
    with.sendBytes = with.receiveBytes = 0;
    with.said = with.agrees = with.inlined = false;
  }
  for (const Step& step : order_.schedule->steps) {
    for (const int rank : step.peers) {
      if (rank == rank_) continue;
      const bool sends = step.action == Action::kSend;
      sends_ = sends_ || sends;
      Partner& with = partner(rank);
      (sends ? with.sends : with.receives)++;
      (sends ? with.sendBytes : with.receiveBytes) += layout_->blockBytes(step.parts.begin);
    }
  }
}

Status OperationRun::awaitHeaders() {
  for (const auto& other : peers_) {
    if (other == nullptr || !expects(*other)) continue;
    Partner& with = partner(other->rank());
    if (with.headerBytes == nullptr) {
      with.headerBytes = std::make_unique_for_overwrite<std::byte[]>(OutgoingCopies::kMostBytes);
    }
    Status posted = other->receive(with.header, collectiveKey(order_.number, 0), with.headerBytes.get(),
                                   OutgoingCopies::kMostBytes);
    if (!posted.ok()) return posted;
  }
  return {};
}

// Index 0 is the header's.
MessageKey OperationRun::keyOf(const SliceRun& slice, std::uint32_t perSlice, int number) const {
  const std::uint64_t index =
      1 + static_cast<std::uint64_t>(slice.index()) * perSlice + static_cast<std::uint64_t>(number);
  return collectiveKey(order_.number, static_cast<std::uint32_t>(index));
}

Status OperationRun::advance() {
  if (!active_) return {};
  for (;;) {
    if (copies_.hasRoom()) {
      ready_.insert(ready_.end(), noRoom_.begin(), noRoom_.end());
      noRoom_.clear();
    }
    if (!ended_.empty()) {
      const Ended ended = ended_.back();
      ended_.pop_back();
      if (Status taken = take(ended); !taken.ok()) return taken;
    } else if (!ready_.empty()) {
      const auto [slot, step] = ready_.back();
      ready_.pop_back();
      if (Status started = start(slot, step); !started.ok()) return started;
    } else if (slicesLeft_ == 0) {
      active_ = false;
      return {};
    } else {
      const std::size_t before = nextSlice_;
      if (Status begun = beginSlices(); !begun.ok()) return begun;
      if (before == nextSlice_ && !allowAnotherSlice()) return {};
    }
  }
}

Status OperationRun::beginSlices() {
  for (std::uint32_t slot = 0; slot < slicesAtOnce_ && nextSlice_ < layout_->slices(); ++slot) {
    SliceRun& slice = slices_[slot];
    if (slice.active()) continue;
    slice.begin(*order_.schedule, *layout_, nextSlice_++, rank_, *this, slot, call_,
                dividesFirst_ ? static_cast<int>(peers_.size()) : 0);
    if (slice.stepsOver()) {
      slice.finish(call_, 0);
      --slicesLeft_;
      continue;
    }
    // The last one first: ready_ is taken from its end.
    for (std::uint32_t step = static_cast<std::uint32_t>(slice.steps().size()); step-- > 0;) {
      if (slice.steps()[step].waitsFor == 0) ready_.emplace_back(slot, step);
    }
    for (std::uint32_t step = 0; step < slice.steps().size(); ++step) {
      const Step& what = order_.schedule->steps[step];
      if (what.action != Action::kReduce) continue;
      for (std::size_t place = 0; place < what.peers.size(); ++place) {
        if (Status posted = receive(slice, step, place); !posted.ok()) return posted;
      }
    }
  }
  return {};
}

// All that is under way waits for other ranks, as it does over a path whose round trip takes longer than to send some
// slices: then the path has room for more. On a short one the sends of these mostly fill it, and more would leave the
// cache before they are used again. A rank that sends nothing has no path to fill.
bool OperationRun::allowAnotherSlice() {
  const bool waitsOnly = sends_ && sendsUnderWay_ == 0 && noRoom_.empty();
  if (!waitsOnly || slicesAtOnce_ >= order_.choice.mostSlices || nextSlice_ == layout_->slices()) return false;
  if ((slicesAtOnce_ + 1) * slices_[0].asideBytes() > kMostAsideBytes) return false;
  ++slicesAtOnce_;
  return true;
}

Status OperationRun::start(std::uint32_t slot, std::uint32_t step) {
  SliceRun& slice = slices_[slot];
  SliceRun::StepState& state = slice.steps()[step];
  state.started = true;
  const Action action = order_.schedule->steps[step].action;
  if (state.missing == 0) {
    complete(slice, slot, step);
    return {};
  }
  if (action == Action::kSend) return send(slice, slot, step);
  return action == Action::kReceive ? receive(slice, step, 0) : Status();
}

OperationHeader OperationRun::headerFor(const Partner& with) const {
  return {.algorithm = order_.choice.algorithm,
          .log2PartBytes = static_cast<std::uint8_t>(std::countr_zero(order_.choice.partBytes)),
          .operation = order_.number,
          .description = words_,
          .bytes = with.sendBytes};
}

Status OperationRun::send(SliceRun& slice, std::uint32_t slot, std::uint32_t step) {
  const Step& what = order_.schedule->steps[step];
  Partner& with = partner(what.peers[0]);
  Transfer& transfer = slice.transfer(step, 0);
  const bool first = slice.index() == 0 && what.numbers[0] == 0;
  if (!with.said) {
    if (!copies_.hasRoom()) {
      noRoom_.emplace_back(slot, step);
      return {};
    }
    OperationHeader header = headerFor(with);
    header.payloadFollows = first && transfer.bytes <= OutgoingCopies::kMostPayload;
    std::array<std::byte, OperationHeader::kBytes> head;
    encode(header, head.data());
    const std::span<const std::byte> payload(slice.source(step), header.payloadFollows ? transfer.bytes : 0);
    if (Status sent = copies_.send(peer(what.peers[0]), collectiveKey(order_.number, 0), head, payload); !sent.ok()) {
      return sent;
    }
    with.said = true;
    if (header.payloadFollows) {
      transfer.state = Transfer::State::kEnded;
      slice.steps()[step].missing = 0;
      endStep(slice, slot, step);
      return {};
    }
  }
  ++sendsUnderWay_;
  return peer(what.peers[0])
      .send(transfer, keyOf(slice, with.sends, what.numbers[0]), slice.source(step), transfer.bytes);
}

// Posts the receive of one message, if it is time: the peer agrees, and what the message replaces is not needed any
// more. A message that came with the header is only taken from there.
Status OperationRun::receive(SliceRun& slice, std::uint32_t step, std::size_t place) {
  const Step& what = order_.schedule->steps[step];
  const int from = what.peers[place];
  SliceRun::StepState& state = slice.steps()[step];
  Transfer& transfer = slice.transfer(step, place);
  if (from == rank_ || state.missing == 0 || transfer.state != Transfer::State::kIdle) return {};
  if (what.action == Action::kReceive && !state.started) return {};
  Partner& with = partner(from);
  if (!with.agrees) return {};
  if (!(with.inlined && slice.index() == 0 && what.numbers[place] == 0)) {
    const BytesConsumer consumer =
        slice.reduceOnArrival(step, place, call_, stepReduction(), static_cast<int>(peers_.size()));
    return peer(from).receive(transfer, keyOf(slice, with.receives, what.numbers[place]), slice.target(step, place),
                              transfer.bytes, consumer);
  }
  std::byte* payload = with.headerBytes.get() + OperationHeader::kBytes;
  if (what.action == Action::kReceive && state.region.output != nullptr) {
    if (transfer.bytes > 0) std::memcpy(state.region.output, payload, transfer.bytes);
  } else {
    slice.placeElsewhere(step, place, payload);
  }
  transfer.state = Transfer::State::kEnded;
  onTransferEnd(transfer, transfer.bytes);
  return {};
}

Status OperationRun::take(const Ended& ended) {
  Transfer& transfer = *ended.transfer;
  for (std::size_t rank = 0; rank < partners_.size(); ++rank) {
    if (&transfer == &partners_[rank].header) return takeHeader(static_cast<int>(rank), ended.length);
  }
  if (!transfer.sends && ended.length != transfer.bytes) {
    const int from = order_.schedule->steps[transfer.step].peers[transfer.place];
    return wrong(ErrorCode::kPeerViolatedProtocol,
                 fmt::format("rank {} sent {} bytes to rank {} where {} belong, in {}", from, ended.length, rank_,
                             transfer.bytes, textOfWords(words_)));
  }
  if (transfer.sends) --sendsUnderWay_;
  SliceRun& slice = slices_[transfer.slot];
  SliceRun::StepState& state = slice.steps()[transfer.step];
  if (--state.missing == 0 && state.started) complete(slice, transfer.slot, transfer.step);
  return {};
}

Status OperationRun::takeHeader(int rank, std::size_t length) {
  Partner& with = partner(rank);
  const auto header = decodeOperationHeader(std::span(with.headerBytes.get(), length));
  if (!header || (!header->payloadFollows && length != OperationHeader::kBytes)) {
    return wrong(ErrorCode::kPeerViolatedProtocol,
                 fmt::format("rank {} began an operation as no correct rank does, seen by rank {}", rank, rank_));
  }
  if (Status same = checkHeader(rank, *header); !same.ok()) return same;
  with.agrees = true;
  with.inlined = header->payloadFollows;
  if (with.inlined) {
    // Its length must be that of the first message that this rank expects.
    const std::size_t payload = length - OperationHeader::kBytes;
    for (const Transfer& transfer : slices_[0].transfers()) {
      const Step& step = order_.schedule->steps[transfer.step];
      if (step.action == Action::kSend || step.peers[transfer.place] != rank || step.numbers[transfer.place] != 0)
        continue;
      if (transfer.bytes != payload) {
        return wrong(ErrorCode::kPeerViolatedProtocol,
                     fmt::format("rank {} sent {} bytes to rank {} where {} belong, in {}", rank, payload, rank_,
                                 transfer.bytes, textOfWords(words_)));
      }
    }
  }
  return receiveAllFrom(rank);
}

Status OperationRun::checkHeader(int rank, const OperationHeader& header) const {
  if (header.operation != order_.number || header.description != words_) {
    return wrong(ErrorCode::kInvalidArgument, disagreement(rank_, words_, rank, header.description));
  }
  const Partner& with = partners_[static_cast<std::size_t>(rank)];
  if (header.bytes != with.receiveBytes) {
    return wrong(ErrorCode::kInvalidArgument,
                 fmt::format("{}: rank {} sends {} bytes to rank {}, which expects {}", textOfWords(words_), rank,
                             header.bytes, rank_, with.receiveBytes));
  }
  const OperationHeader own = headerFor(with);
  if (header.algorithm != own.algorithm || header.log2PartBytes != own.log2PartBytes) {
    return wrong(
        ErrorCode::kConfiguration,
        fmt::format("{}: rank {} chose {} and parts of 2^{} bytes, rank {} {} and 2^{}: start every rank with the "
                    "same settings and version",
                    textOfWords(words_), rank, nameOf(header.algorithm), header.log2PartBytes, rank_,
                    nameOf(own.algorithm), own.log2PartBytes));
  }
  return {};
}

Status OperationRun::receiveAllFrom(int rank) {
  for (SliceRun& slice : slices_) {
    if (!slice.active()) continue;
    for (Transfer& transfer : slice.transfers()) {
      const Step& step = order_.schedule->steps[transfer.step];
      if (step.action == Action::kSend || step.peers[transfer.place] != rank) continue;
      if (Status posted = receive(slice, transfer.step, transfer.place); !posted.ok()) return posted;
    }
  }
  return {};
}

void OperationRun::complete(SliceRun& slice, std::uint32_t slot, std::uint32_t step) {
  const Action action = order_.schedule->steps[step].action;
  if (action == Action::kReceive) slice.received(step);
  if (action == Action::kReduce) {
    slice.reduced(step, call_, stepReduction(), static_cast<int>(peers_.size()));
  }
  endStep(slice, slot, step);
}

void OperationRun::endStep(SliceRun& slice, std::uint32_t slot, std::uint32_t step) {
  for (const int later : order_.schedule->steps[step].before) {
    if (--slice.steps()[static_cast<std::size_t>(later)].waitsFor == 0) {
      ready_.emplace_back(slot, static_cast<std::uint32_t>(later));
    }
  }
  slice.endStep();
  if (!slice.stepsOver()) return;
  slice.finish(call_, averages_ && !dividesFirst_ ? static_cast<int>(peers_.size()) : 0);
  --slicesLeft_;
}

bool OperationRun::isIndependentOf(const Call& other) const {
  if (!active_) return true;
  const std::size_t element = sizeOf(call_.type), otherElement = sizeOf(other.type);
  const Extent read = extentOf(call_.inputs, element), written = extentOf(call_.outputs, element);
  const Extent otherWritten = extentOf(other.outputs, otherElement);
  return !otherWritten.overlaps(read) && !otherWritten.overlaps(written) &&
         !written.overlaps(extentOf(other.inputs, otherElement));
}

void OperationRun::cancel() {
  for (Partner& with : partners_) {
    if (with.header.peer != nullptr) with.header.peer->cancel(with.header);
  }
  for (SliceRun& slice : slices_) {
    for (Transfer& transfer : slice.transfers()) {
      if (transfer.peer != nullptr) transfer.peer->cancel(transfer);
    }
  }
  ended_.clear();
  ready_.clear();
  noRoom_.clear();
  active_ = false;
}

const Error* OperationRun::needs(const Peer& other) const {
  if (!active_) return nullptr;
  const auto lost = [&](const Transfer& transfer) {
    return transfer.state == Transfer::State::kUnderWay && transfer.peer == &other;
  };
  bool any = lost(partners_[static_cast<std::size_t>(other.rank())].header);
  for (const SliceRun& slice : slices_)
    any = any || std::any_of(slice.transfers().begin(), slice.transfers().end(), lost);
  return any ? other.ended() : nullptr;
}

Status OperationRun::compare(const Peer& other, std::uint64_t number, const DescriptionWords& words) const {
  if (!active_ || number != order_.number || words == words_) return {};
  return wrong(ErrorCode::kInvalidArgument, disagreement(rank_, words_, other.rank(), words));
}

std::vector<int> OperationRun::awaited() const {
  std::vector<int> absent, busy;
  for (const auto& other : peers_) {
    if (other == nullptr) continue;
    const Partner& with = partners_[static_cast<std::size_t>(other->rank())];
    if (with.receives > 0 && !with.agrees) absent.push_back(other->rank());
    for (const SliceRun& slice : slices_) {
      for (const Transfer& transfer : slice.transfers()) {
        const bool waits = transfer.state == Transfer::State::kUnderWay && transfer.peer == other.get();
        if (waits && (busy.empty() || busy.back() != other->rank())) busy.push_back(other->rank());
      }
    }
  }
  return absent.empty() ? busy : absent;
}

}  // namespace gloo_bypass::collectives
