// The texts and messages of remote keys: decoding returns what was encoded, and accepts nothing else.
#include "transport/gloo/remote_message.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "transport/gloo/exposed_memory.h"
#include "transport/gloo/remote_key.h"

namespace gloo_bypass::adapter {
namespace {

using Bytes = std::vector<std::byte>;

TEST(RemoteMessage, EveryType_IsReadAsWritten) {
  const Bytes payload(10, std::byte{5});
  const RemoteMessage put{RemoteMessageType::kPut, RemoteRefusal::kNone, 1, 2, 3, UINT64_MAX, 10};
  const RemoteMessage longPut{RemoteMessageType::kPut, RemoteRefusal::kNone, 7, 2, 3, 4, kInlineBytes + 1};
  const RemoteMessage get{RemoteMessageType::kGet, RemoteRefusal::kNone, UINT64_MAX, 2, 3, 4, 10};
  const RemoteMessage done{.type = RemoteMessageType::kDone, .operation = 9};
  const RemoteMessage refused{
      .type = RemoteMessageType::kRefused, .refusal = RemoteRefusal::kOutOfRange, .operation = 9};
  const std::vector<std::pair<RemoteMessage, Bytes>> all = {{put, payload},  {longPut, {}}, {get, {}},
                                                            {done, payload}, {done, {}},    {refused, {}}};
  for (const auto& [message, data] : all) {
    const Bytes bytes = encodeRemoteMessage(message, data);
    ASSERT_EQ(kRemoteHeaderBytes + data.size(), bytes.size());
    const auto read = decodeRemoteMessage(bytes);
    ASSERT_TRUE(read);
    EXPECT_EQ(message.type, read->type);
    EXPECT_EQ(message.refusal, read->refusal);
    EXPECT_EQ(message.operation, read->operation);
    EXPECT_EQ(message.context, read->context);
    EXPECT_EQ(message.region, read->region);
    EXPECT_EQ(message.offset, read->offset);
    EXPECT_EQ(message.length, read->length);
    EXPECT_EQ(data, Bytes(bytes.begin() + kRemoteHeaderBytes, bytes.end()));
  }
}

TEST(RemoteMessage, FieldsThatNoCorrectPeerSends_AreRefused) {
  const auto refuses = [](const RemoteMessage& message, std::size_t payload) {
    return !decodeRemoteMessage(encodeRemoteMessage(message, Bytes(payload)));
  };
  const RemoteMessage put{RemoteMessageType::kPut, RemoteRefusal::kNone, 1, 2, 3, 4, 10};
  EXPECT_FALSE(refuses(put, 10));
  EXPECT_TRUE(refuses(put, 9));
  EXPECT_TRUE(refuses(put, 11));
  EXPECT_TRUE(refuses({RemoteMessageType::kPut, RemoteRefusal::kNone, 1, 2, 3, 4, 5000}, 5000));
  EXPECT_TRUE(refuses({RemoteMessageType::kPut, RemoteRefusal::kNone, 0, 2, 3, 4, 10}, 10));
  EXPECT_TRUE(refuses({RemoteMessageType::kPut, RemoteRefusal::kCancelled, 1, 2, 3, 4, 10}, 10));
  EXPECT_TRUE(refuses({RemoteMessageType::kGet, RemoteRefusal::kNone, 1, 2, 3, 4, 10}, 10));
  EXPECT_TRUE(refuses({.type = RemoteMessageType::kRefused, .operation = 1}, 0));
  EXPECT_TRUE(refuses({.type = RemoteMessageType::kGo, .operation = 1, .length = 1}, 0));
  EXPECT_TRUE(refuses({.type = RemoteMessageType::kGo, .operation = 1}, 1));
  EXPECT_TRUE(refuses({.type = static_cast<RemoteMessageType>(0), .operation = 1}, 0));
  EXPECT_TRUE(refuses({.type = static_cast<RemoteMessageType>(7), .operation = 1}, 0));
  EXPECT_TRUE(
      refuses({.type = RemoteMessageType::kRefused, .refusal = static_cast<RemoteRefusal>(6), .operation = 1}, 0));
  const Bytes good = encodeRemoteMessage(put, Bytes(10));
  for (std::size_t size = 0; size < good.size(); ++size) {
    EXPECT_FALSE(decodeRemoteMessage(std::span(good).first(size))) << size;
  }
  for (const std::size_t at : {1, 3, 4, 5, 6, 7}) {
    Bytes wrong = good;
    wrong[at] ^= std::byte{2};
    EXPECT_FALSE(decodeRemoteMessage(wrong)) << at;
  }
}

TEST(RemoteMessage, Tags_AreNoBoundBuffers) {
  EXPECT_TRUE(isRemoteKey(remoteControlKey()));
  EXPECT_TRUE(isRemoteKey(putDataKey(1)));
  EXPECT_TRUE(isRemoteKey(getDataKey(1)));
  EXPECT_NE(putDataKey(1), getDataKey(1));
  EXPECT_FALSE(isRemoteKey({MessageKind::kBound, UINT32_MAX}));  // the slot -1
  EXPECT_FALSE(isRemoteKey({MessageKind::kUnbound, remoteControlKey().tag}));
}

TEST(RemoteKeyText, AnyKey_IsReadAsWritten) {
  for (const std::size_t bytes : {std::size_t{0}, std::size_t{1}, SIZE_MAX}) {
    const RemoteKey key(12345, bytes, UINT64_MAX, 1);
    const auto read = parseRemoteKey(key.serialize());
    ASSERT_NE(nullptr, read) << key.serialize();
    EXPECT_EQ(12345, read->rank);
    EXPECT_EQ(bytes, read->size);
    EXPECT_EQ(UINT64_MAX, read->context);
    EXPECT_EQ(1u, read->region);
  }
}

TEST(RemoteKeyText, OneCharacterChanged_IsRefusedOrAnotherKey) {
  const std::string good = RemoteKey(3, 100, 0x1234, 0x5678).serialize();
  for (std::size_t i = 0; i < good.size(); ++i) {
    for (int c = 0; c < 256; ++c) {
      std::string text = good;
      text[i] = static_cast<char>(c);
      const auto read = parseRemoteKey(text);
      if (read == nullptr || text == good) continue;
      EXPECT_GE(read->rank, 0);
      EXPECT_TRUE(i > std::string("gloo-bypass:").size()) << text;
    }
    EXPECT_EQ(nullptr, parseRemoteKey(good.substr(0, i))) << good.substr(0, i);
  }
}

class ExposedMemoryTest : public ::testing::Test {
 protected:
  RemoteRefusal refusal(std::uint64_t region, std::uint64_t offset, std::uint64_t length) const {
    const RemoteMessage request{.context = memory_.context(), .region = region, .offset = offset, .length = length};
    const auto place = memory_.find(request);
    EXPECT_EQ(place.refusal == RemoteRefusal::kNone, place.data != nullptr);
    if (place.data != nullptr && length > 0) {
      EXPECT_EQ(bytes_.data() + offset, place.data);
    }
    return place.refusal;
  }

  ExposedMemory memory_;
  Bytes bytes_ = Bytes(100);
};

TEST_F(ExposedMemoryTest, NothingExposed_EveryRequestIsRefused) {
  EXPECT_EQ(RemoteRefusal::kOtherContext, refusal(0, 0, 0));
  EXPECT_EQ(RemoteRefusal::kOtherContext, refusal(1, 0, 1));
}

TEST_F(ExposedMemoryTest, EveryCorner_AllowsWhatIsInside) {
  const std::uint64_t region = memory_.expose(bytes_.data(), bytes_.size());
  for (const auto& [offset, length] :
       std::vector<std::pair<std::uint64_t, std::uint64_t>>{{0, 0}, {0, 100}, {100, 0}, {99, 1}, {50, 50}}) {
    EXPECT_EQ(RemoteRefusal::kNone, refusal(region, offset, length)) << offset << " " << length;
  }
  for (const auto& [offset, length] : std::vector<std::pair<std::uint64_t, std::uint64_t>>{{0, 101},
                                                                                           {100, 1},
                                                                                           {101, 0},
                                                                                           {UINT64_MAX, 0},
                                                                                           {UINT64_MAX, 2},
                                                                                           {1, UINT64_MAX},
                                                                                           {0, UINT64_MAX},
                                                                                           {50, 51}}) {
    EXPECT_EQ(RemoteRefusal::kOutOfRange, refusal(region, offset, length)) << offset << " " << length;
  }
  EXPECT_EQ(RemoteRefusal::kNoSuchMemory, refusal(region + 1, 0, 1));
  EXPECT_EQ(RemoteRefusal::kOtherContext, memory_.find({.context = memory_.context() + 1, .region = region}).refusal);
}

TEST_F(ExposedMemoryTest, Concealed_IsGoneForNewRequestsAndInUseUntilOldOnesEnd) {
  const std::uint64_t region = memory_.expose(bytes_.data(), bytes_.size());
  memory_.begin(region);
  memory_.conceal(region);
  EXPECT_EQ(RemoteRefusal::kNoSuchMemory, refusal(region, 0, 1));
  EXPECT_TRUE(memory_.inUse(region));
  memory_.end(region);
  EXPECT_FALSE(memory_.inUse(region));
  memory_.forget(region);
  EXPECT_EQ(RemoteRefusal::kNoSuchMemory, refusal(region, 0, 1));
}

}  // namespace
}  // namespace gloo_bypass::adapter
