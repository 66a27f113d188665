#include "collectives/memory/host_meeting.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>
#include <span>
#include <utility>

#include "collectives/interruption.h"
#include "transport/base/boot_id.h"
#include "transport/base/exhausted.h"
#include "transport/base/packet_socket.h"
#include "transport/progress/progress_engine.h"

namespace gloo_bypass::collectives {
namespace {

constexpr std::byte kReady{1};
// A busy leader's backlog can be full; a peer tries again after this long.
constexpr std::chrono::milliseconds kAgain{2};
// A rank says hello as soon as it is connected. A stranger that says nothing holds the others up for so long.
constexpr std::chrono::seconds kHello{2};

}  // namespace

struct HostMeeting::Hello {
  MeetingSecret secret{};
  std::uint32_t rank = 0;
};

std::string hostIdentity() {
  const std::string boot = bootId();
  struct stat network{};
  if (boot.empty() || ::stat("/proc/self/ns/net", &network) != 0) return "";
  return fmt::format("{}/{}/{}", boot, network.st_ino, ::getuid());
}

Result<MeetingPlace> MeetingPlace::open() {
  MeetingPlace place;
  std::array<std::uint8_t, 16> random{};
  for (std::span<std::uint8_t> bytes : {std::span<std::uint8_t>(random), std::span<std::uint8_t>(place.secret_)}) {
    if (::getrandom(bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size())) {
      const auto [code, text] = failedCall("getrandom");
      return Error{ErrorScope::kDevice, code, text};
    }
  }
  place.name_ = "@gloo-bypass-";
  for (const std::uint8_t byte : random) place.name_ += fmt::format("{:02x}", byte);
  auto listener = listenUnderName(place.name_);
  if (!listener) return listener.error();
  place.listener_ = std::move(listener).value();
  return place;
}

Error HostMeeting::failed(ErrorCode code, const std::string& why) const {
  return {ErrorScope::kSession, code, "ranks of this host cannot share memory: " + why};
}

Status HostMeeting::waitFor(int descriptor, const char* what, TimePoint deadline) const {
  pollfd waiting{descriptor, POLLIN, 0};
  InterruptibleWait wait;
  for (;;) {
    const TimePoint now = monotonicNow();
    if (wait.isInterrupted(now)) return interrupted();
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - now);
    if (left.count() <= 0) return failed(ErrorCode::kTimedOut, fmt::format("{} did not come in time", what));
    const int ready = ::poll(&waiting, 1, static_cast<int>(std::min(left, InterruptibleWait::kAskEvery).count()));
    if (ready > 0) return {};
    if (ready < 0 && errno != EINTR) {
      const auto [code, text] = failedCall("poll");
      return failed(code, text);
    }
  }
}

// With many ranks the descriptors under way reach a limit until peers have read some: it tries again.
Status HostMeeting::send(int socket, std::span<const std::byte> packet, int descriptor) const {
  for (InterruptibleWait wait;;) {
    if (wait.isInterrupted(monotonicNow())) return interrupted();
    const PacketIo result = sendPacket(socket, packet, descriptor);
    if (result == PacketIo::kDone) return {};
    if (result == PacketIo::kClosed) return failed(ErrorCode::kPeerVanished, "a rank ended while the group was made");
    if (monotonicNow() >= deadline_) return failed(ErrorCode::kExhausted, reasonOf(errno));
    ::poll(nullptr, 0, kAgain.count());
  }
}

Status HostMeeting::receive(int socket, std::span<std::byte> packet, FileDescriptor& descriptor,
                            TimePoint deadline) const {
  for (;;) {
    std::size_t length = 0;
    switch (receivePacket(socket, packet, length, descriptor)) {
      case PacketIo::kDone:
        if (length == packet.size()) return {};
        return failed(ErrorCode::kPeerViolatedProtocol, "a process sends what no rank of this version sends");
      case PacketIo::kExhausted:
        return failed(ErrorCode::kExhausted, reasonOf(errno));
      case PacketIo::kClosed:
        return failed(ErrorCode::kPeerVanished, "a rank ended while the group was made");
      case PacketIo::kWouldBlock:
        if (Status status = waitFor(socket, "an answer", deadline); !status) return status;
    }
  }
}

// Accepts until every rank has said hello. A stranger, or a rank with another secret, is dropped.
Status HostMeeting::welcome(const MeetingPlace& place, std::vector<FileDescriptor>& sockets, HostShare& share) const {
  for (int missing = ranks() - 1; missing > 0;) {
    FileDescriptor socket = acceptPacketSocket(place.listener_.get());
    if (!socket) {
      if (const std::string why = exhausted(errno); !why.empty()) return failed(ErrorCode::kExhausted, why);
      std::string who = "rank";
      for (std::size_t rank = 1; rank < sockets.size(); ++rank) {
        if (!sockets[rank]) who += fmt::format(" {}", names_[rank]);
      }
      if (Status status = waitFor(place.listener_.get(), who.c_str(), deadline_); !status) return status;
      continue;
    }
    if (!peerIsSameUser(socket.get())) continue;
    Hello hello;
    FileDescriptor lifeline;
    const TimePoint soon = std::min(deadline_, monotonicNow() + kHello);
    if (Status status = receive(socket.get(), std::as_writable_bytes(std::span(&hello, 1)), lifeline, soon); !status) {
      if (status.error().code == ErrorCode::kExhausted) return status;
      continue;
    }
    const std::size_t rank = hello.rank;
    if (hello.secret != place.secret() || rank == 0 || rank >= sockets.size() || sockets[rank] || !lifeline) continue;
    share.lifelines[rank] = std::move(lifeline);
    sockets[rank] = std::move(socket);
    --missing;
  }
  return {};
}

namespace {

struct Pipe {
  FileDescriptor read, write;
};

std::optional<Pipe> makePipe() {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return std::nullopt;
  return Pipe{FileDescriptor(ends[0]), FileDescriptor(ends[1]).leftByForkedChildren()};
}

}  // namespace

Result<HostShare> HostMeeting::lead(MeetingPlace place) {
  auto segment = Segment::create(layout_);
  if (!segment) return segment.error();
  auto pipe = makePipe();
  if (!pipe) {
    const auto [code, text] = failedCall("pipe2");
    return failed(code, text);
  }
  HostShare share{std::move(segment).value(), {}, std::move(pipe->write)};
  share.lifelines.resize(static_cast<std::size_t>(ranks()));
  std::vector<FileDescriptor> sockets(static_cast<std::size_t>(ranks()));
  if (Status status = welcome(place, sockets, share); !status) return status;

  for (std::size_t to = 1; to < sockets.size(); ++to) {
    const auto give = [&](const FileDescriptor& descriptor) {
      return send(sockets[to].get(), std::as_bytes(std::span(&to, 1)), descriptor.get());
    };
    if (Status status = give(share.segment.file()); !status) return status;
    for (std::size_t of = 0; of < sockets.size(); ++of) {
      if (of == to) continue;
      if (Status status = give(of == 0 ? pipe->read : share.lifelines[of]); !status) return status;
    }
  }
  for (std::size_t from = 1; from < sockets.size(); ++from) {
    std::byte ready{};
    FileDescriptor none;
    if (Status status = receive(sockets[from].get(), std::span(&ready, 1), none, deadline_); !status) return status;
  }
  share.segment.closeFile();
  return share;
}

Result<HostShare> HostMeeting::come(const std::string& name, const MeetingSecret& secret) {
  FileDescriptor socket;
  InterruptibleWait wait;
  for (ConnectResult result = connectPacketSocket(name, socket); result != ConnectResult::kConnected;
       result = connectPacketSocket(name, socket)) {
    if (wait.isInterrupted(monotonicNow())) return interrupted();
    if (result == ConnectResult::kRefused) {
      return failed(ErrorCode::kPeerVanished,
                    fmt::format("rank {} does not listen ({})", names_.front(), std::strerror(errno)));
    }
    if (result != ConnectResult::kBusy) {
      const auto [code, text] = failedCall("connect");
      return failed(code, text);
    }
    if (monotonicNow() >= deadline_) return failed(ErrorCode::kTimedOut, "the first rank is busy");
    ::poll(nullptr, 0, kAgain.count());
  }
  if (!peerIsSameUser(socket.get())) return failed(ErrorCode::kPeerViolatedProtocol, "another user listens");
  auto pipe = makePipe();
  if (!pipe) {
    const auto [code, text] = failedCall("pipe2");
    return failed(code, text);
  }
  const Hello hello{secret, static_cast<std::uint32_t>(rank_)};
  if (Status status = send(socket.get(), std::as_bytes(std::span(&hello, 1)), pipe->read.get()); !status) return status;

  const auto take = [&](FileDescriptor& descriptor) {
    std::size_t to = 0;
    return receive(socket.get(), std::as_writable_bytes(std::span(&to, 1)), descriptor, deadline_);
  };
  FileDescriptor memory;
  if (Status status = take(memory); !status) return status;
  auto segment = Segment::open(std::move(memory), layout_);
  if (!segment) return segment.error();
  HostShare share{std::move(segment).value(), {}, std::move(pipe->write)};
  share.lifelines.resize(static_cast<std::size_t>(ranks()));
  for (int of = 0; of < ranks(); ++of) {
    if (of == rank_) continue;
    FileDescriptor& lifeline = share.lifelines[static_cast<std::size_t>(of)];
    if (Status status = take(lifeline); !status) return status;
    if (!lifeline) return failed(ErrorCode::kPeerViolatedProtocol, "a lifeline is missing");
  }
  share.segment.closeFile();
  if (Status status = send(socket.get(), std::span(&kReady, 1), -1); !status) return status;
  return share;
}

}  // namespace gloo_bypass::collectives
