#include "tools/fabric/memif_handshake.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

namespace gloo_bypass::fabric {
namespace {

// memif_msg_t: packed, in the machine's byte order.
constexpr std::uint16_t kAck = 1, kHello = 2, kInit = 3, kAddRegion = 4, kAddRing = 5, kConnect = 6, kConnected = 7,
                        kDisconnect = 8;
constexpr std::uint16_t kVersion = 0x0200;
constexpr std::size_t kAtType = 0;
constexpr std::size_t kAtHelloName = 2, kAtMinVersion = 34, kAtMaxVersion = 36, kAtMaxLog2 = 44;
constexpr std::size_t kAtInitVersion = 2, kAtInitMode = 8;
constexpr std::size_t kAtRegionBytes = 4, kAtRingFlags = 2, kAtRingLog2 = 12;
constexpr std::size_t kAtConnectedName = 2;
constexpr std::size_t kAtReason = 6, kReasonBytes = 96;
constexpr std::uint8_t kEthernet = 0;
constexpr std::uint16_t kRingToServer = 1;
// DPDK's driver allows as many.
constexpr std::uint8_t kMaxLog2Slots = 14;
constexpr std::size_t kMaxBufferBytes = 65535;
constexpr char kName[] = "gloo-bypass fabric";

template <typename T>
T field(const MemifMessage& message, std::size_t at) {
  T value;
  std::memcpy(&value, &message[at], sizeof(T));
  return value;
}
template <typename T>
void setField(MemifMessage& message, std::size_t at, T value) {
  std::memcpy(&message[at], &value, sizeof(T));
}

MemifMessage messageOf(std::uint16_t type) {
  MemifMessage message{};
  setField(message, kAtType, type);
  return message;
}

}  // namespace

MemifMessage memifHello() {
  MemifMessage message = messageOf(kHello);
  std::memcpy(&message[kAtHelloName], kName, sizeof(kName));
  setField(message, kAtMinVersion, kVersion);
  setField(message, kAtMaxVersion, kVersion);
  // One region and one ring each way: the highest index of each is 0.
  setField(message, kAtMaxLog2, kMaxLog2Slots);
  return message;
}

MemifMessage memifDisconnect(const std::string& reason) {
  MemifMessage message = messageOf(kDisconnect);
  std::memcpy(&message[kAtReason], reason.data(), std::min(reason.size(), kReasonBytes - 1));
  return message;
}

std::optional<MemifMessage> MemifHandshake::refuse(std::string reason) {
  state_ = State::kEnded;
  ended_ = std::move(reason);
  return memifDisconnect(ended_);
}

std::optional<MemifMessage> MemifHandshake::receive(const MemifMessage& message, FileDescriptor descriptor) {
  const auto type = field<std::uint16_t>(message, kAtType);
  if (state_ == State::kEnded || type == kAck) return std::nullopt;
  if (type == kDisconnect) {
    state_ = State::kEnded;
    ended_ = "the client took its leave";
    return std::nullopt;
  }
  if (state_ == State::kAwaitingInit && type == kInit) return init(message);
  if (state_ == State::kDescribing && type == kAddRegion) return addRegion(message, std::move(descriptor));
  if (state_ == State::kDescribing && type == kAddRing) return addRing(message, std::move(descriptor));
  if (state_ == State::kDescribing && type == kConnect && memory_ && memory_->complete() && events_) {
    state_ = State::kConnected;
    MemifMessage answer = messageOf(kConnected);
    std::memcpy(&answer[kAtConnectedName], kName, sizeof(kName));
    return answer;
  }
  return refuse(fmt::format("message {} has no place here", type));
}

std::optional<MemifMessage> MemifHandshake::init(const MemifMessage& message) {
  if (field<std::uint16_t>(message, kAtInitVersion) != kVersion) return refuse("memif version 2.0 is spoken here");
  if (field<std::uint8_t>(message, kAtInitMode) != kEthernet) return refuse("only Ethernet mode is spoken here");
  state_ = State::kDescribing;
  return messageOf(kAck);
}

std::optional<MemifMessage> MemifHandshake::addRegion(const MemifMessage& message, FileDescriptor descriptor) {
  if (region_) return refuse("one memory region only: leave out zero-copy=yes");
  if (!descriptor) return refuse("a memory region came without its memory");
  region_ = message;
  regionMemory_ = std::move(descriptor);
  return messageOf(kAck);
}

// The first ring tells how many slots there are, and the region's size then how large their buffers are.
std::optional<MemifMessage> MemifHandshake::makeMemory(unsigned log2Slots) {
  const std::size_t slots = std::size_t{1} << log2Slots;
  const std::size_t rings = 2 * (dpdk::kMemifDescriptorsAt + dpdk::kMemifDescriptorBytes * slots);
  const auto bytes = field<std::uint64_t>(*region_, kAtRegionBytes);
  if (bytes <= rings || (bytes - rings) % (2 * slots) != 0 || (bytes - rings) / (2 * slots) > kMaxBufferBytes) {
    return refuse(
        "the memory does not hold two rings of that size: one queue each way, and no zero-copy, are spoken here");
  }
  const std::size_t bufferBytes = (bytes - rings) / (2 * slots);
  if (bufferBytes < longestFrame_) {
    return refuse(fmt::format("bsize={} is less than a frame of {} bytes: raise it", bufferBytes, longestFrame_));
  }
  memory_ =
      std::make_unique<dpdk::MemifMemory>(dpdk::MemifRingShape{.bufferBytes = bufferBytes, .log2Slots = log2Slots});
  if (!memory_->overhear(*region_, regionMemory_.get())) return refuse("the memory could shrink, or cannot be mapped");
  regionMemory_.reset();
  return std::nullopt;
}

std::optional<MemifMessage> MemifHandshake::addRing(const MemifMessage& message, FileDescriptor descriptor) {
  const auto log2Slots = field<std::uint8_t>(message, kAtRingLog2);
  if (!region_ || log2Slots > kMaxLog2Slots) return refuse("a ring before its memory, or too large");
  if (!memory_) {
    if (auto refused = makeMemory(log2Slots)) return refused;
  }
  if (!memory_->overhear(message, -1)) return refuse("a ring that is not in its memory, or one too many");
  if ((field<std::uint16_t>(message, kAtRingFlags) & kRingToServer) != 0) {
    if (!descriptor) return refuse("a ring came without its event descriptor");
    events_ = std::move(descriptor);
  }
  return messageOf(kAck);
}

}  // namespace gloo_bypass::fabric
