#include "transport/dpdk/memif_handshake.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "transport/base/printable.h"

namespace gloo_bypass::dpdk {
namespace {

// DPDK's driver allows the same.
constexpr std::uint8_t kMaxLog2Slots = 14;
constexpr std::size_t kMaxBufferBytes = 65535;
constexpr std::string_view kClientName = "gloo-bypass";

// The rest is zero already, and one zero byte terminates the text.
void setText(MemifMessage& message, std::size_t at, std::size_t room, std::string_view text) {
  std::memcpy(&message[at], text.data(), std::min(text.size(), room - 1));
}

// The peer's text, for our log: no longer than the field.
std::string textAt(const MemifMessage& message, std::size_t at, std::size_t room) {
  const auto* const text = reinterpret_cast<const char*>(&message[at]);
  return printable({text, ::strnlen(text, room)});
}

// Polling another kind of file may block. Without /proc we cannot tell.
bool isEventfd(int fd) {
  std::array<char, 64> name{};
  const ssize_t length = ::readlink(("/proc/self/fd/" + std::to_string(fd)).c_str(), name.data(), name.size());
  return length < 0 || std::string_view(name.data(), static_cast<std::size_t>(length)) == "anon_inode:[eventfd]";
}

std::string misplaced(const MemifMessage& message) {
  return fmt::format("message {} has no place here", static_cast<unsigned>(memifType(message)));
}

}  // namespace

MemifMessage memifHello(std::string_view name) {
  MemifMessage message = memifMessage(MemifMessageType::kHello);
  setText(message, memif_field::kHelloName, memif_field::kNameBytes, name);
  setMemifField(message, memif_field::kHelloMinVersion, kMemifVersion);
  setMemifField(message, memif_field::kHelloMaxVersion, kMemifVersion);
  // One region and one ring each way: the highest index of each is 0.
  setMemifField(message, memif_field::kHelloMaxLog2Slots, kMaxLog2Slots);
  return message;
}

MemifMessage memifDisconnect(std::string_view reason) {
  MemifMessage message = memifMessage(MemifMessageType::kDisconnect);
  setText(message, memif_field::kDisconnectReason, memif_field::kReasonBytes, reason);
  return message;
}

std::optional<MemifMessage> MemifServerHandshake::refuse(std::string reason) {
  state_ = State::kEnded;
  ended_ = std::move(reason);
  return memifDisconnect(ended_);
}

std::optional<MemifMessage> MemifServerHandshake::receive(const MemifMessage& message, FileDescriptor descriptor) {
  using Type = MemifMessageType;
  const Type type = memifType(message);
  if (state_ == State::kEnded || type == Type::kAck) return std::nullopt;
  if (type == Type::kDisconnect) {
    state_ = State::kEnded;
    ended_ = "the client took its leave";
    return std::nullopt;
  }
  if (state_ == State::kAwaitingInit && type == Type::kInit) return init(message);
  if (state_ == State::kDescribing && type == Type::kAddRegion) return addRegion(message, std::move(descriptor));
  if (state_ == State::kDescribing && type == Type::kAddRing) return addRing(message, std::move(descriptor));
  if (state_ == State::kDescribing && type == Type::kConnect && memory_ && memory_->complete() && events_) {
    state_ = State::kConnected;
    MemifMessage answer = memifMessage(Type::kConnected);
    setText(answer, memif_field::kConnectName, memif_field::kNameBytes, name_);
    return answer;
  }
  return refuse(misplaced(message));
}

std::optional<MemifMessage> MemifServerHandshake::init(const MemifMessage& message) {
  if (memifField<std::uint16_t>(message, memif_field::kInitVersion) != kMemifVersion) {
    return refuse("memif version 2.0 is spoken here");
  }
  if (memifField<std::uint8_t>(message, memif_field::kInitMode) != kMemifEthernet) {
    return refuse("only Ethernet mode is spoken here");
  }
  state_ = State::kDescribing;
  return memifMessage(MemifMessageType::kAck);
}

std::optional<MemifMessage> MemifServerHandshake::addRegion(const MemifMessage& message, FileDescriptor descriptor) {
  if (region_) return refuse("one memory region only: leave out zero-copy=yes");
  if (!descriptor) return refuse("a memory region came without its memory");
  region_ = message;
  regionMemory_ = std::move(descriptor);
  return memifMessage(MemifMessageType::kAck);
}

// The first ring gives the number of slots; with the region's size this gives the size of their buffers.
std::optional<MemifMessage> MemifServerHandshake::makeMemory(unsigned log2Slots) {
  const std::size_t slots = std::size_t{1} << log2Slots;
  const std::size_t rings = 2 * (kMemifDescriptorsAt + kMemifDescriptorBytes * slots);
  const auto bytes = memifField<std::uint64_t>(*region_, memif_field::kRegionBytes);
  if (bytes <= rings || (bytes - rings) % (2 * slots) != 0 || (bytes - rings) / (2 * slots) > kMaxBufferBytes) {
    return refuse(
        "the memory does not hold two rings of that size: one queue each way, and no zero-copy, are spoken here");
  }
  const MemifRingShape shape{.bufferBytes = (bytes - rings) / (2 * slots), .log2Slots = log2Slots};
  if (shape.bufferBytes < accepted_.longestFrame) {
    return refuse(
        fmt::format("bsize={} is less than a frame of {} bytes: raise it", shape.bufferBytes, accepted_.longestFrame));
  }
  if (accepted_.shape && shape != *accepted_.shape) return refuse("the rings have another size than was agreed on");
  memory_ = std::make_unique<MemifMemory>(shape, accepted_.pages);
  if (!memory_->describe(*region_, regionMemory_.get())) {
    return refuse(memory_->exhausted()
                      ? fmt::format("no memory to map {} bytes: raise the limit (ulimit -v), or free some", bytes)
                      : "the memory could shrink");
  }
  regionMemory_.reset();
  return std::nullopt;
}

std::optional<MemifMessage> MemifServerHandshake::addRing(const MemifMessage& message, FileDescriptor descriptor) {
  const auto log2Slots = memifField<std::uint8_t>(message, memif_field::kRingLog2Slots);
  if (!region_ || log2Slots > kMaxLog2Slots) return refuse("a ring before its memory, or too large");
  if (!memory_) {
    if (auto refused = makeMemory(log2Slots)) return refused;
  }
  if (!memory_->describe(message, -1)) return refuse("a ring that is not in its memory, or one too many");
  if ((memifField<std::uint16_t>(message, memif_field::kRingFlags) & kMemifRingToServer) != 0) {
    if (!descriptor || !isEventfd(descriptor.get())) return refuse("a ring came without its event descriptor");
    events_ = std::move(descriptor);
  }
  return memifMessage(MemifMessageType::kAck);
}

std::vector<MemifClientHandshake::Packet> MemifClientHandshake::end(std::string reason) {
  state_ = State::kEnded;
  ended_ = std::move(reason);
  return {};
}

std::vector<MemifClientHandshake::Packet> MemifClientHandshake::receive(const MemifMessage& message) {
  using Type = MemifMessageType;
  const Type type = memifType(message);
  if (state_ == State::kEnded || (state_ == State::kDescribing && type == Type::kAck)) return {};
  if (type == Type::kDisconnect) {
    return end("the server refuses: " + textAt(message, memif_field::kDisconnectReason, memif_field::kReasonBytes));
  }
  if (state_ == State::kAwaitingHello && type == Type::kHello) return introduce(message);
  if (state_ == State::kDescribing && type == Type::kConnected) {
    state_ = State::kConnected;
    return {};
  }
  return end(misplaced(message));
}

std::vector<MemifClientHandshake::Packet> MemifClientHandshake::introduce(const MemifMessage& hello) {
  if (memifField<std::uint16_t>(hello, memif_field::kHelloMinVersion) > kMemifVersion ||
      memifField<std::uint16_t>(hello, memif_field::kHelloMaxVersion) < kMemifVersion) {
    return end("the server does not speak memif version 2.0");
  }
  if (memifField<std::uint8_t>(hello, memif_field::kHelloMaxLog2Slots) < memory_.shape().log2Slots) {
    return end(fmt::format("the server takes no rings of 2^{} slots", memory_.shape().log2Slots));
  }
  state_ = State::kDescribing;
  MemifMessage init = memifMessage(MemifMessageType::kInit);
  setMemifField(init, memif_field::kInitVersion, kMemifVersion);
  setMemifField(init, memif_field::kInitInterface, server_.interfaceId);
  setMemifField(init, memif_field::kInitMode, kMemifEthernet);
  setText(init, memif_field::kInitSecret, memif_field::kSecretBytes, server_.secret);
  setText(init, memif_field::kInitName, memif_field::kNameBytes, kClientName);
  MemifMessage connect = memifMessage(MemifMessageType::kConnect);
  setText(connect, memif_field::kConnectName, memif_field::kNameBytes, kClientName);
  const auto [region, toServer, toClient] = memory_.description();
  return {{init}, {region, memory_.descriptor()}, {toServer, events_}, {toClient, events_}, {connect}};
}

}  // namespace gloo_bypass::dpdk
