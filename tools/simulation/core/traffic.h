// The messages that one host sends to another, and when: planned at random from a seed, or written down. conversation.h
// carries them out.
//
// Kinds of keys, by what the receiver does:
//   ordinary    receives posted at random times, before or after the message arrives
//   announced   a receive is posted only when the message is announced (recv-from-any); some sends are cancelled
//   persistent  a bound region; each message lands at its offset
//   withdrawn   every message's first receive is cancelled at a random moment
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "transport/base/time.h"

namespace gloo_bypass::sim {

// Keys of ordinary messages are below the first bound, those of withdrawn ones below the second, and each has one
// message.
inline constexpr std::uint64_t kOrdinaryKeys = 1000, kWithdrawnKeys = 1'000'000;

enum class KeyKind : std::uint8_t { kOrdinary, kAnnounced, kPersistent, kWithdrawn };

struct PlannedMessage {
  KeyKind kind = KeyKind::kOrdinary;
  std::uint64_t key = 0;  // of an ordinary message: those of one key match in order. Of a withdrawn one: its own
  std::size_t length = 0;
  std::size_t room = 0;  // of its receive, beyond the length
  Duration sendAt{0}, receiveAt{0};
  bool cancelSend = false, confirmed = false;
  bool consumes = false;  // its receives have a consumer that adds, so that bytes which come twice give a wrong sum

  bool operator==(const PlannedMessage&) const = default;
};

struct TrafficModel {
  int messages = 20;
  std::size_t maxMessageBytes = 1 << 20;
  std::size_t totalBytes = 4 << 20;  // plans no further messages beyond
  int ordinaryKeys = 4;
  bool announced = true, persistent = true, withdrawn = true;
  bool lossless = false;                            // accepted datagrams arrive, so sends need no confirmation
  Duration spread = std::chrono::milliseconds(10);  // sends and receives are posted within it
};

// Puts messages in the order of sending, and gives receives of one key the order in which they must match.
void orderTraffic(std::vector<PlannedMessage>& messages);

// In order, as above.
std::vector<PlannedMessage> planTraffic(const TrafficModel& model, std::uint64_t seed);

}  // namespace gloo_bypass::sim
