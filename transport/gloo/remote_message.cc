#include "transport/gloo/remote_message.h"

#include <algorithm>

#include "transport/base/fields.h"

namespace gloo_bypass::adapter {
namespace {

constexpr std::uint8_t kVersion = 1;

bool isRequest(RemoteMessageType type) { return type == RemoteMessageType::kPut || type == RemoteMessageType::kGet; }

bool fieldsFit(const RemoteMessage& message, std::size_t payload) {
  const bool refused = message.type == RemoteMessageType::kRefused;
  if (refused != (message.refusal != RemoteRefusal::kNone) || message.refusal > RemoteRefusal::kCancelled) return false;
  if (message.operation == 0 || payload > kInlineBytes) return false;
  if (!isRequest(message.type) && (message.context | message.region | message.offset | message.length) != 0)
    return false;
  switch (message.type) {
    case RemoteMessageType::kPut:
      return payload == (message.length <= kInlineBytes ? message.length : 0);
    case RemoteMessageType::kDone:
      return true;  // how much it should bring knows who asked
    case RemoteMessageType::kGet:
    case RemoteMessageType::kCancel:
    case RemoteMessageType::kGo:
    case RemoteMessageType::kRefused:
      return payload == 0;
  }
  return false;
}

}  // namespace

const char* describe(RemoteRefusal refusal) {
  switch (refusal) {
    case RemoteRefusal::kOtherContext:
      return "the key is of another context";
    case RemoteRefusal::kNoSuchMemory:
      return "the buffer of this key is gone";
    case RemoteRefusal::kOutOfRange:
      return "that is not inside the buffer of this key";
    case RemoteRefusal::kMemoryGone:
      return "the buffer of this key was destroyed meanwhile";
    case RemoteRefusal::kCancelled:
      return "cancelled";
    case RemoteRefusal::kNone:
      break;
  }
  return "no reason";
}

std::vector<std::byte> encodeRemoteMessage(const RemoteMessage& message, std::span<const std::byte> payload) {
  std::vector<std::byte> bytes(kRemoteHeaderBytes + payload.size());
  bytes[0] = static_cast<std::byte>(message.type);
  bytes[1] = static_cast<std::byte>(kVersion);
  bytes[2] = static_cast<std::byte>(message.refusal);
  FieldWriter writer(bytes.data() + 8);
  writer(message.operation, message.context, message.region, message.offset, message.length);
  std::copy(payload.begin(), payload.end(), bytes.begin() + kRemoteHeaderBytes);
  return bytes;
}

std::optional<RemoteMessage> decodeRemoteMessage(std::span<const std::byte> bytes) {
  if (bytes.size() < kRemoteHeaderBytes || bytes[1] != static_cast<std::byte>(kVersion)) return std::nullopt;
  if (std::any_of(bytes.begin() + 3, bytes.begin() + 8, [](std::byte b) { return b != std::byte{0}; })) {
    return std::nullopt;
  }
  RemoteMessage message;
  message.type = static_cast<RemoteMessageType>(bytes[0]);
  message.refusal = static_cast<RemoteRefusal>(bytes[2]);
  FieldReader reader(bytes.data() + 8);
  reader(message.operation, message.context, message.region, message.offset, message.length);
  if (!fieldsFit(message, bytes.size() - kRemoteHeaderBytes)) return std::nullopt;
  return message;
}

}  // namespace gloo_bypass::adapter
