#include "transport/capture/pcapng_blocks.h"

#include <algorithm>

#include "transport/base/byte_order.h"

namespace gloo_bypass::capture {
namespace {

constexpr std::uint32_t kSectionHeader = 0x0a0d0d0a, kInterfaceDescription = 1, kInterfaceStatistics = 5,
                        kEnhancedPacket = 6;
constexpr std::uint32_t kByteOrder = 0x1a2b3c4d;
constexpr std::uint16_t kLinkEthernet = 1;
constexpr std::uint16_t kOptionEnd = 0, kUserApplication = 4, kInterfaceName = 2, kInterfaceDescriptionText = 3,
                        kResolution = 9;
constexpr std::uint16_t kReceived = 4, kDropped = 5, kPacketFlags = 2;

template <typename T>
void append(std::string& to, T value) {
  std::byte bytes[sizeof value];
  storeLittle(bytes, value);
  to.append(reinterpret_cast<const char*>(bytes), sizeof value);
}

void appendOption(std::string& to, std::uint16_t code, std::string value) {
  constexpr std::size_t kLongest = 1'000;  // of a name; the format allows 65,535 bytes
  value.resize(std::min(value.size(), kLongest));
  append(to, code);
  append(to, static_cast<std::uint16_t>(value.size()));
  value.resize((value.size() + 3) / 4 * 4);
  to += value;
}

void appendNumberOption(std::string& to, std::uint16_t code, std::uint64_t value) {
  append(to, code);
  append(to, std::uint16_t{8});
  append(to, value);
}

void appendBlock(std::string& to, std::uint32_t type, const std::string& body) {
  const auto length = static_cast<std::uint32_t>(body.size() + 12);
  append(to, type);
  append(to, length);
  to += body;
  append(to, length);
}

}  // namespace

void appendSectionHeader(std::string& to, const std::string& application) {
  std::string body;
  append(body, kByteOrder);
  append(body, std::uint16_t{1});
  append(body, std::uint16_t{0});
  append(body, ~std::uint64_t{0});  // the section's length: unspecified
  appendOption(body, kUserApplication, application);
  append(body, std::uint32_t{kOptionEnd});
  appendBlock(to, kSectionHeader, body);
}

void appendInterface(std::string& to, const std::string& name, const std::string& description,
                     std::uint32_t snapLength) {
  std::string body;
  append(body, kLinkEthernet);
  append(body, std::uint16_t{0});
  append(body, snapLength);
  appendOption(body, kInterfaceName, name);
  if (!description.empty()) appendOption(body, kInterfaceDescriptionText, description);
  appendOption(body, kResolution, std::string(1, '\x09'));
  append(body, std::uint32_t{kOptionEnd});
  appendBlock(to, kInterfaceDescription, body);
}

void appendInterfaceStatistics(std::string& to, std::uint32_t interface, UnixTime now, std::uint64_t received,
                               std::uint64_t dropped) {
  const auto time = static_cast<std::uint64_t>(now.count());
  std::string body;
  append(body, interface);
  append(body, static_cast<std::uint32_t>(time >> 32));
  append(body, static_cast<std::uint32_t>(time));
  appendNumberOption(body, kReceived, received);
  appendNumberOption(body, kDropped, dropped);
  append(body, std::uint32_t{kOptionEnd});
  appendBlock(to, kInterfaceStatistics, body);
}

void writePacketBlock(std::byte* to, const PacketBlock& block) {
  const auto time = static_cast<std::uint64_t>(block.time.count());
  const std::size_t length = block.bytes();
  storeLittle(to, kEnhancedPacket);
  storeLittle(to + 4, static_cast<std::uint32_t>(length));
  storeLittle(to + 8, block.interface);
  storeLittle(to + 12, static_cast<std::uint32_t>(time >> 32));
  storeLittle(to + 16, static_cast<std::uint32_t>(time));
  storeLittle(to + 20, static_cast<std::uint32_t>(block.keptBytes));
  storeLittle(to + 24, static_cast<std::uint32_t>(block.originalBytes));
  std::byte* const behind = to + kKeptBytesAt + (block.keptBytes + 3) / 4 * 4;
  // Zeroes the padding.
  for (std::byte* at = to + kKeptBytesAt + block.keptBytes; at < behind; ++at) *at = std::byte{0};
  if (block.direction != FrameDirection::kUnknown) {
    storeLittle(behind, kPacketFlags);
    storeLittle(behind + 2, std::uint16_t{4});
    storeLittle(behind + 4, static_cast<std::uint32_t>(block.direction));
    storeLittle(behind + 8, std::uint32_t{kOptionEnd});
  }
  storeLittle(to + length - 4, static_cast<std::uint32_t>(length));
}

}  // namespace gloo_bypass::capture
