#include "collectives/memory/lane.h"

#include <immintrin.h>
#include <sched.h>

#include <algorithm>
#include <utility>

#include "transport/base/futex.h"
#include "transport/progress/progress_engine.h"

namespace gloo_bypass::collectives {
namespace {

// Measured with 4 and 8 ranks on 2 cores: sleeping earlier or later than this takes longer. A pause is some 20 ns.
constexpr int kPauses = 50, kYields = 20;
// While a rank looks for longer, it reads the clock after this many yields, each after kPausesBetween pauses.
constexpr int kYieldsBetween = 16, kPausesBetween = 20;
// Waits that end with the first yield, nearly every second one, mean that the peer runs on this core. The kernel moves
// neither of two threads that hand a core to each other, for tens of milliseconds. Each counts 2, a wait that is over
// at once takes 1 away, a longer one all.
constexpr int kHandedOver = 64;
// A sleeper looks for a problem this often: so long does the end of the peer that it waits for stay unnoticed. Of the
// others it looks at one each time.
constexpr Duration kSleep = std::chrono::milliseconds(2);

// This thread, if it may use another one. Where it may run stays as it was.
void moveToAnotherCore() {
  cpu_set_t allowed;
  if (::sched_getaffinity(0, sizeof(allowed), &allowed) != 0 || CPU_COUNT(&allowed) < 2) return;
  cpu_set_t others = allowed;
  CPU_CLR(::sched_getcpu(), &others);
  if (CPU_COUNT(&others) == 0 || ::sched_setaffinity(0, sizeof(others), &others) != 0) return;
  (void)::sched_setaffinity(0, sizeof(allowed), &allowed);
}

}  // namespace

Lane::Lane(Segment& segment, int rank, int index, Patience patience, Problem problem)
    : segment_(segment), rank_(rank), index_(index), patience_(patience), problem_(std::move(problem)) {}

void Lane::publish(const DescriptionWords& words) {
  ++round_;
  words_ = words;
  Line& line = segment_.line(rank_, index_, round_);
  line.words = words;
  line.round.store(round_, std::memory_order_release);
  std::atomic_thread_fence(std::memory_order_seq_cst);  // either a sleeper sees the number, or this sees the sleeper
  if (line.sleepers.load(std::memory_order_relaxed) != 0) wakeAll(line.round);
}

Status Lane::await() {
  differing_ = -1;
  const int ranks = segment_.layout().ranks;
  // Each rank begins with the next one: they do not all wait for the same.
  for (int step = 1; step < ranks; ++step) {
    const int peer = (rank_ + step) % ranks;
    if (Status status = awaitPeer(peer); !status) return status;
    if (segment_.line(peer, index_, round_).words != words_) {
      differing_ = peer;
      return {ErrorScope::kSession, ErrorCode::kInvalidArgument, ""};
    }
  }
  return {};
}

Status Lane::awaitPeer(int peer) {
  Line& line = segment_.line(peer, index_, round_);
  for (int i = 0; i < kPauses; ++i) {
    if (line.round.load(std::memory_order_acquire) == round_) {
      handedOver_ = std::max(handedOver_ - 1, 0);
      return {};
    }
    _mm_pause();
  }
  if (handedOver_ >= kHandedOver) {
    handedOver_ = 0;
    // One of the two.
    if (patience_.looking > Duration::zero() && rank_ > peer) moveToAnotherCore();
  }
  return awaitSlowly(peer, line);
}

// Of the peer that is waited for, and of `later`, which goes through all ranks: one of them may end while this one is
// late.
Status Lane::problemAmong(int peer, int& later) {
  Status status = problem_(*this, peer);
  later = (later + 1) % segment_.layout().ranks;
  if (status && later != rank_ && later != peer && !hasCome(later)) status = problem_(*this, later);
  return status;
}

Status Lane::awaitSlowly(int peer, Line& line) {
  const auto arrived = [&] { return line.round.load(std::memory_order_acquire) == round_; };
  for (int i = 0; i < kYields; ++i) {
    ::sched_yield();
    if (arrived()) {
      handedOver_ = i == 0 ? handedOver_ + 2 : 0;
      return {};
    }
  }
  const TimePoint begin = monotonicNow();
  while (monotonicNow() - begin < patience_.looking) {
    for (int i = 0; i < kYieldsBetween; ++i) {
      for (int k = 0; k < kPausesBetween; ++k) {
        if (arrived()) return {};
        _mm_pause();
      }
      ::sched_yield();
    }
    if (arrived()) return {};
    if (Status status = problem_(*this, peer); !status) return arrived() ? Status() : status;
  }
  line.sleepers.fetch_add(1, std::memory_order_seq_cst);
  Status status;
  for (int later = peer;;) {
    const std::uint32_t seen = line.round.load(std::memory_order_acquire);
    if (seen == round_) break;
    sleepWhile(line.round, seen, kSleep);
    if (arrived()) break;
    status = problemAmong(peer, later);
    if (arrived()) status = {};
    if (!status) break;
  }
  line.sleepers.fetch_sub(1, std::memory_order_relaxed);
  return status;
}

}  // namespace gloo_bypass::collectives
