// The C functions that libgloo_bypass.so offers (gloo_bypass.h). No exception leaves them.
#include "plugin/gloo_bypass.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "plugin/availability.h"
#include "process/process_transport.h"

namespace {

// As the header says for every text: as much as fits, and how much the whole needs.
int copyOut(const std::string& text, char* buffer, size_t capacity) {
  if (buffer != nullptr && capacity > 0) {
    const std::size_t copied = std::min(text.size(), capacity - 1);
    std::memcpy(buffer, text.data(), copied);
    buffer[copied] = '\0';
  }
  return static_cast<int>(text.size() + 1);
}

}  // namespace

#define GLOO_BYPASS_VISIBLE extern "C" __attribute__((visibility("default")))

GLOO_BYPASS_VISIBLE int gloo_bypass_stats_json(char* buffer, size_t capacity) {
  try {
    return copyOut(gloo_bypass::ProcessTransport::instance().countersJson(), buffer, capacity);
  } catch (...) {
    return -1;
  }
}

GLOO_BYPASS_VISIBLE int gloo_bypass_available_json(char* buffer, size_t capacity) {
  try {
    return copyOut(gloo_bypass::availabilityJson(), buffer, capacity);
  } catch (...) {
    return -1;
  }
}
