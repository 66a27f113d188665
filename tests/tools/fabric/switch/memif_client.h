// The client's side of a memif socket, as a driver plays it; every step can be made faulty.
#pragma once

#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <memory>
#include <string>

#include "transport/base/packet_socket.h"
#include "transport/dpdk/memif_handshake.h"
#include "transport/dpdk/memif_ring.h"

namespace gloo_bypass::fabric {

using dpdk::MemifMessage;

enum MemifType : std::uint16_t {
  kMemifAck = 1,
  kMemifHello,
  kMemifInit,
  kMemifAddRegion,
  kMemifAddRing,
  kMemifConnect,
  kMemifConnected,
  kMemifDisconnect
};

class MemifClient {
 public:
  struct Faults {
    std::uint16_t version = 0x0200;
    std::uint8_t mode = 0;
    bool sealed = true;
    bool withMemory = true;
    std::size_t extraBytes = 0;    // added to the region's size
    std::uint32_t ringOffset = 0;  // added to the offset of the ring to the server
    std::uint8_t log2Slots = 0;    // sent instead of the true one; 0: the true one
  };

  explicit MemifClient(std::size_t bufferBytes = 2048, unsigned log2Slots = 4) : shape_{bufferBytes, log2Slots} {}
  ~MemifClient() {
    if (mapped_ != nullptr) ::munmap(mapped_, regionBytes());
  }
  MemifClient(const MemifClient&) = delete;
  MemifClient& operator=(const MemifClient&) = delete;

  bool connect(const std::string& path) { return connectPacketSocket(path, socket_) == ConnectResult::kConnected; }

  // Sends everything at once, before any answer: the server must cope with that too.
  void describe() {
    describe(Faults{}, [] {});
  }
  // `turn`: lets the server run after each message.
  void describe(const Faults& faults, const std::function<void()>& turn) {
    makeRegion(faults);
    MemifMessage init = messageOf(kMemifInit);
    put(init, 2, faults.version);
    put(init, 8, faults.mode);
    send(init);
    turn();
    MemifMessage region = messageOf(kMemifAddRegion);
    put(region, 4, static_cast<std::uint64_t>(regionBytes() + faults.extraBytes));
    send(region, faults.withMemory ? region_.get() : -1);
    turn();
    const std::uint8_t log2Slots =
        faults.log2Slots != 0 ? faults.log2Slots : static_cast<std::uint8_t>(shape_.log2Slots);
    for (const bool toServer : {true, false}) {
      MemifMessage ring = messageOf(kMemifAddRing);
      put(ring, 2, static_cast<std::uint16_t>(toServer ? 1 : 0));
      put(ring, 8, static_cast<std::uint32_t>(toServer ? faults.ringOffset : ringBytes()));
      put(ring, 12, log2Slots);
      send(ring, event_.get());
      turn();
      if (toServer) (void)memory_->describe(region, region_.get());
      (void)memory_->describe(ring, -1);
    }
    send(messageOf(kMemifConnect));
  }

  void send(const MemifMessage& message, int descriptor = -1) { (void)sendPacket(socket_.get(), message, descriptor); }

  // The type of the next message; 0: none waits; -1: the server has closed.
  int hear(std::string* reason = nullptr) {
    MemifMessage message{};
    std::size_t length = 0;
    FileDescriptor attached;
    const PacketIo io = receivePacket(socket_.get(), message, length, attached);
    if (io != PacketIo::kDone) return io == PacketIo::kClosed ? -1 : 0;
    std::uint16_t type = 0;
    std::memcpy(&type, message.data(), sizeof(type));
    if (reason != nullptr && type == kMemifDisconnect) *reason = reinterpret_cast<const char*>(&message[6]);
    return type;
  }
  // The server's last message.
  int hearLast(std::string* reason = nullptr) {
    int last = 0;
    for (int type = hear(reason); type > 0; type = hear(reason)) last = type;
    return last;
  }

  // After "connected": as the driver does, offers its buffers.
  void start() {
    toServer_ = std::make_unique<dpdk::MemifSendRing>(*memory_, dpdk::MemifRole::kClient);
    fromServer_ = std::make_unique<dpdk::MemifReceiveRing>(*memory_, dpdk::MemifRole::kClient);
    (void)toServer_->start();
    (void)fromServer_->start();
  }
  dpdk::MemifSendRing& toServer() { return *toServer_; }
  dpdk::MemifReceiveRing& fromServer() { return *fromServer_; }
  void sendFrame(std::span<const std::byte> frame) {
    std::copy(frame.begin(), frame.end(), toServer_->slot().begin());
    toServer_->push(frame.size());
    toServer_->publish();
  }
  bool eventsWanted() const {
    std::uint16_t flags = 0;
    std::memcpy(&flags, mapped_ + 4, sizeof(flags));
    return (flags & 1) == 0;
  }
  void signalEvent() { (void)::eventfd_write(event_.get(), 1); }
  void breakRing() { setField(mapped_ + dpdk::kMemifHeadAt, static_cast<std::uint16_t>(40'000)); }
  // Sets the length in the descriptor of slot `slot` of the ring to the server.
  void setLength(std::size_t slot, std::uint32_t bytes) {
    setField(mapped_ + dpdk::kMemifDescriptorsAt + dpdk::kMemifDescriptorBytes * slot + 4, bytes);
  }
  void hangUp() { socket_.reset(); }

  static MemifMessage messageOf(std::uint16_t type) {
    MemifMessage message{};
    std::memcpy(message.data(), &type, sizeof(type));
    return message;
  }

 private:
  template <typename T>
  static void put(MemifMessage& message, std::size_t at, T value) {
    std::memcpy(&message[at], &value, sizeof(value));
  }
  template <typename T>
  static void setField(std::byte* at, T value) {
    std::memcpy(at, &value, sizeof(value));
  }
  std::size_t ringBytes() const { return dpdk::kMemifDescriptorsAt + dpdk::kMemifDescriptorBytes * shape_.slots(); }
  std::size_t regionBytes() const { return 2 * (ringBytes() + shape_.slots() * shape_.bufferBytes); }

  void makeRegion(const Faults& faults) {
    memory_ = std::make_unique<dpdk::MemifMemory>(shape_);
    event_.reset(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
    region_.reset(::memfd_create("memif-test", MFD_ALLOW_SEALING | MFD_CLOEXEC));
    if (faults.sealed) (void)::fcntl(region_.get(), F_ADD_SEALS, F_SEAL_SHRINK);
    (void)!::ftruncate(region_.get(), static_cast<off_t>(regionBytes()));
    mapped_ =
        static_cast<std::byte*>(::mmap(nullptr, regionBytes(), PROT_READ | PROT_WRITE, MAP_SHARED, region_.get(), 0));
    for (std::size_t i = 0; i < 2 * shape_.slots(); ++i) {
      std::byte* const ring = mapped_ + (i < shape_.slots() ? 0 : ringBytes());
      std::byte* const descriptor =
          ring + dpdk::kMemifDescriptorsAt + dpdk::kMemifDescriptorBytes * (i % shape_.slots());
      setField(descriptor + 4, static_cast<std::uint32_t>(shape_.bufferBytes));
      setField(descriptor + 8, static_cast<std::uint32_t>(2 * ringBytes() + i * shape_.bufferBytes));
    }
  }

  const dpdk::MemifRingShape shape_;
  FileDescriptor socket_, region_, event_;
  std::byte* mapped_ = nullptr;
  std::unique_ptr<dpdk::MemifMemory> memory_;
  std::unique_ptr<dpdk::MemifSendRing> toServer_;
  std::unique_ptr<dpdk::MemifReceiveRing> fromServer_;
};

}  // namespace gloo_bypass::fabric
