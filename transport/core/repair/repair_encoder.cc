#include "transport/core/repair/repair_encoder.h"

#include <algorithm>
#include <array>

#include "transport/base/check.h"
#include "transport/base/sequence.h"

namespace gloo_bypass {

void RepairEncoder::start(TimePoint now, std::uint64_t first, std::size_t sources, std::size_t repairs,
                          std::size_t symbolBytes) {
  GLOO_BYPASS_CHECK(sources > 0 && sources <= kMaxBlockSources && repairs <= kMaxBlockRepairs);
  GLOO_BYPASS_CHECK(symbolBytes >= kMinSymbolBytes);
  if (repairs * symbolBytes > capacity_) {
    capacity_ = repairs * symbolBytes;
    repairs_ = std::make_unique<std::byte[]>(capacity_);
  }
  if (symbolBytes > scratchBytes_) {
    scratchBytes_ = symbolBytes;
    scratch_ = std::make_unique<std::byte[]>(scratchBytes_);
  }
  stride_ = symbolBytes;
  std::fill_n(repairs_.get(), repairs * symbolBytes, std::byte{0});
  state_ = State::kGathering;
  first_ = first;
  sources_ = 0;
  maxSources_ = sources;
  maxRepairs_ = repairs;
  longest_ = kMinSymbolBytes;
  startedAt_ = lastAddedAt_ = now;
}

void RepairEncoder::add(TimePoint now, const FrameSymbol& frame) {
  GLOO_BYPASS_CHECK(state_ == State::kGathering && !full());
  const std::size_t bytes = std::max(frame.bytes(), kMinSymbolBytes);
  GLOO_BYPASS_CHECK(bytes <= stride_);
  const std::span<std::byte> symbol(scratch_.get(), bytes);
  frame.write(symbol);
  std::array<std::byte*, kMaxBlockRepairs> repairs;
  for (std::size_t i = 0; i < maxRepairs_; ++i) repairs[i] = repair(i);
  addSourceToRepairs(sources_, symbol, std::span(repairs).first(maxRepairs_));
  longest_ = std::max(longest_, bytes);
  ++sources_;
  lastAddedAt_ = now;
}

void RepairEncoder::close(std::size_t repairs) {
  GLOO_BYPASS_CHECK(state_ == State::kGathering && repairs <= maxRepairs_);
  repairCount_ = repairs;
  nextRepair_ = 0;
  state_ = repairs > 0 && sources_ > 0 ? State::kSending : State::kIdle;
}

wire::RepairHeader RepairEncoder::next(std::span<const std::byte>* payload) const {
  GLOO_BYPASS_CHECK(state_ == State::kSending);
  *payload = {repair(nextRepair_), longest_};
  wire::RepairHeader header;
  header.firstSequence = truncateSequence(first_);
  header.sources = static_cast<std::uint8_t>(sources_);
  header.index = static_cast<std::uint8_t>(nextRepair_);
  header.repairs = static_cast<std::uint8_t>(repairCount_);
  return header;
}

void RepairEncoder::onSent() {
  if (++nextRepair_ == repairCount_) state_ = State::kIdle;
}

void RepairEncoder::undo() {
  --nextRepair_;
  state_ = State::kSending;
}

}  // namespace gloo_bypass
