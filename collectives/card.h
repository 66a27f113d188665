// What a rank publishes about itself when a group is made, so that all ranks come to the same conclusions. Pure.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "collectives/memory/host_meeting.h"
#include "collectives/memory/host_plan.h"
#include "collectives/schedule/protocol.h"

namespace gloo_bypass::collectives {

struct Card {
  static constexpr std::size_t kMostBytes = 64 * 1024;

  int protocol = kProtocol;
  RankCores cores;
  std::string transport, host, place;
  std::string choices;  // of algorithms, as ChoiceTable::text(); empty: nothing is set
  MeetingSecret secret{};
};

// JSON.
std::vector<std::byte> encode(const Card& card);
// The bytes are hostile until checked; nullopt: no card. One of another protocol has no other field. Its texts are as
// the rank has sent them: not printable.
std::optional<Card> decodeCard(std::span<const std::byte> bytes);

}  // namespace gloo_bypass::collectives
