// One bound, non-blocking UDP socket that moves many datagrams a call. Runs of equal datagrams leave as one segmented
// send (UDP_SEGMENT), and one sendmmsg carries several; recvmmsg takes what the kernel has coalesced (UDP_GRO). Without
// offload each datagram is a message, and one line on stderr says so. If the kernel has offload but refuses it towards
// a peer (IPsec), the socket tries again after a while. If a sandbox refuses sendmmsg and recvmmsg, each message is a
// call.
//
// Nothing is ever fragmented: a datagram larger than the interface's MTU fails with EMSGSIZE. The kernel's estimate of
// the path's MTU, which anyone's ICMP can lower, limits no datagram (IP_PMTUDISC_PROBE).
//
// Thread: one owner; any thread may poll() fd() and call onWoken().
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
  // Binds `local`'s address and the first free port of `ports`. The error is one line: the address is not this
  // machine's, all ports are taken, no descriptor.
  static Result<std::unique_ptr<UdpSocket>> open(const network::Endpoint& local, const PortRange& ports = {},
                                                 Offload offload = Offload::kWhereThereIs);

  const network::Endpoint& local() const { return local_; }
  int fd() const { return fd_.get(); }
  bool offloads() const { return offloads_; }

  // What others send is dropped by the kernel, if it can: those of more than kMostFilteredPeers it does not tell apart.
  void acceptOnly(std::span<const network::Endpoint> peers);

  struct SendFailure {
    int error = 0;             // 0: all is sent; EAGAIN, ENOBUFS: socket, interface full; else the oldest run's error
    std::size_t segments = 0;  // of that run, in the failed message
    bool anySent = false;
  };
  // Removes from `batch` what the kernel took, and clears `failing` of its destinations.
  SendFailure send(SendBatch& batch);

  // Memory with one or several datagrams of one peer: all have segmentBytes, but the last may be shorter.
  struct Received {
    network::Endpoint from;
    std::span<const std::byte> bytes;
    std::size_t segmentBytes = 0;
  };
  // The messages of one call; valid until the next. Empty: none, or an error for nextError().
  std::span<const Received> receive();
  // Datagrams that the kernel dropped: the socket was full, or they came from no peer.
  std::uint64_t dropped() const { return dropped_; }

  // An ICMP error message about a datagram of ours.
  struct NetworkError {
    network::Endpoint peer;  // the datagram's destination
    bool portUnreachable = false;
    std::size_t mtu = 0;                // 0, or the path's MTU according to the message
    std::span<const std::byte> quoted;  // the datagram's beginning, as quoted: anyone can forge it
  };
  // The next error message, valid until the next call.
  std::optional<NetworkError> nextError();
  // Whether there may be one: since the last call of this, send(), receive() or poll() met an error, or nextError()
  // returned one.
  bool metError() { return metError_.load(std::memory_order_relaxed) && metError_.exchange(false); }
  // Takes poll()'s result for fd(). Any thread.
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

  // Whether one call may carry several messages.
  struct ManyAtOnce {
    bool send, receive;
  };

  UdpSocket(FileDescriptor fd, const network::Endpoint& local, ManyAtOnce many, Offload offload);
  // As sendmmsg and recvmmsg: how many of the first `count` were sent or received; -1 and errno: none.
  int sendMessages(std::size_t count);
  int receiveMessages();
  void noteError() { metError_.store(true, std::memory_order_relaxed); }
  std::size_t prepare(const SendBatch& batch);
  bool cutsFor(const SendBatch::Destination& to) const;
  void prepareMessage(std::size_t number, const SendBatch::Run& run, std::span<const SendBatch::Datagram> datagrams);

  const FileDescriptor fd_;
  const network::Endpoint local_;
  const ManyAtOnce many_;
  bool offloads_;  // the kernel supports it
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
