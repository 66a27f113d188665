#include "tools/key_value_store.h"

#include <gloo/common/error.h>
#include <gtest/gtest.h>

#include <future>
#include <memory>

#include "programs/error.h"

namespace gloo_bypass {
namespace {

using std::chrono::milliseconds;

std::vector<char> bytes(const std::string& text) { return {text.begin(), text.end()}; }

class KeyValueStore : public ::testing::Test {
 protected:
  void SetUp() override { server_.start(); }
  KeyValueServer server_{KeyValueServer::Reach::kThisMachine, 0};
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

TEST(KeyValueServerEnd, ClientsWaiting_AreReleased) {
  auto server = std::make_unique<KeyValueServer>(KeyValueServer::Reach::kThisMachine, 0);
  server->start();
  KeyValueClient client("127.0.0.1", server->port(), milliseconds(20'000));
  client.set("here", bytes("1"));
  auto got = std::async(std::launch::async, [&] { return client.get("never"); });
  server.reset();
  EXPECT_THROW(got.get(), ::gloo::IoException);
}

TEST(KeyValueServerPort, InUse_NamesPortAndWayOut) {
  KeyValueServer first(KeyValueServer::Reach::kThisMachine, 0);
  try {
    KeyValueServer second(KeyValueServer::Reach::kThisMachine, first.port());
    FAIL() << "two servers on one port";
  } catch (const ProgramError& error) {
    EXPECT_NE(std::string(error.what()).find(std::to_string(first.port())), std::string::npos);
    EXPECT_NE(std::string(error.what()).find("--store-dir"), std::string::npos);
  }
}

TEST(KeyValueClientConnect, NobodyListens_ThrowsAtTheTimeout) {
  std::uint16_t port = 0;
  {
    KeyValueServer gone(KeyValueServer::Reach::kThisMachine, 0);
    port = gone.port();
  }
  EXPECT_THROW(KeyValueClient("127.0.0.1", port, milliseconds(100)), ProgramError);
}

}  // namespace
}  // namespace gloo_bypass
