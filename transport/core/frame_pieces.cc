#include "transport/core/frame_pieces.h"

#include <algorithm>

#include "transport/base/check.h"

namespace gloo_bypass {

void PieceSender::start(std::uint64_t sequence, bool small, const FrameSymbol& frame) {
  sequence_ = sequence;
  small_ = small;
  next_ = 0;
  symbol_.resize(frame.bytes());
  frame.write(symbol_);
}

PieceSender::Piece PieceSender::next() {
  const std::size_t most = wire::pieceBytes(small_), begin = next_ * most;
  GLOO_BYPASS_CHECK(begin < symbol_.size());
  const std::size_t bytes = std::min(most, symbol_.size() - begin);
  return {static_cast<std::uint16_t>(symbol_.size()), static_cast<std::uint8_t>(next_++),
          std::span(symbol_).subspan(begin, bytes)};
}

PieceGatherer::Frame& PieceGatherer::findOrBegin(std::uint64_t sequence, bool small, std::size_t symbolBytes) {
  Frame* oldest = &frames_.front();
  for (Frame& frame : frames_) {
    if (frame.begun != 0 && frame.sequence == sequence && frame.small == small) return frame;
    if (frame.begun < oldest->begun) oldest = &frame;
  }
  oldest->sequence = sequence;
  oldest->small = small;
  oldest->begun = ++begun_;
  oldest->have.reset();
  oldest->symbol.resize(symbolBytes);
  return *oldest;
}

bool PieceGatherer::onPiece(std::uint64_t sequence, const wire::PieceHeader& piece, std::span<const std::byte> bytes,
                            std::optional<std::span<const std::byte>>* symbol) {
  symbol->reset();
  const std::size_t most = wire::pieceBytes(piece.small), begin = piece.index * most;
  if (begin >= piece.symbolBytes || bytes.size() != std::min(most, piece.symbolBytes - begin)) return false;
  Frame& frame = findOrBegin(sequence, piece.small, piece.symbolBytes);
  if (frame.symbol.size() != piece.symbolBytes) return false;
  std::copy(bytes.begin(), bytes.end(), frame.symbol.begin() + static_cast<std::ptrdiff_t>(begin));
  frame.have.set(piece.index);
  if (frame.have.count() != (frame.symbol.size() + most - 1) / most) return true;
  frame.begun = 0;
  *symbol = frame.symbol;
  return true;
}

std::size_t PieceGatherer::memoryBytes() const {
  std::size_t bytes = 0;
  for (const Frame& frame : frames_) bytes += frame.symbol.capacity();
  return bytes;
}

}  // namespace gloo_bypass
