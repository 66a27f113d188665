// A frame that has its number already and no longer fits the path: sent in pieces, and put together again. Pure.
//
// A number stands for all of its frame's bytes. If a part took the number over, the frame as it was first sent could
// still arrive, and an acknowledgement would not say which of the two it means. So the receiver gathers the whole frame
// (its symbol, repair/frame_symbol.h) before it counts as arrived.
#pragma once

#include <array>
#include <bitset>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <vector>

#include "transport/core/repair/frame_symbol.h"
#include "transport/wire/packet.h"

namespace gloo_bypass {

// The sender's side: one frame at a time.
class PieceSender {
 public:
  struct Piece {
    std::uint16_t symbolBytes = 0;
    std::uint8_t index = 0;
    std::span<const std::byte> bytes;  // valid until start()
  };

  // Whether pieces of that frame and size are left.
  bool holds(std::uint64_t sequence, bool small) const {
    return sequence_ == sequence && small_ == small && next_ * wire::pieceBytes(small_) < symbol_.size();
  }
  void start(std::uint64_t sequence, bool small, const FrameSymbol& frame);
  // Takes the next piece; one is left.
  Piece next();
  bool atLast() const { return (next_ + 1) * wire::pieceBytes(small_) >= symbol_.size(); }
  // The piece taken last did not go out.
  void undo() { --next_; }
  std::size_t memoryBytes() const { return symbol_.capacity(); }

 private:
  static constexpr std::uint64_t kNone = std::numeric_limits<std::uint64_t>::max();
  std::uint64_t sequence_ = kNone;
  bool small_ = false;
  std::size_t next_ = 0;
  std::vector<std::byte> symbol_;
};

// The receiver's side. Memory: kMaxFrames frames, 1 MiB; beyond that the oldest is forgotten, and arrives when it is
// retransmitted. A frame's small pieces are gathered apart from its usual ones, since some of those may be late.
class PieceGatherer {
 public:
  static constexpr std::size_t kMaxFrames = 16;

  // False: no correct peer sends this. `*symbol`: the frame's, where this was the last piece of it; valid until the
  // next call. A piece that is here already is dropped.
  bool onPiece(std::uint64_t sequence, const wire::PieceHeader& piece, std::span<const std::byte> bytes,
               std::optional<std::span<const std::byte>>* symbol);
  void clear() { frames_ = {}; }
  std::size_t memoryBytes() const;

 private:
  static constexpr std::size_t kMaxPieces = wire::kMaxDatagramBytes / wire::kSmallPieceBytes + 1;
  static_assert(kMaxPieces <= 256);  // a piece's number has 8 bits
  struct Frame {
    std::uint64_t sequence = 0;
    bool small = false;
    std::uint64_t begun = 0;  // counts up; 0: free
    std::bitset<kMaxPieces> have;
    std::vector<std::byte> symbol;
  };

  Frame& findOrBegin(std::uint64_t sequence, bool small, std::size_t symbolBytes);

  std::array<Frame, kMaxFrames> frames_;
  std::uint64_t begun_ = 0;
};

}  // namespace gloo_bypass
