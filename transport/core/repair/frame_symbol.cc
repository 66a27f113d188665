#include "transport/core/repair/frame_symbol.h"

#include <algorithm>

#include "transport/base/check.h"
#include "transport/base/fields.h"

namespace gloo_bypass {

void FrameSymbol::write(std::span<std::byte> out) const {
  GLOO_BYPASS_CHECK(body.size() <= kMaxBodyBytes && out.size() >= bytes());
  FieldWriter writer(out.data());
  writer(static_cast<std::uint16_t>(body.size() + payload.size()), type, static_cast<std::uint8_t>(body.size()),
         payloadCrc);
  auto end = std::copy(body.begin(), body.end(), out.begin() + kSymbolHeaderBytes);
  end = std::copy(payload.begin(), payload.end(), end);
  std::fill(end, out.end(), std::byte{0});
}

bool readSymbol(std::span<const std::byte> symbol, FrameSymbol* out) {
  if (symbol.size() < kSymbolHeaderBytes) return false;
  std::uint16_t length = 0;
  std::uint8_t bodyBytes = 0;
  FieldReader reader(symbol.data());
  reader(length, out->type, bodyBytes, out->payloadCrc);
  if (!wire::isKnown(out->type) || !wire::isSequenced(out->type)) return false;
  if (length > symbol.size() - kSymbolHeaderBytes || bodyBytes > length) return false;
  out->body = symbol.subspan(kSymbolHeaderBytes, bodyBytes);
  out->payload = symbol.subspan(kSymbolHeaderBytes + bodyBytes, length - bodyBytes);
  return true;
}

}  // namespace gloo_bypass
