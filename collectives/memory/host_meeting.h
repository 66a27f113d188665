// How the ranks of one host come to share a segment. The first of them, the host's leader, makes the memory and waits
// at a socket under a random name, which the others know from the rendezvous. Nothing of it lies in a file system.
//
//   peer                         leader
//     |---- connect, hello ------->|   secret, host rank, lifeline (a pipe's end)   [checks user id and secret]
//     |                            |   ... until all have come
//     |<--- memory ----------------|   the segment's descriptor
//     |<--- lifeline --------------|   one for each other rank
//     |---- ready ---------------->|   mapped
//
// A lifeline ends when the process that holds its other end has ended, however it ended.
//
// Thread: the one that makes the group. Blocks.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "collectives/memory/segment.h"
#include "transport/base/file_descriptor.h"
#include "transport/base/status.h"
#include "transport/base/time.h"

namespace gloo_bypass::collectives {

// "boot id/network namespace/user": equal at two processes if and only if they can meet. Empty: unknown, stays alone.
std::string hostIdentity();

using MeetingSecret = std::array<std::uint8_t, 16>;

// Where the leader waits. Made by every rank, since none knows yet who will lead.
class MeetingPlace {
 public:
  // kUnavailable, kExhausted.
  static Result<MeetingPlace> open();
  const std::string& name() const { return name_; }
  const MeetingSecret& secret() const { return secret_; }

 private:
  friend class HostMeeting;
  std::string name_;
  MeetingSecret secret_{};
  FileDescriptor listener_;
};

// What a rank takes home.
struct HostShare {
  Segment segment;
  std::vector<FileDescriptor> lifelines;  // of each host rank; the own one is empty
  FileDescriptor ownLifeline;             // keep it open: its end tells the others that this process has ended
};

class HostMeeting {
 public:
  // `names`: of the host's ranks in the group, for messages.
  HostMeeting(int rank, std::vector<int> names, Layout layout, TimePoint deadline)
      : rank_(rank), names_(std::move(names)), layout_(layout), deadline_(deadline) {}

  // Rank 0 of the host leads, at its own place; the others come to the leader's. Errors: kTimedOut with the ranks that
  // did not come; kPeerViolatedProtocol; the system's.
  Result<HostShare> lead(MeetingPlace place);
  Result<HostShare> come(const std::string& name, const MeetingSecret& secret);

 private:
  struct Hello;
  int ranks() const { return layout_.ranks; }
  Status waitFor(int descriptor, const char* what, TimePoint deadline) const;
  Status send(int socket, std::span<const std::byte> packet, int descriptor) const;
  Status receive(int socket, std::span<std::byte> packet, FileDescriptor& descriptor, TimePoint deadline) const;
  Error failed(ErrorCode code, const std::string& why) const;
  Status welcome(const MeetingPlace& place, std::vector<FileDescriptor>& sockets, HostShare& share) const;

  const int rank_;
  const std::vector<int> names_;
  const Layout layout_;
  const TimePoint deadline_;
};

}  // namespace gloo_bypass::collectives
