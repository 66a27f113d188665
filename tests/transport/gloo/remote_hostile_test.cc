// A peer that breaks the protocol of remote keys: the test sends anything over a channel to a real context. Whatever it
// sends, no byte outside the exposed buffer is read or written, and its victim gets one clear error.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include <gloo/common/error.h>
#include <gloo/transport/pair.h>
#include <gloo/transport/unbound_buffer.h>

#include "tests/support/loopback_port.h"
#include "tests/support/media/media.h"
#include "tests/support/memory_transport.h"
#include "transport/compatibility/gloo/remote_key.h"
#include "transport/datagram/datagram_transport.h"
#include "transport/gloo/address.h"
#include "transport/gloo/device.h"
#include "transport/gloo/remote_key.h"
#include "transport/gloo/remote_message.h"
#include "transport/progress/progress_engine.h"

namespace gloo_bypass::adapter {
namespace {

using Bytes = std::vector<std::byte>;
using test::MemoryFabric;

constexpr auto kPatience = std::chrono::seconds(20);
constexpr std::size_t kLarge = 100000;  // announced, not sent at once
constexpr std::size_t kGuard = 64;
constexpr auto kFill = static_cast<std::byte>(0x5a);

// The victim's transport and its peer's.
struct Medium {
  std::string name;
  std::function<std::pair<std::shared_ptr<Transport>, std::shared_ptr<Transport>>()> make;
};

void PrintTo(const Medium& medium, std::ostream* out) { *out << medium.name; }

std::vector<Medium> media() {
  std::vector<Medium> all;
  const auto fabric = MemoryFabric::make();
  all.push_back({"Memory", [fabric] { return std::pair(fabric->makeTransport(), fabric->makeTransport()); }});
  all.push_back(
      {"Loopback", [] {
         constexpr std::size_t kDatagramBytes = 8192, kQueueDatagrams = 256;
         TransportConfig config;
         const auto both =
             makeDatagramTransport(config, test::makeLoopbackPort(kDatagramBytes, kQueueDatagrams, {})).value();
         return std::pair(both, both);
       }});
  for (const test::Medium& medium : test::backEndMedia()) {
    if (medium.variant) continue;
    all.push_back({medium.name, [make = medium.makeTransport] {
                     auto own = make();
                     return std::pair(own, make());
                   }});
  }
  return all;
}

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

// Records the victim's messages, and whether it still listens.
struct Listener final : ChannelObserver {
  void onSendComplete(OperationToken) noexcept override {}
  void onReceiveComplete(OperationToken token, std::size_t length) noexcept override {
    Bytes bytes = std::move(receiving[token]);
    bytes.resize(length);
    messages.push_back(std::move(bytes));
  }
  void onMessageAnnounced(MessageKey key, std::size_t length) noexcept override {
    if (!takes) return;
    Bytes& bytes = receiving[++tokens];
    bytes.resize(length);
    (void)channel->postReceive({tokens, key, bytes.data(), length, false});
  }
  void onStateChange(ChannelState next) noexcept override { state = next; }

  MessageChannel* channel = nullptr;
  bool takes = true;
  OperationToken tokens = 0;
  std::map<OperationToken, Bytes> receiving;
  std::vector<Bytes> messages;
  ChannelState state = ChannelState::kUnconnected;
};

class RemoteHostile : public ::testing::TestWithParam<Medium> {
 protected:
  void SetUp() override { connect(); }
  void TearDown() override {
    peer_->progress().exclusive([&] { channel_.reset(); });
    const Bytes guard(kGuard, kFill);
    EXPECT_EQ(guard, Bytes(memory_.begin(), memory_.begin() + kGuard));
    EXPECT_EQ(guard, Bytes(memory_.end() - kGuard, memory_.end()));
  }

  void connect() {
    auto [own, peers] = GetParam().make();
    context_ = makeDevice(own)->createContext(0, 2);
    context_->setTimeout(kPatience);
    auto& pair = context_->createPair(1);
    peer_ = peers;
    std::vector<char> address;
    peer_->progress().exclusive([&] {
      channel_ = std::move(peer_->openChannel({.localRank = 1, .peerRank = 0}, &listener_).value());
      listener_.channel = channel_.get();
      address = encodeAddress(channel_->localAddress());
      ASSERT_TRUE(channel_->connect(decodeAddress(pair->address().bytes())).ok());
    });
    pair->connect(address);
    buffer_ = context_->createUnboundBuffer(memory_.data() + kGuard, memory_.size() - 2 * kGuard);
    key_ = std::unique_ptr<RemoteKey>(static_cast<RemoteKey*>(exposed().getRemoteKey().release()));
  }
  gloo_version::RemoteKeyBuffer& exposed() { return dynamic_cast<gloo_version::RemoteKeyBuffer&>(*buffer_); }

  // `data` stays until the test ends.
  void send(MessageKey key, Bytes data) {
    sent_.push_back(std::make_unique<Bytes>(std::move(data)));
    peer_->progress().exclusive(
        [&] { (void)channel_->postSend({sent_.size(), key, sent_.back()->data(), sent_.back()->size(), 0}); });
  }
  void say(const RemoteMessage& message, std::size_t payload = 0) {
    send(remoteControlKey(), encodeRemoteMessage(message, Bytes(payload, std::byte{1})));
  }
  RemoteMessage request(RemoteMessageType type, std::uint64_t number, std::uint64_t offset, std::uint64_t length) {
    return {type, RemoteRefusal::kNone, number, key_->context, key_->region, offset, length};
  }
  // The victim's next message; nullopt if it closed instead.
  std::optional<RemoteMessage> hear() {
    std::optional<RemoteMessage> heard;
    const auto something = [&] {
      if (heard_ < listener_.messages.size()) heard = decodeRemoteMessage(listener_.messages[heard_++]);
      return heard.has_value() || listener_.state == ChannelState::kFailed;
    };
    EXPECT_TRUE(peer_->progress().waitUntil(something, monotonicNow() + Duration(kPatience)));
    return heard;
  }
  // The victim's own program starts an operation; its pair may have ended.
  void getSomething(std::size_t length) {
    try {
      exposed().get(RemoteKey(1, 2 * kLarge, 1, 1), 0, 0, 0, length);
    } catch (const ::gloo::IoException&) {
    }
  }
  // The error that the victim's program gets when its pair ends.
  std::string failure() {
    int value = 0;
    auto probe = context_->createUnboundBuffer(&value, sizeof(value));
    try {
      probe->recv(1, 99);
      probe->waitRecv();
    } catch (const ::gloo::IoException& e) {
      return e.what();
    }
    return "";
  }
  void expectViolation(const std::string& what) {
    const std::string text = failure();
    for (const std::string& part : {std::string("Rank 0"), std::string("rank 1"), std::string("remote keys"), what}) {
      EXPECT_TRUE(contains(text, part)) << text;
    }
  }

  Bytes memory_ = Bytes(kGuard + 2 * kLarge + kGuard, kFill);
  std::shared_ptr<::gloo::transport::Context> context_;
  std::unique_ptr<::gloo::transport::UnboundBuffer> buffer_;
  std::unique_ptr<RemoteKey> key_;
  std::shared_ptr<Transport> peer_;
  Listener listener_;
  std::unique_ptr<MessageChannel> channel_;
  std::vector<std::unique_ptr<Bytes>> sent_;
  std::size_t heard_ = 0;
};

TEST_P(RemoteHostile, OutOfTheBuffer_IsRefusedAndNothingIsTouched) {
  std::uint64_t number = 0;
  const std::uint64_t size = key_->size;
  const Bytes before = memory_;
  for (const auto type : {RemoteMessageType::kPut, RemoteMessageType::kGet}) {
    for (const auto& [offset, length] :
         std::vector<std::pair<std::uint64_t, std::uint64_t>>{{size, 1},
                                                              {size + 1, 0},
                                                              {size - 5, 10},
                                                              {UINT64_MAX, 10},
                                                              {UINT64_MAX - 4, 5},
                                                              {0, size + 1},
                                                              {0, UINT64_MAX},
                                                              {1, UINT64_MAX},
                                                              {size, kLarge},
                                                              {UINT64_MAX, UINT64_MAX}}) {
      const bool inlined = type == RemoteMessageType::kPut && length <= kInlineBytes;
      say(request(type, ++number, offset, length), inlined ? length : 0);
      const auto answer = hear();
      ASSERT_TRUE(answer) << offset << " " << length;
      EXPECT_EQ(RemoteMessageType::kRefused, answer->type) << offset << " " << length;
      EXPECT_EQ(RemoteRefusal::kOutOfRange, answer->refusal);
      EXPECT_EQ(number, answer->operation);
    }
  }
  EXPECT_EQ(before, memory_);
}

TEST_P(RemoteHostile, KeyGuessed_IsRefused) {
  std::uint64_t number = 0;
  const Bytes before = memory_;
  for (const std::uint64_t wrong : {std::uint64_t{0}, std::uint64_t{1}, UINT64_MAX, key_->region + 1}) {
    RemoteMessage guess = request(RemoteMessageType::kPut, ++number, 0, 10);
    guess.region = wrong;
    say(guess, 10);
    EXPECT_EQ(RemoteRefusal::kNoSuchMemory, hear()->refusal);
    guess = request(RemoteMessageType::kPut, ++number, 0, 10);
    guess.context = wrong;
    say(guess, 10);
    EXPECT_EQ(RemoteRefusal::kOtherContext, hear()->refusal);
  }
  EXPECT_EQ(before, memory_);
}

TEST_P(RemoteHostile, MessagesNoCorrectPeerSends_EndThePairWithTheReason) {
  using Type = RemoteMessageType;
  const std::vector<std::pair<std::string, std::function<void()>>> faults = {
      {"no correct peer sends", [&] { send(remoteControlKey(), {}); }},
      {"no correct peer sends", [&] { send(remoteControlKey(), Bytes(kRemoteHeaderBytes - 1)); }},
      {"no correct peer sends", [&] { send(remoteControlKey(), Bytes(kRemoteHeaderBytes, std::byte{0xff})); }},
      {"no correct peer sends", [&] { send(remoteControlKey(), Bytes(kMaxRemoteMessageBytes + 1)); }},
      {"no correct peer sends", [&] { send(remoteControlKey(), Bytes(1 << 20)); }},
      {"for no purpose", [&] { send({MessageKind::kBound, std::uint64_t{1} << 40}, Bytes(5)); }},
      {"for no purpose", [&] { send({MessageKind::kBound, UINT64_MAX}, Bytes(5)); }},
      {"out of turn", [&] { say(request(Type::kPut, 2, 0, 10), 10); }},
      {"out of turn", [&] { say(request(Type::kGet, UINT64_MAX, 0, 10)); }},
      {"no put announced", [&] { send(putDataKey(1), Bytes(10)); }},
      {"no put announced", [&] { send(putDataKey(0), Bytes(10)); }},
      {"no get asked for", [&] { send(getDataKey(1), Bytes(kLarge)); }},
      {"not asked of it", [&] { say({.type = Type::kDone, .operation = 1}); }},
      {"not asked of it", [&] { say({.type = Type::kGo, .operation = 1}); }},
      {"not asked of it",
       [&] { say({.type = Type::kRefused, .refusal = RemoteRefusal::kOutOfRange, .operation = UINT64_MAX}); }},
      {"cannot be cancelled", [&] { say({.type = Type::kCancel, .operation = 1}); }},
      {"at once than a correct peer",
       [&] {
         for (std::uint64_t i = 1; i <= kMaxRemoteOperations + 1; ++i) say(request(Type::kPut, i, 0, kLarge));
       }},
      {"no put announced",
       [&] {
         say(request(Type::kPut, 1, 0, 10), 10);
         send(putDataKey(1), Bytes(10));
       }},
  };
  for (const auto& [reason, fault] : faults) {
    SCOPED_TRACE(reason);
    fault();
    expectViolation(reason);
    TearDown();
    buffer_.reset();
    listener_ = {};
    heard_ = 0;
    memory_.assign(memory_.size(), kFill);
    connect();
  }
}

// Else each would stay with the victim for ever.
TEST_P(RemoteHostile, AsksAndTakesNoAnswers_EndsThePair) {
  if (GetParam().name == "Memory") GTEST_SKIP() << "sends end at once there";
  constexpr std::uint64_t kMost = 40'000;  // more than a channel keeps of answers that end when they are copied
  listener_.takes = false;
  const auto failed = [&] { return listener_.state == ChannelState::kFailed; };
  for (std::uint64_t number = 1; number <= kMost && !failed(); ++number) {
    say(request(RemoteMessageType::kGet, number, 0, kInlineBytes));
    if (number % 1000 == 0) (void)peer_->progress().waitUntil(failed, monotonicNow() + std::chrono::milliseconds(1));
  }
  expectViolation("does not take the answers");
}

TEST_P(RemoteHostile, DataBeforeItsTurn_NeverReachesTheBuffer) {
  // The second waits for the first, since both use the same bytes; its data is sent all the same.
  say(request(RemoteMessageType::kPut, 1, 0, kLarge));
  EXPECT_EQ(RemoteMessageType::kGo, hear()->type);
  say(request(RemoteMessageType::kPut, 2, 0, kLarge));
  const Bytes before = memory_;
  send(putDataKey(2), Bytes(kLarge));
  expectViolation("no put announced");
  EXPECT_EQ(before, memory_);
}

TEST_P(RemoteHostile, PutShorterThanAnnounced_EndsThePair) {
  say(request(RemoteMessageType::kPut, 1, 0, kLarge));
  EXPECT_EQ(RemoteMessageType::kGo, hear()->type);
  send(putDataKey(1), Bytes(kLarge - 1));
  expectViolation("less data");
}

TEST_P(RemoteHostile, PutLongerThanAnnounced_EndsThePairAndWritesNothing) {
  say(request(RemoteMessageType::kPut, 1, 10, kLarge));
  EXPECT_EQ(RemoteMessageType::kGo, hear()->type);
  const Bytes before = memory_;
  send(putDataKey(1), Bytes(kLarge + 1));
  EXPECT_NE("", failure());
  EXPECT_EQ(before, memory_);
}

TEST_P(RemoteHostile, PutCancelled_ItsDataIsDroppedAndThePairGoesOn) {
  say(request(RemoteMessageType::kPut, 1, 0, kLarge));
  EXPECT_EQ(RemoteMessageType::kGo, hear()->type);
  const Bytes before = memory_;
  say({.type = RemoteMessageType::kCancel, .operation = 1});
  EXPECT_EQ(RemoteRefusal::kCancelled, hear()->refusal);
  say({.type = RemoteMessageType::kCancel, .operation = 1});  // crossed with the answer, as far as the victim can know
  send(putDataKey(1), Bytes(kLarge));
  say(request(RemoteMessageType::kPut, 2, 0, 10), 10);
  EXPECT_EQ(RemoteMessageType::kDone, hear()->type);
  EXPECT_EQ(Bytes(10, std::byte{1}), Bytes(memory_.begin() + kGuard, memory_.begin() + kGuard + 10));
  EXPECT_TRUE(std::equal(before.begin() + kGuard + 10, before.end(), memory_.begin() + kGuard + 10));
}

TEST_P(RemoteHostile, PutCancelledAndItsDataLongerThanAnnounced_EndsThePair) {
  say(request(RemoteMessageType::kPut, 1, 0, kLarge));
  EXPECT_EQ(RemoteMessageType::kGo, hear()->type);
  say({.type = RemoteMessageType::kCancel, .operation = 1});
  EXPECT_EQ(RemoteRefusal::kCancelled, hear()->refusal);
  send(putDataKey(1), Bytes(kLarge + 1));
  expectViolation("no put announced");
}

// Dropped data is received first: here the put was granted more memory than can be allocated twice.
TEST_P(RemoteHostile, DroppedDataLongerThanMemory_EndsThePairAndNothingElse) {
  // Only these two touch no byte of a message before it is matched. RDMA registers it, page by page.
  if (GetParam().name != "Memory" && GetParam().name != "Loopback") GTEST_SKIP() << "64 TiB cannot be registered";
  constexpr std::size_t kHuge = std::size_t{1} << 46;  // of the 2^47 bytes that a process can address
  void* const mapped =
      ::mmap(nullptr, kHuge, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapped == MAP_FAILED) GTEST_SKIP() << "cannot map 64 TiB";
  auto* const memory = static_cast<std::byte*>(mapped);
  auto buffer = context_->createUnboundBuffer(memory, kHuge);
  const std::unique_ptr<RemoteKey> key(
      static_cast<RemoteKey*>(dynamic_cast<gloo_version::RemoteKeyBuffer&>(*buffer).getRemoteKey().release()));
  RemoteMessage put = request(RemoteMessageType::kPut, 1, 0, kHuge);
  put.region = key->region;
  say(put);
  EXPECT_EQ(RemoteMessageType::kGo, hear()->type);
  say({.type = RemoteMessageType::kCancel, .operation = 1});
  EXPECT_EQ(RemoteRefusal::kCancelled, hear()->refusal);
  peer_->progress().exclusive([&] { (void)channel_->postSend({1000, putDataKey(1), memory, kHuge, 0}); });
  const std::string text = failure();
  EXPECT_TRUE(contains(text, "rank 1") && contains(text, "70368744177664 bytes") && contains(text, "no memory"))
      << text;
  buffer.reset();
  peer_->progress().exclusive([&] { channel_->close(/*abort=*/true); });
  (void)::munmap(mapped, kHuge);
}

TEST_P(RemoteHostile, BufferDestroyedAndDataComesLate_ItIsDropped) {
  say(request(RemoteMessageType::kPut, 1, 0, kLarge));
  EXPECT_EQ(RemoteMessageType::kGo, hear()->type);
  buffer_.reset();
  const Bytes before = memory_;
  EXPECT_EQ(RemoteRefusal::kMemoryGone, hear()->refusal);
  send(putDataKey(1), Bytes(kLarge));
  say(request(RemoteMessageType::kGet, 2, 0, 10));
  EXPECT_EQ(RemoteRefusal::kNoSuchMemory, hear()->refusal);
  EXPECT_EQ(before, memory_);
}

// Wrong answers to the victim's operations.
class RemoteHostileAnswer : public RemoteHostile {
 protected:
  // The victim puts or gets `length` bytes of a buffer that the test claims to have.
  void ask(RemoteMessageType type, std::size_t length) {
    const RemoteKey ours(1, kLarge, 1, 1);
    if (type == RemoteMessageType::kPut) exposed().put(ours, 0, 0, 0, length);
    if (type == RemoteMessageType::kGet) exposed().get(ours, 0, 0, 0, length);
    const auto heard = hear();
    ASSERT_TRUE(heard);
    EXPECT_EQ(type, heard->type);
    EXPECT_EQ(length, heard->length);
    EXPECT_EQ(1u, heard->operation);
  }
  void expectOperationFails(const std::string& what) {
    std::string text;
    try {
      buffer_->waitSend();
    } catch (const ::gloo::IoException& e) {
      text = e.what();
    }
    EXPECT_TRUE(contains(text, "rank 1") && contains(text, what)) << text;
  }
};

TEST_P(RemoteHostileAnswer, ShortGetOfAnotherLength_EndsThePairAndWritesNothing) {
  for (const std::size_t payload : {0, 9, 11, 4096}) {
    ask(RemoteMessageType::kGet, 10);
    const Bytes before = memory_;
    say({.type = RemoteMessageType::kDone, .operation = 1}, payload);
    expectOperationFails("another length");
    EXPECT_EQ(before, memory_);
    TearDown();
    buffer_.reset();
    listener_ = {};
    heard_ = 0;
    connect();
  }
}

TEST_P(RemoteHostileAnswer, LongGetBringsLess_EndsThePair) {
  ask(RemoteMessageType::kGet, kLarge);
  send(getDataKey(1), Bytes(kLarge - 1));
  expectOperationFails("less data");
}

TEST_P(RemoteHostileAnswer, LongGetBringsMore_EndsThePairAndWritesNothing) {
  ask(RemoteMessageType::kGet, kLarge);
  const Bytes before = memory_;
  send(getDataKey(1), Bytes(kLarge + 1));
  expectOperationFails("");
  EXPECT_EQ(before, memory_);
}

TEST_P(RemoteHostileAnswer, GoForWhatHasNoData_EndsThePair) {
  ask(RemoteMessageType::kGet, kLarge);
  say({.type = RemoteMessageType::kGo, .operation = 1});
  expectOperationFails("none to come");
}

TEST_P(RemoteHostileAnswer, LongPutConfirmedBeforeItsDataWasAskedFor_EndsThePair) {
  ask(RemoteMessageType::kPut, kLarge);
  say({.type = RemoteMessageType::kDone, .operation = 1});
  expectOperationFails("not asked for");
}

TEST_P(RemoteHostileAnswer, GoTwice_EndsThePair) {
  ask(RemoteMessageType::kPut, kLarge);
  say({.type = RemoteMessageType::kGo, .operation = 1});
  say({.type = RemoteMessageType::kGo, .operation = 1});
  expectOperationFails("none to come");
}

TEST_P(RemoteHostileAnswer, AnsweredTwice_EndsThePair) {
  ask(RemoteMessageType::kPut, 10);
  say({.type = RemoteMessageType::kDone, .operation = 1});
  EXPECT_TRUE(buffer_->waitSend());
  say({.type = RemoteMessageType::kDone, .operation = 1});
  expectViolation("not asked of it");
}

TEST_P(RemoteHostileAnswer, GetWithdrawn_ItsDataIsDropped) {
  ask(RemoteMessageType::kGet, kLarge);
  buffer_.reset();
  const Bytes before = memory_;
  send(getDataKey(1), Bytes(kLarge));
  say({.type = RemoteMessageType::kDone, .operation = 1});
  // It still listens, and answers.
  say(request(RemoteMessageType::kGet, 1, 0, 10));
  const auto answer = hear();
  ASSERT_TRUE(answer);
  EXPECT_EQ(RemoteRefusal::kNoSuchMemory, answer->refusal);
  EXPECT_EQ(before, memory_);
}

TEST_P(RemoteHostileAnswer, PutWithdrawnBeforeGo_IsCancelled) {
  ask(RemoteMessageType::kPut, kLarge);
  buffer_.reset();
  say({.type = RemoteMessageType::kGo, .operation = 1});
  const auto cancel = hear();
  ASSERT_TRUE(cancel);
  EXPECT_EQ(RemoteMessageType::kCancel, cancel->type);
  EXPECT_EQ(1u, cancel->operation);
}

// The data has been offered and not fetched.
TEST_P(RemoteHostileAnswer, TargetStops_WaitTimesOut) {
  ask(RemoteMessageType::kPut, kLarge);
  std::string text;
  try {
    buffer_->waitSend(std::chrono::milliseconds(30));
  } catch (const ::gloo::IoException& e) {
    text = e.what();
  }
  EXPECT_TRUE(contains(text, "Timed out waiting 30ms for send") && contains(text, "rank 1")) << text;
}

TEST_P(RemoteHostileAnswer, TargetAborts_OperationFailsNamingIt) {
  ask(RemoteMessageType::kGet, kLarge);
  peer_->progress().exclusive([&] { channel_->close(/*abort=*/true); });
  expectOperationFails("");
}

// Any message at any time: the pair may end, but nothing else.
TEST_P(RemoteHostile, RandomMessages_OnlyTheExposedBufferIsEverWritten) {
  std::mt19937_64 random(20261121);
  const auto pick = [&](std::uint64_t below) { return random() % below; };
  for (int round = 0; round < 15; ++round) {
    std::uint64_t number = 0;
    for (int i = 0; i < 20; ++i) {
      RemoteMessage message = request(static_cast<RemoteMessageType>(1 + pick(6)), 0, 0, 0);
      const std::uint64_t size = key_->size;
      const bool asks = message.type <= RemoteMessageType::kGet;
      message.operation = pick(30) == 0 ? random() : asks ? ++number : 1 + pick(number + 2);
      message.offset = pick(4) == 0 ? random() : pick(size + 2);
      message.length = pick(4) == 0 ? random() : pick(2) == 0 ? pick(5000) : pick(size + 2);
      if (message.type == RemoteMessageType::kRefused) message.refusal = static_cast<RemoteRefusal>(1 + pick(5));
      if (!asks) message.context = message.region = message.offset = message.length = 0;
      const bool put = message.type == RemoteMessageType::kPut;
      say(message, put && message.length <= kInlineBytes ? message.length : 0);
      if (asks && pick(2) == 0)
        send(pick(8) > 0 ? putDataKey(number) : getDataKey(number),
             Bytes(pick(2) ? message.length % kLarge : pick(kLarge)));
      if (pick(6) == 0) getSomething(pick(kLarge));
    }
    TearDown();
    buffer_.reset();
    listener_ = {};
    heard_ = 0;
    sent_.clear();
    connect();
  }
}

std::string nameOf(const ::testing::TestParamInfo<Medium>& info) { return info.param.name; }
INSTANTIATE_TEST_SUITE_P(Media, RemoteHostile, ::testing::ValuesIn(media()), nameOf);
INSTANTIATE_TEST_SUITE_P(Media, RemoteHostileAnswer, ::testing::ValuesIn(media()), nameOf);

}  // namespace
}  // namespace gloo_bypass::adapter
