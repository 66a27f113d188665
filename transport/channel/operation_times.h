// How long a transport's operations take: histograms by size, and by the peer's process. Whoever posts operations reads
// the clock and adds, where something uses the numbers (measuresLatencies in transport/base/config.h); a report has a
// copy.
//
// What is measured, from the call to its end:
//   send      posted until its buffer may be used again (a copied send: at once)
//   receive   posted until the message is there: includes the wait for the peer. Persistent receives are not counted:
//             each is posted once for many messages
//   connect   connect() until kConnected
//
// Memory: 42 KiB, and 10 KiB for each peer process, at most kMaxTimedPeers of them. The sizes count the operations of
// further peers too. Pure. Thread: the progress engine's exclusive access.
#pragma once

#include <array>
#include <cstddef>
#include <map>
#include <string>

#include "transport/base/duration_histogram.h"

namespace gloo_bypass {

inline constexpr std::size_t kMaxTimedPeers = 256;

struct OperationTimes {
  struct Times {
    DurationHistogram send, receive;
  };
  struct SizeClass {
    const char* name;
    std::size_t upTo;  // bytes, inclusive
    Times times{};
  };

  // Of the peer process with this name; stays valid. Null: there are kMaxTimedPeers others.
  Times* peer(const std::string& name);
  // `peer` may be null. `length` in bytes.
  void addSend(Times* peer, std::size_t length, Duration duration);
  void addReceive(Times* peer, std::size_t length, Duration duration);

  // 32 KiB is where rendezvous begins by default, 1 MiB the segment of Gloo's ring.
  std::array<SizeClass, 4> sizes{{{"up_to_1KiB", std::size_t{1} << 10},
                                  {"up_to_32KiB", std::size_t{32} << 10},
                                  {"up_to_1MiB", std::size_t{1} << 20},
                                  {"larger", SIZE_MAX}}};
  std::map<std::string, Times> peers;
  DurationHistogram connect;
};

}  // namespace gloo_bypass
