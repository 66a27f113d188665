// A reliable frame without payload that waits to be given a sequence number.
#pragma once

#include <cstdint>

#include "transport/wire/packet.h"

namespace gloo_bypass {

struct ControlFrame {
  wire::FrameType type = wire::FrameType::kCredit;
  std::uint64_t number = 0;  // as in SentFrame
};

}  // namespace gloo_bypass
