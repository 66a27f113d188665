// A sequenced frame as the erasure code sees it: what of it is the same whenever it is sent, in one piece. Pure.
//
//   offset size  field
//        0    2  length of body and payload
//        2    1  type (FrameType)
//        3    1  length of the body
//        4    4  CRC-32C of the payload (data on a link with checksums), else 0
//        8       body, payload, zeros
//
// Sequence number and place in the block are the repair frame's; acknowledgement, timestamps and limits change with
// each transmission.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "transport/wire/packet.h"

namespace gloo_bypass {

inline constexpr std::size_t kSymbolHeaderBytes = 8;

struct FrameSymbol {
  static constexpr std::size_t kMaxBodyBytes = 0xff;
  wire::FrameType type = wire::FrameType::kCredit;
  std::uint32_t payloadCrc = 0;
  std::span<const std::byte> body, payload;

  std::size_t bytes() const { return kSymbolHeaderBytes + body.size() + payload.size(); }
  // Writes bytes(), and zeros to the end of `out`.
  void write(std::span<std::byte> out) const;
};

// False: no frame. The parts lie in `symbol`.
bool readSymbol(std::span<const std::byte> symbol, FrameSymbol* out);

}  // namespace gloo_bypass
