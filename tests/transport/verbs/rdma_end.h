// One process's side of RDMA channels, mostly on the software adapter: its own transport, channels, and their recorded
// events.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/software_rnic.h"
#include "tests/transport/verbs/rnic_end.h"
#include "transport/base/config.h"
#include "transport/channel/message_channel.h"
#include "transport/progress/progress_engine.h"
#include "transport/verbs/rdma_address.h"

namespace gloo_bypass::test {

struct ChannelRecord final : ChannelObserver {
  void onSendComplete(OperationToken token) noexcept override {
    ++sent[token];
    if (onSent) onSent(token);
  }
  void onReceiveComplete(OperationToken token, std::size_t length) noexcept override {
    received.emplace_back(token, length);
    if (onReceived) onReceived(token);
  }
  void onMessageAnnounced(MessageKey key, std::size_t) noexcept override { announced.push_back(key.tag); }
  void onStateChange(ChannelState next) noexcept override { states.push_back(next); }

  bool has(ChannelState state) const { return !states.empty() && states.back() == state; }
  std::size_t timesReceived(OperationToken token) const;

  std::map<OperationToken, int> sent;
  std::vector<std::pair<OperationToken, std::size_t>> received;  // in order
  std::vector<std::uint64_t> announced;
  std::vector<ChannelState> states;
  std::function<void(OperationToken)> onSent, onReceived;
};

// Small timers: 8 tries of 4 ms.
TransportConfig rdmaConfig(const std::string& devices);

// The software adapter's table; records contexts and queue pairs made through it.
const verbs::VerbsApi& notedVerbs();
ibv_context* notedContext(const std::string& device);  // opened last
std::vector<std::uint32_t> notedQueuePairs();          // their numbers, in the order made
void forgetNoted();

class RdmaEnd {
 public:
  explicit RdmaEnd(const TransportConfig& config, const verbs::VerbsApi& verbs = notedVerbs());
  explicit RdmaEnd(std::shared_ptr<Transport> made) : transport(std::move(made)) {}
  ~RdmaEnd();

  struct Channel {
    ChannelRecord record;
    std::unique_ptr<MessageChannel> handle;
  };
  Channel& open(const ChannelOptions& options = {});
  Channel& operator[](std::size_t index) { return *channels[index]; }

  void exclusive(const std::function<void()>& f) { transport->progress().exclusive(f); }
  bool wait(const std::function<bool()>& condition) {
    return transport->progress().waitUntil(condition, monotonicNow() + kRnicPatience);
  }
  std::vector<std::byte> address(std::size_t index = 0);
  Status connect(const std::vector<std::byte>& peer, std::size_t index = 0);
  Status send(OperationToken token, std::uint64_t tag, std::span<const std::byte> data, std::size_t index = 0);
  Status receive(OperationToken token, std::uint64_t tag, std::span<std::byte> data, std::size_t index = 0);
  void close(bool abort, std::size_t index = 0);
  bool waitState(ChannelState state, std::size_t index = 0);
  bool waitReceived(OperationToken token, std::size_t index = 0);
  bool waitSent(OperationToken token, std::size_t index = 0);
  Error error(std::size_t index = 0);
  nlohmann::json counters();

  std::shared_ptr<Transport> transport;
  std::vector<std::unique_ptr<Channel>> channels;
  ibv_context* context = nullptr;  // of its first device, on the software adapter
};

// Two processes with one channel, or several, between them.
class RdmaChannelTest : public ::testing::Test {
 protected:
  void SetUp() override;
  void TearDown() override;
  void open(const TransportConfig& forA, const TransportConfig& forB, std::size_t channels = 1);
  void open() { open(rdmaConfig("soft0"), rdmaConfig("soft1")); }
  void addChannel();
  // One message of `size` bytes each way, checked.
  void exchange(std::size_t size, std::uint64_t tag, std::size_t index = 0);
  // The two sides forget their transports; every object of the adapter must be gone.
  void destroy();

  SoftwareRnic& rnic = SoftwareRnic::instance();
  std::unique_ptr<RdmaEnd> a, b;
};

}  // namespace gloo_bypass::test
