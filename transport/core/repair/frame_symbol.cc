#include "transport/core/repair/frame_symbol.h"

#include <algorithm>

#include "transport/base/byte_order.h"
#include "transport/base/check.h"

namespace gloo_bypass {

void FrameSymbol::write(std::span<std::byte> out) const {
  GLOO_BYPASS_CHECK(body.size() <= kMaxBodyBytes && out.size() >= bytes());
  storeLittle(out.data(), static_cast<std::uint16_t>(body.size() + payload.size()));
  storeLittle(out.data() + 2, static_cast<std::uint8_t>(type));
  storeLittle(out.data() + 3, static_cast<std::uint8_t>(body.size()));
  storeLittle(out.data() + 4, payloadCrc);
  auto end = std::copy(body.begin(), body.end(), out.begin() + kSymbolHeaderBytes);
  end = std::copy(payload.begin(), payload.end(), end);
  std::fill(end, out.end(), std::byte{0});
}

bool readSymbol(std::span<const std::byte> symbol, FrameSymbol* out) {
  if (symbol.size() < kSymbolHeaderBytes) return false;
  const std::size_t length = loadLittle<std::uint16_t>(symbol.data());
  const std::size_t bodyBytes = loadLittle<std::uint8_t>(symbol.data() + 3);
  out->type = static_cast<wire::FrameType>(loadLittle<std::uint8_t>(symbol.data() + 2));
  out->payloadCrc = loadLittle<std::uint32_t>(symbol.data() + 4);
  if (!wire::isKnown(out->type) || !wire::isSequenced(out->type)) return false;
  if (length > symbol.size() - kSymbolHeaderBytes || bodyBytes > length) return false;
  out->body = symbol.subspan(kSymbolHeaderBytes, bodyBytes);
  out->payload = symbol.subspan(kSymbolHeaderBytes + bodyBytes, length - bodyBytes);
  return true;
}

}  // namespace gloo_bypass
