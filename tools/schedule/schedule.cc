// schedule: draws who sends which part to whom in a collective operation, and explains which algorithm is chosen.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "collectives/schedule/choices.h"
#include "tools/common/command_line.h"
#include "tools/common/error.h"
#include "tools/common/run_program.h"
#include "tools/schedule/schedule_json.h"
#include "tools/schedule/schedule_table.h"

namespace gloo_bypass {
namespace {

using collectives::algorithmNamed;
using collectives::AlgorithmRow;
using collectives::Choice;
using collectives::ChoiceTable;
using collectives::Circumstances;
using collectives::findAlgorithm;
using collectives::Kind;
using collectives::kKinds;
using collectives::nameOf;
using collectives::Place;
using collectives::shareHosts;

struct Options {
  std::string kind = "all-reduce", algorithm;
  int ranks = 4, root = 0;
  std::size_t bytes = 0;
  std::vector<int> hostOf;
  std::string tablePath;
  bool list = false, json = false;
};

// The rules that choose: those of a file, then the built-in ones.
ChoiceTable tableIn(const Options& options) {
  if (options.tablePath.empty()) return {};
  std::ifstream file(options.tablePath, std::ios::binary);
  if (!file) throw ProgramError(fmt::format("--table: {}: {}", options.tablePath, std::strerror(errno)));
  auto table = ChoiceTable::parse(std::string(std::istreambuf_iterator<char>(file), {}));
  if (!table) throw ProgramError(fmt::format("--table: {}: {}", options.tablePath, table.error().message));
  return std::move(table).value();
}

Kind kindNamed(const std::string& name) {
  for (int kind = 0; kind < kKinds; ++kind) {
    if (name == nameOf(static_cast<Kind>(kind))) return static_cast<Kind>(kind);
  }
  throw UsageError(fmt::format("{}: no kind of operation (all-reduce, broadcast, ...: see --list)", name));
}

// With the algorithm that was named before all others.
ChoiceTable tableOf(const Options& options, Kind kind) {
  ChoiceTable table = tableIn(options);
  if (options.algorithm.empty()) return table;
  const auto algorithm = algorithmNamed(options.algorithm);
  if (!algorithm || findAlgorithm(kind, *algorithm) == nullptr)
    throw UsageError(fmt::format("{}: no algorithm for {} (see --list)", options.algorithm, nameOf(kind)));
  table.prefer(*algorithm);
  return table;
}

Circumstances circumstancesOf(const Options& options, Kind kind) {
  return {.kind = kind, .bytes = options.bytes, .ranks = options.ranks, .sharedHosts = shareHosts(options.hostOf)};
}

std::variant<Options, std::string> parse(int argc, const char* const* argv) {
  Options options;
  CLI::App app(
      "Draws a collective operation's schedule: a row a round, a column a rank. 3>1: sends part 3 to rank 1; "
      "3<1: receives it from there; 3+0,2: adds what ranks 0 and 2 have of it");
  app.add_option("kind", options.kind, "all-reduce, broadcast, ...")->capture_default_str();
  app.add_option("--ranks", options.ranks, "how many")->check(CLI::Range(1, 64))->capture_default_str();
  app.add_option("--algorithm", options.algorithm, "its name; default: what the table chooses");
  app.add_option("--bytes", options.bytes, "of the vector, for the table's choice")->capture_default_str();
  app.add_option("--root", options.root, "of a broadcast, reduce, gather or scatter")->capture_default_str();
  app.add_option("--hosts", options.hostOf, "the host of each rank, for two levels: 0,0,1,1")->delimiter(',');
  app.add_option("--table", options.tablePath, "a file that tune wrote: which algorithm its rules choose");
  app.add_flag("--list", options.list, "the algorithms instead");
  app.add_flag("--json", options.json, "for programs: the steps of each rank, and the bytes of a part");
  if (auto text = readCommandLine(app, argc, argv)) return *std::move(text);
  if (options.root < 0 || options.root >= options.ranks) throw UsageError("--root: there is no such rank");
  if (!options.hostOf.empty() && options.hostOf.size() != static_cast<std::size_t>(options.ranks)) {
    throw UsageError(fmt::format("--hosts: {} hosts for {} ranks", options.hostOf.size(), options.ranks));
  }
  return options;
}

int draw(const Options& options) {
  if (options.list) {
    fmt::print("{}", algorithmList());
    return 0;
  }
  const Kind kind = kindNamed(options.kind);
  const ChoiceTable table = tableOf(options, kind);
  const Circumstances circumstances = circumstancesOf(options, kind);
  const Choice choice = table.choose(circumstances);
  const AlgorithmRow& row = *findAlgorithm(kind, choice.algorithm);
  const Place place{0, options.ranks, options.root, options.hostOf};
  if (options.json) {
    fmt::print("{}\n", scheduleJson(row, place, choice, options.bytes).dump());
    return 0;
  }
  if (options.algorithm.empty()) fmt::print("{}\n", table.explain(circumstances));
  fmt::print("{}", scheduleTable(row, place));
  return 0;
}

}  // namespace
}  // namespace gloo_bypass

int main(int argc, char** argv) {
  return gloo_bypass::runProgram("schedule", gloo_bypass::parse, gloo_bypass::draw, argc, argv);
}
