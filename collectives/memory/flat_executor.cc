#include "collectives/memory/flat_executor.h"

#include <algorithm>
#include <cstring>

#include "collectives/memory/copy.h"
#include "collectives/memory/memory_transport.h"
#include "collectives/reduce.h"
#include "collectives/vector_part.h"
#include "transport/progress/progress_engine.h"

namespace gloo_bypass::collectives {
namespace {

// Vectors of more bytes are worth waking the other lanes' threads, which takes some 20 us. Measured with 2 to 16 ranks
// on 16 cores.
constexpr std::size_t kBytesForLanes = 128 * 1024;
// Reduced at a time: what was just written is copied on from the level-1 cache.
constexpr std::size_t kPieceBytes = 8 * 1024;
constexpr std::size_t kLineBytes = 64;
// Before what goes to one peer: of how many bytes the whole block is, which the peer must expect.
constexpr std::size_t kHeadBytes = kLineBytes;

void writeHead(std::byte* place, std::uint64_t bytes) { std::memcpy(place, &bytes, sizeof(bytes)); }
std::uint64_t headOf(const std::byte* place) {
  std::uint64_t bytes = 0;
  std::memcpy(&bytes, place, sizeof(bytes));
  return bytes;
}

// The lane's share of every block, in whole cache lines. The same at all ranks that know a block's count.
template <typename Byte>
std::vector<BasicBlock<Byte>> shareOf(std::span<const BasicBlock<Byte>> blocks, std::size_t element, int lane,
                                      int lanes) {
  std::vector<BasicBlock<Byte>> share;
  for (const BasicBlock<Byte>& block : blocks) {
    const std::size_t perLine = kLineBytes / element;
    const auto bound = [&](int of) {
      if (of == lanes) return block.count;
      return block.count / static_cast<std::size_t>(lanes) * static_cast<std::size_t>(of) / perLine * perLine;
    };
    share.push_back({block.data + bound(lane) * element, bound(lane + 1) - bound(lane)});
  }
  return share;
}

std::uint64_t roundsFor(std::size_t bytes, std::size_t perRound) { return (bytes + perRound - 1) / perRound; }

// Of a block that travels `perRound` bytes a round: the bytes of this round.
struct Stretch {
  std::size_t offset, length;
};
Stretch stretchOf(std::size_t bytes, std::size_t perRound, std::uint64_t round) {
  const std::size_t offset = std::min<std::uint64_t>(bytes, round * perRound);
  return {offset, std::min(perRound, bytes - offset)};
}

void copyUnlessSame(std::byte* to, const std::byte* from, std::size_t bytes) {
  if (to != from && bytes > 0) std::memcpy(to, from, bytes);
}

// A chunk of a large vector: part p of it belongs to rank p. Parts lie at multiples of `stride` in a slot, whatever the
// length of the chunk, since a slot holds parts of one chunk beside the results of the one before.
struct Chunks {
  std::size_t element, stride, elements;  // stride in bytes; elements of a full chunk
  int ranks;
  std::size_t total;

  Chunks(std::size_t stride, int ranks, std::size_t element, std::size_t total)
      : element(element),
        stride(stride),
        elements(stride / element * static_cast<std::size_t>(ranks)),
        ranks(ranks),
        total(total) {}

  std::uint64_t count() const { return roundsFor(total, elements); }
  struct Part {
    std::size_t offset, bytes;  // in the vector
  };
  Part part(std::uint64_t chunk, int rank) const {
    const std::size_t begin = chunk * elements;
    const VectorPart part = partOf(std::min(elements, total - begin), element, rank, static_cast<std::size_t>(ranks));
    return {(begin + part.begin) * element, part.count * element};
  }
};

}  // namespace

FlatExecutor::FlatExecutor(Segment segment, FlatOptions options)
    : segment_(std::move(segment)),
      options_(std::move(options)),
      rank_(options_.rank),
      ranks_(segment_.layout().ranks),
      strideBytes_(segment_.layout().slotBytes / static_cast<std::size_t>(ranks_) / kLineBytes * kLineBytes),
      stretchBytes_(strideBytes_ - kHeadBytes) {
  for (int lane = 0; lane < segment_.layout().lanes; ++lane) {
    lanes_.push_back(std::make_unique<Lane>(segment_, rank_, lane, options_.patience,
                                            [this](const Lane& of, int peer) { return problem(of, peer); }));
  }
  if (lanes_.size() > 1) threads_ = std::make_unique<LaneThreads>(static_cast<int>(lanes_.size()));
}

FlatExecutor::~FlatExecutor() { segment_.membership(rank_).store(Membership::kLeft, std::memory_order_seq_cst); }

void FlatExecutor::abort() noexcept {
  std::uint64_t none = 0;
  segment_.failure().compare_exchange_strong(none, wordOf({Cause::kAborted, rank_, rank_}));
}

void FlatExecutor::describe(const Call& call) {
  words_ = wordsOf(collectives::describe(call));
  words_.first |= static_cast<std::uint64_t>(number_++) << 24;  // the zero byte of DescriptionWords
}

bool FlatExecutor::begin(const Call& call) {
  const bool small = call.kind == Kind::kBarrier || isAtOnce(call);
  if (!small || !failed_ || failureNow().cause != Cause::kNone) return false;
  describe(call);
  if (ranks_ > 1) {
    stageAtOnce(*lanes_[0], call);
    lanes_[0]->publish(words_);
  }
  begun_ = true;
  return true;
}

Status FlatExecutor::run(const Call& call, TimePoint deadline) {
  if (!failed_) return failed_;
  if (!begun_) describe(call);
  deadline_ = deadline;
  wait_.begin();
  const Failure failure = failureNow();
  if (failure.cause != Cause::kNone) return failed_ = errorOf(failure);
  if (ranks_ == 1) {
    begun_ = false;
    runAlone(call);
    return failed_;
  }

  const bool manyBytes = words_.count > kBytesForLanes / sizeOf(call.type);
  if (threads_ && manyBytes) {
    const int lanes = segment_.layout().lanes;
    const auto runShare = [&](int lane) {
      const auto inputs = shareOf(call.inputs, sizeOf(call.type), lane, lanes);
      const auto outputs = shareOf(call.outputs, sizeOf(call.type), lane, lanes);
      Call share = call;
      share.inputs = inputs;
      share.outputs = outputs;
      return runOn(*lanes_[static_cast<std::size_t>(lane)], share);
    };
    failed_ = threads_->run(runShare, [this] {
      if (wait_.isInterrupted(monotonicNow())) (void)fail({Cause::kAborted, rank_, rank_});
    });
  } else {
    failed_ = runOn(*lanes_[0], call);
  }
  if (failed_) count(call);
  return failed_;
}

// Every kind gives a rank alone what it has.
void FlatExecutor::runAlone(const Call& call) {
  if (call.inputs.empty() || call.outputs.empty()) return;
  const ConstBlock& input = call.inputs[0];
  std::byte* const output = call.outputs[0].data;
  if (reduces(call.kind) && call.type == ElementType::kBool) {
    sum(call, output, input.count, [&](int) { return input.data; });  // any byte but 0 is 1
  } else {
    copyUnlessSame(output, input.data, input.count * sizeOf(call.type));
  }
}

void FlatExecutor::count(const Call& call) {
  std::uint64_t in = 0, out = 0;
  for (const ConstBlock& block : call.inputs) in += block.count;
  for (const Block& block : call.outputs) out += block.count;
  MemoryTraffic& traffic = memoryTraffic();
  traffic.operations.fetch_add(1, std::memory_order_relaxed);
  traffic.bytesSent.fetch_add(in * sizeOf(call.type), std::memory_order_relaxed);
  traffic.bytesReceived.fetch_add(out * sizeOf(call.type), std::memory_order_relaxed);
}

Status FlatExecutor::runOn(Lane& lane, const Call& call) {
  switch (call.kind) {
    case Kind::kBarrier:
      return next(lane);
    case Kind::kAllReduce:
    case Kind::kReduce:
      return isAtOnce(call) ? reduceAtOnce(lane, call) : reduceByParts(lane, call);
    case Kind::kReduceScatter:
      return reduceScatter(lane, call);
    case Kind::kBroadcast:
      return broadcast(lane, call);
    case Kind::kAllGather:
    case Kind::kGather:
      return gather(lane, call);
    case Kind::kScatter:
    case Kind::kAllToAll:
      return toEach(lane, call);
  }
  return {};
}

bool FlatExecutor::isAtOnce(const Call& call) const {
  if (call.kind != Kind::kAllReduce && call.kind != Kind::kReduce) return false;
  return call.inputs[0].count * sizeOf(call.type) <= std::min(options_.atOnceBytes, segment_.layout().slotBytes);
}

// One round: publishes what is staged, unless begin() has, and waits for all peers.
Status FlatExecutor::next(Lane& lane) {
  if (begun_) {
    begun_ = false;  // only small operations begin early, and they have one lane
  } else {
    lane.publish(words_);
  }
  Status status = lane.await();
  if (!status && lane.differing() >= 0) return fail({Cause::kMismatch, rank_, lane.differing()});
  return status;
}

void FlatExecutor::stageAtOnce(Lane& lane, const Call& call) {
  if (call.inputs.empty()) return;
  const std::size_t bytes = call.inputs[0].count * sizeOf(call.type);
  if (bytes > 0) std::memcpy(bytes <= Line::kPayloadBytes ? lane.payload() : lane.slot(), call.inputs[0].data, bytes);
}

Status FlatExecutor::reduceAtOnce(Lane& lane, const Call& call) {
  const std::byte* input = call.inputs[0].data;
  const std::size_t bytes = call.inputs[0].count * sizeOf(call.type);
  const bool inLine = bytes <= Line::kPayloadBytes;
  if (!begun_) stageAtOnce(lane, call);
  if (Status status = next(lane); !status) return status;
  if (call.outputs.empty() || bytes == 0) return {};
  sum(call, call.outputs[0].data, call.inputs[0].count, [&](int rank) {
    return rank == rank_ ? input : inLine ? lane.payloadOf(rank) : lane.slotOf(rank);
  });
  return {};
}

// Reduces `count` elements in the order of ranks; source(rank) has that rank's.
template <typename Source>
void FlatExecutor::sum(const Call& call, std::byte* output, std::size_t count, Source source) {
  const std::byte* inputs[Layout::kMostRanks];
  for (int rank = 0; rank < ranks_; ++rank) inputs[rank] = source(rank);
  reduce(call.reduction, call.type, output, std::span(inputs, static_cast<std::size_t>(ranks_)), count, ranks_);
}

// Where what belongs to a rank lies in a slot that has something for each.
std::size_t FlatExecutor::placeOf(int rank) const { return static_cast<std::size_t>(rank) * strideBytes_; }

// In round r each rank publishes its bytes of chunk r and its result of chunk r - 1. So one wait a chunk suffices.
Status FlatExecutor::reduceByParts(Lane& lane, const Call& call) {
  const std::byte* input = call.inputs[0].data;
  std::byte* output = call.outputs.empty() ? nullptr : call.outputs[0].data;
  const std::size_t element = sizeOf(call.type);
  const Chunks chunks(strideBytes_, ranks_, element, call.inputs[0].count);

  for (std::uint64_t round = 0; round <= chunks.count(); ++round) {
    std::byte* slot = lane.slot();
    if (round > 0) {
      const auto [offset, bytes] = chunks.part(round - 1, rank_);
      const std::byte* const own = input + offset;
      for (std::size_t done = 0; done < bytes; done += kPieceBytes) {
        const std::size_t piece = std::min(kPieceBytes, bytes - done);
        std::byte* staged = slot + placeOf(rank_) + done;
        std::byte* result = output != nullptr ? output + offset + done : staged;
        sum(call, result, piece / element,
            [&](int rank) { return (rank == rank_ ? own : lane.slotOf(rank) + placeOf(rank_)) + done; });
        if (output != nullptr) copyToPeers(staged, result, piece);
      }
    }
    for (int rank = 0; rank < ranks_ && round < chunks.count(); ++rank) {
      const auto [offset, bytes] = chunks.part(round, rank);
      if (rank != rank_) copyToPeers(slot + placeOf(rank), input + offset, bytes);
    }
    finishCopies();
    if (Status status = next(lane); !status) return status;
    for (int rank = 0; rank < ranks_ && round > 0 && output != nullptr; ++rank) {
      const auto [offset, bytes] = chunks.part(round - 1, rank);
      if (rank != rank_) std::memcpy(output + offset, lane.slotOf(rank) + placeOf(rank), bytes);
    }
  }
  return {};
}

// Rounds of an operation in which ranks may need different numbers of them: the first round says how many each needs.
// `bytes`: of this rank's own block, for the peers. `read` returns the peer whose block has another length than this
// rank expects, or -1.
template <typename Stage, typename Read>
Status FlatExecutor::rounds(Lane& lane, std::uint64_t mine, std::uint64_t bytes, Stage stage, Read read) {
  std::uint64_t most = mine;
  for (std::uint64_t round = 0; round == 0 || round < most; ++round) {
    stage(round, lane.slot());
    if (round == 0) {
      writeHead(lane.payload(), mine);
      writeHead(lane.payload() + sizeof(mine), bytes);
    }
    finishCopies();
    if (Status status = next(lane); !status) return status;
    for (int rank = 0; rank < ranks_ && round == 0; ++rank) {
      if (rank == rank_) continue;
      most = std::max(most, headOf(lane.payloadOf(rank)));  // a peer that lies must come to its rounds
    }
    // Beyond what this rank needs, a peer alone says that there are more rounds: it might never end.
    if (round > mine) {
      if (Status status = problem(lane, rank_); !status) return status;
    }
    if (const int other = read(round); other >= 0) return fail({Cause::kMismatch, rank_, other});
  }
  return {};
}

// What goes to one peer: a head, then bytes.
void FlatExecutor::stageForEach(const Call& call, std::uint64_t round, std::byte* slot) const {
  const std::size_t element = sizeOf(call.type);
  for (std::size_t i = 0; i < call.inputs.size(); ++i) {
    const int rank = static_cast<int>(i);
    if (rank == rank_) continue;
    const std::size_t bytes = call.inputs[i].count * element;
    const auto [offset, length] = stretchOf(bytes, stretchBytes_, round);
    std::byte* stretch = slot + placeOf(rank);
    if (round == 0) writeHead(stretch, bytes);
    copyToPeers(stretch + kHeadBytes, call.inputs[i].data + offset, length);
  }
}

// The bytes that a peer has staged for this rank; null, if it has staged a block of another length.
const std::byte* FlatExecutor::stagedBy(const Lane& lane, int peer, std::size_t bytes, std::uint64_t round) const {
  const std::byte* stretch = lane.slotOf(peer) + placeOf(rank_);
  return round == 0 && headOf(stretch) != bytes ? nullptr : stretch + kHeadBytes;
}

std::uint64_t FlatExecutor::roundsForEach(const Call& call) const {
  std::size_t longest = 0;
  for (const ConstBlock& block : call.inputs) longest = std::max(longest, block.count * sizeOf(call.type));
  return roundsFor(longest, stretchBytes_);
}

Status FlatExecutor::reduceScatter(Lane& lane, const Call& call) {
  const std::size_t element = sizeOf(call.type);
  const ConstBlock& own = call.inputs[static_cast<std::size_t>(rank_)];
  const auto stage = [&](std::uint64_t round, std::byte* slot) { stageForEach(call, round, slot); };
  const auto read = [&](std::uint64_t round) {
    const auto [offset, length] = stretchOf(own.count * element, stretchBytes_, round);
    for (int rank = 0; rank < ranks_; ++rank) {
      if (rank != rank_ && stagedBy(lane, rank, own.count * element, round) == nullptr) return rank;
    }
    const std::byte* const input = own.data + offset;
    if (length > 0) {
      sum(call, call.outputs[0].data + offset, length / element,
          [&](int rank) { return rank == rank_ ? input : lane.slotOf(rank) + placeOf(rank_) + kHeadBytes; });
    }
    return -1;
  };
  return rounds(lane, roundsForEach(call), 0, stage, read);
}

Status FlatExecutor::broadcast(Lane& lane, const Call& call) {
  const std::size_t perRound = segment_.layout().slotBytes;
  const bool root = rank_ == call.root;
  const std::size_t bytes = (root ? call.inputs[0].count : call.outputs[0].count) * sizeOf(call.type);
  const auto stage = [&](std::uint64_t round, std::byte* slot) {
    const auto [offset, length] = stretchOf(bytes, perRound, round);
    if (root) copyToPeers(slot, call.inputs[0].data + offset, length);
  };
  const auto read = [&](std::uint64_t round) {
    const auto [offset, length] = stretchOf(bytes, perRound, round);
    if (!call.outputs.empty()) {
      copyUnlessSame(call.outputs[0].data + offset, root ? call.inputs[0].data + offset : lane.slotOf(call.root),
                     length);
    }
    return -1;  // the description has the count
  };
  return rounds(lane, roundsFor(bytes, perRound), bytes, stage, read);
}

// All-gather, or to the root alone.
Status FlatExecutor::gather(Lane& lane, const Call& call) {
  const std::size_t element = sizeOf(call.type), perRound = segment_.layout().slotBytes;
  const ConstBlock& input = call.inputs[0];
  const auto stage = [&](std::uint64_t round, std::byte* slot) {
    const auto [offset, length] = stretchOf(input.count * element, perRound, round);
    copyToPeers(slot, input.data + offset, length);
  };
  const auto read = [&](std::uint64_t round) {
    for (std::size_t i = 0; i < call.outputs.size(); ++i) {
      const Block& output = call.outputs[i];
      const int rank = static_cast<int>(i);
      if (round == 0 && rank != rank_ && headOf(lane.payloadOf(rank) + sizeof(round)) != output.count * element) {
        return rank;
      }
      const auto [offset, length] = stretchOf(output.count * element, perRound, round);
      copyUnlessSame(output.data + offset, rank == rank_ ? input.data + offset : lane.slotOf(rank), length);
    }
    return -1;
  };
  return rounds(lane, roundsFor(input.count * element, perRound), input.count * element, stage, read);
}

// All-to-all, or from the root alone.
Status FlatExecutor::toEach(Lane& lane, const Call& call) {
  const std::size_t element = sizeOf(call.type);
  const auto stage = [&](std::uint64_t round, std::byte* slot) { stageForEach(call, round, slot); };
  const auto read = [&](std::uint64_t round) {
    for (std::size_t i = 0; i < call.outputs.size(); ++i) {
      const int from = call.kind == Kind::kScatter ? call.root : static_cast<int>(i);
      const std::size_t bytes = call.outputs[i].count * element;
      const auto [offset, length] = stretchOf(bytes, stretchBytes_, round);
      const std::byte* source = from == rank_ ? call.inputs[static_cast<std::size_t>(rank_)].data + offset
                                              : stagedBy(lane, from, bytes, round);
      if (from != rank_ && source == nullptr) return from;
      copyUnlessSame(call.outputs[i].data + offset, source, length);
    }
    return -1;
  };
  return rounds(lane, roundsForEach(call), 0, stage, read);
}

}  // namespace gloo_bypass::collectives
