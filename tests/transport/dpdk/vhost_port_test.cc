// Link mode pci over devices that compute and check UDP checksums: virtio-user with vhost, two processes.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <memory>
#include <string>

#include "tests/transport/dpdk/port_process.h"
#include "transport/dpdk/dpdk_port.h"
#include "transport/dpdk/ethernet_device.h"
#include "transport/dpdk/frame.h"
#include "transport/dpdk/packet_buffers.h"
#include "transport/dpdk/port_address.h"
#include "transport/progress/progress_engine.h"

namespace gloo_bypass::dpdk {
namespace {

constexpr std::uint16_t kPort = 47777;
constexpr Ipv4Address kPlainPeer = 0x0a4e0002;

class VhostPort : public ::testing::Test {
 protected:
  void SetUp() override { std::filesystem::create_directories(testDirectory()); }
  void TearDown() override { removeTestDirectory(); }

  // The server waits for the client, which retries until the server is there.
  static TransportConfig config(bool server) {
    const std::string socket = testDirectory() + "/vhost.sock";
    TransportConfig config;
    config.link = LinkMode::kPci;
    config.mtu = 1500;
    config.ipv4 = server ? "10.78.0.2/24" : "10.78.0.1/24";
    config.pciAddress =
        server ? "net_virtio_user0,path=" + socket + ",server=1" : "net_vhost0,client=1,iface=" + socket;
    return config;
  }
};

std::vector<std::byte> datagramOf(std::size_t bytes) {
  std::vector<std::byte> datagram(bytes);
  for (std::size_t i = 0; i < bytes; ++i) datagram[i] = static_cast<std::byte>(i * 7);
  return datagram;
}

TEST_F(VhostPort, BothDevicesChecksum_LinkIsVerifiedAndDatagramsArrive) {
  const auto end = [](bool server) {
    return ProcessEnd{[server](Partner& partner) {
      auto port = openPort(config(server));
      const LinkId link = linkPorts(*port, partner);
      EXPECT_TRUE(port->linkProperties(link).verified);
      EXPECT_FALSE(port->traits().gathers);
      const auto bytes = datagramOf(1'400);
      const OutgoingDatagram datagram{std::span(bytes).first(60), std::span(bytes).subspan(60)};
      CollectingSink sink;
      std::size_t sent = 0;
      EXPECT_TRUE(waitFor([&] {
        port->onTick(monotonicNow());
        (void)port->receive(sink, 64);
        if (sent < 200) sent += port->transmit(link, std::span(&datagram, 1));
        port->wakePeers();
        return sent == 200 && sink.datagrams.size() == 200;
      }));
      for (const auto& arrived : sink.datagrams) EXPECT_EQ(arrived, bytes);
      EXPECT_EQ(port->counters().droppedMalformed, 0u);
      partner.meet();
    }};
  };
  runProcesses(end(false), end(true));
}

// A device that leaves the checksum to the receiver, which checks the frame itself.
TEST_F(VhostPort, FramesWithAWrongChecksumOrNone_AreDroppedAndCounted) {
  const ProcessEnd port{[](Partner& partner) {
    auto port = openPort(config(false));
    partner.send(port->localAddress());
    const auto link = port->openLink(partner.receive());
    ASSERT_TRUE(link.ok()) << link.error().message;
    CollectingSink sink;
    EXPECT_TRUE(waitFor([&] {
      port->onTick(monotonicNow());
      (void)port->receive(sink, 64);
      return sink.datagrams.size() == 2;
    }));
    for (const auto& arrived : sink.datagrams) EXPECT_EQ(arrived, datagramOf(1'400));
    EXPECT_EQ(port->counters().droppedMalformed, 2u);
    partner.meet();
  }};
  const ProcessEnd device{[](Partner& partner) {
    TransportConfig serving = config(true);
    auto started = openPort(serving);  // starts the EAL; its device is used below
    const auto peer = decodeUdpAddress(partner.receive());
    ASSERT_TRUE(peer.ok()) << peer.error().message;
    partner.send(encodeAddress(UdpAddress{kPlainPeer, kPort, true}));
    std::uint16_t id = 0;
    ASSERT_EQ(rte_eth_dev_get_port_by_name("net_virtio_user0", &id), 0);
    auto pool = makePacketPool("test", 64, 2048);
    ASSERT_TRUE(pool.ok()) << pool.error().message;

    UdpFlow flow;
    flow.destinationMac = kBroadcastMac;
    flow.sourceIp = kPlainPeer;
    flow.destinationIp = peer.value().ip;
    flow.sourcePort = kPort;
    flow.destinationPort = peer.value().port;
    const auto data = datagramOf(1'400);
    std::vector<std::byte> frame(kFrameHeaderBytes + data.size());
    std::copy(data.begin(), data.end(), frame.begin() + kFrameHeaderBytes);
    const auto send = [&] {
      rte_mbuf* mbuf = rte_pktmbuf_alloc(pool.value().get());
      ASSERT_NE(mbuf, nullptr);
      std::copy(frame.begin(), frame.end(), rte_pktmbuf_mtod(mbuf, std::byte*));
      mbuf->data_len = static_cast<std::uint16_t>(frame.size());
      mbuf->pkt_len = static_cast<std::uint32_t>(frame.size());
      EXPECT_TRUE(waitFor([&] { return rte_eth_tx_burst(id, 0, &mbuf, 1) == 1; }));
    };
    const auto udp = std::span(frame).subspan(kEthernetHeaderBytes + kIpv4HeaderBytes);
    FrameTemplate(flow, UdpChecksum::kByDevice).write(frame.data(), data.size());
    writeBe16(&udp[6], internetChecksum(udp));
    send();
    frame.back() ^= std::byte{1};
    send();  // a bit is wrong
    frame.back() ^= std::byte{1};
    writeBe16(&udp[6], 0);
    send();  // no checksum
    FrameTemplate(flow, UdpChecksum::kByDevice).write(frame.data(), data.size());
    writeBe16(&udp[6], internetChecksum(udp));
    send();
    partner.meet();
  }};
  runProcesses(port, device);
}

}  // namespace
}  // namespace gloo_bypass::dpdk
