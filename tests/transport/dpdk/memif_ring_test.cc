// Both rings against a peer that the test plays: memory and handshake as DPDK's driver makes them, then as no driver
// does.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <numeric>
#include <random>
#include <string>
#include <utility>

#include "transport/base/file_descriptor.h"
#include "transport/dpdk/memif_ring.h"

namespace gloo_bypass::dpdk {
namespace {

constexpr MemifRingShape kShape{.bufferBytes = 2048, .log2Slots = 3};
constexpr std::size_t kRingBytes = 2 * RTE_CACHE_LINE_SIZE + 16 * 8;
constexpr std::size_t kRegionBytes = 2 * (kRingBytes + 8 * 2048);

using Message = MemifMessage;

template <typename T>
void put(std::byte* at, T value) {
  std::memcpy(at, &value, sizeof(value));
}

Message addRegion(std::uint64_t bytes = kRegionBytes, std::uint16_t index = 0) {
  Message message{};
  put<std::uint16_t>(&message[0], 4);
  put<std::uint16_t>(&message[2], index);
  put<std::uint64_t>(&message[4], bytes);
  return message;
}

Message addRing(bool toServer, std::uint32_t offset, std::uint8_t log2Slots = 3, std::uint16_t region = 0) {
  Message message{};
  put<std::uint16_t>(&message[0], 5);
  put<std::uint16_t>(&message[2], toServer ? 1 : 0);
  put<std::uint16_t>(&message[6], region);
  put<std::uint32_t>(&message[8], offset);
  put<std::uint8_t>(&message[12], log2Slots);
  return message;
}

MemifRole otherThan(MemifRole role) { return role == MemifRole::kClient ? MemifRole::kServer : MemifRole::kClient; }

// The client's shared memory, and the peer's end of the ring that `receiver` receives from.
class Memory {
 public:
  explicit Memory(MemifRole receiver, bool sealed = true, std::size_t bytes = kRegionBytes)
      : receiver_(receiver), fd_(::memfd_create("memif_region_0", MFD_CLOEXEC | MFD_ALLOW_SEALING)) {
    EXPECT_EQ(::ftruncate(fd_.get(), static_cast<off_t>(bytes)), 0);
    if (sealed) {
      EXPECT_EQ(::fcntl(fd_.get(), F_ADD_SEALS, F_SEAL_SHRINK), 0);
    }
    base_ = static_cast<std::byte*>(::mmap(nullptr, kRegionBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd_.get(), 0));
    for (std::uint32_t slot = 0; bytes == kRegionBytes && slot < 8; ++slot) {
      put<std::uint32_t>(descriptor(slot) + 4, 2048);
      put<std::uint32_t>(descriptor(slot) + 8, static_cast<std::uint32_t>(bufferAt(slot)));
    }
  }
  ~Memory() { ::munmap(base_, kRegionBytes); }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  int fd() const { return fd_.get(); }
  std::byte* base() { return base_; }
  std::byte* ring() { return base_ + (receiver_ == MemifRole::kServer ? 0 : kRingBytes); }
  std::byte* descriptor(std::size_t slot) { return ring() + 2 * RTE_CACHE_LINE_SIZE + 16 * (slot % 8); }
  std::size_t bufferAt(std::size_t slot) const {
    return 2 * kRingBytes + 2048 * (slot % 8 + (receiver_ == MemifRole::kServer ? 0 : 8));
  }
  std::uint16_t head() { return counter(6); }
  std::uint16_t tail() { return counter(RTE_CACHE_LINE_SIZE); }
  void setSent(std::uint16_t position) {
    put(ring() + (receiver_ == MemifRole::kServer ? 6 : RTE_CACHE_LINE_SIZE), position);
  }
  // Plays the receiver: everything before `position` is read, and offered again.
  void setReceived(std::uint16_t position) {
    if (receiver_ == MemifRole::kServer) {
      put(ring() + RTE_CACHE_LINE_SIZE, position);
    } else {
      put(ring() + 6, static_cast<std::uint16_t>(position + 8));
    }
  }
  std::uint16_t sent() { return receiver_ == MemifRole::kServer ? head() : tail(); }
  std::string text(std::uint16_t position) {
    std::uint32_t length = 0;
    std::memcpy(&length, descriptor(position) + 4, sizeof(length));
    return {reinterpret_cast<const char*>(base_ + bufferAt(position)), length};
  }
  void send(std::uint16_t position, const std::string& text) {
    std::memcpy(base_ + bufferAt(position), text.data(), text.size());
    put<std::uint32_t>(descriptor(position) + 4, static_cast<std::uint32_t>(text.size()));
    setSent(static_cast<std::uint16_t>(position + 1));
  }

 private:
  std::uint16_t counter(std::size_t at) {
    std::uint16_t value;
    std::memcpy(&value, ring() + at, sizeof(value));
    return value;
  }

  const MemifRole receiver_;
  FileDescriptor fd_;
  std::byte* base_ = nullptr;
};

void describe(MemifMemory& shared, Memory& memory) {
  ASSERT_TRUE(shared.describe(addRegion(), memory.fd()));
  ASSERT_FALSE(shared.complete());
  ASSERT_TRUE(shared.describe(addRing(true, 0), -1));
  ASSERT_FALSE(shared.complete());
  ASSERT_TRUE(shared.describe(addRing(false, kRingBytes), -1));
  ASSERT_TRUE(shared.complete());
}

// The test's subject receives.
struct Receiving {
  explicit Receiving(MemifRole role) : memory(role), ring(shared, role) {
    describe(shared, memory);
    EXPECT_TRUE(ring.start());
  }
  Memory memory;
  MemifMemory shared{kShape};
  MemifReceiveRing ring;
};
// It sends.
struct Sending {
  explicit Sending(MemifRole role) : memory(otherThan(role)), ring(shared, role) {
    describe(shared, memory);
    EXPECT_TRUE(ring.start());
  }
  Memory memory;
  MemifMemory shared{kShape};
  MemifSendRing ring;
};

void push(MemifSendRing& ring, const std::string& text) {
  const std::span<std::byte> slot = ring.slot();
  ASSERT_EQ(slot.size(), kShape.bufferBytes);
  std::memcpy(slot.data(), text.data(), text.size());
  ring.push(text.size());
}

std::string text(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

class MemifRingTest : public ::testing::TestWithParam<MemifRole> {};
INSTANTIATE_TEST_SUITE_P(Roles, MemifRingTest, ::testing::Values(MemifRole::kClient, MemifRole::kServer),
                         [](const auto& info) { return info.param == MemifRole::kClient ? "Client" : "Server"; });

TEST_P(MemifRingTest, FramesOverSeveralCounterWraps_ArriveInOrderInPlace) {
  Receiving end(GetParam());
  auto& [memory, shared, ring] = end;
  EXPECT_EQ(ring.waiting(), 0U);
  std::uint16_t sent = 0;
  for (int round = 0; round < 30'000; ++round) {
    const std::size_t count = 1 + round % 8;
    const std::uint16_t first = sent;
    for (std::size_t i = 0; i < count; ++i, ++sent) memory.send(sent, std::to_string(round + i));
    ASSERT_EQ(ring.waiting(), count);
    for (std::size_t i = 0; i < count; ++i) ASSERT_EQ(text(ring.frame(i)), std::to_string(round + i));
    ring.release(count);
    ASSERT_EQ(ring.waiting(), 0U);
    // The slots that the sender may fill next.
    if (GetParam() == MemifRole::kServer) {
      ASSERT_EQ(memory.tail(), sent);
    } else {
      ASSERT_EQ(memory.head(), static_cast<std::uint16_t>(sent + 8));
      std::uint32_t length = 0;
      std::memcpy(&length, memory.descriptor(first) + 4, sizeof(length));
      ASSERT_EQ(length, 2048U);
    }
  }
}

TEST_P(MemifRingTest, CountersBeyondTheRing_AreImpossible) {
  Receiving end(GetParam());
  auto& [memory, shared, ring] = end;
  memory.setSent(8);
  EXPECT_EQ(ring.waiting(), 8U);
  memory.setSent(9);
  EXPECT_EQ(ring.waiting(), std::nullopt);
  memory.setSent(0xffff);
  EXPECT_EQ(ring.waiting(), std::nullopt);
}

TEST_P(MemifRingTest, DescriptorOutsideTheMemory_GivesNothing) {
  Receiving end(GetParam());
  auto& [memory, shared, ring] = end;
  memory.send(0, "frame");
  std::byte* const d = memory.descriptor(0);
  ASSERT_EQ(text(ring.frame(0)), "frame");
  const auto empty = [&](std::size_t at, auto value) {
    std::array<std::byte, 16> before;
    std::memcpy(before.data(), d, before.size());
    put(d + at, value);
    const bool result = ring.frame(0).empty();
    std::memcpy(d, before.data(), before.size());
    return result;
  };
  EXPECT_TRUE(empty(0, std::uint16_t{1})) << "chained";
  EXPECT_TRUE(empty(2, std::uint16_t{1})) << "another region";
  EXPECT_TRUE(empty(4, std::uint32_t{2049})) << "longer than a buffer";
  EXPECT_TRUE(empty(4, std::uint32_t{0xffffffff}));
  EXPECT_TRUE(empty(8, static_cast<std::uint32_t>(kRegionBytes - 4))) << "over the end";
  EXPECT_TRUE(empty(8, std::uint32_t{0xffffffff}));
  EXPECT_FALSE(empty(8, static_cast<std::uint32_t>(kRegionBytes - 5)));
}

TEST_P(MemifRingTest, PeerScribblesOverEverything_NothingOutsideTheMemoryIsTouched) {
  Receiving end(GetParam());
  auto& [memory, shared, ring] = end;
  std::minstd_rand random(7);
  std::size_t sum = 0;
  std::uint16_t position = 0;
  for (int round = 0; round < 20'000; ++round) {
    for (int i = 0; i < 4; ++i) memory.base()[random() % (2 * kRingBytes)] = static_cast<std::byte>(random());
    std::byte* const d = memory.descriptor(random());
    put(d, static_cast<std::uint32_t>(random() % 8 == 0 ? random() : 0));
    put(d + 4, static_cast<std::uint32_t>(random() % 4096));
    put(d + 8, static_cast<std::uint32_t>(random() % (2 * kRegionBytes)));
    memory.setSent(static_cast<std::uint16_t>(position + random() % 12));
    const std::size_t count = ring.waiting().value_or(0);
    ASSERT_LE(count, 8U);
    for (std::size_t i = 0; i < count; ++i) {
      ring.prefetch(i);
      const auto frame = ring.frame(i);
      ASSERT_LE(frame.size(), 2048U);
      for (const std::byte b : frame) sum += std::to_integer<std::size_t>(b);
    }
    ring.release(count);
    position = static_cast<std::uint16_t>(position + count);
  }
  EXPECT_GT(sum, 0U);
}

TEST_P(MemifRingTest, SentOverSeveralCounterWraps_AreSeenWhenPublishedAndInOrder) {
  Sending end(GetParam());
  auto& [memory, shared, ring] = end;
  memory.setReceived(0);
  std::uint16_t sent = 0;
  for (int round = 0; round < 30'000; ++round) {
    ASSERT_EQ(ring.room(), 8U);
    const int count = 1 + round % 8;
    for (int i = 0; i < count; ++i) push(ring, std::to_string(round + i));
    ASSERT_EQ(ring.room(), static_cast<std::size_t>(8 - count));
    ASSERT_EQ(memory.sent(), sent) << "before it was published";
    ring.publish();
    for (int i = 0; i < count; ++i) ASSERT_EQ(memory.text(sent++), std::to_string(round + i));
    ASSERT_EQ(memory.sent(), sent);
    memory.setReceived(sent);
  }
}

TEST_P(MemifRingTest, SendingIntoAFullRing_HasNoRoomUntilTheReceiverHasRead) {
  Sending end(GetParam());
  auto& [memory, shared, ring] = end;
  memory.setReceived(0);
  for (int i = 0; i < 8; ++i) push(ring, "frame");
  ring.publish();
  EXPECT_EQ(ring.room(), 0U);
  memory.setReceived(3);
  EXPECT_EQ(ring.room(), 3U);
}

TEST_P(MemifRingTest, ReceiverCountersBeyondTheRing_AreImpossible) {
  Sending end(GetParam());
  auto& [memory, shared, ring] = end;
  memory.setReceived(0);
  push(ring, "frame");
  ring.publish();
  memory.setReceived(1);
  EXPECT_EQ(ring.room(), 8U);
  memory.setReceived(2);
  EXPECT_EQ(ring.room(), std::nullopt) << "has read what was not sent";
  memory.setReceived(static_cast<std::uint16_t>(1 - 9));
  EXPECT_EQ(ring.room(), std::nullopt) << "has unread";
}

TEST_P(MemifRingTest, SlotOutsideTheMemory_IsNotWrittenTo) {
  Sending end(GetParam());
  auto& [memory, shared, ring] = end;
  memory.setReceived(0);
  std::byte* const d = memory.descriptor(0);
  ASSERT_EQ(ring.slot().size(), 2048U);
  put(d + 2, std::uint16_t{1});
  EXPECT_TRUE(ring.slot().empty()) << "another region";
  put(d + 2, std::uint16_t{0});
  put(d + 8, static_cast<std::uint32_t>(kRegionBytes - 2047));
  EXPECT_TRUE(ring.slot().empty()) << "over the end";
  put(d + 8, std::uint32_t{0xffffffff});
  EXPECT_TRUE(ring.slot().empty());
  put(d + 8, static_cast<std::uint32_t>(kRegionBytes - 2048));
  EXPECT_EQ(ring.slot().size(), 2048U);
}

// Otherwise the first messages would wait for page faults.
TEST(MemifMemory, Memory_IsAllThereBeforeTheFirstMessage) {
  Memory memory(MemifRole::kServer);
  MemifMemory shared(kShape);
  std::array<unsigned char, kRegionBytes / 4096 + 1> resident{};
  const auto missing = [&] {
    EXPECT_EQ(::mincore(memory.base(), kRegionBytes, resident.data()), 0);
    return std::count_if(resident.begin(), resident.end(), [](unsigned char page) { return (page & 1) == 0; });
  };
  ASSERT_GT(missing(), 0) << "nothing has been touched yet but the descriptors";
  ASSERT_TRUE(shared.describe(addRegion(), memory.fd()));
  EXPECT_EQ(missing(), 0);
}

TEST(MemifMemory, MemoryThatCouldShrink_IsRefused) {
  Memory memory(MemifRole::kServer, /*sealed=*/false);
  MemifMemory shared(kShape);
  EXPECT_FALSE(shared.describe(addRegion(), memory.fd()));
  EXPECT_FALSE(shared.describe(addRegion(), -1));
  EXPECT_FALSE(shared.describe(addRegion(), STDIN_FILENO));
}

TEST(MemifMemory, MemoryOfAnotherSizeOrTwice_IsRefused) {
  Memory small(MemifRole::kServer, true, kRegionBytes - 1);
  Memory memory(MemifRole::kServer);
  MemifMemory shared(kShape);
  EXPECT_FALSE(shared.describe(addRegion(), small.fd()));
  EXPECT_FALSE(shared.describe(addRegion(kRegionBytes - 1), memory.fd()));
  EXPECT_FALSE(shared.describe(addRegion(kRegionBytes + 1), memory.fd()));
  EXPECT_FALSE(shared.describe(addRegion(kRegionBytes, 1), memory.fd()));
  EXPECT_FALSE(shared.describe(addRing(true, 0), -1)) << "a ring before its memory";
  EXPECT_TRUE(shared.describe(addRegion(), memory.fd()));
  EXPECT_FALSE(shared.describe(addRegion(), memory.fd()));
}

TEST(MemifMemory, RingOutsideTheMemoryOrOfAnotherShape_IsRefused) {
  Memory memory(MemifRole::kServer);
  MemifMemory shared(kShape);
  ASSERT_TRUE(shared.describe(addRegion(), memory.fd()));
  EXPECT_FALSE(shared.describe(addRing(true, kRegionBytes - kRingBytes + 16), -1));
  EXPECT_FALSE(shared.describe(addRing(true, 0xfffffff0), -1));
  EXPECT_FALSE(shared.describe(addRing(true, 1), -1));
  EXPECT_FALSE(shared.describe(addRing(true, 0, 4), -1));
  EXPECT_FALSE(shared.describe(addRing(true, 0, 3, 1), -1));
  MemifReceiveRing received(shared, MemifRole::kServer);
  MemifSendRing toSend(shared, MemifRole::kServer);
  EXPECT_TRUE(shared.describe(addRing(false, kRingBytes), -1));
  EXPECT_FALSE(shared.complete());
  EXPECT_FALSE(received.start()) << "that one is the client's";
  EXPECT_TRUE(toSend.start());
  EXPECT_FALSE(shared.describe(addRing(false, kRingBytes), -1)) << "twice";
  EXPECT_TRUE(shared.describe(addRing(true, 0), -1));
  EXPECT_TRUE(received.start());
}

// To a server it looks like a driver's.
TEST(MemifMemory, ClientsOwn_ServerThatHearsItsDescriptionSharesIt) {
  for (const MemifRingShape shape : {kShape, MemifRingShape{.bufferBytes = 61440, .log2Slots = 6}}) {
    const auto own = MemifMemory::create(shape, MemifPages::kWhenTouched);
    ASSERT_TRUE(own.ok()) << own.error().message;
    EXPECT_TRUE(own.value()->complete());
    MemifMemory shared(shape, MemifPages::kWhenTouched);
    for (const MemifMessage& message : own.value()->description()) {
      ASSERT_TRUE(shared.describe(message, own.value()->descriptor()));
    }
    ASSERT_TRUE(shared.complete());
    MemifSendRing fromServer(shared, MemifRole::kServer), fromClient(*own.value(), MemifRole::kClient);
    MemifReceiveRing atClient(*own.value(), MemifRole::kClient), atServer(shared, MemifRole::kServer);
    ASSERT_TRUE(fromServer.start() && fromClient.start() && atClient.start() && atServer.start());
    for (const auto& [out, in] : {std::pair(&fromServer, &atClient), std::pair(&fromClient, &atServer)}) {
      ASSERT_EQ(out->room(), shape.slots());
      for (std::size_t slot = 0; slot < shape.slots(); ++slot) {
        ASSERT_EQ(out->slot().size(), shape.bufferBytes);
        std::memset(out->slot().data(), static_cast<int>(slot), shape.bufferBytes);
        out->push(shape.bufferBytes);
      }
      out->publish();
      ASSERT_EQ(in->waiting(), shape.slots());
      for (std::size_t slot = 0; slot < shape.slots(); ++slot) {
        ASSERT_EQ(in->frame(slot).size(), shape.bufferBytes);
        EXPECT_EQ(in->frame(slot).back(), static_cast<std::byte>(slot)) << "buffers overlap";
      }
    }
  }
}

TEST(MemifMemory, ClientsOwn_CannotShrinkOrGrow) {
  const auto own = MemifMemory::create(kShape, MemifPages::kWhenTouched);
  ASSERT_TRUE(own.ok());
  EXPECT_NE(::ftruncate(own.value()->descriptor(), 0), 0);
  EXPECT_NE(::ftruncate(own.value()->descriptor(), 2 * kRegionBytes), 0);
}

TEST(MemifMemory, PagesWhenTouched_AreNotThereBefore) {
  Memory memory(MemifRole::kServer);
  MemifMemory shared(kShape, MemifPages::kWhenTouched);
  ASSERT_TRUE(shared.describe(addRegion(), memory.fd()));
  std::array<unsigned char, kRegionBytes / 4096 + 1> resident{};
  ASSERT_EQ(::mincore(memory.base(), kRegionBytes, resident.data()), 0);
  EXPECT_GT(std::count_if(resident.begin(), resident.end(), [](unsigned char page) { return (page & 1) == 0; }), 0);
}

}  // namespace
}  // namespace gloo_bypass::dpdk
