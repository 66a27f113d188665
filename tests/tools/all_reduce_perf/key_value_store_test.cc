#include "tools/all_reduce_perf/key_value_store.h"

#include <gloo/common/error.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <future>
#include <memory>

#include "tools/common/error.h"

namespace gloo_bypass {
namespace {

using std::chrono::milliseconds;

std::vector<char> bytes(const std::string& text) { return {text.begin(), text.end()}; }

class KeyValueStore : public ::testing::Test {
 protected:
  void SetUp() override { server_.start(); }
  KeyValueServer server_{Reach::kThisMachine, 0};
};

TEST_F(KeyValueStore, SetByOne_IsGotByAnother) {
  KeyValueClient one("127.0.0.1", server_.port(), milliseconds(5000));
  KeyValueClient other("127.0.0.1", server_.port(), milliseconds(5000));
  one.set("key", bytes("value"));
  one.set("empty", {});
  EXPECT_EQ(other.get("key"), bytes("value"));
  EXPECT_EQ(other.get("empty"), bytes(""));
  EXPECT_EQ(server_.value("key"), bytes("value"));
  EXPECT_EQ(server_.value("none"), std::nullopt);
}

TEST_F(KeyValueStore, GetBeforeSet_Waits) {
  KeyValueClient reader("127.0.0.1", server_.port(), milliseconds(20'000));
  KeyValueClient writer("127.0.0.1", server_.port(), milliseconds(5000));
  auto got = std::async(std::launch::async, [&] { return reader.get("late"); });
  writer.set("late", bytes("x"));
  EXPECT_EQ(got.get(), bytes("x"));
}

TEST_F(KeyValueStore, LargeValue_ArrivesWhole) {
  KeyValueClient client("127.0.0.1", server_.port(), milliseconds(5000));
  std::vector<char> large(3 << 20);
  for (std::size_t i = 0; i < large.size(); ++i) large[i] = static_cast<char>(i * 31);
  client.set("large", large);
  EXPECT_EQ(client.get("large"), large);
}

TEST_F(KeyValueStore, NeverSet_ThrowsAtTheTimeout) {
  KeyValueClient client("127.0.0.1", server_.port(), milliseconds(50));
  EXPECT_THROW(client.get("never"), ::gloo::IoException);
  EXPECT_THROW(client.wait({"never"}, milliseconds(10)), ::gloo::IoException);
  client.set("never", bytes("now"));  // the connection is still good
  EXPECT_EQ(client.get("never"), bytes("now"));
}

TEST_F(KeyValueStore, WaitForClients_OneConnected_UntilItHangsUp) {
  auto client = std::make_unique<KeyValueClient>("127.0.0.1", server_.port(), milliseconds(5000));
  client->set("key", bytes("value"));
  EXPECT_FALSE(server_.waitForClients(milliseconds(20)));
  auto gone = std::async(std::launch::async, [&] { return server_.waitForClients(milliseconds(20'000)); });
  client.reset();
  EXPECT_TRUE(gone.get());
}

// A client that does not use KeyValueClient.
class RawConnection {
 public:
  explicit RawConnection(std::uint16_t port) : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    const timeval limit{20, 0};
    ::setsockopt(socket_.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    const sockaddr_in address{
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr = {htonl(INADDR_LOOPBACK)}, .sin_zero = {}};
    isConnected_ = ::connect(socket_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
  }
  bool isConnected() const { return isConnected_; }
  // A request's operation and lengths, and the bytes after them.
  void send(char operation, std::uint32_t keyBytes, std::uint32_t argument, const std::string& rest) const {
    std::string request(9, operation);
    for (std::size_t i = 0; i < 4; ++i) {
      request[1 + i] = static_cast<char>(keyBytes >> (24 - 8 * i));
      request[5 + i] = static_cast<char>(argument >> (24 - 8 * i));
    }
    send(request + rest);
  }
  void send(const std::string& bytes) const { (void)::send(socket_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL); }
  // A reply's five bytes, for an empty value; fewer if the server has closed the connection.
  std::size_t receive() const {
    std::array<char, 5> reply{};
    return static_cast<std::size_t>(
        std::max<ssize_t>(::recv(socket_.get(), reply.data(), reply.size(), MSG_WAITALL), 0));
  }

 private:
  FileDescriptor socket_;
  bool isConnected_ = false;
};

constexpr char kSet = 1, kGet = 2;

std::size_t residentBytes() {
  std::ifstream statm("/proc/self/statm");
  std::size_t all = 0, resident = 0;
  statm >> all >> resident;
  return resident * static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
}

TEST_F(KeyValueStore, LengthsThatAreOnlyAnnounced_TakeNoMemory) {
  constexpr std::uint32_t kAnnounced = 200u << 20;
  const std::size_t before = residentBytes();
  std::vector<std::unique_ptr<RawConnection>> others;
  for (int i = 0; i < 8; ++i) {
    others.push_back(std::make_unique<RawConnection>(server_.port()));
    others.back()->send(kSet, 1, kAnnounced, "k");
    EXPECT_EQ(others.back()->receive(), 0u) << "a stranger is hung up on";
  }
  const RawConnection client(server_.port());
  client.send(kGet, 0, 0, "");
  ASSERT_EQ(client.receive(), 5u);
  client.send(kSet, 1, kAnnounced, "k and the beginning of a value");
  KeyValueClient other("127.0.0.1", server_.port(), milliseconds(5000));
  other.set("key", bytes("value"));  // what came before has been read
  EXPECT_LT(residentBytes(), before + (64u << 20));
}

TEST_F(KeyValueStore, RequestsThatAreNone_EndTheirConnection) {
  for (const std::string& text : {std::string("GET / HTTP/1.1\r\n\r\n"), std::string(9, '\xff'),
                                  std::string("\x02\x00\x00\x10\x01", 5) + "0000"}) {
    const RawConnection other(server_.port());
    other.send(text);
    EXPECT_EQ(other.receive(), 0u) << text;
  }
}

TEST_F(KeyValueStore, ConnectionsThatCameAndWent_LeaveTheirPlaces) {
  for (int i = 0; i < 1100; ++i) ASSERT_TRUE(RawConnection(server_.port()).isConnected());
  KeyValueClient client("127.0.0.1", server_.port(), milliseconds(5000));
  client.set("key", bytes("value"));
  EXPECT_EQ(client.get("key"), bytes("value"));
}

// In a separate process: opens silent connections, then sends a request. Exit status 0 if it is answered.
pid_t startStrangers(std::uint16_t port, int count) {
  const pid_t pid = ::fork();
  if (pid != 0) return pid;
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
  std::vector<std::unique_ptr<RawConnection>> silent;
  for (int i = 0; i < count; ++i) {
    silent.push_back(std::make_unique<RawConnection>(port));
    if (!silent.back()->isConnected()) ::_exit(2);
  }
  const RawConnection client(port);
  client.send(kGet, 0, 0, "");
  ::_exit(client.receive() == 5 ? 0 : 1);
}

void expectAnswered(std::uint16_t port, int strangers) {
  int status = -1;
  ASSERT_GT(::waitpid(startStrangers(port, strangers), &status, 0), 0);
  EXPECT_EQ(status, 0);
}

TEST_F(KeyValueStore, SilentConnectionsInAllPlaces_MakeRoomForAClient) {
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit high{before.rlim_max, before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &high), 0);
  ASSERT_GT(high.rlim_cur, 2000u);
  KeyValueClient first("127.0.0.1", server_.port(), milliseconds(5000));
  expectAnswered(server_.port(), 1100);
  first.set("key", bytes("value"));  // it has kept its place
  EXPECT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
}

TEST_F(KeyValueStore, SilentConnectionsInAllDescriptors_MakeRoomForAClient) {
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  KeyValueClient first("127.0.0.1", server_.port(), milliseconds(5000));
  const rlimit low{60, before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &low), 0);
  expectAnswered(server_.port(), 200);
  first.set("key", bytes("value"));
  EXPECT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
}

TEST(KeyValueServerPatience, SilentAndSlowConnections_AreClosedAndClientsAreNot) {
  KeyValueServer server(Reach::kThisMachine, 0, milliseconds(100));
  server.start();
  KeyValueClient client("127.0.0.1", server.port(), milliseconds(5000));
  const RawConnection silent(server.port()), slow(server.port());
  slow.send(std::string(1, kGet));
  EXPECT_EQ(silent.receive(), 0u);
  EXPECT_EQ(slow.receive(), 0u);
  client.set("key", bytes("value"));
}

TEST(KeyValueServerEnd, ClientsWaiting_AreReleased) {
  auto server = std::make_unique<KeyValueServer>(Reach::kThisMachine, 0);
  server->start();
  KeyValueClient client("127.0.0.1", server->port(), milliseconds(20'000));
  client.set("here", bytes("1"));
  auto got = std::async(std::launch::async, [&] { return client.get("never"); });
  server.reset();
  EXPECT_THROW(got.get(), ::gloo::IoException);
}

TEST(KeyValueServerPort, InUse_NamesPortAndWayOut) {
  KeyValueServer first(Reach::kThisMachine, 0);
  try {
    KeyValueServer second(Reach::kThisMachine, first.port());
    FAIL() << "two servers on one port";
  } catch (const ProgramError& error) {
    EXPECT_NE(std::string(error.what()).find(std::to_string(first.port())), std::string::npos);
    EXPECT_NE(std::string(error.what()).find("--store-dir"), std::string::npos);
  }
}

TEST(KeyValueClientConnect, NobodyListens_ThrowsAtTheTimeout) {
  std::uint16_t port = 0;
  {
    KeyValueServer gone(Reach::kThisMachine, 0);
    port = gone.port();
  }
  EXPECT_THROW(KeyValueClient("127.0.0.1", port, milliseconds(100)), ProgramError);
}

}  // namespace
}  // namespace gloo_bypass
