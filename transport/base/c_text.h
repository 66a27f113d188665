// Returns texts through C functions, as plugin/torch/gloo_bypass.h and collectives/c_api.h describe.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <string>
#include <string_view>

#define GLOO_BYPASS_VISIBLE extern "C" __attribute__((visibility("default")))

namespace gloo_bypass {

// As much of `text` as fits, with a terminating zero. Nothing where there is no room.
inline void copyInC(std::string_view text, char* buffer, std::size_t capacity) {
  if (buffer == nullptr || capacity == 0) return;
  const std::size_t copied = std::min(text.size(), capacity - 1);
  std::memcpy(buffer, text.data(), copied);
  buffer[copied] = '\0';
}

// Copies as much of `ask`'s text as fits, and returns the size of the whole with its terminating zero; -1 if `ask`
// throws. If an exception's own text is an answer too, `ask` must return it.
template <typename Ask>
int answerInC(char* buffer, std::size_t capacity, Ask ask) noexcept {
  try {
    const std::string text = ask();
    copyInC(text, buffer, capacity);
    return static_cast<int>(text.size() + 1);
  } catch (...) {
    return -1;
  }
}

}  // namespace gloo_bypass
