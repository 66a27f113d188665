#include "tests/fuzz/fuzz_target.h"
#include "transport/base/check.h"
#include "transport/wire/byte_order.h"
#include "transport/wire/crc32c.h"
#include "transport/wire/packet.h"

namespace gloo_bypass::fuzz {
namespace {

// Every part must lie inside the datagram, whatever the bytes say.
void parse(std::span<const std::byte> datagram) {
  ParsedPacket packet;
  if (parsePacket(datagram, &packet) != ParseResult::kOk) return;
  GLOO_BYPASS_CHECK(kCommonHeaderBytes + packet.sackBytes.size() + packet.body.size() + packet.payload.size() ==
                    datagram.size());
  GLOO_BYPASS_CHECK(packet.payload.data() + packet.payload.size() == datagram.data() + datagram.size());
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i < packet.sackCount(); ++i) sum += packet.sackRange(i).begin;
  MessageHeader message;
  std::uint64_t number;
  std::uint16_t size;
  std::uint32_t reason;
  Hello hello;
  if (decodeMessageHeader(packet.body, &message)) sum += message.id;
  if (decodeNumber(packet.body, &number)) sum += number;
  if (decodeSize(packet.body, &size)) sum += size;
  if (decodeReason(packet.body, &reason)) sum += reason;
  if (decodeHello(packet.body, &hello)) sum += hello.senderId;
  RepairHeader repair;
  if (decodeRepairHeader(packet.body, &repair)) sum += repair.firstSequence;
  if (decodeRecovered(packet.body, &reason)) sum += reason;
  // A header that was understood is written as it was.
  PacketWriter writer;
  writer.begin(packet.header);
  for (std::size_t i = 0; i < packet.sackCount(); ++i) writer.addSackRange(packet.sackRange(i));
  if (decodeMessageHeader(packet.body, &message)) writer.messageHeader(message);
  ParsedPacket again;
  GLOO_BYPASS_CHECK(parsePacket(writer.finish(), &again) != ParseResult::kMalformed || sum == 0);
}

}  // namespace

void fixChecksums(std::vector<std::byte>& datagram) {
  constexpr std::size_t kAtCrc = 4, kAtReceiver = 8, kAtFlags = 16, kAtHeaderLength = 18, kAtPayloadCrc = 20;
  if (datagram.size() < kCommonHeaderBytes) return;
  std::byte* const p = datagram.data();
  const std::size_t headerBytes = loadLittle<std::uint16_t>(p + kAtHeaderLength);
  if (headerBytes < kCommonHeaderBytes || headerBytes > datagram.size()) return;
  if ((loadLittle<std::uint8_t>(p + kAtFlags) & kFlagPayloadChecksum) != 0) {
    storeLittle(p + kAtPayloadCrc, crc32c(std::span(datagram).subspan(headerBytes)));
  }
  const std::uint32_t first = crc32c({p, kAtCrc});
  storeLittle(p + kAtCrc, crc32c({p + kAtReceiver, headerBytes - kAtReceiver}, first));
}

void fuzzPacket(std::span<const std::uint8_t> input) {
  const std::span<const std::byte> bytes = std::as_bytes(input);
  // A copy of just this size: reading beyond it is seen.
  std::vector<std::byte> datagram(bytes.begin(), bytes.end());
  parse(datagram);
  (void)peekReceiverId(datagram);
  if (datagram.size() >= 4) {
    storeLittle(datagram.data(), kWireMagic);
    storeLittle(datagram.data() + 2, kWireVersion);
  }
  fixChecksums(datagram);
  parse(datagram);
}

}  // namespace gloo_bypass::fuzz
