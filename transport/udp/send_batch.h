// Datagrams that wait to be sent, copied, in the order in which they came: datagrams of one size to one peer are a run,
// of which the last may be shorter. The kernel takes a run as one segmented send. Pure. One owner.
#pragma once

#include <algorithm>
#include <cstring>
#include <memory>
#include <span>
#include <vector>

#include "transport/base/copy_part.h"
#include "transport/datagram/packet_port.h"
#include "transport/udp/endpoint.h"

namespace gloo_bypass::udp {

class SendBatch {
 public:
  // The kernel's bounds are 64 segments, and 65,487 bytes over IPv6. 44 segments fill it at an MTU of 1500.
  static constexpr std::size_t kMaxSegments = 44, kMaxRunBytes = 65'200;
  // Beyond it there is nothing to win, and what was copied in should still be in the cache when the kernel copies it
  // out.
  static constexpr std::size_t kBytes = 4 * kMaxRunBytes, kMaxRuns = 64;
  // As many datagrams of that size as whole runs hold: a run of one costs the kernel as much as 20 more in another.
  static constexpr std::size_t burst(std::size_t datagramBytes) {
    const std::size_t run = std::clamp<std::size_t>(kMaxRunBytes / datagramBytes, 1, kMaxSegments);
    return kMaxSegments / run * run;
  }

  struct Destination {
    LinkId link = 0;
    Endpoint peer;
    bool failing = false;  // what was tried last did not leave
  };
  struct Run {
    Destination* to = nullptr;
    std::byte* begin = nullptr;
    std::size_t segmentBytes = 0, bytes = 0;
    std::size_t segments() const { return (bytes + segmentBytes - 1) / segmentBytes; }
  };

  SendBatch() { runs_.reserve(kMaxRuns); }
  bool empty() const { return first_ == runs_.size(); }
  std::span<const Run> runs() const { return std::span(runs_).subspan(first_); }

  // False: full, or what is left would cut a run short. `to` stays where it is until the batch is empty.
  bool append(Destination& to, const OutgoingDatagram& datagram) {
    const std::size_t length = datagram.header.size() + datagram.payload.size();
    const bool joins = !empty() && runs_.back().to == &to && length <= runs_.back().segmentBytes &&
                       runs_.back().bytes % runs_.back().segmentBytes == 0 && runs_.back().segments() < kMaxSegments &&
                       runs_.back().bytes + length <= kMaxRunBytes;
    const std::size_t left = kBytes - used_;
    if (length > left || (!joins && (left < kMaxRunBytes || runs_.size() == kMaxRuns))) return false;
    std::byte* const at = bytes_.get() + used_;
    if (!joins) runs_.push_back({.to = &to, .begin = at, .segmentBytes = length, .bytes = 0});
    std::copy(datagram.header.begin(), datagram.header.end(), at);
    copyPart<ColdEnd::kSource>(at + datagram.header.size(), datagram.payload);
    runs_.back().bytes += length;
    used_ += length;
    return true;
  }

  // The oldest ones have gone, or never will.
  void remove(std::size_t segments) {
    for (; segments > 0 && !empty(); ++first_) {
      Run& run = runs_[first_];
      const std::size_t bytes = std::min(segments * run.segmentBytes, run.bytes);
      segments -= std::min(segments, run.segments());
      run.begin += bytes;
      run.bytes -= bytes;
      if (run.bytes > 0) return;
    }
    if (!empty()) return;
    runs_.clear();
    first_ = used_ = 0;
  }

 private:
  const std::unique_ptr<std::byte[]> bytes_ = std::make_unique_for_overwrite<std::byte[]>(kBytes);
  std::size_t used_ = 0;  // of bytes_; free again once the batch is empty
  std::vector<Run> runs_;
  std::size_t first_ = 0;  // of runs_ that is not gone
};

}  // namespace gloo_bypass::udp
