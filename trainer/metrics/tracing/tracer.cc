#include "trainer/metrics/tracing/tracer.h"

#include <algorithm>
#include <utility>

#include <ATen/ATen.h>
#include <fmt/format.h>

#include "tools/common/error.h"
#include "trainer/files/file_io.h"
#include "trainer/metrics/tracing/chrome_trace.h"

namespace gloo_bypass::trainer {
namespace {

constexpr int kRoot = 0;
// A round trip is some 100 us over TCP: 10 ms a rank. The shortest of so many is close to what the way allows.
constexpr int kExchanges = 100;

int64_t nowNs() { return TraceRecorder::nanoseconds(std::chrono::steady_clock::now()); }

// The spans as a tensor (N, 6) of int64 that shares their memory.
at::Tensor asTensor(const TraceSpan* spans, size_t count) {
  return at::from_blob(const_cast<TraceSpan*>(spans), {static_cast<int64_t>(count), kNumbersASpan}, at::kLong);
}

// The root's part of one rank's comparison.
void answerClock(Communicator& communicator, int rank) {
  auto question = at::zeros({1}, at::kLong), answer = at::zeros({1}, at::kLong);
  for (int i = 0; i < kExchanges; ++i) {
    communicator.receive(question, rank);
    answer.fill_(nowNs());
    communicator.send(answer, rank);
  }
}

ClockOffset askClock(Communicator& communicator) {
  auto question = at::zeros({1}, at::kLong), answer = at::zeros({1}, at::kLong);
  std::vector<ClockExchange> exchanges;
  for (int i = 0; i < kExchanges; ++i) {
    ClockExchange exchange{.sentNs = nowNs(), .remoteNs = 0, .receivedNs = 0};
    communicator.send(question, kRoot);
    communicator.receive(answer, kRoot);
    exchange.receivedNs = nowNs();
    exchange.remoteNs = answer.item<int64_t>();
    exchanges.push_back(exchange);
  }
  return estimateOffset(exchanges);
}

// (8) of int64: what the root needs before the spans.
at::Tensor headerOf(const TraceRecorder& recorder, const ClockOffset& start, const ClockOffset& end) {
  return at::tensor({static_cast<int64_t>(recorder.spans().size()), recorder.leftOut(), start.localNs, start.offsetNs,
                     start.errorBoundNs, end.localNs, end.offsetNs, end.errorBoundNs},
                    at::kLong);
}

TracedRank tracedRank(int rank, const int64_t* header) {
  return {.rank = rank,
          .leftOut = header[1],
          .clockAtStart = {.localNs = header[2], .offsetNs = header[3], .errorBoundNs = header[4]},
          .clockAtEnd = {.localNs = header[5], .offsetNs = header[6], .errorBoundNs = header[7]}};
}

}  // namespace

Tracer::Tracer(const Options& options, int rank)
    : path_(options.tracing.tracePath),
      exchange_(options.exchange()),
      bucketsRebuiltAfter_(options.rebuildsBucketsAfter()) {
  if (isOn() && rank == kRoot) {
    checkReplaceable(path_);
  }
}

ClockOffset Tracer::compareClocks() const {
  if (!communicator_->isRoot()) {
    return askClock(*communicator_);
  }
  for (int rank = kRoot + 1; rank < communicator_->worldSize(); ++rank) {
    answerClock(*communicator_, rank);
  }
  return {.localNs = nowNs()};
}

void Tracer::start(Communicator& communicator, const std::vector<at::Tensor>& parameters) {
  if (!isOn()) {
    return;
  }
  communicator_ = &communicator;
  originNs_ = nowNs();
  clockAtStart_ = compareClocks();
  communicator_->recordBuckets();
  std::vector<int64_t> bytes;
  for (const auto& parameter : parameters) {
    if (parameter.numel() == 0) {
      continue;  // another rank's, of a pipeline
    }
    parameter.register_hook([this, i = bytes.size()](const at::Tensor&) {
      readiness_->gradientReady(i, std::chrono::steady_clock::now());
    });
    bytes.push_back(static_cast<int64_t>(parameter.nbytes()));
  }
  readiness_.emplace(std::move(bytes), bucketsRebuiltAfter_);
}

void Tracer::addWindow(int64_t step, const AllReduceWindow& window, Time backwardDone) {
  if (!isOn()) {
    return;
  }
  std::vector<int64_t> bytes;
  for (const auto& bucket : window.each) {
    bytes.push_back(bucket.bytes);
  }
  const auto ready = readiness_->ofBuckets(bytes);  // in any case: it learns the order from one of the first
  if (step == 0) {
    return;
  }
  for (size_t i = 0; i < window.each.size(); ++i) {
    const auto& bucket = window.each[i];
    if (ready) {
      recorder_.add(SpanKind::kBucketReady, step, static_cast<int64_t>(i), (*ready)[i].first, (*ready)[i].last,
                    bucket.bytes);
    }
    recorder_.add(SpanKind::kBucketReduced, step, static_cast<int64_t>(i), bucket.handedOver, bucket.done,
                  bucket.bytes);
    if (bucket.begun) {
      recorder_.add(SpanKind::kBucketQueued, step, static_cast<int64_t>(i), bucket.handedOver, *bucket.begun,
                    bucket.bytes);
    }
  }
  if (window.buckets > 0 && window.lastHandedOver < backwardDone) {
    // The stamp of a reduced bucket may come when backward has returned already.
    recorder_.add(SpanKind::kExposed, step, 0, window.lastHandedOver, std::min(window.lastDone, backwardDone));
  }
}

void Tracer::addPass(SpanKind kind, int64_t step, int64_t micro, Time begin, Time end) {
  if (isOn() && step != 0) {
    recorder_.add(kind, step, micro, begin, end);
  }
}

void Tracer::addWaits(int64_t step, const std::vector<Interval>& waits) {
  for (const auto& [begin, end] : waits) {
    addPass(SpanKind::kWait, step, 0, begin, end);
  }
}

void Tracer::addStep(int64_t step, Time begin, Time backwardDone, Time optimizerDone, Time end, bool hasBarrier) {
  if (!isOn()) {
    return;
  }
  recorder_.add(SpanKind::kOptimizer, step, 0, backwardDone, optimizerDone);
  if (hasBarrier) {
    recorder_.add(SpanKind::kBarrier, step, 0, optimizerDone, end);
  }
  recorder_.add(SpanKind::kStep, step, 0, begin, end);
}

void Tracer::write() {
  if (!isOn()) {
    return;
  }
  const ClockOffset clockAtEnd = compareClocks();
  auto header = headerOf(recorder_, clockAtStart_, clockAtEnd);
  const auto& spans = recorder_.spans();
  if (!communicator_->isRoot()) {
    communicator_->send(header, kRoot);
    if (!spans.empty()) {
      communicator_->send(asTensor(spans.data(), spans.size()), kRoot);
    }
    return;
  }
  AtomicFile file(path_);
  const int worldSize = communicator_->worldSize();
  ChromeTrace trace([&](std::string_view text) { file.write(text); }, originNs_, worldSize, communicator_->transport(),
                    communicator_->collectives(), exchange_);
  TracedRank traced = tracedRank(kRoot, header.data_ptr<int64_t>());
  int64_t leftOut = traced.leftOut;
  trace.addRank(traced, spans);
  std::vector<TraceSpan> theirs;
  for (int rank = kRoot + 1; rank < worldSize; ++rank) {
    communicator_->receive(header, rank);
    theirs.resize(static_cast<size_t>(header[0].item<int64_t>()));
    if (!theirs.empty()) {
      communicator_->receive(asTensor(theirs.data(), theirs.size()), rank);
    }
    traced = tracedRank(rank, header.data_ptr<int64_t>());
    leftOut += traced.leftOut;
    trace.addRank(traced, theirs);
  }
  trace.finish();
  file.commit();
  if (leftOut > 0) {
    complain("ddp_train", fmt::format("{} holds the first {} spans of each rank; {} later ones were left out", path_,
                                      kMaxTraceSpans, leftOut));
  }
}

}  // namespace gloo_bypass::trainer
