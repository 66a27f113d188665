// Messages of memif's control protocol 2.0 (memif_msg_t): 128 bytes, packed, in the machine's byte order, one per
// packet of a SEQPACKET socket. Messages that pass memory or an event descriptor carry it as ancillary data. Layout and
// protocol: DPDK's guide "Memif Poll Mode Driver", libmemif's documentation.
//
// A peer's message is hostile until it is checked (memif_handshake.h, memif_memory.h). Pure.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace gloo_bypass::dpdk {

inline constexpr std::size_t kMemifMessageBytes = 128;
using MemifMessage = std::array<std::byte, kMemifMessageBytes>;

inline constexpr std::uint16_t kMemifVersion = 0x0200;

enum class MemifMessageType : std::uint16_t {
  kAck = 1,
  kHello,
  kInit,
  kAddRegion,
  kAddRing,
  kConnect,
  kConnected,
  kDisconnect,
};

// Offsets of the fields, and sizes of texts with their terminator.
namespace memif_field {
inline constexpr std::size_t kType = 0;
inline constexpr std::size_t kHelloName = 2, kHelloMinVersion = 34, kHelloMaxVersion = 36, kHelloMaxLog2Slots = 44;
inline constexpr std::size_t kInitVersion = 2, kInitInterface = 4, kInitMode = 8, kInitSecret = 9, kInitName = 33;
inline constexpr std::size_t kRegionIndex = 2, kRegionBytes = 4;
inline constexpr std::size_t kRingFlags = 2, kRingIndex = 4, kRingRegion = 6, kRingOffset = 8, kRingLog2Slots = 12;
inline constexpr std::size_t kConnectName = 2;
inline constexpr std::size_t kDisconnectReason = 6;
inline constexpr std::size_t kNameBytes = 32, kSecretBytes = 24, kReasonBytes = 96;
}  // namespace memif_field

inline constexpr std::uint8_t kMemifEthernet = 0;       // value of kInitMode
inline constexpr std::uint16_t kMemifRingToServer = 1;  // value of kRingFlags

template <typename T>
T memifField(const MemifMessage& message, std::size_t at) {
  T value;
  std::memcpy(&value, &message[at], sizeof(T));
  return value;
}
template <typename T>
void setMemifField(MemifMessage& message, std::size_t at, T value) {
  std::memcpy(&message[at], &value, sizeof(T));
}

inline MemifMessageType memifType(const MemifMessage& message) {
  return static_cast<MemifMessageType>(memifField<std::uint16_t>(message, memif_field::kType));
}
inline MemifMessage memifMessage(MemifMessageType type) {
  MemifMessage message{};
  setMemifField(message, memif_field::kType, static_cast<std::uint16_t>(type));
  return message;
}

}  // namespace gloo_bypass::dpdk
