// How much repair a path needs: the share of frames that it loses, and how many repair frames a block gets for that.
// Pure.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace gloo_bypass {

// The share of frames lost lately. "Lately" is counted in frames, not in time: between two training steps a path loses
// nothing, and is no better for it. Two spans of kSpanFrames: what both have lost, and when neither has lost anything,
// nothing is lost any more.
class LossEstimate {
 public:
  void onLost(std::uint64_t frames) { current_.lost += frames; }
  // This many frames had been called lost but came late.
  void onArrivedAfterAll(std::uint64_t frames);
  // `sent`: frames sent for the first time, in total.
  void onSent(std::uint64_t sent);
  bool lossy() const { return current_.lost + previous_.lost > 0; }
  // From above: one standard deviation more than counted.
  double rate(std::uint64_t sent) const;

 private:
  static constexpr std::uint64_t kSpanFrames = 16384;
  // Fewer frames give no rate: the first loss says little.
  static constexpr std::uint64_t kMinFrames = 256;

  struct Span {
    std::uint64_t begin = 0, lost = 0;  // begin: frames sent before it
  };
  Span current_, previous_;
};

// The fewest repair frames with which a block of `sources` frames cannot be recovered with probability kBlockFailure at
// most, each frame, repair frames too, being lost with `lossRate` by itself. At most `limit`, one at least where the
// limit has room for it.
inline constexpr double kBlockFailure = 1e-4;
std::size_t repairsNeeded(std::size_t sources, double lossRate, std::size_t limit);

// Makes up for what losses have in common: after a block that could not be recovered the loss rate is taken for twice
// what it is, and for less and less while blocks can.
class LossMargin {
 public:
  void onBlockFailed() {
    factor_ = std::min(2 * factor_, kMaxFactor);
    blocks_ = 0;
  }
  void onBlockSent() {
    if (++blocks_ < kBlocksToForget) return;
    blocks_ = 0;
    factor_ = std::max(factor_ * 0.8, 1.0);
  }
  double factor() const { return factor_; }

 private:
  static constexpr double kMaxFactor = 16;
  static constexpr int kBlocksToForget = 512;
  double factor_ = 1;
  int blocks_ = 0;
};

// Repair frames never take more than a quarter of what source frames do, whatever is lost: blocks of a frame or two,
// each with a repair frame of its own, run out of it.
class RepairBudget {
 public:
  static constexpr std::size_t kSourcesPerRepair = 4;
  static constexpr std::size_t mostRepairs(std::size_t sources) {
    return std::max<std::size_t>(1, sources / kSourcesPerRepair);
  }
  void onSource() { quarters_ = std::min(quarters_ + 1, kMaxQuarters); }
  std::size_t available() const { return quarters_ / kSourcesPerRepair; }
  void spend(std::size_t repairs) { quarters_ -= std::min(quarters_, repairs * kSourcesPerRepair); }

 private:
  static constexpr std::size_t kMaxQuarters = 64 * kSourcesPerRepair;
  std::size_t quarters_ = 8 * kSourcesPerRepair;
};

}  // namespace gloo_bypass
