// An input that is read as a script: bytes, words and pieces, one after the other.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace gloo_bypass::fuzz {

// Zeros once it is over.
class Script {
 public:
  explicit Script(std::span<const std::uint8_t> bytes) : bytes_(bytes) {}
  bool done() const { return at_ >= bytes_.size(); }
  std::uint8_t byte() { return done() ? 0 : bytes_[at_++]; }
  std::uint16_t word() { return static_cast<std::uint16_t>(byte() | byte() << 8); }
  // Fewer at the end.
  std::span<const std::uint8_t> take(std::size_t count) {
    count = std::min(count, bytes_.size() - std::min(at_, bytes_.size()));
    const auto taken = bytes_.subspan(at_, count);
    at_ += count;
    return taken;
  }
  std::span<const std::uint8_t> rest() { return take(bytes_.size()); }

 private:
  std::span<const std::uint8_t> bytes_;
  std::size_t at_ = 0;
};

// Changes a correct `file` as the rest of the script says, so that short inputs reach deep into long files: bytes
// written over, put in, taken out, or copied from another place of it.
inline std::vector<std::uint8_t> edited(std::vector<std::uint8_t> file, Script& script, std::size_t mostEdits) {
  for (std::size_t edits = 0; edits < mostEdits && !script.done() && !file.empty(); ++edits) {
    const std::uint8_t kind = script.byte();
    const std::size_t at = script.word() % file.size();
    const auto place = file.begin() + static_cast<std::ptrdiff_t>(at);
    const auto upTo = [&](std::size_t count) { return std::min(count, file.size() - at); };
    const auto end = [&](std::size_t count) { return place + static_cast<std::ptrdiff_t>(upTo(count)); };
    switch (kind % 4) {
      case 0: {
        const auto bytes = script.take(1 + kind / 4 % 8);
        std::copy_n(bytes.begin(), upTo(bytes.size()), place);
        break;
      }
      case 1: {
        const auto bytes = script.take(1 + kind / 4);
        file.insert(place, bytes.begin(), bytes.end());
        break;
      }
      case 2:
        file.erase(place, end(1 + kind / 4));
        break;
      default: {
        const std::size_t from = script.word() % file.size();
        const std::vector<std::uint8_t> copy(
            file.begin() + static_cast<std::ptrdiff_t>(from),
            file.begin() + static_cast<std::ptrdiff_t>(std::min(file.size(), from + 1 + kind / 4)));
        file.insert(place, copy.begin(), copy.end());
      }
    }
  }
  return file;
}

inline std::vector<std::uint8_t> octetsOf(std::string_view text) { return {text.begin(), text.end()}; }

}  // namespace gloo_bypass::fuzz
