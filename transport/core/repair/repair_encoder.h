// The sender's side of repair: gathers frames with consecutive numbers into a block, and has its repair frames ready
// when it ends. Pure; one block at a time. Memory: the repair frames of one block.
//
//   kIdle -- start() --> kGathering -- add() each frame, close() --> kSending -- next(), onSent() each repair --> kIdle
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "transport/base/time.h"
#include "transport/core/repair/erasure_code.h"
#include "transport/core/repair/frame_symbol.h"
#include "transport/wire/packet.h"

namespace gloo_bypass {

class RepairEncoder {
 public:
  enum class State : std::uint8_t { kIdle, kGathering, kSending };

  // The longest symbol of a frame, and so the payload of a repair frame, where datagrams have `datagramBytes`.
  static constexpr std::size_t symbolBytes(std::size_t datagramBytes) {
    return datagramBytes - wire::kCommonHeaderBytes - wire::kRepairHeaderBytes;
  }

  State state() const { return state_; }
  // A block that begins with frame `first` and has at most so many sources and repair frames, of at most so many bytes
  // each.
  void start(TimePoint now, std::uint64_t first, std::size_t sources, std::size_t repairs, std::size_t symbolBytes);
  // Whether the block has this frame already: the port had refused it, and it is sent once more.
  bool has(std::uint64_t sequence) const { return sequence >= first_ && sequence < first_ + sources_; }
  // The next frame. Sent or not yet, its bytes are settled.
  void add(TimePoint now, const FrameSymbol& frame);
  bool full() const { return sources_ == maxSources_; }
  TimePoint startedAt() const { return startedAt_; }
  TimePoint lastAddedAt() const { return lastAddedAt_; }
  std::uint64_t first() const { return first_; }
  std::size_t symbolBytes() const { return stride_; }
  std::size_t sources() const { return sources_; }
  std::size_t plannedRepairs() const { return maxRepairs_; }

  // The block is over, and gets at most so many repair frames; none: kIdle.
  void close(std::size_t repairs);
  // Next repair frame, while kSending. `*payload` is valid until the block after this one starts.
  wire::RepairHeader next(std::span<const std::byte>* payload) const;
  // It went out; the last one: kIdle.
  void onSent();
  // That one did not go out after all.
  void undo();
  // Forgets the block.
  void stop() { state_ = State::kIdle; }

  std::size_t memoryBytes() const { return capacity_ + kMinSymbolBytes + scratchBytes_; }

 private:
  std::byte* repair(std::size_t index) const { return repairs_.get() + index * stride_; }

  State state_ = State::kIdle;
  std::uint64_t first_ = 0;
  std::size_t sources_ = 0, maxSources_ = 0, maxRepairs_ = 0;
  std::size_t repairCount_ = 0, nextRepair_ = 0;  // kSending
  std::size_t longest_ = 0;                       // of this block's symbols
  TimePoint startedAt_{}, lastAddedAt_{};
  std::unique_ptr<std::byte[]> repairs_, scratch_;
  std::size_t stride_ = 0, capacity_ = 0, scratchBytes_ = 0;
};

}  // namespace gloo_bypass
