// The format of a datagram, and functions that write and read it. Pure. Little-endian, fixed offsets, no padding.
//
//   offset size  field                                                            every datagram
//        0    2  magic 0x4267 ("gB")
//        2    1  version
//        3    1  type (FrameType)
//        4    4  CRC-32C of the header without this field
//        8    8  session id of the RECEIVER
//       16    1  flags (PacketFlag)
//       17    1  number of SACK ranges, 0..64 (senders use at most 61)
//       18    2  header length: 56 (kChunk, kGrantedChunk: 44) + 8 x ranges + body
//       20    4  CRC-32C of the payload (flag kPayloadChecksum), else 0
//       24    4  sequence number of this frame; in a frame without one: the next to be used
//       28    4  acknowledgement: every frame before this number has arrived
//       32    4  timestamp of sending, 64 ns ticks of the sender's clock
//       36    4  timestamp echo: of the newest-sent datagram that arrived (flag kEcho)
//       40    4  time since that one arrived, 64 ns ticks
//       44    4  message limit: messages with an id below it may be announced
//       48    8  byte limit: eager payload bytes that may be sent in total
//       56  8 n  SACK ranges [begin, end), newest first
//
//   kChunk and kGrantedChunk have no limits: their further fields begin at offset 44.
//
//   body, by type
//   kData      message id 8, tag 8, total length 8, remote offset 8, chunk offset 8, chunk length 2, kind 1, flags 1;
//              then 0..63 bytes of padding (zero) that align the chunk in the frame as it is aligned in the sender's
//              memory, so that memory links copy whole words; then the chunk itself as the payload
//   kAnnounce  the same; chunk offset = bytes that come eagerly, chunk length 0: the rest waits for a grant
//   kChunk     message id 8, chunk offset 8; the chunk is the payload, of at least one byte. A kData or kAnnounce
//              describes the message, and may arrive later. Uses eager credit. Only to peers that set
//              kCapabilityChunks in their Hello
//   kGrantedChunk  the same, sent on a grant
//   kGrant     message id 8: send the rest, a receive is matched
//   kWithdraw  message id 8: an announced message will not come
//   kClose     number of messages sent in total 8
//   kCredit    nothing (the limits are in the header)
//   kAck       nothing, or the total number of frames recovered from repair frames 4; flag kAckRequested makes it a
//              keep-alive probe
//   kHello     Hello below (not sequenced, sent until answered)
//   kProbe     size 2, padded to that size: does a datagram of this size pass?      kProbeReply  size 2
//   kReset     reason 4 (ErrorCode): the sender of this has failed or aborted
//   kRepair    first sequence number 4, number of frames from there 1, index of this repair frame 1, number of them 1,
//              zero 1; the payload is a repair symbol of these frames (core/repair). Only to peers that set
//              kCapabilityRepair in their Hello
//   kPiece     sequence number of the frame 4, length of its symbol 2 (core/repair/frame_symbol.h), index of this
//              piece 1, size 1 (1: small pieces, else 0); the payload is the symbol's part from index x kPieceBytes
//              (small: kSmallPieceBytes) on. Only to peers that set kCapabilityPieces (kCapabilitySmall) in their Hello
//
// Types from kData on take a sequence number; the sender retransmits them, under the same number, until acknowledged.
// The other types take none. A frame that has become too large for the path is retransmitted as kPiece datagrams, which
// together form that frame, under its number.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

namespace gloo_bypass::wire {

inline constexpr std::uint16_t kWireMagic = 0x4267;
inline constexpr std::uint8_t kWireVersion = 1;
inline constexpr std::size_t kCommonHeaderBytes = 56;
// Common header of kChunk and kGrantedChunk, without the limits.
inline constexpr std::size_t kShortHeaderBytes = 44;
inline constexpr std::size_t kMessageHeaderBytes = 44, kChunkHeaderBytes = 16;
inline constexpr std::size_t kRepairHeaderBytes = 8, kPieceHeaderBytes = 8;
// The most that a receiver accepts.
inline constexpr std::size_t kMaxSackRanges = 64;
inline constexpr std::size_t kMaxPaddingBytes = 63;
inline constexpr std::size_t kMaxHeaderBytes =
    kCommonHeaderBytes + kMaxSackRanges * 8 + kMessageHeaderBytes + kMaxPaddingBytes + 1;
// Every path carries this size: IPv4's guaranteed 576 bytes, less the headers of IPv4 and UDP.
inline constexpr std::size_t kMinDatagramBytes = 548;
// Nearly every path carries this size (QUIC's choice). Peers without kCapabilitySmall never send smaller ones.
inline constexpr std::size_t kUsualMinDatagramBytes = 1200;
// An MTU of 1500, less the headers of IPv4 and UDP.
inline constexpr std::size_t kEthernetDatagramBytes = 1472;
// Ranges in an acknowledgement that every path carries. Enough to repeat each gap of a lossy window many times. A list
// of this length may be cut short.
inline constexpr std::size_t kSentSackRanges = (kMinDatagramBytes - kCommonHeaderBytes - 4) / 8;
static_assert(kSentSackRanges <= kMaxSackRanges);
// Payload of every piece of a frame but the last; paths that are too narrow for it get small pieces.
inline constexpr std::size_t kPieceBytes = kUsualMinDatagramBytes - kCommonHeaderBytes - kPieceHeaderBytes;
inline constexpr std::size_t kSmallPieceBytes = kMinDatagramBytes - kCommonHeaderBytes - kPieceHeaderBytes;
// Lengths of chunks and datagrams are 16 bits.
inline constexpr std::size_t kMaxDatagramBytes = 65535;
inline constexpr std::int64_t kTickNanoseconds = 64;
// Whether what was sent at `timestamp` was sent before the datagram with `newest`, which arrived `ago`. Ticks wrap
// around after 275 s, so after a silence they do not compare.
inline bool wasOvertaken(std::uint32_t timestamp, std::uint32_t newest, std::chrono::nanoseconds ago) {
  return ago < std::chrono::seconds(60) && static_cast<std::int32_t>(timestamp - newest) < 0;
}

enum class FrameType : std::uint8_t {
  // Without a sequence number.
  kHello = 1,
  kAck,
  kProbe,
  kProbeReply,
  kReset,
  kRepair,
  kPiece,
  // With a sequence number.
  kData = 16,
  kAnnounce,
  kGrant,
  kWithdraw,
  kClose,
  kCredit,
  kChunk,
  kGrantedChunk,
};
constexpr bool isKnown(FrameType type) {
  return (type >= FrameType::kHello && type <= FrameType::kPiece) ||
         (type >= FrameType::kData && type <= FrameType::kGrantedChunk);
}
constexpr bool isSequenced(FrameType type) { return type >= FrameType::kData; }
constexpr bool isChunk(FrameType type) { return type == FrameType::kChunk || type == FrameType::kGrantedChunk; }
// Carries payload of a message.
constexpr bool isData(FrameType type) { return type == FrameType::kData || isChunk(type); }
// Header bytes before the SACK ranges.
constexpr std::size_t commonBytes(FrameType type) { return isChunk(type) ? kShortHeaderBytes : kCommonHeaderBytes; }
// Body bytes of kData and kAnnounce (without padding), kChunk and kGrantedChunk: they describe message and chunk.
constexpr std::size_t messageBytes(FrameType type) { return isChunk(type) ? kChunkHeaderBytes : kMessageHeaderBytes; }
// For these types: all bytes before the payload.
constexpr std::size_t dataHeaderBytes(FrameType type) { return commonBytes(type) + messageBytes(type); }

enum PacketFlag : std::uint8_t {
  kFlagAckRequested = 1,  // answer with an acknowledgement at once
  kFlagEcho = 2,          // the echo fields are valid
  kFlagPayloadChecksum = 4,
  kFlagHelloSeen = 8,  // kHello: the sender has received yours
  kFlagCovered = 16,   // sequenced, first transmission: repair frames for it may follow, keep a copy
};
enum MessageFlag : std::uint8_t {
  kFlagGranted = 1,  // kData: sent on a grant, without eager credit
};

struct SackRange {
  std::uint32_t begin = 0, end = 0;
};

struct PacketHeader {
  std::uint8_t version = kWireVersion;
  FrameType type = FrameType::kAck;
  std::uint64_t receiverId = 0;
  std::uint8_t flags = 0;
  std::uint32_t payloadCrc = 0;
  std::uint32_t sequence = 0, acknowledged = 0;
  std::uint32_t timestamp = 0, timestampEcho = 0, echoDelay = 0;
  // Not in kChunk and kGrantedChunk.
  std::uint32_t messageLimit = 0;
  std::uint64_t byteLimit = 0;
};

// The frames that a repair frame covers: [firstSequence, firstSequence + sources).
struct RepairHeader {
  std::uint32_t firstSequence = 0;
  std::uint8_t sources = 0, index = 0, repairs = 0;
};

// The position of a piece in its frame.
struct PieceHeader {
  std::uint32_t sequence = 0;
  std::uint16_t symbolBytes = 0;
  std::uint8_t index = 0;
  bool small = false;
};
constexpr std::size_t pieceBytes(bool small) { return small ? kSmallPieceBytes : kPieceBytes; }

struct MessageHeader {
  std::uint64_t id = 0, tag = 0, totalLength = 0, remoteOffset = 0, chunkOffset = 0;
  std::uint16_t chunkLength = 0;
  std::uint8_t kind = 0, flags = 0;
};

// The position of a chunk in its message.
struct ChunkHeader {
  std::uint64_t id = 0, offset = 0;
};

// The first datagram that each side sends. 40 bytes.
struct Hello {
  std::uint64_t senderId = 0;
  std::uint64_t rendezvousBytes = 0;
  std::uint64_t maxBufferBytes = 0;
  std::uint32_t initialSequence = 0;
  std::uint32_t maxDatagramBytes = 0;
  std::uint8_t lossless = 0, payloadChecksum = 0;  // must agree
  std::uint8_t capabilities = 0;                   // Capability; unknown bits are ignored
};
inline constexpr std::size_t kHelloBytes = 40;
enum Capability : std::uint8_t {
  kCapabilityRepair = 1,  // understands kRepair and kFlagCovered, and reports in kAck how many frames it recovered
  kCapabilityPieces = 2,  // understands kPiece
  kCapabilityChunks = 4,  // understands kChunk and kGrantedChunk
  kCapabilitySmall = 8,   // sends datagrams below kUsualMinDatagramBytes on narrow paths, and small pieces
};

// A received datagram, cut into its parts. It copies the header before it reads it, since the datagram may lie in
// memory that the peer can still write to.
struct ParsedPacket {
  ParsedPacket() {}  // does not initialise headerBytes
  ParsedPacket(const ParsedPacket&) = delete;
  ParsedPacket& operator=(const ParsedPacket&) = delete;
  std::array<std::byte, kMaxHeaderBytes> headerBytes;
  PacketHeader header;
  std::span<const std::byte> sackBytes;  // 8 a range; in headerBytes
  std::span<const std::byte> body;       // in headerBytes
  std::span<const std::byte> payload;    // what follows the header; in the datagram
  std::size_t sackCount() const { return sackBytes.size() / 8; }
  SackRange sackRange(std::size_t i) const;
};

enum class ParseResult : std::uint8_t {
  kOk,
  kForeign,       // not our magic, or too short
  kOtherVersion,  // header checksum right, version not ours; for kHello only, sets `header`
  kCorrupted,     // a checksum is wrong
  kMalformed,     // checksums right, lengths or type are not: no correct peer sends it
};

// Whether the header has its checksum: a datagram that was sealed has none (sealed_packet.h).
enum class HeaderChecksum : std::uint8_t { kCrc32c, kNone };

// `header`: kCommonHeaderBytes at least, and all that its length says.
bool headerIsIntact(std::span<const std::byte> header);
// Checks magic, lengths, header checksum and, where present, the payload's.
ParseResult parsePacket(std::span<const std::byte> datagram, ParsedPacket* out,
                        HeaderChecksum checksum = HeaderChecksum::kCrc32c);
// Magic, length and the receiver's id only.
std::optional<std::uint64_t> peekReceiverId(std::span<const std::byte> datagram);

// Decodes the body by its type; false: wrong length.
bool decodeMessageHeader(std::span<const std::byte> body, MessageHeader* out);
bool decodeChunkHeader(std::span<const std::byte> body, ChunkHeader* out);
bool decodeNumber(std::span<const std::byte> body, std::uint64_t* out);     // kGrant, kWithdraw, kClose
bool decodeSize(std::span<const std::byte> body, std::uint16_t* out);       // kProbe, kProbeReply
bool decodeReason(std::span<const std::byte> body, std::uint32_t* out);     // kReset
bool decodeRecovered(std::span<const std::byte> body, std::uint32_t* out);  // kAck; an empty body is 0
bool decodeRepairHeader(std::span<const std::byte> body, RepairHeader* out);
bool decodePieceHeader(std::span<const std::byte> body, PieceHeader* out);
bool decodeHello(std::span<const std::byte> body, Hello* out);

// Writes one header into its own memory.
class PacketWriter {
 public:
  // Common part; ranges and body follow in this order.
  void begin(const PacketHeader& header);
  void addSackRange(SackRange range);
  void messageHeader(const MessageHeader& message);
  void chunkHeader(const ChunkHeader& chunk);
  // Right after messageHeader of kData; at most kMaxPaddingBytes.
  void padding(std::size_t bytes);
  void number(std::uint64_t value);
  void size(std::uint16_t value);
  void reason(std::uint32_t value);
  void recovered(std::uint32_t frames);
  void repairHeader(const RepairHeader& repair);
  void pieceHeader(const PieceHeader& piece);
  void hello(const Hello& hello);
  // Fills in lengths and checksum. Valid until the next begin().
  std::span<const std::byte> finish(HeaderChecksum checksum = HeaderChecksum::kCrc32c);

 private:
  template <typename List, typename Structure>
  void append(const List& list, const Structure& structure);

  std::array<std::byte, kMaxHeaderBytes> bytes_;
  std::size_t length_ = 0;
  std::uint8_t ranges_ = 0;
};

}  // namespace gloo_bypass::wire
