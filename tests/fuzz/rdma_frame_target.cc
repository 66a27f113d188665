// The bytes that a peer writes into our receives.
#include <algorithm>
#include <vector>

#include "tests/fuzz/fuzz_target.h"
#include "transport/base/check.h"
#include "transport/verbs/rdma_frame.h"

namespace gloo_bypass::fuzz {
using namespace verbs;

void fuzzRdmaFrame(std::span<const std::uint8_t> input) {
  const std::span<const std::byte> given = std::as_bytes(input);
  // A copy of exactly this size, so that reading beyond it is detected.
  const std::vector<std::byte> bytes(given.begin(), given.end());
  const auto decoded = decodeFrame(bytes);
  if (!decoded) return;
  const RdmaFrame& frame = decoded->frame;
  GLOO_BYPASS_CHECK(frame.rails <= kMaxRails);
  if (frame.type == FrameType::kEager) {
    GLOO_BYPASS_CHECK(decoded->payload.size() == frame.length);
    GLOO_BYPASS_CHECK(decoded->payload.data() + decoded->payload.size() == bytes.data() + bytes.size());
  } else {
    GLOO_BYPASS_CHECK(decoded->payload.empty());
  }
  if (frame.type == FrameType::kAnnounce) GLOO_BYPASS_CHECK(frame.address + frame.length >= frame.address);
  // Encoding the decoded frame must give the same bytes, except for the reserved field.
  std::vector<std::byte> again(kMaxFrameBytes);
  again.resize(encodeFrame(frame, again));
  again.insert(again.end(), decoded->payload.begin(), decoded->payload.end());
  GLOO_BYPASS_CHECK(again.size() == bytes.size());
  std::copy_n(bytes.begin() + 12, 4, again.begin() + 12);
  GLOO_BYPASS_CHECK(again == bytes);
}

}  // namespace gloo_bypass::fuzz
