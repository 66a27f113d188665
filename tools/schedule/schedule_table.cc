#include "tools/schedule/schedule_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

namespace gloo_bypass {
namespace {

using collectives::Action;
using collectives::Step;

std::string textOf(const Step& step, int rank) {
  std::string text = std::to_string(step.parts.begin);
  if (step.parts.size() > 1) text += fmt::format("-{}", step.parts.end - 1);
  if (step.action != Action::kReduce)
    return fmt::format("{}{}{}", text, step.action == Action::kSend ? '>' : '<', step.peers[0]);
  char before = '+';
  for (const int peer : step.peers) {
    if (peer == rank) continue;
    text += fmt::format("{}{}", before, peer);
    before = ',';
  }
  return text;
}

}  // namespace

std::string scheduleTable(const collectives::AlgorithmRow& row, const collectives::Place& place) {
  std::vector<std::vector<std::string>> cells(1);  // by round, by rank
  int parts = 0;
  for (int rank = 0; rank < place.size; ++rank) {
    collectives::Place own = place;
    own.rank = rank;
    const collectives::Schedule schedule = row.make(own);
    parts = schedule.parts;
    for (const Step& step : schedule.steps) {
      const auto round = static_cast<std::size_t>(step.round);
      if (round >= cells.size()) cells.resize(round + 1);
      cells[round].resize(static_cast<std::size_t>(place.size));
      std::string& cell = cells[round][static_cast<std::size_t>(rank)];
      if (!cell.empty()) cell += ' ';
      cell += textOf(step, rank);
    }
  }
  std::vector<std::size_t> widths(static_cast<std::size_t>(place.size));
  for (auto& round : cells) {
    round.resize(widths.size());
    for (std::size_t rank = 0; rank < widths.size(); ++rank) {
      widths[rank] = std::max({widths[rank], round[rank].size(), fmt::format("rank {}", rank).size()});
    }
  }
  std::string text = fmt::format("{}, {}, {} ranks, {} parts: {}\n", nameOf(row.kind), nameOf(row.algorithm),
                                 place.size, parts, row.cost);
  const auto addLine = [&](const std::string& first, const auto& cellOf) {
    std::string line = fmt::format("{:>5}", first);
    for (std::size_t rank = 0; rank < widths.size(); ++rank)
      line += fmt::format("  {:<{}}", cellOf(rank), widths[rank]);
    line.resize(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  };
  addLine("round", [](std::size_t rank) { return fmt::format("rank {}", rank); });
  for (std::size_t round = 0; round < cells.size(); ++round) {
    addLine(std::to_string(round), [&](std::size_t rank) { return cells[round][rank]; });
  }
  return text;
}

std::string algorithmList() {
  std::string text;
  for (const collectives::AlgorithmRow& row : collectives::algorithms()) {
    text += fmt::format("{:<15} {:<20} {}\n", nameOf(row.kind), nameOf(row.algorithm), row.cost);
  }
  return text;
}

}  // namespace gloo_bypass
