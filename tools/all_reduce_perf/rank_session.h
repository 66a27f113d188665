// What one rank does: meet the others in the store, connect every transport, measure, hand the numbers to rank 0.
// One thread; transports bring their own.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <gloo/algorithm.h>
#include <gloo/context.h>
#include <nlohmann/json.hpp>

#include "collectives/group.h"
#include "tools/all_reduce_perf/collective.h"
#include "tools/all_reduce_perf/computation.h"
#include "tools/all_reduce_perf/device_factory.h"
#include "tools/all_reduce_perf/perf_options.h"
#include "tools/all_reduce_perf/perf_report.h"
#include "tools/common/carried_bytes.h"
#include "transport/compatibility/gloo/rendezvous.h"

namespace gloo_bypass {

// JSON values from all ranks to rank 0 and back, by the store. Every wait is bounded.
class RankExchange {
 public:
  RankExchange(gloo_version::StorePointer store, int rank, int size, std::chrono::milliseconds timeout);

  // Rank 0 gets all ranks' values in order; the others get none and do not wait. `name` is used once in a run.
  std::vector<nlohmann::json> gather(const std::string& name, const nlohmann::json& mine);
  // All get rank 0's value.
  nlohmann::json broadcast(const std::string& name, const nlohmann::json& ofRankZero);
  // Returns after all ranks have called it.
  void meet(const std::string& name);
  // Throws ProgramError if this rank has already been in this store: a rank started twice, or files of an earlier run.
  void claimRank();

 private:
  void set(const std::string& key, const nlohmann::json& value);
  nlohmann::json get(const std::string& key);

  gloo_version::StorePointer store_;
  int rank_;
  int size_;
  std::chrono::milliseconds timeout_;
};

class RankSession {
 public:
  // `options` must outlive it.
  RankSession(const PerfOptions& options, int rank, int size, const gloo_version::StorePointer& store);

  // Rank 0 prints the table to stdout and returns the report; the others return null. Throws ProgramError, which names
  // the rank, transport and size.
  nlohmann::json run();

 private:
  // A transport's device and context, connected to all ranks.
  struct Link {
    std::string transport;
    std::shared_ptr<::gloo::transport::Device> device;
    std::shared_ptr<::gloo::Context> context;
    std::unique_ptr<::gloo::Algorithm> boundBarrier;  // where the transport has bound buffers only
    std::uint32_t nextTag = 0;                        // counts collectives; the same on all ranks
    std::unique_ptr<collectives::Group> own;          // our own collectives; then there is neither device nor context
    std::vector<std::string> carriers;                // the names under which its bytes are counted
  };
  struct FreeDeleter {
    void operator()(void* data) const;
  };

  nlohmann::json runStages();
  void introduce();
  // Tells rank 0 of flags that differ from its own, so that it does not wait for this one, and throws.
  [[noreturn]] void refuse(const std::string& difference);
  void allocate();
  void connect(const std::string& transport);
  std::unique_ptr<Collective> prepare(Link& link, std::size_t count);
  void describeDevices();
  // All ranks compute the same between two all-reduces, so long as --compute says on the mean of them.
  void calibrate();
  nlohmann::json measureFirstCalls();
  nlohmann::json measureAll();
  std::vector<RankMeasurement> measureSize(std::uint64_t bytes);
  RankSample sample(Link& link, Collective& collective, std::uint64_t bytes);
  // Throws unless since `before` so many reductions of a vector of `bytes` went over the link's transport. Returns when
  // all ranks have counted.
  void requireCarried(Link& link, const CarriedBytes& before, std::uint64_t bytes, std::uint64_t reductions);
  std::uint64_t check(Collective& collective, std::size_t count);
  void barrier(Link& link);
  nlohmann::json measureIdle();
  nlohmann::json reportFrame() const;

  const PerfOptions& options_;
  int rank_;
  int size_;
  gloo_version::StorePointer store_;
  std::chrono::milliseconds timeout_;
  RankExchange exchange_;
  GlooPlace place_;
  CollectiveOptions collectiveOptions_;
  std::unique_ptr<void, FreeDeleter> data_;  // options_.maxBytes, shared by all transports; outlives links_
  std::vector<Link> links_;
  Computation computation_;
  std::uint64_t computedParts_ = 0;  // before each all-reduce
  bool sharesClock_ = false;         // all ranks are on one machine, as far as its name tells
  nlohmann::json ranks_;             // on rank 0: who and where each rank is
  std::string stage_;                // for error messages: what is being done
};

}  // namespace gloo_bypass
