#include "tools/all_reduce_perf/perf_report.h"

#include <algorithm>
#include <functional>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "tools/all_reduce_perf/build_info.h"
#include "tools/common/error.h"
#include "tools/common/statistics.h"
#include "tools/common/version.h"

namespace gloo_bypass {
namespace {

// At least three significant digits, as narrow as nccl-tests' columns. The bounds are those of rounding: no "100.00".
std::string number(double value) {
  if (value < 99.995) return fmt::format("{:.2f}", value);
  if (value < 9999.95) return fmt::format("{:.1f}", value);
  return fmt::format("{:.0f}", value);
}

struct Column {
  bool shown;
  const char* name;
  const char* unit;
  int width;
  std::function<std::string(const SizeResult&, const TransportResult&)> text;
};

std::vector<Column> tableColumns(const PerfOptions& options) {
  const bool several = options.transports.size() > 1, computes = options.computeMilliseconds > 0;
  const auto orNone = [](bool known, double value) { return known ? number(value) : std::string("N/A"); };
  std::vector<Column> columns{
      {true, "size", "(B)", 12, [](auto& size, auto&) { return std::to_string(size.bytes); }},
      {true, "count", "(elements)", 12, [](auto& size, auto&) { return std::to_string(size.count); }},
      {true, "type", "", 7, [type = std::string(nameOf(options.dataType))](auto&, auto&) { return type; }},
      {true, "redop", "", 6, [op = std::string(nameOf(options.reduceOp))](auto&, auto&) { return op; }},
      {several, "transport", "", 10, [](auto&, auto& result) { return result.transport; }},
      {true, "time", "(us)", 9, [](auto&, auto& result) { return number(result.timeUs); }},
      {true, "algbw", "(GB/s)", 7, [](auto&, auto& result) { return number(result.algbwGBs); }},
      {true, "busbw", "(GB/s)", 7, [](auto&, auto& result) { return number(result.busbwGBs); }},
      {true, "#wrong", "", 7,
       [](auto&, auto& result) { return result.wrong ? std::to_string(*result.wrong) : std::string("N/A"); }},
      {true, "p50", "(us)", 9, [](auto&, auto& result) { return number(result.p50Us); }},
      {true, "p99", "(us)", 9, [](auto&, auto& result) { return number(result.p99Us); }},
      {several, "ratio", "(p50)", 7, [=](auto&, auto& result) { return orNone(result.ratio > 0, result.ratio); }},
      {computes, "adds", "(us)", 9, [](auto&, auto& result) { return number(result.addsUs); }},
      {computes, "after", "(us)", 9,
       [=](auto&, auto& result) {
         return orNone(result.afterLastP50Us.has_value(), result.afterLastP50Us.value_or(0));
       }},
      {options.cpuColumn, "cpu", "(%)", 7, [](auto&, auto& result) { return number(result.cpuPercent); }}};
  std::erase_if(columns, [](const Column& column) { return !column.shown; });
  return columns;
}

// Of each call and rank: its end after the last rank's begin, in microseconds and ascending.
std::vector<double> afterLastUs(const std::vector<RankMeasurement>& ranks) {
  std::vector<double> found;
  for (std::size_t round = 0; !ranks.empty() && round < ranks.front().rounds.size(); ++round) {
    for (std::size_t call = 0; call < ranks.front().rounds[round].beginNs.size(); ++call) {
      std::int64_t last = 0;
      for (const RankMeasurement& rank : ranks) last = std::max(last, rank.rounds.at(round).beginNs.at(call));
      for (const RankMeasurement& rank : ranks)
        found.push_back(static_cast<double>(rank.rounds.at(round).endNs.at(call) - last) / 1e3);
    }
  }
  return sorted(std::move(found));
}

TransportResult summarizeTransport(const PerfOptions& options, std::uint64_t bytes, std::string transport,
                                   const std::vector<RankMeasurement>& ranks) {
  TransportResult result{.transport = std::move(transport)};
  std::vector<double> allUs, cpuShare, withUs, aloneUs;
  std::uint64_t wrong = 0;
  for (const RankMeasurement& rank : ranks) {
    double cpu = 0, wall = 0;
    for (const RankSample& round : rank.rounds) {
      cpu += round.cpuSeconds;
      wall += options.computeMilliseconds > 0 ? round.roundsSeconds : round.wallSeconds;
      withUs.push_back(round.roundsSeconds * 1e6 / options.iterations);
      aloneUs.push_back(round.roundsAloneSeconds * 1e6 / options.iterations);
      for (const std::int64_t ns : round.iterationNs) allUs.push_back(static_cast<double>(ns) / 1e3);
    }
    result.cpuSeconds.push_back(cpu);
    cpuShare.push_back(wall > 0 ? 100 * cpu / wall : 0);
    wrong += rank.wrong;
  }
  for (unsigned round = 0; round < options.effectiveRounds(); ++round) {
    std::vector<double> meansUs;
    for (const RankMeasurement& rank : ranks)
      if (round < rank.rounds.size()) meansUs.push_back(rank.rounds[round].wallSeconds * 1e6 / options.iterations);
    result.roundUs.push_back(mean(meansUs));
    result.roundSlowestUs.push_back(meansUs.empty() ? 0 : *std::max_element(meansUs.begin(), meansUs.end()));
  }
  allUs = sorted(std::move(allUs));
  result.timeUs = mean(result.roundUs);
  result.p50Us = percentile(allUs, 50);
  result.p99Us = percentile(allUs, 99);
  result.minUs = percentile(allUs, 0);
  result.maxUs = percentile(allUs, 100);
  const Bandwidth bandwidth = allReduceBandwidth(bytes, result.timeUs / 1e6, static_cast<int>(ranks.size()));
  result.algbwGBs = bandwidth.algorithmGBs;
  result.busbwGBs = bandwidth.busGBs;
  if (options.checkIterations > 0) result.wrong = wrong;
  if (options.computeMilliseconds > 0) {
    result.roundWithUs = mean(withUs);
    result.roundAloneUs = mean(aloneUs);
    result.addsUs = result.roundWithUs - result.roundAloneUs;
    if (const auto afterLast = afterLastUs(ranks); !afterLast.empty()) {
      result.afterLastP50Us = percentile(afterLast, 50);
      result.afterLastP99Us = percentile(afterLast, 99);
    }
  }
  result.cpuPercent = mean(cpuShare);
  return result;
}

}  // namespace

Bandwidth allReduceBandwidth(std::size_t bytes, double seconds, int ranks) {
  if (!(seconds > 0) || ranks < 1) return {};
  const double algorithm = static_cast<double>(bytes) / seconds / 1e9;
  return {algorithm, algorithm * 2.0 * (ranks - 1) / ranks};
}

SizeResult summarize(const PerfOptions& options, std::uint64_t bytes,
                     const std::vector<std::vector<RankMeasurement>>& byTransport) {
  SizeResult result{.bytes = bytes, .count = bytes / elementBytes(options.dataType)};
  for (std::size_t i = 0; i < byTransport.size(); ++i)
    result.transports.push_back(summarizeTransport(options, bytes, options.transports.at(i), byTransport[i]));
  for (TransportResult& transport : result.transports) {
    const TransportResult& first = result.transports.front();
    transport.ratio = transport.p50Us > 0 ? first.p50Us / transport.p50Us : 0;
    transport.ratioOfMeans = transport.timeUs > 0 ? first.timeUs / transport.timeUs : 0;
  }
  return result;
}

nlohmann::json toJson(const PerfOptions& options, const SizeResult& result) {
  nlohmann::json transports = nlohmann::json::array();
  for (const TransportResult& transport : result.transports) {
    transports.push_back({{"transport", transport.transport},
                          {"time_us", transport.timeUs},
                          {"p50_us", transport.p50Us},
                          {"p99_us", transport.p99Us},
                          {"min_us", transport.minUs},
                          {"max_us", transport.maxUs},
                          {"round_time_us", transport.roundUs},
                          {"round_slowest_us", transport.roundSlowestUs},
                          {"algbw_gb_s", transport.algbwGBs},
                          {"busbw_gb_s", transport.busbwGBs},
                          {"wrong", transport.wrong ? nlohmann::json(*transport.wrong) : nlohmann::json(nullptr)},
                          {"ratio_p50", transport.ratio},
                          {"ratio_time", transport.ratioOfMeans},
                          {"cpu_seconds_of_rank", transport.cpuSeconds},
                          {"cpu_percent", transport.cpuPercent}});
    if (options.computeMilliseconds > 0) {
      transports.back()["adds_us"] = transport.addsUs;
      transports.back()["round_with_us"] = transport.roundWithUs;
      transports.back()["round_alone_us"] = transport.roundAloneUs;
    }
    if (transport.afterLastP50Us) {
      transports.back()["after_last_p50_us"] = *transport.afterLastP50Us;
      transports.back()["after_last_p99_us"] = *transport.afterLastP99Us;
    }
  }
  return {{"size", result.bytes}, {"count", result.count}, {"transports", transports}};
}

FirstCalls summarizeFirstCalls(const std::string& transport, std::uint64_t bytes,
                               const std::vector<std::vector<std::int64_t>>& ofRanks) {
  FirstCalls calls{.transport = transport, .bytes = bytes};
  for (std::size_t i = 0; !ofRanks.empty() && i < ofRanks.front().size(); ++i) {
    std::vector<double> us;
    for (const auto& rank : ofRanks) us.push_back(static_cast<double>(rank.at(i)) / 1e3);
    calls.callUs.push_back(mean(us));
  }
  return calls;
}

nlohmann::json toJson(const FirstCalls& calls) {
  const auto ascending = sorted(calls.callUs);
  return {{"transport", calls.transport},        {"size", calls.bytes},
          {"mean_us", mean(calls.callUs)},       {"p50_us", percentile(ascending, 50)},
          {"p99_us", percentile(ascending, 99)}, {"call_us", calls.callUs}};
}

std::string firstCallsText(const FirstCalls& calls) {
  const auto ascending = sorted(calls.callUs);
  return fmt::format("# first {} calls of {} bytes, {}: the first {} us, mean {}, p50 {}, p99 {}\n",
                     calls.callUs.size(), calls.bytes, calls.transport, number(calls.callUs.front()),
                     number(mean(calls.callUs)), number(percentile(ascending, 50)), number(percentile(ascending, 99)));
}

std::vector<double> averageBusBandwidth(std::span<const SizeResult> results) {
  std::vector<double> averages;
  for (std::size_t i = 0; !results.empty() && i < results.front().transports.size(); ++i) {
    std::vector<double> values;
    for (const SizeResult& result : results) values.push_back(result.transports.at(i).busbwGBs);
    averages.push_back(mean(values));
  }
  return averages;
}

std::uint64_t totalWrong(std::span<const SizeResult> results) {
  std::uint64_t wrong = 0;
  for (const SizeResult& result : results)
    for (const TransportResult& transport : result.transports) wrong += transport.wrong.value_or(0);
  return wrong;
}

std::string headerText(const PerfOptions& options, const nlohmann::json& ranks) {
  const nlohmann::json build = buildInfo();
  std::string text = fmt::format("# all_reduce_perf {}, Gloo {}, DPDK {}, {}\n", buildVersion(),
                                 build["libraries"]["gloo"].get<std::string>(),
                                 build["libraries"]["dpdk"].get<std::string>(), build["compiler"].get<std::string>());
  const std::string step = options.stepFactor > 1 ? fmt::format("{}(factor)", options.stepFactor)
                                                  : fmt::format("{}(bytes)", options.stepBytes);
  const std::string compute = options.computeMilliseconds > 0
                                  ? fmt::format(" compute: {}(ms) before each", options.computeMilliseconds)
                                  : std::string();
  const std::string segment = options.segmentBytes == 0 ? "default" : std::to_string(options.segmentBytes);
  const bool runsGloo = !std::all_of(options.transports.begin(), options.transports.end(), usesOwnCollectives);
  const std::string algorithm =
      runsGloo ? fmt::format(" algorithm: {} segment: {}", nameOf(options.algorithm), segment) : std::string();
  text += fmt::format(
      "# nThread 1 nRanks {} minBytes {} maxBytes {} step: {} warmup iters: {} iters: {} rounds: {} validation: {}"
      "{}{}\n#\n# Using devices\n",
      ranks.size(), options.minBytes, options.maxBytes, step, options.warmupIterations, options.iterations,
      options.effectiveRounds(), options.checkIterations, algorithm, compute);
  for (const nlohmann::json& rank : ranks) {
    const auto ofMachine = [&](const char* key) { return oneLine(rank.at("machine").at(key).get<std::string>()); };
    text += fmt::format("#  Rank {:2} Pid {:6} on {}, {}, {} cores, {}\n", rank.at("rank").get<int>(),
                        rank.at("pid").get<int>(), ofMachine("hostname"), ofMachine("cpu"),
                        rank.at("machine").at("cores").get<long>(), ofMachine("kernel"));
    if (!rank.contains("devices")) continue;
    for (const auto& [transport, device] : rank.at("devices").items())
      text += fmt::format("#           {}: {}\n", oneLine(transport), oneLine(device.get<std::string>()));
  }
  return text + "#\n";
}

std::string columnsText(const PerfOptions& options) {
  std::string names = "#", units = "#";
  bool first = true;
  for (const Column& column : tableColumns(options)) {
    const int width = first ? column.width - 1 : column.width + 1;  // "#" or a blank stands before it
    names += fmt::format("{:>{}}", column.name, width);
    units += fmt::format("{:>{}}", column.unit, width);
    first = false;
  }
  return names + "\n" + units + "\n";
}

std::string rowsText(const PerfOptions& options, const SizeResult& result) {
  const std::vector<Column> columns = tableColumns(options);
  std::string text;
  for (const TransportResult& transport : result.transports) {
    std::string row;
    for (const Column& column : columns)
      row += fmt::format("{}{:>{}}", row.empty() ? "" : " ", column.text(result, transport), column.width);
    text += row + "\n";
  }
  return text;
}

std::string footerText(const PerfOptions& options, std::span<const SizeResult> results) {
  std::string text;
  if (options.checkIterations > 0) {
    const std::uint64_t wrong = totalWrong(results);
    text += fmt::format("# Out of bounds values : {} {}\n", wrong, wrong == 0 ? "OK" : "FAILED");
  }
  const std::vector<double> averages = averageBusBandwidth(results);
  for (std::size_t i = 0; i < averages.size(); ++i) {
    const std::string of = averages.size() > 1 ? fmt::format(" ({})", options.transports.at(i)) : std::string();
    text += fmt::format("# Avg bus bandwidth    : {:.6g}{}\n", averages[i], of);
  }
  return text + "#\n";
}

std::string idleText(const nlohmann::json& idle) {
  constexpr double kMiB = 1 << 20;
  std::string text =
      "#  transport   rank     cpu   rss(MiB)   pss(MiB)  +rss(MiB)  +pss(MiB)\n"
      "#                       (%)                         since before the device was made\n";
  for (const nlohmann::json& rank : idle.at("ranks")) {
    text += fmt::format("{:>12} {:>6} {:>7.3f} {:>10.2f} {:>10.2f} {:>10.2f} {:>10.2f}\n",
                        idle.at("transport").get<std::string>(), rank.at("rank").get<int>(),
                        rank.at("cpu_percent").get<double>(), rank.at("rss_bytes").get<double>() / kMiB,
                        rank.at("pss_bytes").get<double>() / kMiB, rank.at("rss_growth_bytes").get<double>() / kMiB,
                        rank.at("pss_growth_bytes").get<double>() / kMiB);
  }
  return text;
}

}  // namespace gloo_bypass
