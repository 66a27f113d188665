#include "trainer/distributed/connect.h"

#include <nlohmann/json.hpp>

#include "trainer/distributed/averaging/averaging.h"
#include "trainer/distributed/data_parallel.h"
#include "trainer/distributed/group_communicator.h"
#include "trainer/distributed/model_parallel/shared_model.h"
#include "trainer/distributed/sharding/sharded_parallel.h"

namespace gloo_bypass::trainer {
namespace {

std::unique_ptr<Parallelism> makeParallelism(const Options& options, HeldModel& held, GroupCommunicator& communicator) {
  if (options.averaging.isUsed()) {
    return makeAveraging(options, held.model, *held.optimizer, communicator);
  }
  if (options.modelParallel.isUsed()) {
    return makeSharedModel(held.model, held.whole ? &*held.whole : nullptr, *held.optimizer, communicator, options);
  }
  if (options.sharding.isUsed()) {
    return std::make_unique<ShardedParallel>(held.model, held.weights, *held.optimizer, held.units, communicator,
                                             options);
  }
  return std::make_unique<DataParallel>(held.model, *held.optimizer, communicator, options);
}

}  // namespace

ConnectedRanks connectRanks(const Options& options, const RankEnvironment& environment, const nlohmann::json& agreement,
                            HeldModel& held) {
  if (!options.ddp) {
    return {std::make_unique<Communicator>(), std::make_unique<Parallelism>(*held.optimizer)};
  }
  auto communicator = std::make_unique<GroupCommunicator>(environment, options, agreement);
  auto parallelism = makeParallelism(options, held, *communicator);
  held.whole.reset();
  return {std::move(communicator), std::move(parallelism)};
}

}  // namespace gloo_bypass::trainer
