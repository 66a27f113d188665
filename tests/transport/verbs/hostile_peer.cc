#include "tests/transport/verbs/hostile_peer.h"

#include <algorithm>

#include "transport/base/check.h"
#include "transport/channel/channel_address.h"
#include "transport/sessions/channel_keys.h"

namespace gloo_bypass::test {
using namespace verbs;
namespace {

EndOptions ending() {
  EndOptions options;
  options.device = "soft1";
  options.maxSends = 256;
  options.maxReceives = 256;
  options.completions = 1024;
  options.rnrRetries = 0;
  // The tests break rules, not time limits: eight times 34 ms is long enough on a busy machine.
  options.timeout = 13;
  options.retries = 7;
  return options;
}

RailAddress addressOf(const RnicEnd& end) {
  RailAddress address;
  std::copy_n(std::begin(end.gid.raw), address.gid.size(), address.gid.begin());
  address.queuePair = end.queuePair->qp_num;
  address.firstPsn = end.options.packetSequence;
  address.mtu = end.options.mtu;
  address.linkLayer = IBV_LINK_LAYER_ETHERNET;
  address.readDepth = 16;
  return address;
}

void connect(RnicEnd& end, const RailAddress& peer) {
  GLOO_BYPASS_CHECK(end.toInit() == 0);
  ibv_qp_attr wanted = end.readyToReceive(end);
  wanted.dest_qp_num = peer.queuePair;
  wanted.rq_psn = peer.firstPsn;
  std::copy(peer.gid.begin(), peer.gid.end(), wanted.ah_attr.grh.dgid.raw);
  GLOO_BYPASS_CHECK(softwareVerbs().modifyQueuePair(end.queuePair, &wanted, RnicEnd::kReadyToReceiveMask) == 0);
  GLOO_BYPASS_CHECK(end.toReadyToSend() == 0);
}

}  // namespace

HostilePeer::HostilePeer(RdmaEnd& victim, std::uint32_t credits,
                         const std::shared_ptr<const security::Credentials>& credentials, std::size_t index)
    : frames_(ending()),
      reads_(ending()),
      served_(ending()),
      outgoing_(kSlots * kSlotBytes),
      incoming_(kSlots * kSlotBytes) {
  const auto channel = decodeChannelAddress(victim.address(index));
  const auto address = decodeRdmaAddress(channel.value().portAddress);
  victim_ = channel.value().sessionId;
  out_ = frames_.expose(outgoing_);
  in_ = frames_.expose(incoming_);
  RdmaAddress own;
  const RailAddress framesAddress = addressOf(frames_);
  own.controlIp = framesAddress.gid;
  control_ = std::move(ControlPlane::make(own.controlIp, credentials != nullptr).value());
  own.controlPort = control_->port();
  own.eagerBytes = 8192;
  own.credits = credits;
  own.eagerWindow = 1 << 20;
  own.frames = framesAddress;
  own.rails.push_back(addressOf(reads_));
  connect(frames_, address.value().frames);
  connect(reads_, address.value().servedAt(0));
  if (credentials != nullptr) {
    const RailAddress served = addressOf(served_);
    own.served.push_back({.number = served.queuePair, .firstPsn = served.firstPsn});
    connect(served_, address.value().rails[0]);
  }
  for (std::size_t i = 0; i < kSlots; ++i) {
    GLOO_BYPASS_CHECK(frames_.postReceive(i, {RnicEnd::part(in_, i * kSlotBytes, kSlotBytes)}) == 0);
  }
  ChannelAddress ownChannel{.sessionId = kId, .portAddress = encodeRdmaAddress(own), .description = "hostile"};
  std::optional<ControlKeys> keys;
  if (credentials != nullptr) {
    const auto agreement =
        std::move(makeKeyAgreement(credentials, kId, ownChannel.portAddress, {.localRank = 1, .peerRank = 0}).value());
    ownChannel.offer = agreement->offer();
    EXPECT_TRUE(agreeOnKeys(agreement.get(), channel.value()).ok());
    keys = controlKeysOf(*agreement);
  }
  const auto bytes = encodeChannelAddress(ownChannel);
  EXPECT_TRUE(victim.connect(bytes, index).ok());
  control_->open(kId, this);
  EXPECT_TRUE(control_->connect(kId, victim_, address.value().controlIp, address.value().controlPort, keys).ok());
  EXPECT_TRUE(eventually([&] {
    control_->poll(monotonicNow());
    return ready_;
  }));
  EXPECT_TRUE(victim.waitState(ChannelState::kConnected, index));
}

HostilePeer::~HostilePeer() { control_->close(kId, false); }

std::vector<std::byte> HostilePeer::frame(FrameType type, const std::function<void(RdmaFrame&)>& change,
                                          std::size_t payload) {
  RdmaFrame frame;
  frame.type = type;
  frame.session = static_cast<std::uint32_t>(victim_);
  frame.length = type == FrameType::kEager ? payload : 0;
  if (type == FrameType::kAnnounce) {
    frame.rails = 1;
    frame.length = 1000;
    frame.id = 1;
  }
  if (change) change(frame);
  std::vector<std::byte> bytes(kMaxFrameBytes + payload);
  const std::size_t header = encodeFrame(frame, bytes);
  bytes.resize(header + payload);
  return bytes;
}

void HostilePeer::send(const std::vector<std::byte>& bytes) {
  GLOO_BYPASS_CHECK(bytes.size() <= kSlotBytes);
  const std::size_t at = (sent_ % kSlots) * kSlotBytes;
  // The slot's last frame has been sent, or failed with the connection.
  for (; sent_ - completed_ >= kSlots; ++completed_) (void)frames_.completion();
  std::copy(bytes.begin(), bytes.end(), outgoing_.begin() + static_cast<std::ptrdiff_t>(at));
  (void)frames_.post(IBV_WR_SEND, sent_++, {RnicEnd::part(out_, at, bytes.size())});
}

RdmaFrame HostilePeer::announced() {
  for (;;) {
    const ibv_wc completion = frames_.completion();
    GLOO_BYPASS_CHECK(completion.status == IBV_WC_SUCCESS);
    if (completion.opcode != IBV_WC_RECV) {
      ++completed_;
      continue;
    }
    const auto decoded = decodeFrame(std::span(incoming_).subspan(completion.wr_id * kSlotBytes, completion.byte_len));
    GLOO_BYPASS_CHECK(decoded.has_value());
    if (decoded->frame.type == FrameType::kAnnounce) return decoded->frame;
  }
}

ibv_wc_status HostilePeer::read(std::uint64_t address, std::uint32_t key, std::uint32_t length) {
  std::vector<std::byte> to(length);
  ibv_mr* const here = reads_.expose(to);
  ibv_mr there{};
  there.addr = reinterpret_cast<void*>(address);
  there.rkey = key;
  GLOO_BYPASS_CHECK(reads_.post(IBV_WR_RDMA_READ, 1, {RnicEnd::part(here)}, IBV_SEND_SIGNALED, &there) == 0);
  const ibv_wc_status status = reads_.status();
  reads_.regions.pop_back();
  GLOO_BYPASS_CHECK(softwareVerbs().deregisterMemory(here) == 0);
  return status;
}

}  // namespace gloo_bypass::test
