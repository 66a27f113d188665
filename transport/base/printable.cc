#include "transport/base/printable.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace gloo_bypass {
namespace {

unsigned char byteAt(std::string_view text, std::size_t at) { return static_cast<unsigned char>(text[at]); }

// Length of a UTF-8 sequence by its first byte; 0: not a valid first byte.
std::size_t sequenceBytes(unsigned char first) {
  if (first < 0x80) return 1;
  if (first >= 0xc2 && first < 0xe0) return 2;
  if (first >= 0xe0 && first < 0xf0) return 3;
  if (first >= 0xf0 && first < 0xf5) return 4;
  return 0;
}

// How many leading bytes of `text` (not empty) may be shown as they are; 0: the first byte may not.
std::size_t shownBytes(std::string_view text) {
  const std::size_t bytes = sequenceBytes(byteAt(text, 0));
  if (bytes == 0 || bytes > text.size()) return 0;
  if (bytes == 1) return byteAt(text, 0) >= 0x20 && byteAt(text, 0) != 0x7f ? 1 : 0;
  constexpr std::uint32_t kLeast[] = {0, 0, 0xa0, 0x800, 0x10000};  // U+0080 to U+009F are control characters
  std::uint32_t character = byteAt(text, 0) & (0x7fu >> bytes);
  for (std::size_t i = 1; i < bytes; ++i) {
    if ((byteAt(text, i) & 0xc0) != 0x80) return 0;
    character = character << 6 | (byteAt(text, i) & 0x3fu);
  }
  const bool isSurrogate = character >= 0xd800 && character < 0xe000;
  return character >= kLeast[bytes] && character <= 0x10ffff && !isSurrogate ? bytes : 0;
}

}  // namespace

std::string printable(std::string_view text) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string shown;
  shown.reserve(text.size());
  while (!text.empty()) {
    const std::size_t bytes = shownBytes(text);
    if (bytes > 0) {
      shown += text.substr(0, bytes);
    } else {
      shown += {'\\', 'x', kDigits[byteAt(text, 0) >> 4], kDigits[byteAt(text, 0) & 0xf]};
    }
    text.remove_prefix(std::max<std::size_t>(bytes, 1));
  }
  return shown;
}

}  // namespace gloo_bypass
