#include "tools/capture/operation_report.h"

#include <algorithm>
#include <optional>
#include <span>

#include "tools/capture/report_text.h"
#include "transport/base/seconds.h"

namespace gloo_bypass::capture {
namespace {

using Json = nlohmann::ordered_json;
using collectives::nameOf;

// With the most bytes; more calls are counted.
constexpr std::size_t kMaxListedCalls = 24;

std::string text(const RankAddress& rank) { return fmt::format("{}:{}", ipv4(rank.address), rank.port); }

std::span<const OperationRank> ranksOf(const AnalysedCapture& capture, const Operation& operation) {
  return std::span(capture.operations.ranks).subspan(operation.ranksBegin, operation.ranksEnd - operation.ranksBegin);
}

double since(const AnalysedCapture& capture, CaptureTime time) {
  return secondsOf(time - capture.analysis.totals().first);
}

std::string counted(std::size_t count, const char* noun) {
  return fmt::format("{} {}{}", count, noun, count == 1 ? "" : "s");
}

std::string callsText(const Operations& operations) {
  std::vector<CallStatistics> calls = callStatistics(operations);
  std::stable_sort(calls.begin(), calls.end(),
                   [](const CallStatistics& a, const CallStatistics& b) { return a.bytesInAll > b.bytesInAll; });
  std::string text =
      fmt::format("\n{} of {}, by call\n{:>8}{:>16}{:>16}{:>14}{:>17}{:>16}  {}\n",
                  counted(operations.all.size(), "collective operation"), counted(operations.groups, "group"), "number",
                  "median bytes", "median Dur [s]", "max Dur [s]", "median skew [s]", "retransmitted", "call");
  for (std::size_t i = 0; i < std::min(calls.size(), kMaxListedCalls); ++i) {
    const CallStatistics& call = calls[i];
    text +=
        fmt::format("{:>8}{:>16.9g}{:>16.6f}{:>14.6f}{:>17.6f}{:>16}  {}\n", call.operations, call.bytes[2],
                    call.seconds[2], call.seconds[4], call.skewSeconds[2], call.repeatedBytes, callText(*call.example));
  }
  if (calls.size() > kMaxListedCalls) {
    text += fmt::format("{:>8} other calls, with fewer bytes\n", calls.size() - kMaxListedCalls);
  }
  return text;
}

std::string everyOperationText(const AnalysedCapture& capture) {
  std::string lines = fmt::format("\n{:>6}{:>10}{:>14}{:>14}{:>14}{:>14}{:>16}  {}\n", "group", "operation",
                                  "first [s]", "Dur [s]", "skew [s]", "bytes", "retransmitted", "call, and its ranks");
  for (const Operation& operation : capture.operations.all) {
    const OperationTotals& totals = operation.totals;
    lines += fmt::format("{:>6}{:>10}{:>14.6f}{:>14.6f}{:>14.6f}{:>14}{:>16}  {}\n", operation.group, operation.number,
                         since(capture, totals.first), operation.seconds(), operation.skewSeconds(), totals.bytes,
                         totals.repeatedBytes, callText(operation));
    for (const auto& [rank, sent] : ranksOf(capture, operation)) {
      lines += fmt::format("{:>16}{:>14.6f}{:>14.6f}{:>14.6f}{:>14}{:>16}    {}\n", "", since(capture, sent.first),
                           secondsOf(sent.last - sent.first), secondsOf(sent.first - totals.first), sent.bytes,
                           sent.repeatedBytes, text(rank));
    }
  }
  return lines;
}

// What a call is, in fields; null where it is not known.
Json callJson(const Operation& operation) {
  Json json{{"kind", nullptr},  {"type", nullptr}, {"reduction", nullptr},
            {"count", nullptr}, {"root", nullptr}, {"algorithm", nullptr}};
  if (operation.description) {
    const collectives::Description& call = *operation.description;
    json = {
        {"kind", nameOf(call.kind)}, {"type", nameOf(call.type)}, {"reduction", nameOf(call.reduction)},
        {"count", call.count},       {"root", call.root},         {"algorithm", nameOf(operation.algorithm.value())}};
  }
  return json;
}

Json totalsJson(const OperationTotals& totals) {
  return {{"bytes", totals.bytes},
          {"frames", totals.frames},
          {"payload_bytes", totals.payloadBytes},
          {"repeated_bytes", totals.repeatedBytes}};
}

std::string csvLine(const AnalysedCapture& capture, const Operation& operation, const OperationRank& rank) {
  std::string call = ",,,,,";
  if (operation.description) {
    const collectives::Description& what = *operation.description;
    call = fmt::format("{},{},{},{},{},{}", nameOf(what.kind), nameOf(what.type), nameOf(what.reduction), what.count,
                       what.root, nameOf(operation.algorithm.value()));
  }
  const OperationTotals& sent = rank.sent;
  return fmt::format("{},{},{},{},{:.9f},{:.9f},{},{:.9f},{:.9f},{},{},{},{}\n", operation.group, operation.number,
                     call, operation.agreed ? 1 : 0, since(capture, operation.totals.first), operation.seconds(),
                     text(rank.rank), since(capture, sent.first), since(capture, sent.last), sent.bytes, sent.frames,
                     sent.payloadBytes, sent.repeatedBytes);
}

}  // namespace

std::string operationsText(const AnalysedCapture& capture, bool everyOperation) {
  if (capture.operations.all.empty()) return "";
  return callsText(capture.operations) + (everyOperation ? everyOperationText(capture) : "");
}

std::string operationNotes(const AnalysedCapture& capture) {
  const Operations& operations = capture.operations;
  const auto count = [&](auto&& is) {
    return static_cast<std::uint64_t>(std::count_if(operations.all.begin(), operations.all.end(), is));
  };
  const OperationCounters& counters = capture.analysis.operationParts().counters();
  return noteIf(count([](const Operation& one) { return !one.description; }),
                fmt::format("collective operations without a header in the capture, known by number only (snap length "
                            "{}; headers need 256)",
                            capture.snapLength)) +
         noteIf(count([](const Operation& one) { return !one.agreed; }),
                "collective operations in which ranks called different things") +
         noteIf(counters.unplaced, "frames of messages that nothing near them describes: of no operation") +
         noteIf(counters.notKept, fmt::format("frames of collective operations beyond the first {} parts and {} "
                                              "sessions: not in the figures of operations",
                                              OperationParts::kMaxParts, OperationParts::kMaxSessions));
}

Json callsJson(const AnalysedCapture& capture) {
  Json calls = Json::array();
  for (const CallStatistics& call : callStatistics(capture.operations)) {
    Json line = callJson(*call.example);
    line.update({{"operations", call.operations},
                 {"bytes", spreadJson(call.bytes)},
                 {"duration_s", spreadJson(call.seconds)},
                 {"skew_s", spreadJson(call.skewSeconds)},
                 {"bytes_in_all", call.bytesInAll},
                 {"repeated_bytes", call.repeatedBytes}});
    calls.push_back(std::move(line));
  }
  return calls;
}

Json operationsJson(const AnalysedCapture& capture) {
  Json operations = Json::array();
  for (const Operation& operation : capture.operations.all) {
    Json ranks = Json::array();
    for (const auto& [rank, sent] : ranksOf(capture, operation)) {
      Json one{{"rank", text(rank)}, {"first_s", since(capture, sent.first)}, {"last_s", since(capture, sent.last)}};
      one.update(totalsJson(sent));
      ranks.push_back(std::move(one));
    }
    Json line{{"group", operation.group}, {"operation", operation.number}};
    line.update(callJson(operation));
    line.update({{"agreed", operation.agreed},
                 {"begin_s", since(capture, operation.totals.first)},
                 {"duration_s", operation.seconds()},
                 {"skew_s", operation.skewSeconds()}});
    line.update(totalsJson(operation.totals));
    line["ranks"] = std::move(ranks);
    operations.push_back(std::move(line));
  }
  return operations;
}

std::string operationsCsv(const std::vector<AnalysedCapture>& captures) {
  std::string lines = captures.size() > 1 ? "capture," : "";
  lines +=
      "group,operation,kind,type,reduction,count,root,algorithm,agreed,begin_s,duration_s,rank,rank_first_s,"
      "rank_last_s,rank_bytes,rank_frames,rank_payload_bytes,rank_repeated_bytes\n";
  for (std::size_t i = 0; i < captures.size(); ++i) {
    for (const Operation& operation : captures[i].operations.all) {
      for (const OperationRank& rank : ranksOf(captures[i], operation)) {
        if (captures.size() > 1) lines += fmt::format("{},", i + 1);
        lines += csvLine(captures[i], operation, rank);
      }
    }
  }
  return lines;
}

}  // namespace gloo_bypass::capture
