// Datagrams that wait to be sent, in order. A run is a sequence of datagrams of one size to one peer; its last may be
// shorter. The kernel takes a run as one segmented send. The batch copies payloads, except lent ones that are long or
// have no header before them (sealed datagrams): these stay where they are until they are sent, or until keep() copies
// them. Pure. One owner.
#pragma once

#include <algorithm>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "transport/base/copy_part.h"
#include "transport/base/time.h"
#include "transport/datagram/packet_port.h"
#include "transport/network/endpoint.h"

namespace gloo_bypass::udp {

class SendBatch {
 public:
  // The kernel allows 64 segments, and 65,487 bytes over IPv6. 44 segments fill it at an MTU of 1500.
  static constexpr std::size_t kMaxSegments = 44, kMaxRunBytes = 65'200;
  // A larger batch gains nothing, and copied data should still be in the cache when the kernel copies it out.
  static constexpr std::size_t kBytes = 4 * kMaxRunBytes, kMaxRuns = 64;
  // As many datagrams of that size as whole runs hold: a run of one costs the kernel as much as 20 more in another run.
  static constexpr std::size_t burst(std::size_t datagramBytes) {
    const std::size_t run = std::clamp<std::size_t>(kMaxRunBytes / datagramBytes, 1, kMaxSegments);
    return kMaxSegments / run * run;
  }

  struct Destination {
    LinkId link = 0;
    network::Endpoint peer;
    bool failing = false;  // the last attempt failed
    // If the kernel cannot segment towards this peer: until then each datagram is a message.
    TimePoint singlyUntil{};
    Duration singlyFor{};
  };
  // From this size on a payload behind a header is sent in place: a second piece of memory costs the kernel less than
  // the copy.
  static constexpr std::size_t kInPlaceFrom = 4096;
  struct Datagram {
    std::byte* begin = nullptr;
    std::size_t copied = 0;              // from `begin` on
    std::span<const std::byte> inPlace;  // the remaining bytes
    std::size_t bytes() const { return copied + inPlace.size(); }
  };
  struct Run {
    Destination* to = nullptr;
    std::size_t segmentBytes = 0, bytes = 0;
    std::size_t first = 0, segments = 0;  // index and number in the batch's datagrams
  };

  SendBatch() { runs_.reserve(kMaxRuns); }
  bool empty() const { return first_ == runs_.size(); }
  std::span<const Run> runs() const { return std::span(runs_).subspan(first_); }
  // Counts all datagrams since the batch was last empty, sent ones included.
  std::size_t size() const { return datagrams_.size(); }
  std::span<const Datagram> datagrams(const Run& run) const {
    return std::span(datagrams_).subspan(run.first, run.segments);
  }

  // False: full, or the rest would cut a run short. `to` must keep its address until the batch is empty.
  bool append(Destination& to, const OutgoingDatagram& datagram) {
    const std::size_t length = datagram.header.size() + datagram.payload.size();
    const bool joins = !empty() && runs_.back().to == &to && length <= runs_.back().segmentBytes &&
                       runs_.back().bytes == runs_.back().segments * runs_.back().segmentBytes &&
                       runs_.back().segments < kMaxSegments && runs_.back().bytes + length <= kMaxRunBytes;
    const std::size_t left = kBytes - used_;
    if (length > left || (!joins && (left < kMaxRunBytes || runs_.size() == kMaxRuns))) return false;
    if (!joins) runs_.push_back({.to = &to, .segmentBytes = length, .first = datagrams_.size()});
    Datagram added{.begin = bytes_.get() + used_, .copied = datagram.header.size(), .inPlace = datagram.payload};
    std::copy(datagram.header.begin(), datagram.header.end(), added.begin);
    const bool inPlace = datagram.lent && (datagram.payload.size() >= kInPlaceFrom || datagram.header.empty());
    if (!inPlace) copyIn(added);
    datagrams_.push_back(added);
    ++runs_.back().segments;
    runs_.back().bytes += length;
    used_ += length;
    return true;
  }

  // The oldest datagrams are sent, or never will be.
  void remove(std::size_t segments) {
    for (; segments > 0 && !empty(); ++first_) {
      Run& run = runs_[first_];
      for (; segments > 0 && run.segments > 0; --segments, --run.segments) run.bytes -= datagrams_[run.first++].bytes();
      if (run.segments > 0) return;
    }
    if (!empty()) return;
    runs_.clear();
    datagrams_.clear();
    first_ = used_ = 0;
  }

  // Copies what is in users' buffers.
  void keep() {
    if (empty()) return;
    for (Datagram& datagram : std::span(datagrams_).subspan(runs_[first_].first)) copyIn(datagram);
  }

 private:
  // Requires room for the whole datagram.
  static void copyIn(Datagram& datagram) {
    copyPart<ColdEnd::kSource>(datagram.begin + datagram.copied, datagram.inPlace);
    datagram.copied += std::exchange(datagram.inPlace, {}).size();
  }

  const std::unique_ptr<std::byte[]> bytes_ = std::make_unique_for_overwrite<std::byte[]>(kBytes);
  std::size_t used_ = 0;  // of bytes_; reset once the batch is empty
  std::vector<Run> runs_;
  std::vector<Datagram> datagrams_;
  std::size_t first_ = 0;  // the first of runs_ that is not sent
};

}  // namespace gloo_bypass::udp
