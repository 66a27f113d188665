#include "collectives/hierarchical/hierarchical_executor.h"

#include <algorithm>
#include <utility>

#include "collectives/reduce.h"
#include "collectives/vector_part.h"

namespace gloo_bypass::collectives {
namespace {

// A peer that ended has said why before, if its own error is the reason; how long to look for that.
constexpr Duration kWords = std::chrono::milliseconds(2);
constexpr std::size_t kLineBytes = 64;

TimePoint later(TimePoint deadline, Duration by) { return deadline > kNever - by ? kNever : deadline + by; }

// Elements [begin, begin + count) of a block, as far as it has them.
template <typename Byte>
BasicBlock<Byte> cut(const BasicBlock<Byte>& block, std::size_t element, std::size_t begin, std::size_t count) {
  const std::size_t from = std::min(begin, block.count);
  return {block.count == 0 ? block.data : block.data + from * element, std::min(count, block.count - from)};
}

std::size_t elementsIn(std::size_t bytes, std::size_t element) {
  return std::max(bytes / kLineBytes, std::size_t{1}) * kLineBytes / element;
}

}  // namespace

Result<std::unique_ptr<HierarchicalExecutor>> HierarchicalExecutor::make(Hosts hosts,
                                                                         std::unique_ptr<NetworkExecutor> network,
                                                                         const MakeMemory& makeMemory,
                                                                         const HierarchicalOptions& options) {
  std::unique_ptr<HierarchicalExecutor> made(new HierarchicalExecutor(std::move(hosts), std::move(network), options));
  auto memory = makeMemory([self = made.get()] { return self->network_->failure(self->atStake()); });
  if (!memory) return memory.error();
  made->memory_ = std::move(memory).value();
  return made;
}

HierarchicalExecutor::~HierarchicalExecutor() = default;

// The network first: it names this rank to the others, before one of this rank's own waits ends and passes on why.
void HierarchicalExecutor::abort() noexcept {
  network_->abort();
  memory_->abort();
}

Status HierarchicalExecutor::run(const Call& call, TimePoint deadline) {
  if (!failed_) return failed_;
  call_ = call;
  whole_ = describe(call);
  deadline_ = deadline;
  isLater_ = isAfterNetwork_ = false;
  failed_ = runKind(call);
  return failed_;
}

Status HierarchicalExecutor::runKind(const Call& call) {
  // Hosts would add first and the network divide: the sum within a host might overflow.
  if (reduces(call.kind) && averagesOverflow(call.reduction, call.type)) return throughNetwork(call);
  switch (call.kind) {
    case Kind::kAllReduce:
      return isByLeaders(call) ? allReduceByLeaders(call) : allReduceByPlaces(call);
    case Kind::kReduce:
      return isLong(call) ? throughNetwork(call) : reduce(call);
    case Kind::kReduceScatter:
      return hosts_.even() ? reduceScatter(call) : throughNetwork(call);
    case Kind::kAllGather:
      return hosts_.even() ? allGather(call) : throughNetwork(call);
    case Kind::kBroadcast:
      return isLong(call) ? throughNetwork(call) : broadcast(call);
    case Kind::kBarrier:
      return barrier();
    case Kind::kGather:
    case Kind::kScatter:
    case Kind::kAllToAll:
      break;
  }
  return throughNetwork(call);
}

// At least one chunk, though an empty one: ranks compare their calls in it.
template <typename F>
Status HierarchicalExecutor::inChunks(std::size_t count, std::size_t each, F&& f) {
  std::size_t begin = 0;
  do {
    isAfterNetwork_ = false;
    if (Status status = f(begin, std::min(each, count - begin)); !status) return status;
    begin += each;
  } while (begin < count);
  return {};
}

// ---- Steps

Call HierarchicalExecutor::step(Kind kind) const {
  return {.kind = kind, .type = call_.type, .reduction = call_.reduction, .whole = &whole_};
}

// Sums only: the network divides, once all ranks' elements are added.
Status HierarchicalExecutor::within(Call step) {
  if (step.reduction == Reduction::kAverage) step.reduction = Reduction::kSum;
  Status status = memory_->run(step, isAfterNetwork_ ? later(deadline_, 2 * options_.grace) : deadline_);
  if (status) return status;
  const bool ended = status.error().code == ErrorCode::kPeerVanished || status.error().code == ErrorCode::kPeerClosed;
  if (Status cause = network_->failureWithin(ended ? kWords : Duration{0}); !cause) return cause;
  network_->end(status.error(), atStake());
  return status;
}

Status HierarchicalExecutor::between(const Call& step, std::span<const int> ranks) {
  ++number_;
  isLater_ = isAfterNetwork_ = true;
  if (std::find(ranks.begin(), ranks.end(), rank()) == ranks.end()) return {};
  return network_->runAmong(step, {ranks, number_}, later(deadline_, options_.grace));
}

std::byte* HierarchicalExecutor::scratch(std::size_t bytes) {
  if (scratch_.size() < bytes) scratch_.resize(bytes);
  return scratch_.data();
}

std::size_t HierarchicalExecutor::chunkOf(const Call& call) const {
  return elementsIn(options_.chunkBytes, sizeOf(call.type));
}

// ---- Kinds

bool HierarchicalExecutor::isByLeaders(const Call& call) const {
  return !hosts_.even() || call.inputs[0].count * sizeOf(call.type) <= options_.byLeadersBytes;
}

// More than a chunk. All ranks know the count.
bool HierarchicalExecutor::isLong(const Call& call) const {
  const std::size_t count = call.inputs.empty() ? call.outputs[0].count : call.inputs[0].count;
  return count > chunkOf(call);
}

Call HierarchicalExecutor::toLeader(std::span<const ConstBlock> input, std::span<const Block> output) const {
  Call reduce = step(Kind::kReduce);
  reduce.inputs = input;
  if (hosts_.place() == 0) reduce.outputs = output;
  return reduce;
}

Status HierarchicalExecutor::allReduceByLeaders(const Call& call) {
  const std::size_t element = sizeOf(call.type);
  return inChunks(call.inputs[0].count, chunkOf(call), [&](std::size_t begin, std::size_t count) {
    ConstBlock input = cut(call.inputs[0], element, begin, count);
    const Block output = cut(call.outputs[0], element, begin, count);
    if (!alone()) {
      if (Status status = within(toLeader({&input, 1}, {&output, 1})); !status) return status;
      input.data = output.data;
    }
    Call among = step(Kind::kAllReduce);
    among.inputs = {&input, 1};
    among.outputs = {&output, 1};
    if (Status status = between(among, hosts_.leaders()); !status || alone()) return status;
    Call back = step(Kind::kBroadcast);
    if (hosts_.place() == 0) back.inputs = {&input, 1};
    back.outputs = {&output, 1};
    return within(back);
  });
}

Status HierarchicalExecutor::allReduceByPlaces(const Call& call) {
  const std::size_t element = sizeOf(call.type), places = hosts_.mates().size();
  std::vector<ConstBlock> inputs(places);
  std::vector<Block> outputs(places);
  return inChunks(call.inputs[0].count, chunkOf(call), [&](std::size_t begin, std::size_t count) {
    for (std::size_t place = 0; place < places; ++place) {
      const VectorPart part = partOf(count, element, static_cast<int>(place), places);
      inputs[place] = cut(call.inputs[0], element, begin + part.begin, part.count);
      outputs[place] = cut(call.outputs[0], element, begin + part.begin, part.count);
    }
    const Block& own = outputs[static_cast<std::size_t>(hosts_.place())];
    const ConstBlock sum{own.data, own.count};
    Call scatter = step(Kind::kReduceScatter);
    scatter.inputs = inputs;
    scatter.outputs = {&own, 1};
    if (Status status = within(scatter); !status) return status;
    Call among = step(Kind::kAllReduce);
    among.inputs = {&sum, 1};
    among.outputs = {&own, 1};
    if (Status status = between(among, hosts_.column()); !status) return status;
    Call gather = step(Kind::kAllGather);
    gather.inputs = {&sum, 1};
    gather.outputs = outputs;
    return within(gather);
  });
}

// All ranks of a host have come before one of them begins the second step.
Status HierarchicalExecutor::barrier() {
  if (Status status = within(step(Kind::kBarrier)); !status) return status;
  if (hosts_.even()) return between(step(Kind::kBarrier), hosts_.column());
  if (Status status = between(step(Kind::kBarrier), hosts_.leaders()); !status) return status;
  return within(step(Kind::kBarrier));
}

Status HierarchicalExecutor::broadcast(const Call& call) {
  const std::vector<int> among = hosts_.representatives(call.root);
  const int from = among[static_cast<std::size_t>(hosts_.mine())];
  const bool isRoot = rank() == call.root;
  const ConstBlock input = isRoot ? call.inputs[0] : ConstBlock{call.outputs[0].data, call.outputs[0].count};
  Call overNetwork = step(Kind::kBroadcast), inMemory = overNetwork;
  overNetwork.root = hosts_.hostOf(call.root);
  if (isRoot) overNetwork.inputs = {&input, 1};
  if (!isRoot) overNetwork.outputs = call.outputs;
  if (Status status = between(overNetwork, among); !status) return status;
  inMemory.root = hosts_.placeOf(from);
  if (rank() == from) inMemory.inputs = {&input, 1};
  inMemory.outputs = call.outputs;
  return within(inMemory);
}

Status HierarchicalExecutor::reduce(const Call& call) {
  const std::vector<int> among = hosts_.representatives(call.root);
  const int to = among[static_cast<std::size_t>(hosts_.mine())];
  const bool isRoot = rank() == call.root;
  const std::size_t bytes = call.inputs[0].count * sizeOf(call.type);
  ConstBlock input = call.inputs[0];
  Block output{rank() == to && !isRoot && !alone() ? scratch(bytes) : nullptr, input.count};
  if (isRoot) output = call.outputs[0];
  if (!alone()) {
    Call inMemory = step(Kind::kReduce);
    inMemory.root = hosts_.placeOf(to);
    inMemory.inputs = {&input, 1};
    if (rank() == to) inMemory.outputs = {&output, 1};
    if (Status status = within(inMemory); !status) return status;
    input.data = output.data;
  }
  Call overNetwork = step(Kind::kReduce);
  overNetwork.root = hosts_.hostOf(call.root);
  overNetwork.inputs = {&input, 1};
  if (isRoot) overNetwork.outputs = {&output, 1};
  return between(overNetwork, among);
}

// In memory a rank gets, for each host, the host's sum of the block of that host's rank of the same place.
Status HierarchicalExecutor::reduceScatter(const Call& call) {
  const std::size_t element = sizeOf(call.type), hosts = hosts_.leaders().size();
  std::size_t longest = 1;
  for (const ConstBlock& block : call.inputs) longest = std::max(longest, block.count);
  const std::size_t each = std::min(elementsIn(options_.chunkBytes / hosts, element), longest);
  std::byte* aside = scratch(hosts * each * element);
  std::vector<ConstBlock> inputs(hosts_.mates().size()), sums(hosts);
  return inChunks(longest, each, [&](std::size_t begin, std::size_t count) {
    for (std::size_t host = 0; host < hosts; ++host) {
      const std::vector<int>& ranks = hosts_.ranks(static_cast<int>(host));
      for (std::size_t place = 0; place < ranks.size(); ++place) {
        inputs[place] = cut(call.inputs[static_cast<std::size_t>(ranks[place])], element, begin, count);
      }
      const Block sum{aside + host * each * element, inputs[static_cast<std::size_t>(hosts_.place())].count};
      Call inMemory = step(Kind::kReduceScatter);
      inMemory.inputs = inputs;
      inMemory.outputs = {&sum, 1};
      if (Status status = within(inMemory); !status) return status;
      sums[host] = {sum.data, sum.count};
    }
    const Block output = cut(call.outputs[0], element, begin, count);
    Call overNetwork = step(Kind::kReduceScatter);
    overNetwork.inputs = sums;
    overNetwork.outputs = {&output, 1};
    return between(overNetwork, hosts_.column());
  });
}

Status HierarchicalExecutor::allGather(const Call& call) {
  const auto gatherWithin = [&](int host, const ConstBlock& input) {
    std::vector<Block> outputs;
    for (const int rank : hosts_.ranks(host)) outputs.push_back(call.outputs[static_cast<std::size_t>(rank)]);
    Call inMemory = step(Kind::kAllGather);
    inMemory.inputs = {&input, 1};
    inMemory.outputs = outputs;
    return within(inMemory);
  };
  if (Status status = gatherWithin(hosts_.mine(), call.inputs[0]); !status) return status;
  std::vector<Block> outputs;
  for (const int rank : hosts_.column()) outputs.push_back(call.outputs[static_cast<std::size_t>(rank)]);
  const Block& own = outputs[static_cast<std::size_t>(hosts_.mine())];
  const ConstBlock input{own.data, own.count};
  Call overNetwork = step(Kind::kAllGather);
  overNetwork.inputs = {&input, 1};
  overNetwork.outputs = outputs;
  if (Status status = between(overNetwork, hosts_.column()); !status) return status;
  for (int host = 0; host < hosts_.count(); ++host) {
    if (host == hosts_.mine()) continue;
    const Block& block = outputs[static_cast<std::size_t>(host)];
    if (Status status = gatherWithin(host, {block.data, block.count}); !status) return status;
  }
  return {};
}

Status HierarchicalExecutor::throughNetwork(const Call& call) {
  if (Status status = within(step(Kind::kBarrier)); !status) return status;
  return between(call, hosts_.everyone());
}

}  // namespace gloo_bypass::collectives
