// Identifies the work that a completion ends: the wr_id of verbs. A queue pair may be gone when its last completions
// are read, so an id names its session by a number that is never used again.
//   bits 32 to 62 the session's index, bits 30, 31 the kind, low bits a number of that kind
#pragma once

#include <cstdint>

namespace gloo_bypass::verbs {

enum class WorkKind : std::uint8_t { kFrame = 0, kRead = 1, kReceive = 2, kWindow = 3 };

struct WorkId {
  std::uint32_t session = 0;
  WorkKind kind = WorkKind::kFrame;
  std::uint32_t number = 0;  // frame: its sequence number; read, window: its rail; receive: its slot
};

inline constexpr std::uint32_t kWorkNumberMask = 0x3fffffffu;
inline constexpr std::uint32_t kMaxSessionIndex = 0x7fffffffu;

constexpr std::uint64_t workId(std::uint32_t session, WorkKind kind, std::uint32_t number) {
  return (static_cast<std::uint64_t>(session) << 32) | (static_cast<std::uint64_t>(kind) << 30) |
         (number & kWorkNumberMask);
}

constexpr WorkId decodeWorkId(std::uint64_t id) {
  return {.session = static_cast<std::uint32_t>(id >> 32),
          .kind = static_cast<WorkKind>((id >> 30) & 3),
          .number = static_cast<std::uint32_t>(id) & kWorkNumberMask};
}

}  // namespace gloo_bypass::verbs
