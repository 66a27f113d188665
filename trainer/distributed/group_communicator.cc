#include "trainer/distributed/group_communicator.h"

#include <dlfcn.h>

#include <cstdlib>
#include <filesystem>
#include <functional>
#include <optional>

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <gloo/allreduce.h>
#include <gloo/math.h>
#include <gloo/types.h>
#include <nlohmann/json.hpp>

#include "plugin/compatibility/torch/device_registry.h"
#include "plugin/compatibility/torch/gloo_process_group.h"
#include "plugin/compatibility/torch/reducer.h"
#include "tools/common/carried_bytes.h"
#include "tools/common/error.h"
#include "tools/common/program_path.h"
#include "trainer/distributed/rendezvous.h"
#include "transport/base/joined.h"

namespace gloo_bypass::trainer {
namespace {

constexpr int kPointToPointTag = 0;
// Of send() and receive(): a receive that was started on the other tag must not take what they carry.
constexpr int kBlockingTag = 7001;
constexpr int kThreadsADevice = 2;  // as torch.distributed does

// Where the plug-in is when nothing else is said: beside an installed program, in ../plugin/ of one in a build folder.
std::string defaultPluginPath() {
  const std::filesystem::path folder = programFolder();
  const std::filesystem::path installed = folder / "libgloo_bypass.so";
  return (std::filesystem::exists(installed) ? installed : folder.parent_path() / "plugin/libgloo_bypass.so").string();
}

std::chrono::milliseconds milliseconds(double seconds) {
  return std::chrono::milliseconds(static_cast<int64_t>(seconds * 1000));
}

// c10d's all-reduce of one dense tensor, with a segment size of our choosing (0: Gloo's), which says when it begins.
// Sums in the tensor's own type: in 16 bits, each of the ring's additions is made in fp32 and rounded.
class SegmentedAllReduce : public torch_version::GlooAllReduceWork {
 public:
  SegmentedAllReduce(const std::shared_ptr<::gloo::Context>& context, const std::vector<at::Tensor>& tensors,
                     uint64_t sequence, std::chrono::milliseconds timeout, uint32_t tag, size_t segmentBytes,
                     std::function<void()> begun)
      : GlooAllReduceWork(context, tensors, sequence, timeout),
        timeout_(timeout),
        tag_(tag),
        segmentBytes_(segmentBytes),
        begun_(std::move(begun)) {}

  void run() override {
    if (begun_) begun_();
    switch (reduced()[0].scalar_type()) {
      case at::kDouble:
        return reduce<double>();
      case at::kHalf:
        return reduce<::gloo::float16>();
      case at::kBFloat16:
        return reduce<c10::BFloat16>();
      default:
        return reduce<float>();
    }
  }

 private:
  template <typename T>
  void reduce() {
    ::gloo::AllreduceOptions options(glooContext());
    options.setOutput(static_cast<T*>(reduced()[0].data_ptr()), static_cast<size_t>(reduced()[0].numel()));
    options.setReduceFunction(static_cast<void (*)(void*, const void*, const void*, size_t)>(&::gloo::sum<T>));
    options.setTag(tag_);
    if (segmentBytes_ != 0) {
      options.setMaxSegmentSize(segmentBytes_);
    }
    options.setTimeout(timeout_);
    ::gloo::allreduce(options);
  }

  std::chrono::milliseconds timeout_;
  uint32_t tag_;
  size_t segmentBytes_;
  std::function<void()> begun_;
};

class TimedProcessGroup : public torch_version::GlooProcessGroup {
 public:
  TimedProcessGroup(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
                    c10::intrusive_ptr<Options> options, std::shared_ptr<WindowClock> clock, size_t segmentBytes)
      : GlooProcessGroup(store, rank, size, std::move(options)),
        clock_(std::move(clock)),
        segmentBytes_(segmentBytes) {}

  c10::intrusive_ptr<c10d::Work> allreduce(std::vector<at::Tensor>& tensors,
                                           const c10d::AllreduceOptions& options) override {
    const auto bucket = clock_->handedOver(static_cast<int64_t>(tensors[0].nbytes()));
    const bool saysWhenBegun = bucket && clock_->isRecording();
    return stamped(bucket, saysWhenBegun
                               ? segmented(tensors, [clock = clock_, index = *bucket] { clock->begun(index); })
                               : reduce(tensors, options, bucket.has_value()));
  }

  // The reduce-scatters of --zero.
  c10::intrusive_ptr<c10d::Work> alltoall_base(at::Tensor& output, at::Tensor& input,
                                               std::vector<int64_t>& outputSplits, std::vector<int64_t>& inputSplits,
                                               const c10d::AllToAllOptions& options) override {
    const auto bucket = clock_->handedOver(static_cast<int64_t>(input.nbytes()));
    return stamped(bucket, ProcessGroupGloo::alltoall_base(output, input, outputSplits, inputSplits, options));
  }

  // An all-reduce without a timestamp.
  c10::intrusive_ptr<c10d::Work> reduce(std::vector<at::Tensor>& tensors, const c10d::AllreduceOptions& options,
                                        bool isGradient) {
    // PyTorch 1.13's reduces no bf16.
    const bool isOurs = (isGradient && segmentBytes_ != 0) || tensors[0].scalar_type() == at::kBFloat16;
    return isOurs ? segmented(tensors) : ProcessGroupGloo::allreduce(tensors, options);
  }

 private:
  c10::intrusive_ptr<c10d::Work> stamped(const BucketTicket& bucket, c10::intrusive_ptr<c10d::Work> work) {
    if (bucket) {
      work->getFuture()->addCallback([clock = clock_, index = *bucket](at::ivalue::Future&) { clock->done(index); });
    }
    return work;
  }

  c10::intrusive_ptr<c10d::Work> segmented(std::vector<at::Tensor>& tensors, std::function<void()> begun = {}) {
    const auto tag = nextTag();
    auto work = c10::make_intrusive<SegmentedAllReduce>(getContext(tag), tensors, nextSequence(), timeout(), tag,
                                                        segmentBytes_, std::move(begun));
    enqueue(work);
    return work;
  }

  std::shared_ptr<WindowClock> clock_;
  size_t segmentBytes_;
};

// As torch.distributed chooses: the interfaces of GLOO_SOCKET_IFNAME, or the address of the host's name.
std::vector<std::shared_ptr<::gloo::transport::Device>> makeDevices() {
  std::vector<std::shared_ptr<::gloo::transport::Device>> devices;
  const char* interfaces = std::getenv("GLOO_SOCKET_IFNAME");
  if (interfaces == nullptr || *interfaces == '\0') {
    devices.push_back(torch_version::defaultDevice());
    return devices;
  }
  std::string_view rest(interfaces);
  while (!rest.empty()) {
    const size_t comma = rest.find(',');
    devices.push_back(torch_version::deviceForInterface(std::string(rest.substr(0, comma))));
    rest.remove_prefix(comma == std::string_view::npos ? rest.size() : comma + 1);
  }
  return devices;
}

bool isKernelTcp(const std::string& transport) {
  return transport == "TCP" || transport == "TCP_TLS" || transport == "UV";
}

}  // namespace

std::string prepareTransport(const Options& options) {
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

struct GroupCommunicator::Group {
  std::shared_ptr<WindowClock> clock = std::make_shared<WindowClock>();
  c10::intrusive_ptr<c10d::Store> store;
  c10::intrusive_ptr<TimedProcessGroup> processGroup;
  c10::intrusive_ptr<c10d::ProcessGroup> forReducer;  // the same group
};

GroupCommunicator::GroupCommunicator(const RankEnvironment& environment, const Options& options,
                                     const nlohmann::json& agreement)
    : transport_(prepareTransport(options)), group_(std::make_unique<Group>()) {
  const auto rendezvousTimeout = milliseconds(options.rendezvousTimeoutSeconds);
  if (environment.rank == 0 && !options.stepMarkers.empty()) {
    group_->clock->sendMarkers(options.stepMarkers);
  }
  group_->store = connectStore(environment, rendezvousTimeout);
  meetRanks(*group_->store, environment, agreement, rendezvousTimeout);
  const auto before = openTcpSockets();
  auto groupOptions = c10d::ProcessGroupGloo::Options::create(milliseconds(options.timeoutSeconds));
  groupOptions->devices = makeDevices();
  groupOptions->threads = static_cast<int>(groupOptions->devices.size()) * kThreadsADevice;
  group_->processGroup =
      c10::make_intrusive<TimedProcessGroup>(group_->store, environment.rank, environment.worldSize, groupOptions,
                                             group_->clock, static_cast<size_t>(options.segmentBytes));
  group_->forReducer = torch_version::asProcessGroup(group_->store, group_->processGroup);
  byteCounter_ = isKernelTcp(transport_) ? makeTcpCounter(before) : makePluginCounter();
}

GroupCommunicator::~GroupCommunicator() = default;

int GroupCommunicator::rank() const { return group_->processGroup->getRank(); }
int GroupCommunicator::worldSize() const { return group_->processGroup->getSize(); }
c10d::ProcessGroup& GroupCommunicator::processGroup() { return *group_->forReducer; }

void GroupCommunicator::requireBytesOverTransport() const {
  // Without a plug-in nothing is ours; one of somebody else's may not count.
  if (const auto counters = pluginCounters(); counters && worldSize() > 1) {
    requireCarriedBy(transport_, !isKernelTcp(transport_), {}, carriedBytes(*counters), 1);
  }
}

void GroupCommunicator::barrier() { group_->processGroup->barrier()->wait(); }

double GroupCommunicator::meanOverRanks(double value) {
  std::vector<at::Tensor> tensors{at::full({1}, value, at::kDouble)};
  group_->processGroup->allreduce(tensors, {})->wait();
  return tensors[0].item<double>() / worldSize();
}

void GroupCommunicator::sum(at::Tensor& tensor) {
  std::vector<at::Tensor> tensors{tensor};
  group_->processGroup->reduce(tensors, {}, /*isGradient=*/true)->wait();
}

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
  group_->processGroup->broadcast(tensors, options)->wait();
}

std::vector<at::Tensor> GroupCommunicator::gather(const at::Tensor& bytes) {
  std::vector<at::Tensor> inputs{bytes};
  std::vector<std::vector<at::Tensor>> outputs(1);
  for (int rank = 0; rank < worldSize(); ++rank) {
    outputs[0].push_back(at::empty_like(bytes));
  }
  group_->processGroup->allgather(outputs, inputs)->wait();
  return std::move(outputs[0]);
}

void GroupCommunicator::send(const at::Tensor& tensor, int rank) {
  std::vector<at::Tensor> tensors{tensor};
  group_->processGroup->send(tensors, rank, kBlockingTag)->wait();
}

void GroupCommunicator::receive(const at::Tensor& tensor, int rank) {
  std::vector<at::Tensor> tensors{tensor};
  group_->processGroup->recv(tensors, rank, kBlockingTag)->wait();
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
  std::vector<at::Tensor> tensors{tensor};
  return std::make_unique<WorkTransfer>(group_->processGroup->send(tensors, rank, kPointToPointTag));
}

std::unique_ptr<Transfer> GroupCommunicator::startReceive(at::Tensor& tensor, int rank) {
  std::vector<at::Tensor> tensors{tensor};
  return std::make_unique<WorkTransfer>(group_->processGroup->recv(tensors, rank, kPointToPointTag));
}

void GroupCommunicator::exchange(const at::Tensor& own, const std::vector<int>& sendTo, std::vector<at::Tensor>& heard,
                                 const std::vector<int>& receiveFrom) {
  std::vector<c10::intrusive_ptr<c10d::Work>> works;
  for (size_t i = 0; i < receiveFrom.size(); ++i) {
    std::vector<at::Tensor> tensors{heard[i]};
    works.push_back(group_->processGroup->recv(tensors, receiveFrom[i], kPointToPointTag));
  }
  for (const int rank : sendTo) {
    std::vector<at::Tensor> tensors{own};
    works.push_back(group_->processGroup->send(tensors, rank, kPointToPointTag));
  }
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
