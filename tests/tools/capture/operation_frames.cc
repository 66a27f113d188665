#include "tests/tools/capture/operation_frames.h"

#include "transport/wire/packet.h"
#include "transport/wire/rail_id.h"

namespace gloo_bypass::capture::test {
namespace {

Octets datagram(wire::PacketWriter& writer, const Octets& payload) {
  Octets out;
  for (const std::byte byte : writer.finish()) out.push_back(std::to_integer<std::uint8_t>(byte));
  append(out, payload);
  return out;
}

}  // namespace

Octets OperationSender::described(std::uint64_t tag, const Octets& payload, std::size_t totalBytes) {
  wire::PacketWriter writer;
  writer.begin({.type = payload.empty() ? wire::FrameType::kAnnounce : wire::FrameType::kData,
                .receiverId = receiverId_,
                .sequence = ++frames_});
  writer.messageHeader({.id = ++messages_,
                        .tag = tag,
                        .totalLength = totalBytes,
                        .chunkLength = static_cast<std::uint16_t>(payload.size())});
  return udpDatagram(from_, to_, datagram(writer, payload));
}

Octets OperationSender::header(std::uint64_t operation, const collectives::Description& description,
                               std::size_t payloadBytes, collectives::Algorithm algorithm) {
  Octets bytes(collectives::OperationHeader::kBytes + payloadBytes);
  collectives::encode({.algorithm = algorithm,
                       .payloadFollows = payloadBytes > 0,
                       .operation = operation,
                       .description = collectives::wordsOf(description)},
                      std::as_writable_bytes(std::span(bytes)).data());
  return described(collectives::collectiveKey(operation, 0).tag, bytes, bytes.size());
}

Octets OperationSender::message(std::uint64_t tag, std::size_t frameBytes, std::size_t totalBytes) {
  return described(tag, Octets(frameBytes), totalBytes);
}

Octets OperationSender::chunk(std::uint64_t id, std::size_t frameBytes, std::size_t path) {
  wire::PacketWriter writer;
  writer.begin({.type = wire::FrameType::kGrantedChunk,
                .receiverId = path == 0 ? receiverId_ : wire::railId(receiverId_, path),
                .sequence = ++frames_});
  writer.chunkHeader({id, 0});
  return udpDatagram(from_, to_, datagram(writer, Octets(frameBytes)));
}

}  // namespace gloo_bypass::capture::test
