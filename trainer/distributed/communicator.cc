#include "trainer/distributed/communicator.h"

#include <dlfcn.h>

#include <condition_variable>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <mutex>
#include <optional>

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <gloo/allreduce.h>
#include <gloo/math.h>
#include <gloo/types.h>
#include <nlohmann/json.hpp>

#include "plugin/compatibility/torch/device_registry.h"
#include "plugin/compatibility/torch/gloo_process_group.h"
#include "tools/common/carried_bytes.h"
#include "tools/common/error.h"
#include "tools/common/program_path.h"
#include "trainer/config/joined.h"
#include "trainer/distributed/rendezvous.h"

namespace gloo_bypass::trainer {
namespace {

using Clock = std::chrono::steady_clock;
constexpr int kPointToPointTag = 0;
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

// Timestamps of the gradient all-reduces, and the markers at the first and the last of them. Handed-over stamps come
// from the training thread, done stamps from the group's workers.
class WindowClock {
 public:
  void sendMarkers(const std::string& address) { markers_.emplace(address); }
  const StepMarkers* markers() const { return markers_ ? &*markers_ : nullptr; }

  void begin(uint64_t step, int64_t gradientBytes) {
    const std::lock_guard lock(mutex_);
    window_ = {};
    isOpen_ = true;
    gradientBytes_ = gradientBytes;
    isMarking_ = markers_ && step != 0;
    if (isMarking_) {
      markers_->prepare(step);
    }
  }
  void recordBuckets() { isRecording_ = true; }
  bool isRecording() const { return isRecording_; }
  // The bucket's number in the window; none where the operation does not belong to it.
  std::optional<size_t> handedOver(int64_t bytes) {
    const std::lock_guard lock(mutex_);
    if (!isOpen_) {
      return {};
    }
    window_.lastHandedOver = Clock::now();
    if (isRecording_) {
      window_.each.push_back({.handedOver = window_.lastHandedOver, .done = {}, .begun = {}, .bytes = bytes});
    }
    if (window_.buckets++ == 0) {
      window_.firstHandedOver = window_.lastHandedOver;
      if (isMarking_) {
        markers_->sendFirst();
      }
    }
    window_.bytes += bytes;
    ++pending_;
    return static_cast<size_t>(window_.buckets - 1);
  }
  void begun(size_t bucket) {
    const std::lock_guard lock(mutex_);
    window_.each[bucket].begun = Clock::now();
  }
  void done(size_t bucket) {
    const std::lock_guard lock(mutex_);
    window_.lastDone = Clock::now();
    if (isRecording_) {
      window_.each[bucket].done = window_.lastDone;
    }
    if (--pending_ == 0 && window_.bytes >= gradientBytes_) {
      markLast();
    }
    changed_.notify_all();
  }
  AllReduceWindow end() {
    std::unique_lock lock(mutex_);
    isOpen_ = false;
    constexpr std::chrono::seconds kStampsArriveWithin{10};
    if (!changed_.wait_for(lock, kStampsArriveWithin, [&] { return pending_ == 0; })) {
      throw ProgramError("an all-reduce of this step has not completed although backward returned");
    }
    markLast();  // where parameters had no part in the loss, fewer bytes were handed over
    return window_;
  }

 private:
  void markLast() {
    if (isMarking_ && window_.buckets > 0) {
      markers_->sendLast();
    }
    isMarking_ = false;
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  AllReduceWindow window_;
  std::optional<StepMarkers> markers_;
  int64_t gradientBytes_ = 0;
  int pending_ = 0;
  bool isOpen_ = false, isMarking_ = false;  // isMarking_: the last marker of this window is still to be sent
  bool isRecording_ = false;
};

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
    auto work = saysWhenBegun ? segmented(tensors, [clock = clock_, index = *bucket] { clock->begun(index); })
                              : untimed(tensors, options, bucket.has_value());
    if (bucket) {
      work->getFuture()->addCallback([clock = clock_, index = *bucket](at::ivalue::Future&) { clock->done(index); });
    }
    return work;
  }

  c10::intrusive_ptr<c10d::Work> untimed(std::vector<at::Tensor>& tensors, const c10d::AllreduceOptions& options,
                                         bool isGradient) {
    // PyTorch 1.13's reduces no bf16.
    const bool isOurs = (isGradient && segmentBytes_ != 0) || tensors[0].scalar_type() == at::kBFloat16;
    return isOurs ? segmented(tensors) : ProcessGroupGloo::allreduce(tensors, options);
  }

  // The reduce-scatters of --zero.
  c10::intrusive_ptr<c10d::Work> alltoall_base(at::Tensor& output, at::Tensor& input,
                                               std::vector<int64_t>& outputSplits, std::vector<int64_t>& inputSplits,
                                               const c10d::AllToAllOptions& options) override {
    const auto bucket = clock_->handedOver(static_cast<int64_t>(input.nbytes()));
    auto work = ProcessGroupGloo::alltoall_base(output, input, outputSplits, inputSplits, options);
    if (bucket) {
      work->getFuture()->addCallback([clock = clock_, index = *bucket](at::ivalue::Future&) { clock->done(index); });
    }
    return work;
  }

 private:
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

struct Communicator::Group {
  std::shared_ptr<WindowClock> clock = std::make_shared<WindowClock>();
  c10::intrusive_ptr<c10d::Store> store;
  c10::intrusive_ptr<TimedProcessGroup> processGroup;
  c10::intrusive_ptr<c10d::ProcessGroup> forReducer;  // the same group
};

Communicator::Communicator(const RankEnvironment& environment, const Options& options, const nlohmann::json& trajectory)
    : transport_(prepareTransport(options)), group_(std::make_unique<Group>()) {
  const auto rendezvousTimeout = milliseconds(options.rendezvousTimeoutSeconds);
  if (environment.rank == 0 && !options.stepMarkers.empty()) {
    group_->clock->sendMarkers(options.stepMarkers);
  }
  group_->store = connectStore(environment, rendezvousTimeout);
  meetRanks(*group_->store, environment, trajectory, rendezvousTimeout);
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

Communicator::~Communicator() = default;

int Communicator::rank() const { return group_->processGroup->getRank(); }
int Communicator::worldSize() const { return group_->processGroup->getSize(); }
c10d::ProcessGroup& Communicator::processGroup() { return *group_->forReducer; }

void Communicator::requireBytesOverTransport() const {
  // Without a plug-in nothing is ours; one of somebody else's may not count.
  if (const auto counters = pluginCounters(); counters && worldSize() > 1) {
    requireCarriedBy(transport_, !isKernelTcp(transport_), {}, carriedBytes(*counters), 1);
  }
}

void Communicator::barrier() { group_->processGroup->barrier()->wait(); }

double Communicator::meanOverRanks(double value) {
  std::vector<at::Tensor> tensors{at::full({1}, value, at::kDouble)};
  group_->processGroup->allreduce(tensors, {})->wait();
  return tensors[0].item<double>() / worldSize();
}

void Communicator::sum(at::Tensor& tensor) {
  std::vector<at::Tensor> tensors{tensor};
  group_->processGroup->untimed(tensors, {}, /*isGradient=*/true)->wait();
}

void Communicator::broadcast(at::Tensor& tensor, int root) {
  std::vector<at::Tensor> tensors{tensor};
  c10d::BroadcastOptions options;
  options.rootRank = root;
  group_->processGroup->broadcast(tensors, options)->wait();
}

std::vector<at::Tensor> Communicator::gather(const at::Tensor& bytes) {
  std::vector<at::Tensor> inputs{bytes};
  std::vector<std::vector<at::Tensor>> outputs(1);
  for (int rank = 0; rank < worldSize(); ++rank) {
    outputs[0].push_back(at::empty_like(bytes));
  }
  group_->processGroup->allgather(outputs, inputs)->wait();
  return std::move(outputs[0]);
}

void Communicator::send(const at::Tensor& tensor, int rank) {
  std::vector<at::Tensor> none;
  exchange(tensor, {rank}, none, {});
}

void Communicator::receive(at::Tensor& tensor, int rank) {
  std::vector<at::Tensor> heard{tensor};
  exchange(tensor, {}, heard, {rank});
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

std::unique_ptr<Transfer> Communicator::startSend(const at::Tensor& tensor, int rank) {
  std::vector<at::Tensor> tensors{tensor};
  return std::make_unique<WorkTransfer>(group_->processGroup->send(tensors, rank, kPointToPointTag));
}

std::unique_ptr<Transfer> Communicator::startReceive(at::Tensor& tensor, int rank) {
  std::vector<at::Tensor> tensors{tensor};
  return std::make_unique<WorkTransfer>(group_->processGroup->recv(tensors, rank, kPointToPointTag));
}

void Communicator::exchange(const at::Tensor& own, const std::vector<int>& sendTo, std::vector<at::Tensor>& heard,
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

BucketTicket Communicator::bucketHandedOver(int64_t bytes) { return group_->clock->handedOver(bytes); }
void Communicator::bucketDone(const BucketTicket& ticket) {
  if (ticket) {
    group_->clock->done(*ticket);
  }
}

std::vector<std::string> Communicator::gather(const std::string& value) {
  auto bytes = at::empty({static_cast<int64_t>(value.size())}, at::kByte);
  std::copy(value.begin(), value.end(), static_cast<char*>(bytes.data_ptr()));
  std::vector<std::string> values;
  for (const auto& other : gather(bytes)) {
    values.emplace_back(static_cast<const char*>(other.data_ptr()), value.size());
  }
  return values;
}

void Communicator::beginWindow(uint64_t step, int64_t gradientBytes) { group_->clock->begin(step, gradientBytes); }
void Communicator::recordBuckets() { group_->clock->recordBuckets(); }
const StepMarkers* Communicator::stepMarkers() const { return group_->clock->markers(); }
AllReduceWindow Communicator::endWindow() { return group_->clock->end(); }

}  // namespace gloo_bypass::trainer
