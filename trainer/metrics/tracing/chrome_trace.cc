#include "trainer/metrics/tracing/chrome_trace.h"

#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace gloo_bypass::trainer {
namespace {

using Json = nlohmann::json;

// Tracks of a rank, in the order in which they are shown. Spans of buckets overlap, and a track's spans must not: each
// kind has as many tracks as it has spans at one time.
constexpr int kTrainingThread = 0, kFirstReadyTrack = 1, kFirstReducedTrack = 1001;

int firstTrack(SpanKind kind) {
  return kind == SpanKind::kBucketReady     ? kFirstReadyTrack
         : kind == SpanKind::kBucketReduced ? kFirstReducedTrack
                                            : kTrainingThread;
}

std::string trackName(int track) {
  if (track == kTrainingThread) {
    return "training thread";
  }
  return track < kFirstReducedTrack ? "buckets filling" : "buckets in the process group";
}

// As PyTorch's profiler names them, where it has a name.
std::string eventName(const TraceSpan& span) {
  switch (span.kind) {
    case SpanKind::kStep:
      return fmt::format("ProfilerStep#{}", span.step);
    case SpanKind::kForward:
      return "DistributedDataParallel.forward";
    case SpanKind::kBackward:
      return "backward";
    case SpanKind::kExposed:
      return "exposed gloo:all_reduce";
    case SpanKind::kOptimizer:
      return "Optimizer.step#AdamW.step";
    case SpanKind::kBarrier:
      return "gloo:barrier";
    case SpanKind::kBucketReady:
      return fmt::format("bucket {} gradients", span.index);
    case SpanKind::kBucketReduced:
      return "gloo:all_reduce";
    case SpanKind::kBucketQueued:
      return "queued";
    case SpanKind::kWait:
      return "waiting for ranks";
  }
  return "?";
}

Json arguments(const TraceSpan& span) {
  Json json{{"step", span.step}};
  if (span.kind == SpanKind::kBucketReady || span.kind == SpanKind::kBucketReduced ||
      span.kind == SpanKind::kBucketQueued) {
    json["bucket"] = span.index;
    json["bytes"] = span.bytes;
  } else if (span.kind == SpanKind::kForward || span.kind == SpanKind::kBackward) {
    json["micro_batch"] = span.index;
  }
  return json;
}

Json toJson(const ClockOffset& clock) {
  return {{"at_local_ns", clock.localNs}, {"offset_ns", clock.offsetNs}, {"error_bound_ns", clock.errorBoundNs}};
}

// The first free track for each span, by index; `order` holds the spans by begin.
std::vector<int> tracks(std::span<const TraceSpan> spans, const std::vector<size_t>& order) {
  std::vector<int> chosen(spans.size(), kTrainingThread);
  std::vector<int64_t> readyEnds, reducedEnds;
  for (const size_t i : order) {
    if (firstTrack(spans[i].kind) == kTrainingThread) {
      continue;  // nested by nature
    }
    auto& ends = spans[i].kind == SpanKind::kBucketReady ? readyEnds : reducedEnds;
    auto free = std::find_if(ends.begin(), ends.end(), [&](int64_t end) { return end <= spans[i].beginNs; });
    if (free == ends.end()) {
      free = ends.insert(ends.end(), 0);
    }
    *free = spans[i].endNs;
    chosen[i] = firstTrack(spans[i].kind) + static_cast<int>(free - ends.begin());
  }
  for (size_t i = 1; i < spans.size(); ++i) {
    if (spans[i].kind == SpanKind::kBucketQueued) {
      chosen[i] = chosen[i - 1];
    }
  }
  return chosen;
}

}  // namespace

ChromeTrace::ChromeTrace(Write write, int64_t originNs, int worldSize, const std::string& transport,
                         const std::string& collectives, const std::string& exchange)
    : write_(std::move(write)), originNs_(originNs) {
  const Json distributed{{"backend", collectives == "own" ? "bypass" : "gloo"},
                         {"rank", 0},
                         {"world_size", worldSize},
                         {"transport", transport},
                         {"collectives", collectives},
                         {"exchange", exchange}};
  write_(
      fmt::format("{{\n\"schemaVersion\": 1,\n\"displayTimeUnit\": \"ms\",\n\"distributedInfo\": {},\n"
                  "\"baseTimeNanoseconds\": {},\n\"traceEvents\": [",
                  distributed.dump(), originNs));
}

void ChromeTrace::writeEvent(const std::string& json) {
  write_((isFirstEvent_ ? "\n" : ",\n") + json);
  isFirstEvent_ = false;
}

void ChromeTrace::addRank(const TracedRank& rank, std::span<const TraceSpan> spans) {
  std::vector<size_t> order(spans.size());
  std::iota(order.begin(), order.end(), size_t{0});
  // What begins together is nested: the longer span first.
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return std::pair(spans[a].beginNs, -spans[a].endNs) < std::pair(spans[b].beginNs, -spans[b].endNs);
  });
  const auto track = tracks(spans, order);
  const auto describe = [&](const char* what, int tid, const Json& arguments) {
    writeEvent(Json{{"ph", "M"}, {"name", what}, {"pid", rank.rank}, {"tid", tid}, {"args", arguments}}.dump());
  };
  describe("process_name", 0, {{"name", fmt::format("rank {}", rank.rank)}});
  describe("process_sort_index", 0, {{"sort_index", rank.rank}});
  std::vector<int> used(track);
  std::sort(used.begin(), used.end());
  used.erase(std::unique(used.begin(), used.end()), used.end());
  for (const int tid : used) {
    describe("thread_name", tid, {{"name", trackName(tid)}});
    describe("thread_sort_index", tid, {{"sort_index", tid}});
  }
  for (const size_t i : order) {
    const TraceSpan& span = spans[i];
    const int64_t beginNs = toRemoteClock(span.beginNs, rank.clockAtStart, rank.clockAtEnd);
    const int64_t endNs = toRemoteClock(span.endNs, rank.clockAtStart, rank.clockAtEnd);
    // Whole nanoseconds in the format's microseconds.
    writeEvent(
        fmt::format(R"({{"ph":"X","cat":"{}","name":"{}","pid":{},"tid":{},"ts":{:.3f},"dur":{:.3f},"args":{}}})",
                    track[i] == kTrainingThread ? "user_annotation" : "c10d", eventName(span), rank.rank, track[i],
                    static_cast<double>(beginNs - originNs_) / 1e3, static_cast<double>(endNs - beginNs) / 1e3,
                    arguments(span).dump()));
  }
  const Json known{{"rank", rank.rank},
                   {"spans", spans.size()},
                   {"spans_left_out", rank.leftOut},
                   {"last_step", spans.empty() ? 0 : spans.back().step},
                   {"clock_at_start", toJson(rank.clockAtStart)},
                   {"clock_at_end", toJson(rank.clockAtEnd)}};
  ranks_ += (ranks_.empty() ? "\n" : ",\n") + known.dump();
}

void ChromeTrace::finish() {
  write_(fmt::format("\n],\n\"clock\": {},\n\"notKnown\": {},\n\"ranks\": [{}\n]\n}}\n",
                     Json("rank 0's monotonic clock; others by Cristian's algorithm over the process group at start "
                          "and end, interpolated")
                         .dump(),
                     Json("when the network card sent a bucket's first byte: where 'queued' ends, the transport has "
                          "it; a capture shows frames")
                         .dump(),
                     ranks_));
}

}  // namespace gloo_bypass::trainer
