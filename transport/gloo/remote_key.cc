#include "transport/gloo/remote_key.h"

#include <array>
#include <charconv>
#include <cstdio>
#include <string_view>

namespace gloo_bypass::adapter {
namespace {

constexpr std::string_view kPrefix = "gloo-bypass:1:";
constexpr std::size_t kMaxTextBytes = 128;
constexpr std::size_t kIdDigits = 16;

// Takes a number and, unless it is the last, the colon behind it. False: there is none.
template <typename T>
bool take(std::string_view* text, T* value, int base, bool last = false) {
  const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), *value, base);
  if (error != std::errc()) return false;
  const auto used = static_cast<std::size_t>(end - text->data());
  if (base == 16 && used != kIdDigits) return false;
  if (last) return used == text->size();
  if (used == text->size() || *end != ':') return false;
  text->remove_prefix(used + 1);
  return true;
}

}  // namespace

std::string RemoteKey::serialize() const {
  std::array<char, kMaxTextBytes> text;
  const int length = std::snprintf(text.data(), text.size(), "%.*s%d:%zu:%016llx:%016llx",
                                   static_cast<int>(kPrefix.size()), kPrefix.data(), rank, size,
                                   static_cast<unsigned long long>(context), static_cast<unsigned long long>(region));
  return {text.data(), static_cast<std::size_t>(length)};
}

std::unique_ptr<RemoteKey> parseRemoteKey(const std::string& serialized) {
  std::string_view text = serialized;
  if (text.size() > kMaxTextBytes || !text.starts_with(kPrefix)) return nullptr;
  text.remove_prefix(kPrefix.size());
  int rank = -1;
  std::size_t bytes = 0;
  std::uint64_t context = 0, region = 0;
  const bool valid = take(&text, &rank, 10) && take(&text, &bytes, 10) && take(&text, &context, 16) &&
                     take(&text, &region, 16, /*last=*/true);
  if (!valid || rank < 0) return nullptr;
  return std::make_unique<RemoteKey>(rank, bytes, context, region);
}

}  // namespace gloo_bypass::adapter
