// Returns texts through C functions, as gloo_bypass.h describes.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <string>

#define GLOO_BYPASS_VISIBLE extern "C" __attribute__((visibility("default")))

namespace gloo_bypass {

// Copies as much of `ask`'s text as fits, and returns the size of the whole with its terminating zero; -1 if `ask`
// throws. If an exception's own text is an answer too, `ask` must return it.
template <typename Ask>
int answerInC(char* buffer, std::size_t capacity, Ask ask) noexcept {
  try {
    const std::string text = ask();
    if (buffer != nullptr && capacity > 0) {
      const std::size_t copied = std::min(text.size(), capacity - 1);
      std::memcpy(buffer, text.data(), copied);
      buffer[copied] = '\0';
    }
    return static_cast<int>(text.size() + 1);
  } catch (...) {
    return -1;
  }
}

}  // namespace gloo_bypass
