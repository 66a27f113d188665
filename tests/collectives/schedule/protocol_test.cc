// Ranks with other schedules or other built-in choices wait for messages that nobody sends, so they must not meet.
#include "collectives/schedule/protocol.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <span>
#include <string>
#include <vector>

#include "collectives/schedule/catalogue.h"
#include "collectives/schedule/choices.h"
#include "transport/wire/crc32c.h"

namespace gloo_bypass::collectives {
namespace {

struct Fingerprint {
  int protocol;
  std::uint32_t schedules, choices;
  bool operator==(const Fingerprint&) const = default;
};
void PrintTo(const Fingerprint& print, std::ostream* out) {
  *out << fmt::format("{{{}, 0x{:08x}, 0x{:08x}}}", print.protocol, print.schedules, print.choices);
}

std::uint32_t checksumOf(const std::string& text) { return wire::crc32c(std::as_bytes(std::span(text))); }

std::string textOf(const Schedule& schedule) {
  std::string text = fmt::format("{} parts\n", schedule.parts);
  for (const Step& step : schedule.steps) {
    text += fmt::format("{} {} {} {} {} {}\n", step.round, static_cast<int>(step.action), step.parts.begin,
                        step.parts.end, fmt::join(step.peers, ","), fmt::join(step.numbers, ","));
  }
  return text;
}

std::string allSchedules() {
  std::string text;
  for (const AlgorithmRow& row : algorithms()) {
    for (int size = 1; size <= 9; ++size) {
      std::vector<int> hostOf;
      for (int rank = 0; rank < size; ++rank) hostOf.push_back(rank % (size < 8 ? 3 : 5));
      for (int rank = 0; rank < size; ++rank) {
        text += fmt::format("{} {} {}\n", static_cast<int>(row.kind), static_cast<int>(row.algorithm), row.addsInOrder);
        text += textOf(row.make({rank, size, size / 2, hostOf}));
      }
    }
  }
  return text;
}

std::string allChoices() {
  std::string text;
  for (int kind = 0; kind < kKinds; ++kind) {
    for (const int ranks : {1, 2, 3, 4, 5, 8, 9, 16, 17, 64, 65}) {
      for (std::size_t bytes = 0; bytes < (std::size_t{1} << 32); bytes = 2 * bytes + 1) {
        for (const bool sharedHosts : {false, true}) {
          for (const bool inOrder : {false, true}) {
            ChoiceTable table;
            if (inOrder) table.keepOrderOfRanks();
            const Choice choice = table.choose({static_cast<Kind>(kind), bytes, ranks, sharedHosts});
            text += fmt::format("{} {} {}\n", static_cast<int>(choice.algorithm), choice.partBytes, choice.mostSlices);
          }
        }
      }
    }
  }
  return text;
}

TEST(Protocol, SchedulesAndChoices_AreThoseOfItsVersion) {
  const Fingerprint now{kProtocol, checksumOf(allSchedules()), checksumOf(allChoices())};
  EXPECT_EQ(now, (Fingerprint{8, 0xc5509361, 0xd88e8304})) << "raise kProtocol, and write what is there now here";
}

}  // namespace
}  // namespace gloo_bypass::collectives
