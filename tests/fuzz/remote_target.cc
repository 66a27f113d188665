// Puts and gets between ranks: the messages and keys themselves, and a peer that says anything to a real context. Both
// ends are on one transport in memory, so that what happens is the script's order; only time outs are the clock's.
#include <algorithm>
#include <array>
#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include <gloo/common/error.h>
#include <gloo/transport/context.h>
#include <gloo/transport/pair.h>
#include <gloo/transport/unbound_buffer.h>

#include "tests/fuzz/fuzz_target.h"
#include "tests/fuzz/script.h"
#include "tests/support/memory_transport.h"
#include "transport/base/check.h"
#include "transport/compatibility/gloo/remote_key.h"
#include "transport/gloo/address.h"
#include "transport/gloo/device.h"
#include "transport/gloo/remote_key.h"
#include "transport/gloo/remote_message.h"
#include "transport/progress/progress_engine.h"

namespace gloo_bypass::fuzz {
using namespace adapter;
namespace {

using Bytes = std::vector<std::byte>;

constexpr std::size_t kGuard = 64, kExposed = 12'000;  // more than travels in one message
constexpr std::size_t kMostSteps = 96, kMostBytesSent = 16'000;
constexpr auto kFill = static_cast<std::byte>(0x5a), kOfPeer = static_cast<std::byte>(0x11);
constexpr auto kPatience = std::chrono::seconds(10);  // for what must happen, on a machine of any load

void checkMessage(std::span<const std::byte> bytes) {
  const auto message = decodeRemoteMessage(bytes);
  if (!message) return;
  const auto payload = bytes.subspan(kRemoteHeaderBytes);
  GLOO_BYPASS_CHECK(message->operation != 0 && payload.size() <= kInlineBytes);
  GLOO_BYPASS_CHECK(describe(message->refusal) != std::string());
  GLOO_BYPASS_CHECK(std::ranges::equal(encodeRemoteMessage(*message, payload), bytes));
}

void checkKey(const std::string& text) {
  const auto key = parseRemoteKey(text);
  if (!key) return;
  GLOO_BYPASS_CHECK(key->rank >= 0);
  const auto again = parseRemoteKey(key->serialize());
  GLOO_BYPASS_CHECK(again && again->rank == key->rank && again->size == key->size && again->context == key->context &&
                    again->region == key->region);
}

// Takes in what the victim says.
struct Listener final : ChannelObserver {
  void onSendComplete(OperationToken) noexcept override {}
  void onReceiveComplete(OperationToken token, std::size_t length) noexcept override {
    GLOO_BYPASS_CHECK(length <= receiving[token].size());
    checkMessage(std::span(receiving[token]).first(length));
  }
  void onMessageAnnounced(MessageKey key, std::size_t length) noexcept override {
    receiving.emplace_back(length);
    (void)channel->postReceive({receiving.size() - 1, key, receiving.back().data(), length, false});
  }
  void onStateChange(ChannelState next) noexcept override { state = next; }

  MessageChannel* channel = nullptr;
  std::vector<Bytes> receiving;
  ChannelState state = ChannelState::kUnconnected;
};

class Victim {
 public:
  Victim() {
    context_ = device()->createContext(0, 2);
    context_->setTimeout(kPatience);
    auto& pair = context_->createPair(1);
    std::vector<char> address;
    progress().exclusive([&] {
      channel_ = std::move(transport()->openChannel({.localRank = 1, .peerRank = 0}, &listener_).value());
      listener_.channel = channel_.get();
      address = encodeAddress(channel_->localAddress());
      GLOO_BYPASS_CHECK(channel_->connect(decodeAddress(pair->address().bytes())).ok());
    });
    pair->connect(address);
    const auto connected = [&] { return listener_.state == ChannelState::kConnected; };
    GLOO_BYPASS_CHECK(progress().waitUntil(connected, monotonicNow() + Duration(kPatience)));
    exposed_ = context_->createUnboundBuffer(memory_.data() + kGuard, kExposed);
    own_ = context_->createUnboundBuffer(ownMemory_.data() + kGuard, kExposed);
    key_.reset(static_cast<RemoteKey*>(keys(*exposed_).getRemoteKey().release()));
  }
  ~Victim() {
    progress().exclusive([&] { channel_->close(/*abort=*/true); });
    // Its pair has ended: no operation of the peer is waited for.
    int value = 0;
    const auto probe = context_->createUnboundBuffer(&value, sizeof value);
    try {
      probe->recv(1, 99);
      probe->waitRecv();
      GLOO_BYPASS_CHECK(false);  // nobody has sent that
    } catch (const ::gloo::IoException&) {
    }
    exposed_.reset();
    own_.reset();
    progress().exclusive([&] { channel_.reset(); });
    checkGuards(memory_);
    checkGuards(ownMemory_);
    // What was given no key has only bytes of answers to its own gets.
    GLOO_BYPASS_CHECK(hasGot_ || std::ranges::all_of(ownMemory_, [](std::byte each) { return each == kFill; }));
  }

  void step(Script& script) {
    const std::uint8_t code = script.byte();
    switch (code & 15) {
      case 0:
      case 1:
      case 2:
      case 3:
        say(script, static_cast<RemoteMessageType>(code >> 4 & 7));
        break;
      case 4:
      case 5:
        sendData(script, (code & 16) != 0 ? putDataKey(script.byte()) : getDataKey(script.byte()));
        break;
      case 6:
        sendData(script, {MessageKind::kBound, std::uint64_t{script.word()} << (32 + code / 16)});
        break;
      case 7:
        sendData(script, remoteControlKey());
        break;
      case 8:
      case 9:
        ask(script, (code & 16) != 0);
        break;
      default:
        turn();
        break;
    }
  }

 private:
  static const std::shared_ptr<Transport>& transport() {
    static const std::shared_ptr<Transport> one = test::MemoryFabric::make()->makeTransport({.rendezvousBytes = 8'000});
    return one;
  }
  static const std::shared_ptr<::gloo::transport::Device>& device() {
    static const std::shared_ptr<::gloo::transport::Device> one = makeDevice(transport());
    return one;
  }
  static ProgressEngine& progress() { return transport()->progress(); }
  static gloo_version::RemoteKeyBuffer& keys(::gloo::transport::UnboundBuffer& buffer) {
    return dynamic_cast<gloo_version::RemoteKeyBuffer&>(buffer);
  }
  static void checkGuards(const Bytes& memory) {
    const auto isFill = [](std::byte each) { return each == kFill; };
    GLOO_BYPASS_CHECK(std::all_of(memory.begin(), memory.begin() + kGuard, isFill) &&
                      std::all_of(memory.end() - kGuard, memory.end(), isFill));
  }

  // A size near one that matters.
  static std::uint64_t sizeOf(Script& script) {
    constexpr std::array<std::uint64_t, 8> kSizes{0, 1, kInlineBytes, kExposed, kExposed / 2, 8'000, UINT64_MAX, 100};
    const std::uint8_t choice = script.byte();
    return kSizes[choice & 7] + (choice >> 3 & 7) - 3;
  }
  void say(Script& script, RemoteMessageType type) {
    const std::uint8_t choice = script.byte();
    RemoteMessage message{.type = type, .operation = (choice & 1) != 0 ? script.byte() : nextNumber_};
    if (type == RemoteMessageType::kRefused) message.refusal = static_cast<RemoteRefusal>(choice >> 4);
    if (type == RemoteMessageType::kPut || type == RemoteMessageType::kGet) {
      message.context = key_->context + ((choice & 2) != 0 ? script.byte() : 0);
      message.region = key_->region + ((choice & 4) != 0 ? script.byte() : 0);
      message.offset = (choice & 8) != 0 ? sizeOf(script) : 0;
      message.length = sizeOf(script);
      ++nextNumber_;
    } else if ((choice & 1) == 0) {
      message.operation = 1;
    }
    const bool inlined = type == RemoteMessageType::kPut && message.length <= kInlineBytes;
    const std::size_t payload = (choice & 128) != 0 ? script.word() % (kInlineBytes + 2)
                                : inlined           ? static_cast<std::size_t>(message.length)
                                                    : 0;
    Bytes bytes = encodeRemoteMessage(message, Bytes(payload, kOfPeer));
    if ((choice & 64) != 0) bytes[script.byte() % kRemoteHeaderBytes] = static_cast<std::byte>(script.byte());
    send(remoteControlKey(), std::move(bytes));
  }
  void sendData(Script& script, MessageKey key) {
    send(key, Bytes(std::min<std::uint64_t>(sizeOf(script), kMostBytesSent), kOfPeer));
  }
  void send(MessageKey key, Bytes data) {
    sent_.push_back(std::make_unique<Bytes>(std::move(data)));
    progress().exclusive([&] {
      (void)channel_->postSend({sent_.size(), key, sent_.back()->data(), sent_.back()->size(), /*remoteOffset=*/0});
    });
  }
  // The victim's own program puts or gets.
  void ask(Script& script, bool puts) {
    const RemoteKey ofPeer(1, kExposed, script.byte(), 1);
    const std::uint64_t length = sizeOf(script);
    try {
      if (puts) keys(*own_).put(ofPeer, 0, 0, 0, length);
      if (!puts) keys(*own_).get(ofPeer, 0, 0, 0, length);
      hasGot_ = hasGot_ || !puts;
    } catch (const ::gloo::EnforceNotMet&) {
    } catch (const ::gloo::IoException&) {  // its pair has ended
    }
  }
  // Whatever is under way arrives.
  static void turn() {
    int polls = 0;
    (void)progress().waitUntil([&] { return ++polls > 4; }, monotonicNow() + Duration(kPatience), /*busyPoll=*/true);
  }

  Bytes memory_ = Bytes(kGuard + kExposed + kGuard, kFill), ownMemory_ = memory_;
  std::shared_ptr<::gloo::transport::Context> context_;
  std::unique_ptr<::gloo::transport::UnboundBuffer> exposed_, own_;
  std::unique_ptr<RemoteKey> key_;
  Listener listener_;
  std::unique_ptr<MessageChannel> channel_;
  std::vector<std::unique_ptr<Bytes>> sent_;
  std::uint64_t nextNumber_ = 1;
  bool hasGot_ = false;
};

}  // namespace

void fuzzRemoteMessage(std::span<const std::uint8_t> input) {
  // A copy of exactly this size, so that reading beyond it is detected.
  const auto bytes = std::as_bytes(input);
  checkMessage(Bytes(bytes.begin(), bytes.end()));
  checkKey({input.begin(), input.end()});
}

void fuzzRemote(std::span<const std::uint8_t> input) {
  Script script(input);
  Victim victim;
  for (std::size_t step = 0; step < kMostSteps && !script.done(); ++step) victim.step(script);
}

}  // namespace gloo_bypass::fuzz
