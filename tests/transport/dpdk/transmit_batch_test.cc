// A burst that the device does not accept whole, over DPDK's ring device that leads back to itself.
#include "transport/dpdk/transmit_batch.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <vector>

#include "tests/transport/dpdk/port_process.h"
#include "transport/dpdk/eal.h"
#include "transport/dpdk/packet_buffers.h"

namespace gloo_bypass::dpdk {
namespace {

class TransmitBatchTest : public ::testing::Test {
 protected:
  void TearDown() override { removeTestDirectory(); }
};

// A device with an empty ring, and numbered frames.
class Ring {
 public:
  Ring() {
    TransportConfig config = memifTestConfig();
    const Status started = Eal::start(config);
    EXPECT_TRUE(started.ok()) << (started.ok() ? "" : started.error().message);
    auto made = PacketBuffers::create(
        {.maxFrameBytes = 1500, .receiveBuffers = 64, .transmitBuffers = 4096, .transmitRoomBytes = 2048});
    EXPECT_TRUE(made.ok()) << (made.ok() ? "" : made.error().message);
    buffers_ = std::move(made).value();
    auto device = EthernetDevice::create({.name = "net_ring0", .receivePool = buffers_->receivePool()});
    EXPECT_TRUE(device.ok()) << (device.ok() ? "" : device.error().message);
    device_ = std::move(device).value();
  }
  EthernetDevice& device() { return *device_; }

  rte_mbuf* frame(std::uint32_t number, bool attached = false) {
    header_.resize(sizeof(number));
    std::memcpy(header_.data(), &number, sizeof(number));
    return buffers_->build(FrameTemplate(UdpFlow{}), {header_, attached ? payload_ : std::span<const std::byte>()},
                           attached);
  }
  // Fills the ring, and returns how many frames that took.
  std::uint32_t fill() {
    std::uint32_t count = 0;
    for (rte_mbuf* next = frame(count); next != nullptr; next = frame(++count)) {
      if (device_->transmit(&next, 1) == 1) continue;
      rte_pktmbuf_free(next);
      return count;
    }
    ADD_FAILURE() << "the ring has no end";
    return 0;
  }
  void overwritePayload() { std::fill(payload_.begin(), payload_.end(), std::byte{0}); }
  // Counts frames with another payload than the attached one in `wrong`.
  std::vector<std::uint32_t> receiveAll(std::size_t* wrong = nullptr) {
    std::vector<std::uint32_t> numbers;
    std::array<rte_mbuf*, 32> frames{};
    while (const std::uint16_t count = device_->receive(frames.data(), frames.size())) {
      for (std::uint16_t i = 0; i < count; ++i) {
        std::uint32_t number = 0;
        std::memcpy(&number, rte_pktmbuf_mtod_offset(frames[i], std::byte*, kFrameHeaderBytes), sizeof(number));
        numbers.push_back(number);
        const auto payload = std::span(rte_pktmbuf_mtod(frames[i], const std::byte*), frames[i]->data_len)
                                 .subspan(kFrameHeaderBytes + sizeof(number));
        if (wrong != nullptr) *wrong += std::count(payload.begin(), payload.end(), kPayload) != std::ssize(payload);
        rte_pktmbuf_free(frames[i]);
      }
    }
    return numbers;
  }

 private:
  std::unique_ptr<PacketBuffers> buffers_;
  std::unique_ptr<EthernetDevice> device_;
  static constexpr std::byte kPayload{7};
  std::vector<std::byte> header_, payload_ = std::vector<std::byte>(1400, kPayload);
};

TEST_F(TransmitBatchTest, DeviceTakesNothing_FramesStayAndGoLaterInTheirOrder) {
  runProcess([] {
    Ring ring;
    TransmitBatch batch;
    const std::uint32_t inRing = ring.fill();
    ASSERT_GT(inRing, 0U);
    for (std::uint32_t i = 0; i < TransmitBatch::kFrames; ++i) batch.append(ring.frame(inRing + i));
    batch.flush(ring.device());
    EXPECT_TRUE(batch.full());
    EXPECT_EQ(ring.receiveAll().size(), inRing);
    batch.flush(ring.device());
    EXPECT_TRUE(batch.empty());
    std::vector<std::uint32_t> expected;
    for (std::uint32_t i = 0; i < TransmitBatch::kFrames; ++i) expected.push_back(inRing + i);
    EXPECT_EQ(ring.receiveAll(), expected);
  });
}

// The payload's memory is the user's again when flush() returns.
TEST_F(TransmitBatchTest, DeviceTakesNothing_AttachedPayloadIsCopied) {
  runProcess([] {
    Ring ring;
    TransmitBatch batch;
    ring.fill();
    batch.append(ring.frame(1'000'000, true));
    batch.append(ring.frame(1'000'001));
    batch.flush(ring.device());
    ring.overwritePayload();
    (void)ring.receiveAll();
    batch.flush(ring.device());
    EXPECT_TRUE(batch.empty());
    std::size_t wrong = 0;
    EXPECT_EQ(ring.receiveAll(&wrong), (std::vector<std::uint32_t>{1'000'000, 1'000'001}));
    EXPECT_EQ(wrong, 0U);
  });
}

}  // namespace
}  // namespace gloo_bypass::dpdk
