#include "collectives/network/wire.h"

#include <algorithm>
#include <cstring>

#include <fmt/format.h>

#include "transport/base/fields.h"
#include "transport/base/printable.h"
#include "transport/channel/message_channel.h"

namespace gloo_bypass::collectives {
namespace {

constexpr std::uint64_t kCollective = 0xa0, kControl = 0xa1, kProgram = 0xa2;
constexpr std::uint32_t kHeaderMagic = 0x4f436267;   // "gbCO"
constexpr std::uint32_t kControlMagic = 0x4b436267;  // "gbCK"
constexpr std::uint32_t kAddressMagic = 0x41436267;  // "gbCA"
// Of the format of what follows. What else ranks must have the same of: schedule/protocol.h.
constexpr std::uint32_t kVersion = 2;
constexpr unsigned kMostLog2PartBytes = 40;

constexpr auto kHeaderFields = [](auto& fields, auto& magic, auto& header) {
  fields(magic, header.algorithm, header.log2PartBytes, header.payloadFollows);
  fields.skip(1);
  fields(header.operation, header.description.first, header.description.count, header.bytes);
  fields.skip(8);
};
constexpr auto kControlFields = [](auto& fields, auto& magic, auto& message) {
  fields(magic, message.type, message.code);
  fields.skip(2);
  fields(message.operation, message.description.first, message.description.count);
};
constexpr std::size_t kAddressHead = 16;

Error unsound(int rank, const char* what) {
  return {
      ErrorScope::kDevice, ErrorCode::kPeerViolatedProtocol,
      fmt::format("what rank {} published for the others is unsound ({}): is the store's key used by another program?",
                  rank, what)};
}

}  // namespace

MessageKey collectiveKey(std::uint64_t operation, std::uint32_t index) {
  return {MessageKind::kUnbound, kCollective << 56 | (operation & 0xffffff) << 32 | index};
}
std::optional<CollectiveTag> collectiveTag(MessageKey key) {
  if (key.kind != MessageKind::kUnbound || key.tag >> 56 != kCollective) return std::nullopt;
  return CollectiveTag{static_cast<std::uint32_t>(key.tag >> 32 & 0xffffff), static_cast<std::uint32_t>(key.tag)};
}
MessageKey controlKey() { return {MessageKind::kUnbound, kControl << 56}; }
MessageKey programKey(std::uint32_t tag) { return {MessageKind::kUnbound, kProgram << 56 | tag}; }
std::optional<std::uint32_t> programTag(MessageKey key) {
  if (key.kind != MessageKind::kUnbound || key.tag >> 32 != kProgram << 24) return std::nullopt;
  return static_cast<std::uint32_t>(key.tag);
}

void encode(const OperationHeader& header, std::byte* to) {
  FieldWriter writer(to);
  std::uint32_t magic = kHeaderMagic;
  kHeaderFields(writer, magic, header);
}

std::optional<OperationHeader> decodeOperationHeader(std::span<const std::byte> bytes) {
  if (bytes.size() < OperationHeader::kBytes) return std::nullopt;
  FieldReader reader(bytes.data());
  OperationHeader header;
  std::uint32_t magic = 0;
  kHeaderFields(reader, magic, header);
  const bool known = magic == kHeaderMagic && static_cast<int>(header.algorithm) < kAlgorithms &&
                     header.log2PartBytes <= kMostLog2PartBytes;
  return known ? std::optional(header) : std::nullopt;
}

std::vector<std::byte> encode(const ControlMessage& message) {
  const std::size_t textBytes = std::min(message.text.size(), ControlMessage::kMostText);
  std::vector<std::byte> bytes(ControlMessage::kFixedBytes + textBytes);
  FieldWriter writer(bytes.data());
  std::uint32_t magic = kControlMagic;
  kControlFields(writer, magic, message);
  writer.bytes(std::as_bytes(std::span(message.text)).first(textBytes));
  return bytes;
}

std::optional<ControlMessage> decodeControlMessage(std::span<const std::byte> bytes) {
  if (bytes.size() < ControlMessage::kFixedBytes || bytes.size() > ControlMessage::kMostBytes) return std::nullopt;
  FieldReader reader(bytes.data());
  ControlMessage message;
  std::uint32_t magic = 0;
  kControlFields(reader, magic, message);
  const bool known = magic == kControlMagic &&
                     (message.type == ControlMessage::Type::kCalled || message.type == ControlMessage::Type::kFailed) &&
                     message.code <= ErrorCode::kInternal;
  if (!known) return std::nullopt;
  const auto text = bytes.subspan(ControlMessage::kFixedBytes);
  message.text = printable({reinterpret_cast<const char*>(text.data()), text.size()});
  return message;
}

std::vector<std::byte> encodeAddresses(int rank, std::span<const std::vector<std::byte>> addresses) {
  std::size_t total = kAddressHead;
  for (const auto& address : addresses) total += 2 + address.size();
  std::vector<std::byte> bytes(total);
  FieldWriter writer(bytes.data());
  writer(kAddressMagic, kVersion, static_cast<std::uint32_t>(rank), static_cast<std::uint32_t>(addresses.size()));
  for (const auto& address : addresses) {
    writer(static_cast<std::uint16_t>(address.size()));
    writer.bytes(address);
  }
  return bytes;
}

Result<std::vector<std::vector<std::byte>>> decodeAddresses(std::span<const std::byte> bytes, int rank, int size) {
  if (bytes.size() < kAddressHead) return unsound(rank, "too short");
  std::uint32_t magic = 0, version = 0, theirRank = 0, theirSize = 0;
  FieldReader(bytes.data())(magic, version, theirRank, theirSize);
  if (magic != kAddressMagic) return unsound(rank, "not an address");
  if (version != kVersion || theirSize != static_cast<std::uint32_t>(size)) {
    const bool differs = version != kVersion;
    return Error{ErrorScope::kDevice, ErrorCode::kConfiguration,
                 fmt::format("rank {} has {} {} and this rank {}: start every rank alike", rank,
                             differs ? "version" : "a group of size", differs ? version : theirSize,
                             differs ? kVersion : static_cast<std::uint32_t>(size))};
  }
  if (theirRank != static_cast<std::uint32_t>(rank)) return unsound(rank, "of another rank");
  std::vector<std::vector<std::byte>> addresses;
  auto rest = bytes.subspan(kAddressHead);
  for (int i = 0; i < size; ++i) {
    if (rest.size() < 2) return unsound(rank, "cut short");
    const std::size_t length = loadLittle<std::uint16_t>(rest.data());
    rest = rest.subspan(2);
    if (length > rest.size() || length > MessageChannel::kMaxAddressBytes) return unsound(rank, "an impossible length");
    addresses.emplace_back(rest.begin(), rest.begin() + static_cast<std::ptrdiff_t>(length));
    rest = rest.subspan(length);
  }
  if (!rest.empty()) return unsound(rank, "too long");
  return addresses;
}

}  // namespace gloo_bypass::collectives
