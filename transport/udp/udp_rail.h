// One socket of a UDP port, with the links that go over it: its batch of what is to be sent, what has arrived and is
// not handed up yet, and what the kernel and the network say of either (udp_port.h).
//
// Thread: one owner, as of the port; wanted() and onWoken() may be called by another thread meanwhile.
#pragma once

#include <poll.h>

#include <atomic>
#include <cstddef>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "transport/datagram/packet_port.h"
#include "transport/network/network_interface.h"
#include "transport/udp/udp_socket.h"

namespace gloo_bypass::udp {

class UdpRail {
 public:
  // Its links' ids are `first` and so on, `step` apart. `mtu`: of links at most, 0: what the interface carries.
  UdpRail(std::unique_ptr<UdpSocket> socket, std::size_t mtu, LinkId first, LinkId step)
      : socket_(std::move(socket)), mtu_(mtu), step_(step), nextLink_(first) {}

  const network::Endpoint& local() const { return socket_->local(); }

  // As PacketPort's.
  Result<LinkId> openLink(const network::Endpoint& peer);
  void closeLink(LinkId id);
  const LinkProperties& linkProperties(LinkId id) const { return links_.at(id).properties; }
  std::string describeLink(LinkId id) const;
  std::size_t receive(PacketSink& sink, std::size_t maxDatagrams);
  std::size_t transmit(LinkId id, std::span<const OutgoingDatagram> datagrams);
  std::string trouble(LinkId id) const;
  const PortCounters& counters() const { return counters_; }

  void wakePeers() {
    sendBatch();
    batch_.keep();
  }
  // What to sleep for, and not longer than *timeout; afterwards what poll() said of it.
  pollfd wanted(Duration* timeout) const;
  void onWoken(short revents) { socket_->onWoken(revents); }

 private:
  struct Link {
    SendBatch::Destination to;
    LinkProperties properties;
    TimePoint failingSince{};   // with to.failing
    int lastError = 0;          // with to.failing
    std::size_t tooLarge = 0;   // a datagram of so many bytes did not fit, and that is not told yet
    std::optional<Error> down;  // takes nothing any more; told once what had arrived before is handed up
    std::uint64_t tellAt = 0;   // with down: told when takenBytes_ is as much, at the latest
  };

  void sendBatch();
  bool dropsWhatItRefuses();
  void onSendFailure(const SendBatch::Run& run, int error);
  void readErrors(PacketSink& sink);
  void fail(Link& link, ErrorCode code, const std::string& message);
  void takeFromSocket();
  std::size_t handUp(PacketSink& sink, std::size_t maxDatagrams);
  void report(PacketSink& sink);
  void forgetPeer(const Link& link);

  const std::unique_ptr<UdpSocket> socket_;
  const std::optional<network::NetworkInterface> interface_ =  // nothing: it was just removed
      network::NetworkInterface::withAddress(local().any);
  const std::size_t mtu_;                                    // of links at most; 0: what the interface carries
  const std::size_t overheadBytes_ = local().headerBytes();  // IP and UDP headers
  const LinkId step_;
  std::unordered_map<LinkId, Link> links_;
  // Since the batch was last empty: what it holds of them still goes to their peers.
  std::vector<decltype(links_)::node_type> closed_;
  std::map<network::Endpoint, LinkId> byPeer_;  // of links whose end has not been told
  LinkId nextLink_;
  SendBatch batch_;
  std::span<const UdpSocket::Received> received_;  // not handed up yet: from the first one's byte handedUpBytes_ on
  std::size_t handedUpBytes_ = 0;
  std::uint64_t takenBytes_ = 0;  // from the socket, where the shortest message took kLeastInSocket
  bool socketEmpty_ = false;      // when last looked, and all that had come is handed up
  std::set<LinkId> toReport_;     // something of them is not told yet
  PortCounters counters_;
  TimePoint interfaceFullSince_ = kNever;  // it has taken nothing since
  std::atomic<int> full_{0};  // the batch had to stay: EAGAIN, no room in the socket; ENOBUFS, none in the interface
};

}  // namespace gloo_bypass::udp
