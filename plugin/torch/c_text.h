// Texts that leave through C functions, as gloo_bypass.h says for each.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <string>

#define GLOO_BYPASS_VISIBLE extern "C" __attribute__((visibility("default")))

namespace gloo_bypass {

// As much of what `ask` returns as fits, and how much the whole needs, terminating zero included; -1 if it throws.
// Where an exception's own text is an answer too, it is for `ask` to return it.
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
