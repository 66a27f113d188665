#include "trainer/config/elastic_options.h"

#include <charconv>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

namespace gloo_bypass::trainer {
namespace {

constexpr int kMaxRanks = 1024;

bool parseCount(const char* begin, const char* end, int& count) {
  const auto [stop, error] = std::from_chars(begin, end, count);
  return error == std::errc() && stop == end && count >= 1 && count <= kMaxRanks;
}

// "MIN:MAX"; empty: understood.
std::string parseRange(const std::string& text, ElasticOptions& o) {
  const char* begin = text.data();
  const char* end = begin + text.size();
  const size_t colon = text.find(':');
  if (colon == std::string::npos || !parseCount(begin, begin + colon, o.minRanks) ||
      !parseCount(begin + colon + 1, end, o.maxRanks)) {
    return fmt::format("{}: must be MIN:MAX, two numbers of ranks from 1 to {}", text, kMaxRanks);
  }
  if (o.minRanks > o.maxRanks) {
    return fmt::format("{}: MIN is larger than MAX", text);
  }
  o.range = text;
  return {};
}

}  // namespace

void addElasticOptions(CLI::App& app, ElasticOptions& o) {
  const char* group = "Ranks that fail";
  app.add_option("--elastic", o.range,
                 "go on from --checkpoint with the ranks that are left when one fails, down to MIN; they share "
                 "the samples of a step of MAX ranks (--batch-size x MAX), however many they are")
      ->check([&o](const std::string& text) { return parseRange(text, o); })
      ->type_name("MIN:MAX")
      ->group(group);
  app.add_option("--max-restarts", o.maxRestarts, "with --elastic: restarts before the run is given up")
      ->check(CLI::Range(0, 1'000'000))
      ->group(group);
  app.add_option("--rejoin-after", o.rejoinSeconds,
                 "with --elastic: seconds after which a failed rank's place is filled again, at the "
                 "next restart (0: at the one that its failure causes)")
      ->check(CLI::Range(0.0, 86'400.0))
      ->group(group);
  app.add_option("--log-samples", o.samplesPath,
                 "append a JSON line a rank and step to FILE: which samples it trained on")
      ->type_name("FILE")
      ->group(group);
}

std::string crossCheck(const ElasticOptions& o, int spawn, const std::string& checkpointPath, bool hasGroup) {
  if (!o.isUsed()) {
    return {};
  }
  if (!hasGroup) {
    return "--elastic is for ranks that train together, not for --no-ddp";
  }
  if (checkpointPath.empty()) {
    return "--elastic needs --checkpoint FILE (and --checkpoint-every N): what a restart continues from";
  }
  if (spawn != 0 && (spawn < o.minRanks || spawn > o.maxRanks)) {
    return fmt::format("--spawn {}: outside of --elastic {}", spawn, o.range);
  }
  return {};
}

}  // namespace gloo_bypass::trainer
