#include "tests/transport/verbs/rdma_end.h"

#include "transport/process/report_json.h"

#include <algorithm>
#include <cstdlib>
#include <mutex>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "transport/verbs/verbs_transport.h"

namespace gloo_bypass::test {
using namespace verbs;
namespace {

std::mutex notesMutex;
std::map<std::string, ibv_context*> contexts;  // by device, the last one opened
std::vector<std::uint32_t> queuePairs;

ibv_context* openNoted(ibv_device* device) {
  ibv_context* const context = softwareVerbs().openDevice(device);
  const std::lock_guard lock(notesMutex);
  contexts[softwareVerbs().getDeviceName(device)] = context;
  return context;
}

ibv_qp* createNoted(ibv_pd* domain, ibv_qp_init_attr* init) {
  ibv_qp* const pair = softwareVerbs().createQueuePair(domain, init);
  const std::lock_guard lock(notesMutex);
  if (pair != nullptr) queuePairs.push_back(pair->qp_num);
  return pair;
}

}  // namespace

const VerbsApi& notedVerbs() {
  static const VerbsApi api = [] {
    VerbsApi noted = softwareVerbs();
    noted.openDevice = openNoted;
    noted.createQueuePair = createNoted;
    return noted;
  }();
  return api;
}

ibv_context* notedContext(const std::string& device) {
  const std::lock_guard lock(notesMutex);
  return contexts[device];
}

std::vector<std::uint32_t> notedQueuePairs() {
  const std::lock_guard lock(notesMutex);
  return queuePairs;
}

void forgetNoted() {
  const std::lock_guard lock(notesMutex);
  contexts.clear();
  queuePairs.clear();
}

std::size_t ChannelRecord::timesReceived(OperationToken token) const {
  return static_cast<std::size_t>(
      std::count_if(received.begin(), received.end(), [token](const auto& item) { return item.first == token; }));
}

TransportConfig rdmaConfig(const std::string& devices) {
  TransportConfig config;
  config.rdma.devices = devices;
  config.rdma.timeoutExponent = 10;
  // The same tests of channels whose sessions have keys.
  if (std::getenv("RDMA_TEST_KEYED") != nullptr) {
    config.security = Security::kEncrypt;
    config.rdma.trustedNetwork = true;
  }
  return config;
}

RdmaEnd::RdmaEnd(const TransportConfig& config, const VerbsApi& verbs) {
  auto made = makeVerbsTransport(verbs, config);
  if (!made) throw std::runtime_error(made.error().message);
  transport = std::move(made).value();
  context = notedContext(config.rdma.devices.substr(0, config.rdma.devices.find(',')));
}

RdmaEnd::~RdmaEnd() {
  exclusive([this] { channels.clear(); });
}

RdmaEnd::Channel& RdmaEnd::open(const ChannelOptions& options) {
  channels.push_back(std::make_unique<Channel>());
  Channel& made = *channels.back();
  exclusive([&] {
    auto handle = transport->openChannel(options, &made.record);
    ASSERT_TRUE(handle.ok()) << handle.error().message;
    made.handle = std::move(handle).value();
  });
  return made;
}

std::vector<std::byte> RdmaEnd::address(std::size_t index) {
  std::vector<std::byte> bytes;
  exclusive([&] { bytes = channels[index]->handle->localAddress(); });
  return bytes;
}

Status RdmaEnd::connect(const std::vector<std::byte>& peer, std::size_t index) {
  Status status;
  exclusive([&] { status = channels[index]->handle->connect(peer); });
  return status;
}

Status RdmaEnd::send(OperationToken token, std::uint64_t tag, std::span<const std::byte> data, std::size_t index) {
  Status status;
  exclusive([&] {
    status = channels[index]->handle->postSend(
        {.token = token, .key = {MessageKind::kUnbound, tag}, .data = data.data(), .length = data.size()});
  });
  return status;
}

Status RdmaEnd::receive(OperationToken token, std::uint64_t tag, std::span<std::byte> data, std::size_t index) {
  Status status;
  exclusive([&] {
    status = channels[index]->handle->postReceive(
        {.token = token, .key = {MessageKind::kUnbound, tag}, .data = data.data(), .capacity = data.size()});
  });
  return status;
}

void RdmaEnd::close(bool abort, std::size_t index) {
  exclusive([&] { channels[index]->handle->close(abort); });
}

bool RdmaEnd::waitState(ChannelState state, std::size_t index) {
  return wait([&] { return channels[index]->record.has(state); });
}

bool RdmaEnd::waitReceived(OperationToken token, std::size_t index) {
  return wait([&] { return channels[index]->record.timesReceived(token) > 0; });
}

bool RdmaEnd::waitSent(OperationToken token, std::size_t index) {
  return wait([&] { return channels[index]->record.sent.contains(token); });
}

Error RdmaEnd::error(std::size_t index) {
  Error error;
  exclusive([&] {
    ASSERT_EQ(channels[index]->handle->state(), ChannelState::kFailed);
    error = channels[index]->handle->error();
  });
  return error;
}

nlohmann::json RdmaEnd::counters() {
  TransportReport report;
  exclusive([&] { report = transport->report(); });
  return reportJson("test", report);
}

void RdmaChannelTest::SetUp() {
  rnic.reset();
  forgetNoted();
}

void RdmaChannelTest::TearDown() {
  destroy();
  rnic.reset();
}

void RdmaChannelTest::destroy() {
  a.reset();
  b.reset();
  EXPECT_EQ(rnic.liveObjects().describe(), "nothing");
}

void RdmaChannelTest::open(const TransportConfig& forA, const TransportConfig& forB, std::size_t count) {
  a = std::make_unique<RdmaEnd>(forA);
  b = std::make_unique<RdmaEnd>(forB);
  for (std::size_t i = 0; i < count; ++i) addChannel();
}

void RdmaChannelTest::addChannel() {
  a->open({.localRank = 0, .peerRank = 1});
  b->open({.localRank = 1, .peerRank = 0});
  const std::size_t index = a->channels.size() - 1;
  const Status fromA = a->connect(b->address(index), index), fromB = b->connect(a->address(index), index);
  ASSERT_TRUE(fromA.ok()) << fromA.error().message;
  ASSERT_TRUE(fromB.ok()) << fromB.error().message;
  ASSERT_TRUE(a->waitState(ChannelState::kConnected, index));
  ASSERT_TRUE(b->waitState(ChannelState::kConnected, index));
}

void RdmaChannelTest::exchange(std::size_t size, std::uint64_t tag, std::size_t index) {
  const auto fromA = patterned(size, static_cast<int>(tag)), fromB = patterned(size, static_cast<int>(tag) + 1);
  std::vector<std::byte> atA(size), atB(size);
  const OperationToken token = (tag << 8) | 0xff;
  ASSERT_TRUE(a->receive(token, tag, atA, index).ok());
  ASSERT_TRUE(b->receive(token, tag, atB, index).ok());
  ASSERT_TRUE(a->send(token, tag, fromA, index).ok());
  ASSERT_TRUE(b->send(token, tag, fromB, index).ok());
  ASSERT_TRUE(a->waitReceived(token, index)) << size;
  ASSERT_TRUE(b->waitReceived(token, index)) << size;
  ASSERT_TRUE(a->waitSent(token, index)) << size;
  ASSERT_TRUE(b->waitSent(token, index)) << size;
  EXPECT_EQ(atA, fromB);
  EXPECT_EQ(atB, fromA);
}

}  // namespace gloo_bypass::test
