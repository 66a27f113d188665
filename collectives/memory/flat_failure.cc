// How a FlatExecutor learns that its group has failed, and what it says.
#include <fmt/format.h>
#include <poll.h>

#include "collectives/memory/flat_executor.h"
#include "transport/progress/progress_engine.h"

namespace gloo_bypass::collectives {
namespace {

constexpr std::uint64_t kNumberMask = 0xffull << 24;

}  // namespace

std::uint64_t FlatExecutor::wordOf(const Failure& failure) {
  return static_cast<std::uint64_t>(failure.cause) | static_cast<std::uint64_t>(failure.rank) << 16 |
         static_cast<std::uint64_t>(failure.other) << 32;
}

FlatExecutor::Failure FlatExecutor::failureNow() const {
  const std::uint64_t word = segment_.failure().load(std::memory_order_acquire);
  if (word == 0) return {};
  const auto rankIn = [&](int bits) {
    return static_cast<int>((word >> bits & 0xffff) % static_cast<unsigned>(ranks_));
  };
  const std::uint64_t cause = word & 0xff;
  const bool known = cause >= 1 && cause <= static_cast<std::uint64_t>(Cause::kAborted);
  return {known ? static_cast<Cause>(cause) : Cause::kAborted, rankIn(16), rankIn(32)};
}

// Records what this rank has found, unless another rank was first, and says what did end the group.
Status FlatExecutor::fail(const Failure& failure) {
  std::uint64_t none = 0;
  segment_.failure().compare_exchange_strong(none, wordOf(failure));
  return errorOf(failureNow());
}

Status FlatExecutor::problem(const Lane& lane, int peer) {
  if (options_.elsewhere) {
    if (Status status = options_.elsewhere(); !status) return status;
  }
  const Failure failure = failureNow();
  if (failure.cause != Cause::kNone) return errorOf(failure);
  // A peer that came before it went is not missed.
  if (const Cause gone = departure(peer); gone != Cause::kNone && !lane.hasCome(peer)) {
    return fail({gone, rank_, peer});
  }
  const TimePoint now = monotonicNow();
  if (now >= deadline_) return fail({Cause::kTimedOut, rank_, peer});
  if (wait_.isInterrupted(now)) return fail({Cause::kAborted, rank_, rank_});
  return {};
}

Status FlatExecutor::endOfGroup() const {
  if (const Failure failure = failureNow(); failure.cause != Cause::kNone) return errorOf(failure);
  for (int peer = 0; peer < ranks_; ++peer) {
    if (peer == rank_) continue;
    if (const Cause gone = departure(peer); gone != Cause::kNone) return errorOf({gone, rank_, peer});
  }
  return {};
}

// kVanished, kLeft or kNone. Who leaves says so before its process may end.
FlatExecutor::Cause FlatExecutor::departure(int peer) const {
  const bool isEnded = ended(peer);
  if (segment_.membership(peer).load(std::memory_order_acquire) != Membership::kHere) return Cause::kLeft;
  return isEnded ? Cause::kVanished : Cause::kNone;
}

bool FlatExecutor::ended(int peer) const {
  if (options_.lifelines.empty()) return false;
  pollfd lifeline{options_.lifelines[static_cast<std::size_t>(peer)].get(), POLLIN, 0};
  return ::poll(&lifeline, 1, 0) > 0;
}

Error FlatExecutor::mismatch(int rank, int other) const {
  const auto words = [&](int of) {
    // Of its two lines, the one that it published last; the difference tells, also after the numbers have wrapped.
    const Line &even = segment_.line(of, 0, 0), &odd = segment_.line(of, 0, 1);
    const auto ahead = static_cast<std::int32_t>(odd.round.load() - even.round.load());
    return ahead > 0 ? odd.words : even.words;
  };
  DescriptionWords first = words(rank), second = words(other);
  first.first &= ~kNumberMask;
  second.first &= ~kNumberMask;
  const auto name = [&](int of) { return options_.names[static_cast<std::size_t>(of)]; };
  return {ErrorScope::kSession, ErrorCode::kInvalidArgument, disagreement(name(rank), first, name(other), second)};
}

Error FlatExecutor::errorOf(const Failure& failure) const {
  const auto name = [&](int of) { return options_.names[static_cast<std::size_t>(of)]; };
  const auto error = [](ErrorCode code, std::string text) {
    return Error{ErrorScope::kSession, code, std::move(text)};
  };
  const int other = name(failure.other);
  switch (failure.cause) {
    case Cause::kMismatch:
      return mismatch(failure.rank, failure.other);
    case Cause::kVanished:
      return error(ErrorCode::kPeerVanished, fmt::format("the process of rank {} has ended", other));
    case Cause::kLeft:
      return error(ErrorCode::kPeerClosed,
                   fmt::format("rank {} has left this group, and rank {} waits for it", other, name(failure.rank)));
    case Cause::kTimedOut:
      return error(ErrorCode::kTimedOut, fmt::format("rank {} has waited for rank {} for the whole timeout of the call",
                                                     name(failure.rank), other));
    case Cause::kNone:
    case Cause::kAborted:
      break;
  }
  return error(ErrorCode::kCancelled, fmt::format("rank {} has aborted this group", other));
}

}  // namespace gloo_bypass::collectives
