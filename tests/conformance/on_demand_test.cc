// Pairs that connect at first use: by both sides, by one side long before the other, by one side only, never. Gloo's
// lazy TCP device is the reference if this Gloo has one.
#include <atomic>
#include <barrier>
#include <chrono>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include <gloo/allreduce.h>
#include <gloo/barrier.h>
#include <gloo/common/error.h>
#include <gloo/math.h>
#include <gloo/rendezvous/hash_store.h>
#include <gloo/transport/buffer.h>
#include <gloo/transport/pair.h>
#include <gloo/transport/unbound_buffer.h>

#include "tests/conformance/on_demand_backends.h"
#include "tests/support/no_more_threads.h"
#include "transport/gloo/context.h"

namespace gloo_bypass::test {
namespace {

constexpr std::uint64_t kSlot = 3;
constexpr Milliseconds kShort{300};

using StorePointer = std::shared_ptr<::gloo::rendezvous::HashStore>;
using TransportContext = std::shared_ptr<::gloo::transport::Context>;

// Gloo's top-level context over an existing transport context.
class TopContext final : public ::gloo::Context {
 public:
  TopContext(std::shared_ptr<::gloo::transport::Device> device, TransportContext context)
      : ::gloo::Context(context->rank, context->size) {
    setTimeout(kPatience);
    device_ = std::move(device);
    transportContext_ = std::move(context);
  }
};

class OnDemand : public ::testing::TestWithParam<OnDemandBackend> {
 protected:
  // As connectFullMesh does; if contexts borrow their store in this Gloo, by our own context's method.
  TransportContext join(int rank, int size, Milliseconds timeout = kPatience) {
    auto context = device()->createContext(rank, size);
    context->setTimeout(timeout);
    if (!gloo_version::connectKeepingStore(*context, store_)) {
      EXPECT_TRUE(dynamic_cast<adapter::Context&>(*context).connectOnDemand(store_));
    }
    return context;
  }
  std::vector<TransportContext> joinAll(int size, Milliseconds timeout = kPatience) {
    std::vector<TransportContext> all;
    for (int rank = 0; rank < size; ++rank) all.push_back(join(rank, size, timeout));
    return all;
  }
  std::shared_ptr<::gloo::transport::Device> device() {
    devices_.push_back(GetParam().makeDevice());
    return devices_.back();
  }
  void startGroup() { store_ = std::make_shared<::gloo::rendezvous::HashStore>(); }
  bool ours() const { return GetParam().channels != nullptr; }
  // Opened since the test began.
  int channels() const { return *GetParam().channels - before_; }
  // Waits until sides have opened their channels, and so have published their addresses or are about to.
  void waitForChannels(int count) const {
    while (ours() && channels() < count) std::this_thread::yield();
  }

  void SetUp() override {
    if (ours()) before_ = *GetParam().channels;
  }

  StorePointer store_ = std::make_shared<::gloo::rendezvous::HashStore>();
  std::vector<std::shared_ptr<::gloo::transport::Device>> devices_;

 private:
  int before_ = 0;
};

constexpr auto kOfContext = ::gloo::transport::kUnsetTimeout;

void sendInt(::gloo::transport::Context& context, int to, int value, std::uint64_t slot = kSlot,
             Milliseconds timeout = kOfContext) {
  auto buffer = context.createUnboundBuffer(&value, sizeof(value));
  buffer->send(to, slot);
  buffer->waitSend(timeout);
}

int receiveInt(::gloo::transport::Context& context, int from, std::uint64_t slot = kSlot,
               Milliseconds timeout = kOfContext) {
  int value = -1;
  auto buffer = context.createUnboundBuffer(&value, sizeof(value));
  buffer->recv(from, slot);
  buffer->waitRecv(timeout);
  return value;
}

TEST_P(OnDemand, EveryPairUsed_AllValuesArrive_TwoChannelsAPair) {
  constexpr int kRanks = 4;
  auto contexts = joinAll(kRanks);
  inThreads(kRanks, [&](int rank) {
    auto& context = *contexts[static_cast<std::size_t>(rank)];
    std::vector<int> in(kRanks, 100 + rank), out(kRanks, -1);
    std::vector<std::unique_ptr<::gloo::transport::UnboundBuffer>> buffers;
    for (int peer = 0; peer < kRanks; ++peer) {
      if (peer == rank) continue;
      const auto p = static_cast<std::size_t>(peer);
      buffers.push_back(context.createUnboundBuffer(&in[p], sizeof(int)));
      buffers.back()->send(peer, kSlot);
      buffers.push_back(context.createUnboundBuffer(&out[p], sizeof(int)));
      buffers.back()->recv(peer, kSlot);
    }
    for (std::size_t i = 0; i < buffers.size(); i += 2) {
      buffers[i]->waitSend();
      buffers[i + 1]->waitRecv();
    }
    for (int peer = 0; peer < kRanks; ++peer) {
      if (peer != rank) {
        EXPECT_EQ(100 + peer, out[static_cast<std::size_t>(peer)]) << "rank " << rank;
      }
    }
  });
  if (ours()) {
    EXPECT_EQ(kRanks * (kRanks - 1), channels());
  }
}

TEST_P(OnDemand, PairsNeverUsed_CostNoChannelAndNoKey) {
  if (!ours()) GTEST_SKIP() << "connections of the reference are not counted";
  auto contexts = joinAll(4);
  EXPECT_EQ(0, channels());
  std::thread sender([&] { sendInt(*contexts[2], 3, 7); });
  EXPECT_EQ(7, receiveInt(*contexts[3], 2));
  sender.join();
  EXPECT_EQ(2, channels());
  EXPECT_THROW(store_->wait({"lazy/0/1"}, Milliseconds(1)), ::gloo::IoException);
  EXPECT_NO_THROW(store_->wait({"lazy/2/3"}, Milliseconds(1)));
}

TEST_P(OnDemand, SenderFirst_MessageArrivesOncePeerUsesThePair) {
  auto contexts = joinAll(2);
  std::atomic<bool> sent{false};
  std::thread sender([&] {
    sendInt(*contexts[0], 1, 11);
    sent = true;
  });
  waitForChannels(1);
  EXPECT_FALSE(sent);
  EXPECT_EQ(11, receiveInt(*contexts[1], 0));
  sender.join();
}

TEST_P(OnDemand, ReceiverFirst_MessageArrives) {
  auto contexts = joinAll(2);
  std::thread receiver([&] { EXPECT_EQ(12, receiveInt(*contexts[0], 1)); });
  waitForChannels(1);
  sendInt(*contexts[1], 0, 12);
  receiver.join();
}

// A store with counters, as c10d's TCPStore: waits with a short timeout would fill its log.
class CountingStore : public ::gloo::rendezvous::HashStore {
 public:
  bool has_v2_support() { return true; }
  std::int64_t add(const std::string& key, std::int64_t value) {
    std::lock_guard<std::mutex> lock(mutex_);
    return counters_[key] += value;
  }
  void wait(const std::vector<std::string>& keys, const Milliseconds& timeout) override {
    waits_++;
    ::gloo::rendezvous::HashStore::wait(keys, timeout);
  }
  using ::gloo::rendezvous::HashStore::wait;
  int waits() const { return waits_; }

 private:
  std::mutex mutex_;
  std::map<std::string, std::int64_t> counters_;
  std::atomic<int> waits_{0};
};

TEST_P(OnDemand, StoreThatCounts_IsNeverWaitedFor) {
  auto counting = std::make_shared<CountingStore>();
  store_ = counting;
  if (!ours()) GTEST_SKIP() << "the reference waits";
  if (!gloo_version::canCount(*counting)) GTEST_SKIP() << "this Gloo's stores do not count";
  auto contexts = joinAll(2);
  std::thread sender([&] { sendInt(*contexts[0], 1, 14); });
  waitForChannels(1);
  EXPECT_EQ(14, receiveInt(*contexts[1], 0));
  sender.join();
  startGroup();
  store_ = counting = std::make_shared<CountingStore>();
  auto alone = join(0, 2, kShort);
  const std::string text = ioExceptionOf([&] { sendInt(*alone, 1, 1); });
  EXPECT_NE(std::string::npos, text.find("rank 1")) << text;
  EXPECT_EQ(0, counting->waits());
}

TEST_P(OnDemand, PeerJoinsLater_MessageArrives) {
  auto first = join(0, 2);
  std::thread sender([&] { sendInt(*first, 1, 13); });
  waitForChannels(1);
  auto second = join(1, 2);
  EXPECT_EQ(13, receiveInt(*second, 0));
  sender.join();
}

TEST_P(OnDemand, BothAtOnce_ManyGroups_OneConnectionEach) {
  constexpr int kGroups = 20;
  for (int group = 0; group < kGroups; ++group) {
    startGroup();
    auto contexts = joinAll(2);
    std::barrier together(2);
    inThreads(2, [&](int rank) {
      int in = rank, out = -1;
      auto send = contexts[static_cast<std::size_t>(rank)]->createUnboundBuffer(&in, sizeof(in));
      auto receive = contexts[static_cast<std::size_t>(rank)]->createUnboundBuffer(&out, sizeof(out));
      together.arrive_and_wait();
      send->send(1 - rank, kSlot);
      receive->recv(1 - rank, kSlot);
      send->waitSend();
      receive->waitRecv();
      EXPECT_EQ(1 - rank, out);
      together.arrive_and_wait();
    });
  }
  if (ours()) {
    EXPECT_EQ(2 * kGroups, channels());
  }
}

TEST_P(OnDemand, SeveralThreadsUseOnePairFirst_AllMessagesArrive) {
  constexpr int kThreads = 4;
  auto contexts = joinAll(2);
  std::barrier together(2 * kThreads);
  inThreads(2 * kThreads, [&](int thread) {
    const auto slot = static_cast<std::uint64_t>(thread / 2);
    together.arrive_and_wait();
    if (thread % 2 == 0) {
      sendInt(*contexts[0], 1, thread, slot);
    } else {
      EXPECT_EQ(thread - 1, receiveInt(*contexts[1], 0, slot));
    }
  });
  if (ours()) {
    EXPECT_EQ(2, channels());
  }
}

TEST_P(OnDemand, LargeMessagesBothWays_ArriveWhole) {
  auto contexts = joinAll(2);
  inThreads(2, [&](int rank) {
    std::vector<char> in(3 << 20), out(in.size());
    for (std::size_t i = 0; i < in.size(); ++i) in[i] = sample<char>(rank, i);
    auto& context = *contexts[static_cast<std::size_t>(rank)];
    auto send = context.createUnboundBuffer(in.data(), in.size());
    auto receive = context.createUnboundBuffer(out.data(), out.size());
    receive->recv(1 - rank, kSlot);
    send->send(1 - rank, kSlot);
    send->waitSend();
    receive->waitRecv();
    for (std::size_t i = 0; i < out.size(); ++i) ASSERT_EQ(sample<char>(1 - rank, i), out[i]) << i;
  });
}

TEST_P(OnDemand, ReceiveFromAny_OneSourceOnlyEverComes_GetsIt) {
  auto contexts = joinAll(3);
  int value = -1;
  auto receive = contexts[0]->createUnboundBuffer(&value, sizeof(value));
  receive->recv(std::vector<int>{1, 2}, kSlot);
  std::thread sender([&] { sendInt(*contexts[2], 0, 21); });
  int rank = -1;
  receive->waitRecv(&rank, kPatience);
  sender.join();
  EXPECT_EQ(21, value);
  EXPECT_EQ(2, rank);
}

TEST_P(OnDemand, SourceOfReceiveFromAny_SilentPastTheTimeout_MayStillCome) {
  if (!ours()) GTEST_SKIP() << "the reference fails such a pair at its timeout";
  // Rank 0's pairs have the same timeout for their handshakes, which a busy machine may delay; nothing else here
  // depends on it.
  constexpr Milliseconds kSilence{2000};
  std::vector<TransportContext> contexts = {join(0, 3, kSilence), join(1, 3), join(2, 3)};
  int value = -1;
  auto receive = contexts[0]->createUnboundBuffer(&value, sizeof(value));
  receive->recv(std::vector<int>{1, 2}, kSlot);
  const auto end = std::chrono::steady_clock::now() + kSilence * 5 / 4;
  std::uint64_t slot = 100;
  while (std::chrono::steady_clock::now() < end) {
    std::thread sender([&] { sendInt(*contexts[1], 0, 1, slot, kPatience); });
    EXPECT_EQ(1, receiveInt(*contexts[0], 1, slot, kPatience));
    sender.join();
    ++slot;
  }
  std::thread sender([&] { sendInt(*contexts[2], 0, 22); });
  receive->waitRecv(nullptr, kPatience);
  sender.join();
  EXPECT_EQ(22, value);
}

TEST_P(OnDemand, PeerNeverComes_IoExceptionWithinTheTimeoutNamesIt) {
  for (const bool sending : {true, false}) {
    startGroup();
    auto context = join(0, 3, kShort);
    const std::string text = ioExceptionOf([&] {
      if (sending) {
        sendInt(*context, 1, 1);
      } else {
        receiveInt(*context, 1);
      }
    });
    if (ours()) {
      EXPECT_NE(std::string::npos, text.find("rank 1")) << text;
    }
  }
}

TEST_P(OnDemand, PeerNeverComes_WaitIsLongerThanTheTimeout_ConnectFailsNamingBoth) {
  if (!ours()) GTEST_SKIP() << "the reference blocks in the send itself";
  auto context = join(0, 2, kShort);
  int value = 1;
  auto buffer = context->createUnboundBuffer(&value, sizeof(value));
  buffer->send(1, kSlot);
  const std::string text = ioExceptionOf([&] { buffer->waitSend(kPatience); });
  for (const char* part : {"Connect timeout", "rank 0", "rank 1", "300ms"}) {
    EXPECT_NE(std::string::npos, text.find(part)) << text;
  }
}

// What a store throws may be what a server has sent.
class HostileStore final : public ::gloo::rendezvous::HashStore {
 public:
  using HashStore::wait;
  void wait(const std::vector<std::string>& /*keys*/, const Milliseconds& /*timeout*/) override {
    throw std::runtime_error("\x1b[2Jgone\nrank 1: all is well");
  }
};

TEST_P(OnDemand, StoreFailsWithControlCharacters_ErrorIsOneLineWithoutThem) {
  if (!ours()) GTEST_SKIP() << "the reference has its own errors";
  store_ = std::make_shared<HostileStore>();
  if (gloo_version::canCount(*store_)) GTEST_SKIP() << "nobody waits in this Gloo's stores";
  auto context = join(0, 2, kShort);
  int value = 1;
  auto buffer = context->createUnboundBuffer(&value, sizeof(value));
  buffer->send(1, kSlot);
  const std::string text = ioExceptionOf([&] { buffer->waitSend(kPatience); });
  EXPECT_NE(std::string::npos, text.find("(store: \\x1b[2Jgone)")) << text;
  EXPECT_EQ(std::string::npos, text.find_first_of("\x1b\n")) << text;
}

// An unrelated operation woke the pair early; the peer's time begins with the late one.
TEST_P(OnDemand, PostedLongAfterThePairWoke_GetsTheWholeTimeout) {
  if (!ours()) GTEST_SKIP() << "the reference counts from the pair's first use";
  enum class WokenBy { kReceiveFromAny, kBoundBuffer, kWithdrawnReceive };
  using Clock = std::chrono::steady_clock;
  for (const WokenBy by : {WokenBy::kReceiveFromAny, WokenBy::kBoundBuffer, WokenBy::kWithdrawnReceive}) {
    TransportContext context;
    std::unique_ptr<::gloo::transport::UnboundBuffer> first;
    std::unique_ptr<::gloo::transport::Buffer> bound;
    int value = 1, early = 0;
    Clock::time_point woken, posted;
    do {
      bound.reset();
      startGroup();
      auto elsewhere = join(0, 2);
      startGroup();
      context = join(0, 2, kShort);
      woken = Clock::now();
      first = context->createUnboundBuffer(&early, sizeof(early));
      if (by == WokenBy::kReceiveFromAny) first->recv(std::vector<int>{1}, kSlot);
      if (by == WokenBy::kBoundBuffer) bound = context->getPair(1)->createRecvBuffer(1, &early, sizeof(early));
      if (by == WokenBy::kWithdrawnReceive) first->recv(1, kSlot);
      // Lets most of the timeout pass, in a wait of another context.
      EXPECT_NE("", ioExceptionOf([&] {
                  auto buffer = elsewhere->createUnboundBuffer(&value, sizeof(value));
                  buffer->recv(1, kSlot);
                  buffer->waitRecv(nullptr, kShort * 3 / 4);
                }));
      if (by == WokenBy::kWithdrawnReceive) first.reset();
      posted = Clock::now();
      // If this thread was delayed, the receive's own time may have been over before it was withdrawn.
    } while (by == WokenBy::kWithdrawnReceive && posted - woken >= kShort);
    const std::string text = ioExceptionOf([&] {
      auto buffer = context->createUnboundBuffer(&value, sizeof(value));
      buffer->send(1, kSlot + 1);
      buffer->waitSend(kPatience);
    });
    EXPECT_LE(kShort, Clock::now() - posted) << static_cast<int>(by) << ": " << text;
    EXPECT_NE(std::string::npos, text.find("Connect timeout")) << text;
  }
}

TEST_P(OnDemand, NoThreadCanBeStarted_OperationFailsNamingThePeer) {
  if (!ours()) GTEST_SKIP() << "the reference starts no thread";
  auto contexts = joinAll(3);
  {
    NoMoreThreads guard;
    for (int i = 0; i < 2; ++i) {
      const std::string text = ioExceptionOf([&] { sendInt(*contexts[0], 1, 1); });
      for (const char* part : {"Rank 0", "rank 1", "no thread"}) EXPECT_NE(std::string::npos, text.find(part)) << text;
    }
  }
  std::thread sender([&] { sendInt(*contexts[0], 2, 23); });
  EXPECT_EQ(23, receiveInt(*contexts[2], 0));
  sender.join();
}

TEST_P(OnDemand, WaitTimesOut_PairsNotYetUsedAreClosedToo) {
  if (!ours()) GTEST_SKIP() << "the reference closes only what has begun";
  auto contexts = joinAll(3);
  int value = 0;
  auto receive = contexts[0]->createUnboundBuffer(&value, sizeof(value));
  receive->recv(1, kSlot);
  ioExceptionOf([&] { receive->waitRecv(nullptr, Milliseconds(10)); });
  EXPECT_NE("", ioExceptionOf([&] { sendInt(*contexts[0], 2, 1); }));
  EXPECT_EQ(1, channels());
}

TEST_P(OnDemand, ClosedBeforeUse_OperationsFail) {
  if (!ours()) GTEST_SKIP() << "the reference connects in getPair already";
  auto contexts = joinAll(2);
  contexts[0]->getPair(1)->close();
  EXPECT_NE(std::string::npos, ioExceptionOf([&] { sendInt(*contexts[0], 1, 1); }).find("rank 1"));
  EXPECT_EQ(0, channels());
}

TEST_P(OnDemand, AddressInTheStoreIsNotOurs_PairFailsNamingThePeer) {
  if (!ours()) GTEST_SKIP() << "the reference trusts the store";
  for (const std::vector<char>& bytes : {std::vector<char>(), std::vector<char>(192, 'x'), std::vector<char>(5, 0)}) {
    startGroup();
    auto context = join(0, 2);
    store_->set("lazy/1/0", bytes);
    const std::string text = ioExceptionOf([&] { sendInt(*context, 1, 1); });
    EXPECT_NE(std::string::npos, text.find("rank 1")) << text;
  }
}

TEST_P(OnDemand, ContextGoesWhilePairsWait_NothingIsTouchedAnyMore) {
  auto value = std::make_unique<int>(0);
  auto context = join(0, 3);
  if (!ours()) GTEST_SKIP() << "the reference may block in recv";
  auto buffer = context->createUnboundBuffer(value.get(), sizeof(int));
  buffer->recv(1, kSlot);
  buffer->recv(std::vector<int>{1, 2}, kSlot + 1);
  buffer.reset();
  value.reset();
  context.reset();
  startGroup();
  auto contexts = joinAll(2);
  std::thread sender([&] { sendInt(*contexts[0], 1, 5); });
  EXPECT_EQ(5, receiveInt(*contexts[1], 0));
  sender.join();
}

TEST_P(OnDemand, BoundBuffers_Arrive) {
  auto contexts = joinAll(2);
  inThreads(2, [&](int rank) {
    int in = 30 + rank, out = -1;
    auto& pair = contexts[static_cast<std::size_t>(rank)]->getPair(1 - rank);
    auto receive = pair->createRecvBuffer(1, &out, sizeof(out));
    auto send = pair->createSendBuffer(1, &in, sizeof(in));
    send->send();
    receive->waitRecv();
    send->waitSend();
    EXPECT_EQ(31 - rank, out);
  });
}

TEST_P(OnDemand, SyncMode_ConnectsAndWorks) {
  if (!ours()) GTEST_SKIP() << "the reference's unbound buffers do not know sync mode";
  auto contexts = joinAll(2);
  inThreads(2, [&](int rank) {
    auto& context = *contexts[static_cast<std::size_t>(rank)];
    context.getPair(1 - rank)->setSync(true, rank == 0);
    if (rank == 0) {
      sendInt(context, 1, 8);
    } else {
      EXPECT_EQ(8, receiveInt(context, 0));
    }
  });
}

TEST_P(OnDemand, AllReduceAndBarrier_ExactResults) {
  constexpr int kRanks = 4;
  constexpr std::size_t kCount = 5000;
  auto contexts = joinAll(kRanks);
  std::vector<std::shared_ptr<TopContext>> tops;
  for (std::size_t rank = 0; rank < contexts.size(); ++rank) {
    tops.push_back(std::make_shared<TopContext>(devices_[rank], contexts[rank]));
  }
  inThreads(kRanks, [&](int rank) {
    const std::shared_ptr<::gloo::Context> context = tops[static_cast<std::size_t>(rank)];
    std::vector<std::int64_t> data(kCount);
    for (std::size_t i = 0; i < kCount; ++i) data[i] = sample<std::int64_t>(rank, i);
    ::gloo::AllreduceOptions options(context);
    options.setOutput(data.data(), kCount);
    options.setReduceFunction(
        [](void* c, const void* a, const void* b, std::size_t n) { ::gloo::sum<std::int64_t>(c, a, b, n); });
    ::gloo::allreduce(options);
    for (std::size_t i = 0; i < kCount; ++i) {
      std::int64_t expected = 0;
      for (int other = 0; other < kRanks; ++other) expected += sample<std::int64_t>(other, i);
      ASSERT_EQ(expected, data[i]) << "rank " << rank << ", element " << i;
    }
    ::gloo::BarrierOptions barrier(context);
    ::gloo::barrier(barrier);
  });
}

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(OnDemand);
INSTANTIATE_TEST_SUITE_P(Conformance, OnDemand, ::testing::ValuesIn(onDemandBackends()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace gloo_bypass::test
