#include "transport/core/repair/repair_decoder.h"

#include <algorithm>
#include <utility>

namespace gloo_bypass {

RepairDecoder::Kept* RepairDecoder::find(std::uint64_t sequence) {
  if (kept_.empty()) return nullptr;
  Kept& kept = kept_[sequence % kKeptFrames];
  return kept.bytes != 0 && kept.sequence == sequence ? &kept : nullptr;
}

bool RepairDecoder::complete(std::uint64_t first, std::size_t sources) const {
  for (std::uint64_t n = std::max(first, acks_.next()); n < first + sources; ++n) {
    if (!acks_.hasArrived(n)) return false;
  }
  return true;
}

void RepairDecoder::drop(Kept& kept) {
  keptBytes_ -= kept.buffer.capacity;
  pool_.give(std::exchange(kept.buffer, {}));
  kept.bytes = 0;
}

void RepairDecoder::moveWindow(std::uint64_t begin) {
  for (std::uint64_t n = windowBegin_; n < std::min(begin, windowEnd_); ++n) {
    if (Kept* kept = find(n)) drop(*kept);
  }
  windowBegin_ = std::max(windowBegin_, begin);
}

bool RepairDecoder::onSource(std::uint64_t sequence, const FrameSymbol& frame) {
  if (kept_.empty()) {
    kept_.resize(kKeptFrames);
    windowBegin_ = windowEnd_ = sequence;
  }
  if (sequence < windowBegin_) return true;
  if (sequence >= windowBegin_ + kKeptFrames) moveWindow(sequence + 1 - kKeptFrames);
  windowEnd_ = std::max(windowEnd_, sequence + 1);
  const std::size_t bytes = std::max(frame.bytes(), kMinSymbolBytes);
  Kept& kept = kept_[sequence % kKeptFrames];
  if (kept.bytes != 0) drop(kept);
  kept.buffer = pool_.take(bytes);
  kept.sequence = sequence;
  kept.bytes = bytes;
  keptBytes_ += kept.buffer.capacity;
  frame.write({kept.buffer.data.get(), bytes});
  while (keptBytes_ > kMaxKeptBytes && windowBegin_ < sequence) moveWindow(windowBegin_ + 1);
  for (std::size_t i = 0; i < blocks_.size(); ++i) {
    if (blocks_[i].covers(sequence)) return tryRecover(i);
  }
  return true;
}

void RepairDecoder::dropBlock(std::size_t at) {
  for (Repair& repair : blocks_[at].repairs) {
    repairBytes_ -= repair.buffer.capacity;
    pool_.give(std::move(repair.buffer));
  }
  blocks_.erase(blocks_.begin() + static_cast<std::ptrdiff_t>(at));
}

void RepairDecoder::dropFinished() {
  for (std::size_t i = blocks_.size(); i-- > 0;) {
    if (blocks_[i].first + blocks_[i].sources <= windowBegin_ || complete(blocks_[i].first, blocks_[i].sources))
      dropBlock(i);
  }
}

// Null: the header contradicts one that came before.
RepairDecoder::Block* RepairDecoder::findOrMake(std::uint64_t first, const wire::RepairHeader& header,
                                                std::size_t symbolBytes) {
  for (Block& block : blocks_) {
    if (block.first != first) continue;
    return block.sources == header.sources && block.symbolBytes == symbolBytes ? &block : nullptr;
  }
  if (blocks_.size() == kMaxBlocks) dropBlock(0);
  Block& block = blocks_.emplace_back();
  block.first = first;
  block.sources = header.sources;
  block.symbolBytes = symbolBytes;
  return &block;
}

void RepairDecoder::holdRepair(Block& block, std::size_t index, std::span<const std::byte> payload) {
  const auto same = [index](const Repair& repair) { return repair.index == index; };
  if (std::any_of(block.repairs.begin(), block.repairs.end(), same)) return;
  Repair& repair = block.repairs.emplace_back();
  repair.index = index;
  repair.buffer = pool_.take(payload.size());
  repairBytes_ += repair.buffer.capacity;
  std::copy(payload.begin(), payload.end(), repair.buffer.data.get());
}

bool RepairDecoder::onRepair(std::uint64_t first, const wire::RepairHeader& header,
                             std::span<const std::byte> payload) {
  if (header.sources == 0 || header.sources > kMaxBlockSources || header.index >= header.repairs ||
      header.repairs > kMaxBlockRepairs || payload.size() < kMinSymbolBytes ||
      first + header.sources > acks_.next() + kMaxFrameWindow) {
    return false;
  }
  if (complete(first, header.sources)) return true;
  if (first + header.sources <= windowBegin_) return true;
  dropFinished();
  Block* const block = findOrMake(first, header, payload.size());
  if (block == nullptr) return false;
  holdRepair(*block, header.index, payload);
  while (repairBytes_ > kMaxRepairBytes && blocks_.size() > 1) dropBlock(0);
  for (std::size_t i = 0; i < blocks_.size(); ++i) {
    if (blocks_[i].first == first) return tryRecover(i);
  }
  return true;
}

// The frame's symbol with zeros up to `symbolBytes`.
const std::byte* RepairDecoder::padded(Kept& kept, std::size_t symbolBytes) {
  std::byte* bytes = kept.buffer.data.get();
  if (kept.buffer.capacity < symbolBytes) {
    scratch_.push_back(pool_.take(symbolBytes));
    bytes = scratch_.back().data.get();
    std::copy_n(kept.buffer.data.get(), kept.bytes, bytes);
  }
  std::fill(bytes + kept.bytes, bytes + symbolBytes, std::byte{0});
  return bytes;
}

// False: a frame is longer than its repair frames, which no correct peer sends.
bool RepairDecoder::tryRecover(std::size_t at) {
  const Block& block = blocks_[at];
  std::array<Kept*, kMaxBlockSources> kept;
  std::size_t missing = 0;
  for (std::size_t i = 0; i < block.sources; ++i) {
    kept[i] = find(block.first + i);
    if (kept[i] == nullptr) ++missing;
    if (kept[i] != nullptr && kept[i]->bytes > block.symbolBytes) return false;
  }
  if (missing > block.repairs.size()) return true;
  if (missing > 0) {
    for (RecoveredSymbol& symbol : symbols_) pool_.give(std::move(symbol.buffer));
    symbols_.clear();
    nextSymbol_ = 0;
    std::array<const std::byte*, kMaxBlockSources> sources{};
    std::array<RepairSymbol, kMaxBlockRepairs> repairs;
    std::array<std::byte*, kMaxBlockRepairs> outputs;
    for (std::size_t i = 0; i < block.sources; ++i) {
      if (kept[i] != nullptr) {
        sources[i] = padded(*kept[i], block.symbolBytes);
        continue;
      }
      const auto& repair = block.repairs[symbols_.size()];
      repairs[symbols_.size()] = {repair.index, repair.buffer.data.get()};
      RecoveredSymbol& symbol = symbols_.emplace_back();
      symbol.sequence = block.first + i;
      symbol.bytes = block.symbolBytes;
      symbol.buffer = pool_.take(block.symbolBytes);
      outputs[symbols_.size() - 1] = symbol.buffer.data.get();
    }
    if (!recoverSources(block.symbolBytes, std::span(sources).first(block.sources), std::span(repairs).first(missing),
                        std::span(outputs).first(missing))) {
      symbols_.clear();
    }
    for (PooledBuffer& buffer : scratch_) pool_.give(std::move(buffer));
    scratch_.clear();
  }
  dropBlock(at);
  return true;
}

RepairDecoder::Next RepairDecoder::nextRecovered(Recovered* out) {
  while (nextSymbol_ < symbols_.size()) {
    const RecoveredSymbol& symbol = symbols_[nextSymbol_++];
    // It may have arrived, and only its copy be gone.
    if (acks_.hasArrived(symbol.sequence)) continue;
    if (!readSymbol({symbol.buffer.data.get(), symbol.bytes}, &out->frame)) return Next::kNonsense;
    out->sequence = symbol.sequence;
    recoveredLately_[recoveredAt_++ % recoveredLately_.size()] = symbol.sequence;
    return Next::kFrame;
  }
  return Next::kNone;
}

bool RepairDecoder::wasRecovered(std::uint64_t sequence) {
  const auto at = std::find(recoveredLately_.begin(), recoveredLately_.end(), sequence);
  if (at == recoveredLately_.end()) return false;
  *at = 0;
  return true;
}

void RepairDecoder::clear() {
  while (!blocks_.empty()) dropBlock(0);
  for (Kept& kept : kept_) {
    if (kept.bytes != 0) drop(kept);
  }
  kept_.clear();
  pool_.clear();
  nextSymbol_ = symbols_.size();
}

std::size_t RepairDecoder::memoryBytes() const {
  std::size_t bytes = kept_.capacity() * sizeof(Kept) + keptBytes_ + repairBytes_ + pool_.cachedBytes();
  for (const RecoveredSymbol& symbol : symbols_) bytes += symbol.buffer.capacity;
  return bytes;
}

}  // namespace gloo_bypass
