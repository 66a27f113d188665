// Both sides of memif's handshake, and the memory that a client shares.
#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <optional>

#include "tests/fuzz/fuzz_target.h"
#include "transport/base/check.h"
#include "transport/base/printable.h"
#include "transport/dpdk/memif_handshake.h"
#include "transport/dpdk/memif_ring.h"

namespace gloo_bypass::fuzz {
using namespace dpdk;
namespace {

constexpr std::size_t kLongestFrame = 64;
constexpr std::size_t kMaxMemoryBytes = 1 << 18;  // larger regions come with a file that is too small

// Reads the script; zeros after its end.
class Script {
 public:
  explicit Script(std::span<const std::uint8_t> bytes) : rest_(bytes) {}
  bool over() const { return rest_.empty(); }
  std::uint8_t next() {
    if (rest_.empty()) return 0;
    const std::uint8_t byte = rest_.front();
    rest_ = rest_.subspan(1);
    return byte;
  }
  void fill(std::span<std::byte> to) {
    for (std::byte& each : to) each = static_cast<std::byte>(next());
  }

 private:
  std::span<const std::uint8_t> rest_;
};

template <typename T>
void put(MemifMessage& message, std::size_t at, T value) {
  std::memcpy(&message[at], &value, sizeof value);
}

constexpr std::size_t regionBytes(unsigned log2Slots) {
  const std::size_t slots = std::size_t{1} << log2Slots;
  return 2 * (kMemifDescriptorsAt + kMemifDescriptorBytes * slots + slots * kLongestFrame);
}

// A step is a byte: the message's type, whether a descriptor comes with it and of what kind, and whether bytes of the
// script replace the fields that a driver would send.
class Client {
 public:
  explicit Client(Script& script) : script_(script), log2Slots_(script.next() % 5) {}
  ~Client() {
    if (mapped_ != nullptr) ::munmap(mapped_, mappedBytes_);
  }
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  MemifMessage message(FileDescriptor* descriptor) {
    const std::uint8_t step = script_.next();
    MemifMessage message{};
    put(message, 0, static_cast<std::uint16_t>(step & 0xf));
    fillAsDriver(message, step & 0xf);
    if ((step & 0x40) != 0) script_.fill(std::span(message).subspan(2, 14));
    if ((step & 0x10) == 0) {
      *descriptor = (step & 0xf) == kAddRegion ? memory(message, (step & 0x20) == 0)
                                               : FileDescriptor(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    }
    return message;
  }

  // Writes anywhere into the memory, as a peer may at any time.
  void scribble() {
    if (mapped_ == nullptr) return;
    for (int i = 0; i < 8; ++i) {
      const std::size_t at = (std::size_t{script_.next()} << 8 | script_.next()) % mappedBytes_;
      static_cast<std::uint8_t*>(mapped_)[at] = script_.next();
    }
  }

 private:
  static constexpr std::uint8_t kInit = 3, kAddRegion = 4, kAddRing = 5;

  void fillAsDriver(MemifMessage& message, int type) {
    if (type == kInit) put(message, 2, std::uint16_t{0x0200});
    if (type == kAddRegion) put(message, 4, static_cast<std::uint64_t>(regionBytes(log2Slots_)));
    if (type != kAddRing) return;
    put(message, 2, static_cast<std::uint16_t>(rings_ == 0 ? 1 : 0));
    put(message, 8, static_cast<std::uint32_t>(rings_ * (kMemifDescriptorsAt + (kMemifDescriptorBytes << log2Slots_))));
    put(message, 12, static_cast<std::uint8_t>(log2Slots_));
    ++rings_;
  }

  FileDescriptor memory(const MemifMessage& message, bool sealed) {
    std::uint64_t bytes;
    std::memcpy(&bytes, &message[4], sizeof bytes);
    FileDescriptor fd(::memfd_create("fuzz", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    const std::size_t length = bytes <= kMaxMemoryBytes ? static_cast<std::size_t>(bytes) : 4096;
    GLOO_BYPASS_CHECK(fd && ::ftruncate(fd.get(), static_cast<off_t>(length)) == 0);
    if (sealed) (void)::fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK);
    if (mapped_ == nullptr && length > 0) {
      void* const at = ::mmap(nullptr, length, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
      if (at != MAP_FAILED) {
        mapped_ = at;
        mappedBytes_ = length;
      }
    }
    return fd;
  }

  Script& script_;
  const unsigned log2Slots_;
  std::size_t rings_ = 0;
  void* mapped_ = nullptr;
  std::size_t mappedBytes_ = 0;
};

void carry(const MemifMemory& memory, Client& client, Script& script) {
  MemifReceiveRing received(memory, MemifRole::kServer);
  MemifSendRing toSend(memory, MemifRole::kServer);
  GLOO_BYPASS_CHECK(received.start() && toSend.start());
  std::uint64_t sum = 0;
  while (!script.over()) {
    client.scribble();
    if (const auto waiting = received.waiting()) {
      GLOO_BYPASS_CHECK(*waiting <= memory.shape().slots());
      for (std::size_t i = 0; i < *waiting; ++i) {
        for (const std::byte each : received.frame(i)) sum += std::to_integer<std::uint64_t>(each);
      }
      received.release(*waiting);
    }
    received.askForEvents(sum % 2 == 0);
    if (const auto room = toSend.room()) {
      GLOO_BYPASS_CHECK(*room <= memory.shape().slots());
      for (std::size_t i = 0; i < *room; ++i) {
        const std::span<std::byte> slot = toSend.slot();
        std::fill(slot.begin(), slot.end(), std::byte{1});
        toSend.push(slot.size());
      }
      if (*room > 0) toSend.publish();
    }
  }
}

// The server sends anything.
void shakeHandsAsClient(Script& script) {
  static const auto memory =
      MemifMemory::create({.bufferBytes = kLongestFrame, .log2Slots = 1}, MemifPages::kWhenTouched);
  GLOO_BYPASS_CHECK(memory.ok());
  MemifClientHandshake handshake({.interfaceId = script.next(), .secret = "secret"}, *memory.value(), -1);
  while (!script.over()) {
    MemifMessage message{};
    script.fill(std::span(message).first(script.next() % (message.size() + 1)));
    const bool over = handshake.connected() || !handshake.ended().empty();
    const bool said = !handshake.receive(message).empty();
    GLOO_BYPASS_CHECK(!said || !over);
    GLOO_BYPASS_CHECK(!handshake.connected() || handshake.ended().empty());
    GLOO_BYPASS_CHECK(printable(handshake.ended()) == handshake.ended());
  }
}

}  // namespace

void fuzzMemif(std::span<const std::uint8_t> input) {
  constexpr int kMaxMessages = 64;
  Script script(input);
  if (script.next() % 4 == 0) return shakeHandsAsClient(script);
  Client client(script);
  MemifServerHandshake handshake("fuzz", {.longestFrame = kLongestFrame, .shape = {}});
  for (int i = 0; i < kMaxMessages && !script.over() && !handshake.connected(); ++i) {
    FileDescriptor descriptor;
    const MemifMessage message = client.message(&descriptor);
    const bool over = !handshake.ended().empty();
    const auto answer = handshake.receive(message, std::move(descriptor));
    GLOO_BYPASS_CHECK(!over || (!answer && !handshake.ended().empty()));
  }
  if (!handshake.connected()) return;
  GLOO_BYPASS_CHECK(handshake.ended().empty());
  const FileDescriptor events = handshake.takeEvents();
  const std::unique_ptr<MemifMemory> memory = handshake.takeMemory();
  GLOO_BYPASS_CHECK(events && memory && memory->complete());
  carry(*memory, client, script);
}

}  // namespace gloo_bypass::fuzz
