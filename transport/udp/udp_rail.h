// One socket of a UDP port and the links that use it: the batch to send, the data that has arrived but is not handed up
// yet, and the errors that the kernel and the network report (udp_port.h).
//
// Thread: one owner, the port's; wanted() and onWoken() may be called by another thread meanwhile.
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
  // Link ids are `first`, `first` + `step` and so on. `mtu`: the links' maximum; 0: the interface's.
  UdpRail(std::unique_ptr<UdpSocket> socket, std::size_t mtu, LinkId first, LinkId step);

  const network::Endpoint& local() const { return socket_->local(); }

  // As in PacketPort.
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
  // The events to sleep for, and not longer than *timeout; then onWoken() takes poll()'s result.
  pollfd wanted(Duration* timeout) const;
  void onWoken(short revents) { socket_->onWoken(revents); }

 private:
  struct Link {
    SendBatch::Destination to;
    LinkProperties properties;
    TimePoint failingSince{};   // with to.failing
    int lastError = 0;          // with to.failing
    std::size_t tooLarge = 0;   // size of a datagram that did not fit, not reported yet; 0: none
    std::optional<Error> down;  // set: accepts nothing any more; reported once all earlier data is handed up
    std::uint64_t tellAt = 0;   // with down: reported at the latest when takenBytes_ reaches it
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
  void acceptOnlyPeers();

  const std::unique_ptr<UdpSocket> socket_;
  const std::optional<network::NetworkInterface> interface_ =  // nullopt: it was just removed
      network::NetworkInterface::withAddress(local());
  const std::size_t mtu_;                                    // the links' maximum; 0: the interface's
  const std::size_t overheadBytes_ = local().headerBytes();  // IP and UDP headers
  const LinkId step_;
  std::unordered_map<LinkId, Link> links_;
  // Closed since the batch was last empty: their datagrams in it still go to their peers.
  std::vector<decltype(links_)::node_type> closed_;
  std::map<network::Endpoint, LinkId> byPeer_;  // open links, and links with an end not reported yet
  LinkId nextLink_;
  SendBatch batch_;
  std::span<const UdpSocket::Received> received_;  // not handed up yet: from byte handedUpBytes_ of the first one on
  std::size_t handedUpBytes_ = 0;
  std::uint64_t takenBytes_ = 0;  // from the socket; counts at least kLeastInSocket a message
  bool socketEmpty_ = false;      // when last checked, with all earlier data handed up
  std::set<LinkId> toReport_;     // links with something to report
  PortCounters counters_;
  TimePoint interfaceFullSince_ = kNever;  // has accepted nothing since
  std::atomic<int> full_{0};               // why the batch stayed: EAGAIN, socket full; ENOBUFS, interface full
};

}  // namespace gloo_bypass::udp
