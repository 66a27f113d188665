// The receiver's side of repair: keeps copies of the latest frames that the sender said are covered, and recovers
// missing ones when enough repair frames have come. Pure.
//
// Bounds, whatever the peer sends: frames within the last kKeptFrames numbers and kMaxKeptBytes of memory, the oldest
// go first; repair frames of kMaxBlocks blocks and kMaxRepairBytes of memory, the oldest block goes first. Memory is
// taken when the first covered frame comes.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "transport/base/buffer_pool.h"
#include "transport/core/ack_tracker.h"
#include "transport/core/repair/erasure_code.h"
#include "transport/core/repair/frame_symbol.h"
#include "transport/wire/packet.h"

namespace gloo_bypass {

class RepairDecoder {
 public:
  // Four of the longest blocks; what comes later than that is retransmitted.
  static constexpr std::size_t kKeptFrames = 4 * kMaxBlockSources;
  static constexpr std::size_t kMaxKeptBytes = 4u << 20;
  static constexpr std::size_t kMaxBlocks = 8;
  static constexpr std::size_t kMaxRepairBytes = 2u << 20;
  // Of a block's sources: four blocks and the pool's rounding are within kMaxKeptBytes.
  static constexpr std::size_t kMaxBlockBytes = kMaxKeptBytes / 8;

  // `acks`: what has arrived; borrowed for the decoder's lifetime.
  explicit RepairDecoder(const AckTracker& acks) : acks_(acks) {}

  // A covered frame that arrived for the first time, already noted in `acks`. What can be recovered now comes from
  // nextRecovered. False: contradicts what came before; no correct peer sends it.
  [[nodiscard]] bool onSource(std::uint64_t sequence, const FrameSymbol& frame);
  // False as above. `first`: the header's number in full.
  [[nodiscard]] bool onRepair(std::uint64_t first, const wire::RepairHeader& header,
                              std::span<const std::byte> payload);

  struct Recovered {
    std::uint64_t sequence = 0;
    FrameSymbol frame;
  };
  enum class Next : std::uint8_t { kNone, kFrame, kNonsense };  // kNonsense: what was recovered is no frame
  // A recovered frame that had not arrived; until kNone. Its bytes are valid until the next onSource or onRepair, even
  // after clear().
  Next nextRecovered(Recovered* out);
  // A covered frame came that had arrived already. True: it had been recovered a moment ago, and was only late.
  bool wasRecovered(std::uint64_t sequence);

  void clear();
  std::size_t memoryBytes() const;

 private:
  struct Kept {
    std::uint64_t sequence = 0;
    std::size_t bytes = 0;  // 0: nothing
    PooledBuffer buffer;
  };
  struct Repair {
    std::size_t index = 0;
    PooledBuffer buffer;
  };
  struct Block {
    std::uint64_t first = 0;
    std::size_t sources = 0, symbolBytes = 0;
    std::vector<Repair> repairs;
    bool covers(std::uint64_t sequence) const { return sequence >= first && sequence < first + sources; }
  };

  Kept* find(std::uint64_t sequence);
  bool complete(std::uint64_t first, std::size_t sources) const;
  void moveWindow(std::uint64_t begin);
  void drop(Kept& kept);
  void dropBlock(std::size_t at);
  void dropFinished();
  Block* findOrMake(std::uint64_t first, const wire::RepairHeader& header, std::size_t symbolBytes);
  void holdRepair(Block& block, std::size_t index, std::span<const std::byte> payload);
  bool tryRecover(std::size_t at);
  const std::byte* padded(Kept& kept, std::size_t symbolBytes);

  const AckTracker& acks_;
  BufferPool pool_;
  std::vector<Kept> kept_;         // kKeptFrames of them, by sequence
  std::uint64_t windowBegin_ = 0;  // oldest number that may be kept
  std::uint64_t windowEnd_ = 0;
  std::size_t keptBytes_ = 0, repairBytes_ = 0;
  std::vector<Block> blocks_;          // oldest first
  std::vector<PooledBuffer> scratch_;  // longer copies of short frames, while a block is solved

  struct RecoveredSymbol {
    std::uint64_t sequence = 0;
    std::size_t bytes = 0;
    PooledBuffer buffer;
  };
  std::vector<RecoveredSymbol> symbols_;
  std::size_t nextSymbol_ = 0;
  std::array<std::uint64_t, 64> recoveredLately_{};
  std::size_t recoveredAt_ = 0;
};

}  // namespace gloo_bypass
