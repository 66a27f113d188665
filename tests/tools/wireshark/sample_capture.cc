// Writes a capture of this protocol's frames with the transport's own codec, one of every kind and some that no correct
// peer sends: sample_capture FILE SNAPLENGTH. test_dissector.py expects this order.
#include <cstdio>
#include <cstdlib>
#include <string>

#include "collectives/network/wire.h"
#include "tests/tools/capture/capture_builder.h"
#include "transport/base/byte_order.h"
#include "transport/wire/crc32c.h"
#include "transport/wire/packet.h"
#include "transport/wire/sealed_packet.h"

namespace {

using namespace gloo_bypass;
using capture::test::Octets;

constexpr std::uint64_t kSession = 0x1122334455667788;

class Sample {
 public:
  explicit Sample(std::uint32_t snapLength) : pcap_(1, snapLength) {}

  void add(const Octets& datagram, std::uint16_t port = 7000) {
    namespace make = capture::test;
    pcap_.add(++frames_ * 1'000'000, make::udpDatagram({make::host(2), port}, {make::host(3), 7001}, datagram));
  }
  const Octets& bytes() const { return pcap_.bytes(); }

 private:
  capture::test::PcapFile pcap_;
  std::uint64_t frames_ = 0;
};

wire::PacketHeader headerOf(wire::FrameType type, std::uint32_t sequence) {
  wire::PacketHeader header;
  header.type = type;
  header.receiverId = kSession;
  header.flags = wire::kFlagEcho;
  header.sequence = sequence;
  header.acknowledged = 41;
  header.timestamp = 1'000;
  header.timestampEcho = 2'000;
  header.echoDelay = 3;
  header.messageLimit = 99;
  header.byteLimit = 123'456'789'012;
  return header;
}

Octets finished(wire::PacketWriter& writer, const Octets& payload = {}) {
  Octets out;
  for (const std::byte byte : writer.finish()) out.push_back(std::to_integer<std::uint8_t>(byte));
  out.insert(out.end(), payload.begin(), payload.end());
  return out;
}

Octets message(wire::FrameType type, std::uint32_t sequence, const Octets& payload, bool checksum = false,
               std::size_t padding = 5, std::uint64_t tag = 0xabcdef, std::uint64_t chunkOffset = 4'096) {
  wire::PacketHeader header = headerOf(type, sequence);
  if (checksum) {
    header.flags |= wire::kFlagPayloadChecksum;
    header.payloadCrc = wire::crc32c(std::as_bytes(std::span(payload)));
  }
  wire::PacketWriter writer;
  writer.begin(header);
  writer.addSackRange({50, 53});
  writer.addSackRange({45, 47});
  wire::MessageHeader about;
  about.id = 7;
  about.tag = tag;
  about.totalLength = 327'680;
  about.remoteOffset = 64;
  about.chunkOffset = chunkOffset;
  about.chunkLength = static_cast<std::uint16_t>(payload.size());
  about.kind = 2;
  about.flags = wire::kFlagGranted;
  writer.messageHeader(about);
  if (padding > 0) writer.padding(padding);
  return finished(writer, payload);
}

Octets chunk(wire::FrameType type, std::uint32_t sequence, const Octets& payload) {
  wire::PacketHeader header = headerOf(type, sequence);
  header.flags |= wire::kFlagPayloadChecksum;
  header.payloadCrc = wire::crc32c(std::as_bytes(std::span(payload)));
  wire::PacketWriter writer;
  writer.begin(header);
  writer.chunkHeader({7, 4'396});
  return finished(writer, payload);
}

template <typename Body>
Octets control(wire::FrameType type, std::uint32_t sequence, Body body) {
  wire::PacketWriter writer;
  writer.begin(headerOf(type, sequence));
  body(writer);
  return finished(writer);
}

void addEveryKind(Sample& sample) {
  const Octets payload(300, 0x5a);
  sample.add(control(wire::FrameType::kHello, 10, [](wire::PacketWriter& w) {
    w.hello({0x99, 65'536, 1 << 20, 10, 1'472, 0, 1, wire::kCapabilityChunks});
  }));
  sample.add(control(wire::FrameType::kAck, 10, [](wire::PacketWriter&) {}));
  Octets probe = control(wire::FrameType::kProbe, 10, [](wire::PacketWriter& w) { w.size(1'400); });
  probe.resize(1'400);
  sample.add(probe);
  sample.add(control(wire::FrameType::kProbeReply, 10, [](wire::PacketWriter& w) { w.size(1'400); }));
  sample.add(message(wire::FrameType::kData, 10, payload, true));
  sample.add(message(wire::FrameType::kAnnounce, 11, {}, false, 0));
  sample.add(control(wire::FrameType::kGrant, 12, [](wire::PacketWriter& w) { w.number(7); }));
  sample.add(control(wire::FrameType::kWithdraw, 13, [](wire::PacketWriter& w) { w.number(8); }));
  sample.add(control(wire::FrameType::kCredit, 14, [](wire::PacketWriter&) {}));
  sample.add(message(wire::FrameType::kData, 10, payload));  // again
  sample.add(control(wire::FrameType::kClose, 15, [](wire::PacketWriter& w) { w.number(2); }));
  sample.add(control(wire::FrameType::kReset, 16, [](wire::PacketWriter& w) { w.reason(5); }));
  wire::PacketWriter repair;
  repair.begin(headerOf(wire::FrameType::kRepair, 17));
  repair.repairHeader({10, 6, 1, 2});
  sample.add(finished(repair, payload));
  sample.add(control(wire::FrameType::kAck, 17, [](wire::PacketWriter& w) { w.recovered(3); }));
  wire::PacketWriter piece;
  piece.begin(headerOf(wire::FrameType::kPiece, 17));
  piece.pieceHeader({16, 9000, 7, true});
  sample.add(finished(piece, payload));
  sample.add(chunk(wire::FrameType::kChunk, 17, payload));
  sample.add(chunk(wire::FrameType::kGrantedChunk, 18, payload));
}

void fixChecksum(Octets& datagram) {
  const std::size_t length = static_cast<std::size_t>(datagram[18] | datagram[19] << 8);
  const auto bytes = std::as_writable_bytes(std::span(datagram));
  const std::uint32_t crc = wire::crc32c(bytes.subspan(8, length - 8), wire::crc32c(bytes.first(4)));
  storeLittle(bytes.data() + 4, crc);
}

void addFaulty(Sample& sample) {
  const Octets payload(30, 0x5a);
  Octets corrupted = message(wire::FrameType::kData, 19, payload);
  corrupted[60] ^= 1;
  sample.add(corrupted);
  Octets wrongPayload = message(wire::FrameType::kData, 20, payload, true);
  wrongPayload.back() ^= 1;
  sample.add(wrongPayload);
  Octets otherVersion = message(wire::FrameType::kData, 21, payload);
  otherVersion[2] = 3;
  fixChecksum(otherVersion);
  sample.add(otherVersion);
  Octets unknownType = control(wire::FrameType::kAck, 22, [](wire::PacketWriter&) {});
  unknownType[3] = 9;
  fixChecksum(unknownType);
  sample.add(unknownType);
  sample.add(control(wire::FrameType::kGrant, 23, [](wire::PacketWriter& w) { w.size(1); }));  // half a number
  sample.add(control(wire::FrameType::kGrant, 24, [](wire::PacketWriter& w) {
    w.number(1);
    w.number(1);
  }));  // two
  Octets longHeader = control(wire::FrameType::kAck, 25, [](wire::PacketWriter&) {});
  longHeader[18] = 200;
  sample.add(longHeader);
  Octets manyRanges = control(wire::FrameType::kAck, 26, [](wire::PacketWriter&) {});
  manyRanges[17] = 200;
  fixChecksum(manyRanges);
  sample.add(manyRanges);
  Octets shortChunk = message(wire::FrameType::kData, 27, payload);
  shortChunk.pop_back();
  sample.add(shortChunk);
  Octets noPlace = chunk(wire::FrameType::kChunk, 28, payload);
  noPlace[17] = 1;  // a range where the message's id was
  fixChecksum(noPlace);
  sample.add(noPlace);
  sample.add(control(wire::FrameType::kChunk, 29, [](wire::PacketWriter& w) {
    w.chunkHeader({});
    w.number(1);
  }));
  Octets foreign(80, 0x11);
  foreign[0] = 0x67;
  foreign[1] = 0x42;
  sample.add(foreign);
}

// Messages of our own collectives: an operation's first one, a later one, a control message, a program's own.
void addCollectives(Sample& sample) {
  namespace own = collectives;
  const own::Description description{own::Kind::kReduce, own::ElementType::kBfloat16, own::Reduction::kMax, 3, 4'096};
  Octets header(own::OperationHeader::kBytes);
  own::encode(
      {.algorithm = own::Algorithm::kBinomial, .operation = 20'000'000, .description = own::wordsOf(description)},
      std::as_writable_bytes(std::span(header)).data());
  const auto add = [&](const Octets& payload, std::uint64_t tag) {
    sample.add(message(wire::FrameType::kData, 30, payload, false, 5, tag, 0));
  };
  add(header, own::collectiveKey(20'000'000, 0).tag);
  add(Octets(100, 0x5a), own::collectiveKey(20'000'000, 2).tag);
  add(Octets(32, 0x5a), own::controlKey().tag);
  add(Octets(32, 0x5a), own::programKey(77).tag);
}

void addSealed(Sample& sample) {
  Octets sealed = chunk(wire::FrameType::kChunk, 28, Octets(300, 0x5a));
  sealed.resize(sealed.size() + wire::kSealTagBytes, 0x33);
  wire::writeSealedHeader({wire::FrameType::kChunk, true, 77, 0x1122334455667788},
                          std::as_writable_bytes(std::span(sealed)).first(wire::kSealedHeaderBytes));
  sample.add(sealed);
  sealed.resize(60);
  sample.add(sealed);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  Sample sample(static_cast<std::uint32_t>(std::atoi(argv[2])));
  addEveryKind(sample);
  addFaulty(sample);
  addCollectives(sample);
  addSealed(sample);
  std::FILE* file = std::fopen(argv[1], "wb");
  if (file == nullptr) return 1;
  const bool written = std::fwrite(sample.bytes().data(), 1, sample.bytes().size(), file) == sample.bytes().size();
  return std::fclose(file) == 0 && written ? 0 : 1;
}
