#include "transport/gloo/failure_notice.h"

#include <algorithm>
#include <span>

#include "transport/base/printable.h"

namespace gloo_bypass::adapter {
namespace {

constexpr std::size_t kMostBytes = 1024;

}  // namespace

void FailureNotice::send(MessageChannel& channel, const std::string& text) {
  const auto bytes = std::as_bytes(std::span(text));
  outgoing_.assign(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(std::min(bytes.size(), kMostBytes)));
  // A channel that has failed meanwhile carries nothing, and tells the peer so itself.
  (void)channel.postSend({.token = kTokenBit, .key = key(), .data = outgoing_.data(), .length = outgoing_.size()});
}

bool FailureNotice::receive(MessageChannel& channel, std::size_t length) {
  if (announced_ || length > kMostBytes) return false;
  announced_ = true;
  incoming_.resize(length);
  (void)channel.postReceive({.token = kTokenBit, .key = key(), .data = incoming_.data(), .capacity = length});
  return true;
}

std::string FailureNotice::received() const {
  return printable({reinterpret_cast<const char*>(incoming_.data()), incoming_.size()});
}

}  // namespace gloo_bypass::adapter
