#include "trainer/distributed/group_communicator.h"

#include <dlfcn.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <set>
#include <string_view>

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include "plugin/compatibility/torch/device_registry.h"
#include "plugin/compatibility/torch/reducer.h"
#include "tools/common/carried_bytes.h"
#include "tools/common/error.h"
#include "tools/common/program_path.h"
#include "trainer/config/choices.h"
#include "trainer/distributed/process_groups.h"
#include "trainer/distributed/rendezvous.h"
#include "transport/base/joined.h"

namespace gloo_bypass::trainer {
namespace {

constexpr int kPointToPointTag = 0;
// Of send() and receive(): a receive that was started on the other tag must not take what they carry.
constexpr int kBlockingTag = 7001;

// Where the plug-in is when nothing else is said: beside an installed program, in ../plugin/ of one in a build folder.
std::string defaultPluginPath() {
  const std::filesystem::path folder = programFolder();
  const std::filesystem::path installed = folder / "libgloo_bypass.so";
  return (std::filesystem::exists(installed) ? installed : folder.parent_path() / "plugin/libgloo_bypass.so").string();
}

std::chrono::milliseconds milliseconds(double seconds) {
  return std::chrono::milliseconds(static_cast<int64_t>(seconds * 1000));
}

bool isKernelTcp(const std::string& transport) {
  return transport == "TCP" || transport == "TCP_TLS" || transport == "UV";
}

// The transport's name; c10d's registry has it.
std::string loadTransport(const Options& options) {
  const char* variable = std::getenv("GLOO_DEVICE_TRANSPORT");
  const std::string transport = variable != nullptr ? variable : "TCP";
  const bool isKnown = c10d::GlooDeviceRegistry()->Has(transport);
  if (options.pluginPath.empty() && (isKnown || variable == nullptr)) {
    return transport;
  }
  const std::string path = options.pluginPath.empty() ? defaultPluginPath() : options.pluginPath;
  // Global, so that the counters' symbol is found; never unloaded, since its devices live as long as the process.
  if (::dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL) == nullptr) {
    throw UsageError(
        fmt::format("GLOO_DEVICE_TRANSPORT={} needs a plug-in that cannot be loaded: {} (--plugin FILE "
                    "names another)",
                    transport, ::dlerror()));
  }
  if (!c10d::GlooDeviceRegistry()->Has(transport)) {
    throw UsageError(fmt::format("GLOO_DEVICE_TRANSPORT={}: no such transport, {} loaded; there are: {}", transport,
                                 path, joined(c10d::GlooDeviceRegistry()->Keys(), ", ")));
  }
  return transport;
}

// The user would not notice that nothing is encrypted.
void refuseEncryption(const std::string& transport) {
  const char* const security = std::getenv("GLOO_BYPASS_SECURITY");
  if (security == nullptr || *security == '\0' || std::string_view(security) == "off") return;
  throw UsageError(
      fmt::format("GLOO_BYPASS_SECURITY='{}' encrypts nothing over {}: set GLOO_DEVICE_TRANSPORT to DPDK or UDP, or "
                  "leave GLOO_BYPASS_SECURITY out",
                  security, transport));
}

}  // namespace

std::string prepareTransport(const Options& options) {
  const std::string transport = loadTransport(options);
  if (isKernelTcp(transport)) refuseEncryption(transport);
  if (options.collectives == Collectives::kOwn) {
    if (isKernelTcp(transport)) {
      throw UsageError(fmt::format(
          "--collectives own goes over the plug-in's transports, not over {}: set GLOO_DEVICE_TRANSPORT, for example "
          "to DPDK",
          transport));
    }
    requireOwnCollectives();
  }
  return transport;
}

std::string GroupCommunicator::collectives() const { return nameOf(kCollectives, collectives_); }

struct GroupCommunicator::Group {
  std::shared_ptr<WindowClock> clock = std::make_shared<WindowClock>();
  c10::intrusive_ptr<c10d::Store> store;
  std::set<int> socketsBefore;
  TimedGroup timed;
  c10::intrusive_ptr<c10d::ProcessGroup> forReducer;  // the same group

  c10::intrusive_ptr<c10d::Work> send(const at::Tensor& tensor, int rank, int tag = kPointToPointTag) {
    std::vector<at::Tensor> tensors{tensor};
    return timed.group->send(tensors, rank, tag);
  }
  c10::intrusive_ptr<c10d::Work> receive(const at::Tensor& tensor, int rank, int tag = kPointToPointTag) {
    std::vector<at::Tensor> tensors{tensor};
    return timed.group->recv(tensors, rank, tag);
  }
};

GroupCommunicator::GroupCommunicator(const RankEnvironment& environment, const Options& options,
                                     const nlohmann::json& agreement)
    : transport_(prepareTransport(options)),
      collectives_(options.collectives),
      timeout_(milliseconds(options.timeoutSeconds)),
      segmentBytes_(static_cast<size_t>(options.segmentBytes)),
      group_(std::make_unique<Group>()) {
  const auto rendezvousTimeout = milliseconds(options.rendezvousTimeoutSeconds);
  if (environment.rank == 0 && !options.stepMarkers.empty()) {
    group_->clock->sendMarkers(options.stepMarkers);
  }
  group_->store = connectStore(environment, rendezvousTimeout);
  meetRanks(group_->store, environment, agreement, rendezvousTimeout);
  group_->socketsBefore = openTcpSockets();
  connect(environment.rank, environment.worldSize);
  countBytes();
}

GroupCommunicator::GroupCommunicator(const GroupCommunicator& all, const std::vector<int>& ranks)
    : transport_(all.transport_),
      collectives_(all.collectives_),
      timeout_(all.timeout_),
      segmentBytes_(all.segmentBytes_),
      group_(std::make_unique<Group>()) {
  group_->clock = all.group_->clock;
  group_->store = c10::make_intrusive<c10d::PrefixStore>("ddp_train/ranks/" + joined(ranks, ","), all.group_->store);
  const auto own = std::find(ranks.begin(), ranks.end(), all.rank());
  connect(static_cast<int>(own - ranks.begin()), static_cast<int>(ranks.size()));
}

std::unique_ptr<GroupCommunicator> GroupCommunicator::subgroup(const std::vector<int>& ranks) {
  std::unique_ptr<GroupCommunicator> group(new GroupCommunicator(*this, ranks));
  countBytes();
  return group;
}

void GroupCommunicator::connect(int rank, int worldSize) {
  const GroupPlace place{.rank = rank, .worldSize = worldSize, .timeout = timeout_};
  group_->timed = collectives_ == Collectives::kOwn ? makeOwnGroup(group_->store, place, group_->clock, transport_)
                                                    : makeGlooGroup(group_->store, place, group_->clock, segmentBytes_);
  group_->forReducer = torch_version::asProcessGroup(group_->store, group_->timed.group);
}

void GroupCommunicator::countBytes() {
  byteCounter_ = isKernelTcp(transport_) ? makeTcpCounter(group_->socketsBefore) : makePluginCounter();
}

GroupCommunicator::~GroupCommunicator() = default;

int GroupCommunicator::rank() const { return group_->timed.group->getRank(); }
int GroupCommunicator::worldSize() const { return group_->timed.group->getSize(); }
c10d::ProcessGroup& GroupCommunicator::processGroup() { return *group_->forReducer; }

void GroupCommunicator::requireBytesOverTransport() const {
  // Without a plug-in nothing is ours; one of somebody else's may not count.
  if (const auto counters = pluginCounters(); counters && worldSize() > 1) {
    std::vector<std::string> carriers{transport_};
    // Our own collectives move vectors through a host's memory, and count them apart.
    if (collectives_ == Collectives::kOwn) carriers.emplace_back("MEMORY");
    requireCarriedBy(carriers, !isKernelTcp(transport_), {}, carriedBytes(*counters), 1);
  }
}

void GroupCommunicator::barrier() { group_->timed.group->barrier()->wait(); }

double GroupCommunicator::meanOverRanks(double value) {
  std::vector<at::Tensor> tensors{at::full({1}, value, at::kDouble)};
  group_->timed.group->allreduce(tensors, {})->wait();
  return tensors[0].item<double>() / worldSize();
}

void GroupCommunicator::sum(at::Tensor& tensor) { group_->timed.sum(tensor)->wait(); }

void GroupCommunicator::broadcast(const std::vector<at::Tensor>& tensors) {
  constexpr size_t kBroadcastBytes = size_t{250} << 20;  // DDP's _DDP_BROADCAST_BUCKET size
  std::vector<at::Tensor> detached;
  for (const auto& tensor : tensors) {
    // c10d's Gloo in PyTorch 1.13 knows no bf16. A broadcast only copies: as good as 16 other bits.
    detached.push_back(tensor.scalar_type() == at::kBFloat16 ? tensor.detach().view(at::kHalf) : tensor.detach());
  }
  if (!detached.empty()) {
    c10d::broadcast_coalesced(group_->forReducer, detached, kBroadcastBytes, 0);
  }
}

void GroupCommunicator::broadcast(at::Tensor& tensor, int root) {
  std::vector<at::Tensor> tensors{tensor};
  c10d::BroadcastOptions options;
  options.rootRank = root;
  group_->timed.group->broadcast(tensors, options)->wait();
}

std::vector<at::Tensor> GroupCommunicator::gather(const at::Tensor& bytes) {
  std::vector<at::Tensor> inputs{bytes};
  std::vector<std::vector<at::Tensor>> outputs(1);
  for (int rank = 0; rank < worldSize(); ++rank) {
    outputs[0].push_back(at::empty_like(bytes));
  }
  group_->timed.group->allgather(outputs, inputs)->wait();
  return std::move(outputs[0]);
}

void GroupCommunicator::send(const at::Tensor& tensor, int rank) { group_->send(tensor, rank, kBlockingTag)->wait(); }

void GroupCommunicator::receive(const at::Tensor& tensor, int rank) {
  group_->receive(tensor, rank, kBlockingTag)->wait();
}

namespace {

class WorkTransfer final : public Transfer {
 public:
  explicit WorkTransfer(c10::intrusive_ptr<c10d::Work> work) : work_(std::move(work)) {}
  bool wait() override { return work_->wait(); }
  void giveUp() override { work_->abort(); }

 private:
  const c10::intrusive_ptr<c10d::Work> work_;
};

}  // namespace

std::unique_ptr<Transfer> GroupCommunicator::startSend(const at::Tensor& tensor, int rank) {
  return std::make_unique<WorkTransfer>(group_->send(tensor, rank));
}

std::unique_ptr<Transfer> GroupCommunicator::startReceive(at::Tensor& tensor, int rank) {
  return std::make_unique<WorkTransfer>(group_->receive(tensor, rank));
}

void GroupCommunicator::exchange(const at::Tensor& own, const std::vector<int>& sendTo, std::vector<at::Tensor>& heard,
                                 const std::vector<int>& receiveFrom) {
  std::vector<c10::intrusive_ptr<c10d::Work>> works;
  for (size_t i = 0; i < receiveFrom.size(); ++i) works.push_back(group_->receive(heard[i], receiveFrom[i]));
  for (const int rank : sendTo) works.push_back(group_->send(own, rank));
  for (const auto& work : works) {
    work->wait();
  }
}

BucketTicket GroupCommunicator::bucketHandedOver(int64_t bytes) { return group_->clock->handedOver(bytes); }
void GroupCommunicator::bucketDone(const BucketTicket& ticket) {
  if (ticket) {
    group_->clock->done(*ticket);
  }
}

std::vector<std::string> GroupCommunicator::gather(const std::string& value) {
  auto bytes = at::empty({static_cast<int64_t>(value.size())}, at::kByte);
  std::copy(value.begin(), value.end(), static_cast<char*>(bytes.data_ptr()));
  std::vector<std::string> values;
  for (const auto& other : gather(bytes)) {
    values.emplace_back(static_cast<const char*>(other.data_ptr()), value.size());
  }
  return values;
}

void GroupCommunicator::beginWindow(uint64_t step, int64_t gradientBytes) { group_->clock->begin(step, gradientBytes); }
void GroupCommunicator::recordBuckets() { group_->clock->recordBuckets(); }
void GroupCommunicator::addSummary(nlohmann::json& record) const {
  if (const StepMarkers* markers = group_->clock->markers()) {
    record["step_markers"] = markers->toJson();
    markers->complainOfFailures();
  }
}
AllReduceWindow GroupCommunicator::endWindow() { return group_->clock->end(); }

}  // namespace gloo_bypass::trainer
