// One bound, non-blocking UDP socket that moves many datagrams a call: runs of equal datagrams leave as one segmented
// send (UDP_SEGMENT), several of them by one sendmmsg, and what the kernel has coalesced (UDP_GRO) comes in by
// recvmmsg. Without offload by kernel or device each datagram is a message; this is said once on stderr. Where the
// kernel has offload and refuses it on the way to a peer (IPsec), it is asked again after a while. Where a sandbox
// refuses these two calls, each message is a call.
//
// Nothing is ever fragmented: a datagram larger than the interface's MTU fails with EMSGSIZE. The kernel's own idea of
// the path's MTU, which anybody's ICMP can lower, limits no datagram (IP_PMTUDISC_PROBE).
//
// Thread: one owner; poll() of fd(), and onWoken(), by any.
#pragma once

#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <atomic>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "transport/base/file_descriptor.h"
#include "transport/base/port_range.h"
#include "transport/base/status.h"
#include "transport/network/endpoint.h"
#include "transport/udp/send_batch.h"

namespace gloo_bypass::udp {

enum class Offload : std::uint8_t { kWhereThereIs, kNone };

class UdpSocket {
 public:
  // At `local`'s address and the first of `ports` that is free. The error is one line: the address is not this
  // machine's, all ports are taken, no descriptor.
  static Result<std::unique_ptr<UdpSocket>> open(const network::Endpoint& local, const PortRange& ports = {},
                                                 Offload offload = Offload::kWhereThereIs);

  const network::Endpoint& local() const { return local_; }
  int fd() const { return fd_.get(); }
  bool offloads() const { return offloads_; }

  struct SendFailure {
    int error = 0;  // 0: all is sent; EAGAIN, ENOBUFS: no room in socket, interface; else of the oldest run...
    std::size_t segments = 0;  // ...of which so many were tried together
    bool anySent = false;
  };
  // Removes from `batch` what the kernel took; whom it is for is no longer failing.
  SendFailure send(SendBatch& batch);

  // What one or several datagrams of one peer arrived in: all of segmentBytes but the last, which may be shorter.
  struct Received {
    network::Endpoint from;
    std::span<const std::byte> bytes;
    std::size_t segmentBytes = 0;
  };
  // What has arrived, of one call; valid until the next. Empty: nothing, or an error that nextError() tells.
  std::span<const Received> receive();
  // Datagrams that the kernel dropped for want of room.
  std::uint64_t dropped() const { return dropped_; }

  // An error message of the network (ICMP) about a datagram of ours.
  struct NetworkError {
    network::Endpoint peer;  // to which it was sent
    bool portUnreachable = false;
    std::size_t mtu = 0;                // 0, or what the path carries as the message says
    std::span<const std::byte> quoted;  // the datagram's beginning, as the message has it: anybody can have made it up
  };
  // The next one, valid until the next call.
  std::optional<NetworkError> nextError();
  // Whether there may be one: since the last call send(), receive() or poll() met with it, or nextError() gave one.
  bool metError() { return metError_.load(std::memory_order_relaxed) && metError_.exchange(false); }
  // What poll() said of fd(). Any thread.
  void onWoken(short revents) {
    if ((revents & POLLERR) != 0) noteError();
  }

 private:
  template <std::size_t count>
  struct Messages {
    msghdr& set(std::size_t i, network::Endpoint& peer, std::span<std::byte> data);
    std::array<mmsghdr, count> headers{};
    std::array<iovec, count> bytes{};
    alignas(cmsghdr) std::array<std::array<std::byte, 256>, count> control;
  };
  static constexpr std::size_t kReceived = 8, kReceivedBytes = 65'536;

  // Whether a call may have several messages.
  struct ManyAtOnce {
    bool send, receive;
  };

  UdpSocket(FileDescriptor fd, const network::Endpoint& local, ManyAtOnce many, Offload offload);
  // As sendmmsg and recvmmsg: how many of the first `count` went, or came; -1 and errno: none.
  int sendMessages(std::size_t count);
  int receiveMessages();
  void noteError() { metError_.store(true, std::memory_order_relaxed); }
  std::size_t prepare(const SendBatch& batch);
  bool cutsFor(const SendBatch::Destination& to) const;
  void prepareMessage(std::size_t number, const SendBatch::Run& run, std::span<const SendBatch::Datagram> datagrams);

  const FileDescriptor fd_;
  const network::Endpoint local_;
  const ManyAtOnce many_;
  bool offloads_;  // the kernel has it
  std::atomic<bool> metError_{false};
  std::uint64_t dropped_ = 0;
  Messages<SendBatch::kMaxRuns> outgoing_;
  std::array<std::pair<SendBatch::Destination*, std::size_t>, SendBatch::kMaxRuns> outgoingSegments_{};
  std::vector<iovec> pieces_;  // of the outgoing messages
  Messages<kReceived> incoming_;
  std::array<Received, kReceived> received_{};
  std::unique_ptr<std::byte[]> receivedBytes_;
  std::array<std::byte, 512> quoted_;
};

}  // namespace gloo_bypass::udp
