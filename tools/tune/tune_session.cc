#include "tools/tune/tune_session.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <tuple>
#include <utility>

#include <fmt/format.h>

#include "collectives/group.h"
#include "collectives/memory/host_meeting.h"
#include "collectives/schedule/hosts.h"
#include "tools/all_reduce_perf/own_collectives.h"
#include "tools/all_reduce_perf/rank_session.h"
#include "tools/common/error.h"
#include "tools/common/statistics.h"
#include "tools/tune/fastest.h"
#include "transport/process/environment.h"
#include "transport/progress/progress_engine.h"

namespace gloo_bypass {
namespace {

using collectives::Algorithm;
using collectives::Block;
using collectives::Call;
using collectives::ChoiceTable;
using collectives::ConstBlock;
using collectives::ElementType;
using collectives::findAlgorithm;
using collectives::Group;
using collectives::isTwoLevel;
using collectives::kAlgorithms;
using collectives::Kind;
using collectives::kKinds;
using collectives::nameOf;
using collectives::shareHosts;
using Json = nlohmann::json;

// Of each round: so many operations, or fewer of long vectors.
constexpr std::uint64_t kMostOperations = 50, kLeastOperations = 3, kBytesOfARound = 8 << 20;
std::uint64_t operationsOf(std::uint64_t bytes) {
  return std::clamp(kBytesOfARound / std::max<std::uint64_t>(1, bytes), kLeastOperations, kMostOperations);
}

// A call of `bytes` in all among `size` ranks, in memory that lives as long as it.
class Vectors {
 public:
  Vectors(Kind kind, std::size_t bytes, int rank, int size) {
    const auto ranks = static_cast<std::size_t>(size);
    const std::size_t count = std::max<std::size_t>(1, bytes / sizeof(float)), block = (count + ranks - 1) / ranks;
    values_.resize(2 * block * ranks);
    auto* input = reinterpret_cast<std::byte*>(values_.data());
    auto* output = reinterpret_cast<std::byte*>(values_.data() + block * ranks);
    const auto blocks = [&](std::byte* at) {
      std::vector<Block> made;
      for (std::size_t i = 0; i < ranks; ++i) made.push_back({at + i * block * sizeof(float), block});
      return made;
    };
    call_ = {.kind = kind, .type = ElementType::kFloat32};
    switch (kind) {
      case Kind::kBarrier:
        break;
      case Kind::kReduceScatter:
        for (const Block& one : blocks(input)) inputs_.push_back({one.data, one.count});
        outputs_ = {{output, block}};
        break;
      case Kind::kAllGather:
        inputs_ = {{input, block}};
        outputs_ = blocks(output);
        break;
      case Kind::kBroadcast:
        if (rank == 0) inputs_ = {{input, count}};
        if (rank != 0) outputs_ = {{output, count}};
        break;
      case Kind::kReduce:
        inputs_ = {{input, count}};
        if (rank == 0) outputs_ = {{output, count}};
        break;
      default:
        inputs_ = {{input, count}};
        outputs_ = {{output, count}};
    }
    call_.inputs = inputs_;
    call_.outputs = outputs_;
  }
  Vectors(const Vectors&) = delete;
  Vectors& operator=(const Vectors&) = delete;
  const Call& call() const { return call_; }

 private:
  std::vector<float> values_;
  std::vector<ConstBlock> inputs_;
  std::vector<Block> outputs_;
  Call call_;
};

void require(const Status& status) {
  if (!status) throw ProgramError(status.error().message);
}

class Tuning {
 public:
  Tuning(const TuneOptions& options, int rank, int size, const gloo_version::StorePointer& store)
      : options_(options),
        rank_(rank),
        size_(size),
        store_(store),
        timeout_(static_cast<std::int64_t>(options.timeoutSeconds * 1000)),
        exchange_(
            store, rank, size,
            std::chrono::ceil<std::chrono::milliseconds>(std::chrono::duration<double>(options.deadlineSeconds))) {}

  Json run() {
    stage_ = "meeting the other ranks";
    RankExchange meeting(store_, rank_, size_, timeout_);
    meeting.claimRank();
    std::vector<std::string> identities;
    for (const Json& host : meeting.gather("hosts", collectives::hostIdentity())) identities.push_back(host);
    const std::vector<int> hostOf = meeting.broadcast("hosts of ranks", collectives::hostsOf(identities));
    std::vector<Json> mine;
    for (const int ranks : groupSizes()) {
      // Ranks that have no part in the smaller groups wait for them here, as long as it takes.
      stage_ = fmt::format("waiting for the group of {} ranks", ranks);
      exchange_.meet(fmt::format("group/{}", ranks));
      const auto hosts = std::span(hostOf).first(static_cast<std::size_t>(ranks));
      if (rank_ < ranks) measureGroup(ranks, shareHosts(hosts), mine);
    }
    stage_ = "handing the times to rank 0";
    const std::vector<Json> all = exchange_.gather("times", mine);
    exchange_.meet("end");
    return rank_ == 0 ? conclude(all) : Json();
  }
  const std::string& stage() const { return stage_; }

 private:
  using Key = std::tuple<int, int, std::uint64_t, int>;  // kind, ranks, bytes, algorithm
  struct Candidate {
    Algorithm algorithm;
    std::unique_ptr<Group> group;
  };

  std::vector<int> groupSizes() const {
    std::set<int> sizes(options_.groups.begin(), options_.groups.end());
    for (int ranks = 2; options_.groups.empty() && ranks < size_; ranks *= 2) sizes.insert(ranks);
    if (options_.groups.empty()) sizes.insert(size_);
    for (const int ranks : sizes) {
      if (ranks < 2 || ranks > size_) throw ProgramError(fmt::format("--groups: {} ranks, there are {}", ranks, size_));
    }
    return {sizes.begin(), sizes.end()};
  }

  void measureGroup(int ranks, bool sharedHosts, std::vector<Json>& times) {
    std::vector<Candidate> candidates;
    for (int i = 0; i < kAlgorithms; ++i) {
      const auto algorithm = static_cast<Algorithm>(i);
      if (isTwoLevel(algorithm) && !sharedHosts) continue;
      stage_ = fmt::format("connecting {} ranks for {}", ranks, nameOf(algorithm));
      ChoiceTable choices;
      choices.prefer(algorithm);
      // The interface that a program of torch.distributed would take.
      const std::string interface = requestedInterfaces();
      candidates.push_back({algorithm, makeOwnGroup({options_.transport, interface}, rank_, ranks, timeout_,
                                                    gloo_version::withPrefix(stage_, store_), choices)});
      const std::vector<std::string> carriers = candidates.back().group->carriers();
      if (std::find(carriers.begin(), carriers.end(), "MEMORY") != carriers.end()) {
        throw ProgramError(
            "some of these ranks share a host's memory, where there is one algorithm: measure --transport UDP, or one "
            "rank on each host");
      }
    }
    for (int k = 0; k < kKinds; ++k) {
      const auto kind = static_cast<Kind>(k);
      const auto choices = std::count_if(candidates.begin(), candidates.end(), [&](const Candidate& candidate) {
        return findAlgorithm(kind, candidate.algorithm) != nullptr;
      });
      if (choices < 2) continue;
      if (kind == Kind::kBarrier) {
        measureSize(kind, 0, ranks, candidates, times);
        continue;
      }
      for (std::uint64_t bytes = options_.minBytes; bytes <= options_.maxBytes; bytes *= options_.factor) {
        measureSize(kind, bytes, ranks, candidates, times);
      }
    }
  }

  // All algorithms of the kind in turn, some rounds. A barrier before each: no rank begins with what another still
  // does.
  void measureSize(Kind kind, std::uint64_t bytes, int ranks, const std::vector<Candidate>& candidates,
                   std::vector<Json>& times) {
    const Vectors vectors(kind, bytes, rank_, ranks);
    const auto timeout = std::chrono::milliseconds(0);
    std::map<Algorithm, std::vector<double>> taken;
    for (int round = 0; round < options_.rounds; ++round) {
      for (const Candidate& candidate : candidates) {
        if (findAlgorithm(kind, candidate.algorithm) == nullptr) continue;
        stage_ =
            fmt::format("{} of {} bytes among {} ranks by {}", nameOf(kind), bytes, ranks, nameOf(candidate.algorithm));
        require(candidate.group->run(vectors.call(), timeout));
        require(candidate.group->run({}, timeout));
        const std::uint64_t operations = operationsOf(bytes);
        const TimePoint began = monotonicNow();
        for (std::uint64_t i = 0; i < operations; ++i) require(candidate.group->run(vectors.call(), timeout));
        // A root that only sends is done early: all are when the last one is.
        require(candidate.group->run({}, timeout));
        const std::chrono::duration<double, std::micro> all = monotonicNow() - began;
        taken[candidate.algorithm].push_back(all.count() / static_cast<double>(operations));
      }
    }
    for (auto& [algorithm, each] : taken) {
      times.push_back(
          {static_cast<int>(kind), ranks, bytes, static_cast<int>(algorithm), percentile(sorted(std::move(each)), 50)});
    }
  }

  Json conclude(const std::vector<Json>& all) const {
    std::map<Key, std::vector<double>> byKey;
    for (const Json& times : all) {
      for (const Json& one : times) {
        byKey[{one.at(0).get<int>(), one.at(1).get<int>(), one.at(2).get<std::uint64_t>(), one.at(3).get<int>()}]
            .push_back(one.at(4).get<double>());
      }
    }
    std::vector<Measured> measured;
    std::string lines;
    for (const auto& [key, each] : byKey) {
      const auto [kind, ranks, bytes, algorithm] = key;
      measured.push_back({static_cast<Kind>(kind), ranks, static_cast<std::size_t>(bytes),
                          static_cast<Algorithm>(algorithm), mean(each)});
      lines += fmt::format("{:<15} {:>5} {:>12} {:<20} {:>12.1f}\n", nameOf(measured.back().kind), ranks, bytes,
                           nameOf(measured.back().algorithm), measured.back().microseconds);
    }
    ChoiceTable choices;
    choices.prefer(fastestRules(std::move(measured), options_.tolerance));
    return {{"choices", choices.text()}, {"table", std::move(lines)}};
  }

  const TuneOptions& options_;
  const int rank_, size_;
  const gloo_version::StorePointer store_;
  const std::chrono::milliseconds timeout_;
  RankExchange exchange_;
  std::string stage_;
};

}  // namespace

Json tuneAsRank(const TuneOptions& options, int rank, int size, const gloo_version::StorePointer& store) {
  Tuning tuning(options, rank, size, store);
  try {
    return tuning.run();
  } catch (const std::exception& error) {
    throw ProgramError(fmt::format("rank {}, {}: {}", rank, tuning.stage(), oneLine(error.what())));
  }
}

}  // namespace gloo_bypass
