// Memif's handshake: our two ends with each other, and a client against a server that breaks the protocol.
// tests/tools/fabric/switch/memif_server_test.cc has hostile clients.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cstring>
#include <string>
#include <vector>

#include "tests/support/no_more_memory.h"
#include "transport/base/file_descriptor.h"
#include "transport/dpdk/memif_handshake.h"

namespace gloo_bypass::dpdk {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using Type = MemifMessageType;

constexpr MemifRingShape kShape{.bufferBytes = 2048, .log2Slots = 3};

std::unique_ptr<MemifMemory> ownMemory(const MemifRingShape& shape = kShape) {
  auto made = MemifMemory::create(shape, MemifPages::kWhenTouched);
  EXPECT_TRUE(made.ok());
  return std::move(made).value();
}

class MemifHandshake : public ::testing::Test {
 protected:
  const FileDescriptor events_{::eventfd(0, EFD_CLOEXEC)};
  const std::unique_ptr<MemifMemory> memory_ = ownMemory();
  MemifClientHandshake client_{{.interfaceId = 7, .secret = "hush"}, *memory_, events_.get()};
};

// Passes all of a client's messages to the server; returns the last answer.
MemifMessage tellAll(MemifServerHandshake& server, const std::vector<MemifClientHandshake::Packet>& packets,
                     MemifClientHandshake* client = nullptr) {
  MemifMessage last{};
  for (const auto& [message, descriptor] : packets) {
    const auto answer = server.receive(message, FileDescriptor(descriptor < 0 ? -1 : ::dup(descriptor)));
    if (!answer) continue;
    last = *answer;
    if (client != nullptr) {
      EXPECT_THAT(client->receive(*answer), IsEmpty());
    }
  }
  return last;
}

TEST_F(MemifHandshake, BothEndsOfOurs_AreConnectedAndShareTheMemory) {
  MemifServerHandshake server("test", {.shape = kShape});
  const auto said = client_.receive(memifHello("test"));
  ASSERT_THAT(said, SizeIs(5));
  EXPECT_EQ(memifField<std::uint32_t>(said[0].message, memif_field::kInitInterface), 7U);
  EXPECT_STREQ(reinterpret_cast<const char*>(&said[0].message[memif_field::kInitSecret]), "hush");
  tellAll(server, said, &client_);
  EXPECT_TRUE(server.connected());
  EXPECT_TRUE(client_.connected());
  const auto shared = server.takeMemory();
  ASSERT_TRUE(shared && shared->complete());
  std::memset(memory_->part(0, 4).data(), 0x5a, 4);
  EXPECT_EQ(shared->part(0, 4).back(), std::byte{0x5a});
}

TEST_F(MemifHandshake, RingsOfAnotherShapeThanAgreed_AreRefusedWithTheReason) {
  for (const MemifRingShape shape : {MemifRingShape{2048, 4}, MemifRingShape{4096, 3}}) {
    const auto memory = ownMemory(shape);
    MemifClientHandshake client({.interfaceId = 7, .secret = ""}, *memory, events_.get());
    MemifServerHandshake server("test", {.shape = kShape});
    const MemifMessage last = tellAll(server, client.receive(memifHello("test")));
    EXPECT_EQ(memifType(last), Type::kDisconnect);
    EXPECT_THAT(client.receive(last), IsEmpty());
    EXPECT_THAT(client.ended(), HasSubstr("another size")) << "the reason travels";
    EXPECT_FALSE(server.connected());
  }
}

TEST_F(MemifHandshake, ServerHasNoMemoryLeft_BothEndsNameIt) {
  const MemifRingShape shape{.bufferBytes = 2048, .log2Slots = 12};
  const auto memory = ownMemory(shape);
  MemifClientHandshake client({.interfaceId = 0, .secret = ""}, *memory, events_.get());
  MemifServerHandshake server("test", {.shape = shape});
  const auto said = client.receive(memifHello("test"));
  MemifMessage answer{};
  {
    const test::NoMoreMemory none;
    answer = tellAll(server, said);
  }
  EXPECT_TRUE(server.exhausted());
  EXPECT_THAT(server.ended(), HasSubstr("no memory to map 16"));
  client.receive(answer);
  EXPECT_THAT(client.ended(), HasSubstr("(ulimit -v)"));
}

TEST_F(MemifHandshake, ServerOfAnotherVersion_Ends) {
  MemifMessage hello = memifHello("test");
  setMemifField(hello, memif_field::kHelloMinVersion, std::uint16_t{0x0300});
  EXPECT_THAT(client_.receive(hello), IsEmpty());
  EXPECT_THAT(client_.ended(), HasSubstr("version 2.0"));
  EXPECT_THAT(client_.receive(memifHello("test")), IsEmpty()) << "it is over";
}

TEST_F(MemifHandshake, ServerOfSmallerRings_Ends) {
  MemifMessage hello = memifHello("test");
  setMemifField(hello, memif_field::kHelloMaxLog2Slots, std::uint8_t{2});
  EXPECT_THAT(client_.receive(hello), IsEmpty());
  EXPECT_THAT(client_.ended(), HasSubstr("2^3"));
}

TEST_F(MemifHandshake, MessagesWithoutOrder_EndIt) {
  for (const Type type : {Type::kAck, Type::kInit, Type::kConnect, Type::kConnected, static_cast<Type>(99)}) {
    MemifClientHandshake client({}, *memory_, events_.get());
    EXPECT_THAT(client.receive(memifMessage(type)), IsEmpty());
    EXPECT_THAT(client.ended(), HasSubstr("no place")) << static_cast<int>(type);
    EXPECT_FALSE(client.connected());
  }
  EXPECT_THAT(client_.receive(memifHello("test")), SizeIs(5));
  EXPECT_THAT(client_.receive(memifHello("test")), IsEmpty());
  EXPECT_THAT(client_.ended(), HasSubstr("no place"));
}

// The reason goes into our log.
TEST_F(MemifHandshake, ReasonOfAServer_IsMadePrintableAndEndsWithItsField) {
  MemifMessage message = memifMessage(Type::kDisconnect);
  std::memset(&message[memif_field::kDisconnectReason], 'x', message.size() - memif_field::kDisconnectReason);
  message[memif_field::kDisconnectReason] = std::byte{'\n'};
  message[memif_field::kDisconnectReason + 1] = std::byte{0x9b};
  EXPECT_THAT(client_.receive(message), IsEmpty());
  EXPECT_THAT(client_.ended(), HasSubstr("\\x0a\\x9bx"));
  EXPECT_LT(client_.ended().size(), 136U);
}

}  // namespace
}  // namespace gloo_bypass::dpdk
