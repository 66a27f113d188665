// How long a transport's operations take: histograms by size, and by the peer's process. Whoever posts operations reads
// the clock and adds; null in its place where nothing uses the numbers (measuresLatencies in transport/base/config.h).
//
// What is measured, from the call to its end:
//   send      posted until its buffer may be used again (a copied send: at once)
//   receive   posted until the message is there: includes the wait for the peer. Persistent receives are not counted:
//             each is posted once for many messages
//   connect   connect() until kConnected
//
// Memory: 23 KiB for each direction, and 10 KiB for each peer process, at most kMaxTimedPeers of them. The sums count
// the operations of further peers too. Pure. Thread: the progress engine's exclusive access.
#pragma once

#include <array>
#include <cstddef>
#include <map>
#include <string>

#include "transport/base/duration_histogram.h"
#include "transport/channel/transport_report.h"

namespace gloo_bypass {

inline constexpr std::size_t kMaxTimedPeers = 256;

class LatencyRecorder {
 public:
  struct Peer {
    DurationHistogram send, receive;
  };

  // The peer process of this name, for add...(); stays valid. Null: there are kMaxTimedPeers others.
  Peer* peer(const std::string& name);
  // `peer` may be null. `length` in bytes.
  void addSend(Peer* peer, std::size_t length, Duration duration);
  void addReceive(Peer* peer, std::size_t length, Duration duration);
  void addConnect(Duration duration) { connect_.add(duration); }

  // Size classes are "up_to_1KiB", "up_to_32KiB", "up_to_1MiB" and "larger".
  OperationTimes report() const;

 private:
  static constexpr std::size_t kSizeClasses = 4;
  static std::size_t classOf(std::size_t length);

  std::array<DurationHistogram, kSizeClasses> send_, receive_;
  DurationHistogram connect_;
  std::map<std::string, Peer> peers_;
};

}  // namespace gloo_bypass
