// Collectives over the memory that the ranks of one host share: flat, that is each rank reads all others' bytes itself.
//
// - Small vectors cost one copy in and one read of all peers, in one round; very small ones travel in the cache line
//   that says that they have come.
// - Large ones are summed by parts: a rank adds all ranks' bytes of its part, straight into its user's buffer, and the
//   others copy the result. Several lanes, a thread each, share the work.
//
// Additions go in the order of ranks, whatever the size: all ranks get the same bits, in every run.
//
// Sources: the schemes of vLLM's and DeepSpeed's CPU all-reduce; reduce-scatter and all-gather by Rabenseifner
// (Optimization of Collective Reduction Operations, ICCS 2004).
//
// Thread: one at a time calls run(); abort() from any. Lanes beyond the first have threads of their own.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "collectives/executor.h"
#include "collectives/interruption.h"
#include "collectives/memory/lane.h"
#include "collectives/memory/lane_threads.h"
#include "collectives/memory/segment.h"
#include "transport/base/file_descriptor.h"

namespace gloo_bypass::collectives {

struct FlatOptions {
  int rank = 0;            // in the segment
  std::vector<int> names;  // of the segment's ranks in the group, for messages
  Patience patience;
  std::size_t atOnceBytes = 32 * 1024;  // longer vectors are reduced by parts; the same at all ranks
  // Readable, or at its end, once the rank's process has ended; by rank, the own one unused. Empty: nobody looks.
  std::vector<FileDescriptor> lifelines;
  FileDescriptor ownLifeline;  // kept open until the executor ends
  // An error ends a wait here, before anything else does. Called some thousand times a second. Empty: nothing more.
  std::function<Status()> elsewhere = {};
};

class FlatExecutor final : public Executor {
 public:
  FlatExecutor(Segment segment, FlatOptions options);
  // Leaves in good order.
  ~FlatExecutor() override;

  Status run(const Call& call, TimePoint deadline) override;
  bool begin(const Call& call) override;
  void abort() noexcept override;
  // For the group's messages; lives as long as the executor.
  std::atomic<std::uint32_t>& messagesWanted() const { return segment_.messagesWanted(); }
  int lanes() const { return static_cast<int>(lanes_.size()); }
  // Why the group is over, or lacks a rank: an error that names who failed, ended or left. Any thread.
  Status endOfGroup() const;

 private:
  // What ended the group for good, in one word of shared memory; the first one counts.
  enum class Cause : std::uint8_t { kNone = 0, kMismatch, kVanished, kLeft, kTimedOut, kAborted };
  struct Failure {
    Cause cause = Cause::kNone;
    int rank = 0, other = 0;  // kMismatch: both; kTimedOut: who waited for whom; else `other` ended, left or aborted
  };
  static std::uint64_t wordOf(const Failure& failure);
  Failure failureNow() const;
  Error errorOf(const Failure& failure) const;
  Error mismatch(int rank, int other) const;
  Status fail(const Failure& failure);
  Status problem(const Lane& lane, int peer);
  Cause departure(int peer) const;
  bool ended(int peer) const;

  void runAlone(const Call& call);
  void count(const Call& call);
  Status runOn(Lane& lane, const Call& call);
  void describe(const Call& call);
  bool isAtOnce(const Call& call) const;
  void stageAtOnce(Lane& lane, const Call& call);
  Status next(Lane& lane);
  Status reduceAtOnce(Lane& lane, const Call& call);
  Status reduceByParts(Lane& lane, const Call& call);
  Status reduceScatter(Lane& lane, const Call& call);
  Status broadcast(Lane& lane, const Call& call);
  Status gather(Lane& lane, const Call& call);
  Status toEach(Lane& lane, const Call& call);
  template <typename Stage, typename Read>
  Status rounds(Lane& lane, std::uint64_t mine, std::uint64_t bytes, Stage stage, Read read);
  template <typename Source>
  void sum(const Call& call, std::byte* output, std::size_t count, Source source);
  std::size_t placeOf(int rank) const;
  void stageForEach(const Call& call, std::uint64_t round, std::byte* slot) const;
  const std::byte* stagedBy(const Lane& lane, int peer, std::size_t bytes, std::uint64_t round) const;
  std::uint64_t roundsForEach(const Call& call) const;

  Segment segment_;
  const FlatOptions options_;
  const int rank_, ranks_;
  const std::size_t strideBytes_;   // of a slot, for one rank
  const std::size_t stretchBytes_;  // of these: a round's bytes, without their head
  std::vector<std::unique_ptr<Lane>> lanes_;
  // Of the operation under way.
  DescriptionWords words_;
  TimePoint deadline_ = kNever;
  InterruptibleWait wait_;
  std::uint8_t number_ = 0;
  bool begun_ = false;  // by begin()
  Status failed_;       // the first error; later calls get it again
  std::unique_ptr<LaneThreads> threads_;
};

}  // namespace gloo_bypass::collectives
