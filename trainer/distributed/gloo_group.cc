// PyTorch's ProcessGroupGloo, with timestamps. It makes an all-reduce itself, instead of c10d, for another segment
// size, for 16 bits (PyTorch 1.13 reduces no bf16, and Gloo adds fp16 one element at a time) and where a trace wants to
// know when a ring begins.
#include <cstdlib>
#include <string_view>
#include <utility>
#include <vector>

#include <ATen/ATen.h>
#include <gloo/allreduce.h>
#include <gloo/math.h>
#include <gloo/types.h>

#include "collectives/reduce.h"
#include "trainer/distributed/process_groups.h"

namespace gloo_bypass::trainer {
namespace {

constexpr int kThreadsADevice = 2;  // as torch.distributed does

// Gloo's ReduceOptions: c = a + b, of 16 bits, added in fp32 and rounded.
template <collectives::ElementType type>
void sumOf16Bits(void* c, const void* a, const void* b, size_t count) {
  const std::byte* const inputs[] = {static_cast<const std::byte*>(a), static_cast<const std::byte*>(b)};
  collectives::reduce(collectives::Reduction::kSum, type, static_cast<std::byte*>(c), inputs, count, /*ranks=*/1);
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
        return reduce<double>(&::gloo::sum<double>);
      case at::kHalf:
        return reduce<c10::Half>(&sumOf16Bits<collectives::ElementType::kFloat16>);
      case at::kBFloat16:
        return reduce<c10::BFloat16>(&sumOf16Bits<collectives::ElementType::kBfloat16>);
      default:
        return reduce<float>(&::gloo::sum<float>);
    }
  }

 private:
  template <typename T>
  void reduce(void (*sum)(void*, const void*, const void*, size_t)) {
    ::gloo::AllreduceOptions options(glooContext());
    options.setOutput(static_cast<T*>(reduced()[0].data_ptr()), static_cast<size_t>(reduced()[0].numel()));
    options.setReduceFunction(sum);
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
    const auto bucket = clock_->handedOver(tensors[0]);
    const bool saysWhenBegun = bucket && clock_->isRecording();
    return stamped(clock_, bucket,
                   saysWhenBegun ? segmented(tensors, [clock = clock_, index = *bucket] { clock->begun(index); })
                                 : reduce(tensors, options, bucket.has_value()));
  }

  // The reduce-scatters of --zero.
  c10::intrusive_ptr<c10d::Work> alltoall_base(at::Tensor& output, at::Tensor& input,
                                               std::vector<int64_t>& outputSplits, std::vector<int64_t>& inputSplits,
                                               const c10d::AllToAllOptions& options) override {
    const auto bucket = clock_->handedOver(static_cast<int64_t>(input.nbytes()));
    return stamped(clock_, bucket, ProcessGroupGloo::alltoall_base(output, input, outputSplits, inputSplits, options));
  }

  // An all-reduce without a timestamp.
  c10::intrusive_ptr<c10d::Work> reduce(std::vector<at::Tensor>& tensors, const c10d::AllreduceOptions& options,
                                        bool isGradient) {
    const auto type = tensors[0].scalar_type();
    const bool isOurs = (isGradient && segmentBytes_ != 0) || type == at::kHalf || type == at::kBFloat16;
    return isOurs ? segmented(tensors) : ProcessGroupGloo::allreduce(tensors, options);
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

}  // namespace

c10::intrusive_ptr<c10d::Work> stamped(const std::shared_ptr<WindowClock>& clock, const BucketTicket& bucket,
                                       c10::intrusive_ptr<c10d::Work> work) {
  if (bucket) {
    work->getFuture()->addCallback([clock, index = *bucket](at::ivalue::Future&) { clock->done(index); });
  }
  return work;
}

TimedGroup makeGlooGroup(const c10::intrusive_ptr<c10d::Store>& store, const GroupPlace& place,
                         std::shared_ptr<WindowClock> clock, size_t segmentBytes) {
  auto options = c10d::ProcessGroupGloo::Options::create(place.timeout);
  options->devices = makeDevices();
  options->threads = static_cast<int>(options->devices.size()) * kThreadsADevice;
  auto group = c10::make_intrusive<TimedProcessGroup>(store, place.rank, place.worldSize, std::move(options),
                                                      std::move(clock), segmentBytes);
  const auto sum = [group = group.get()](const at::Tensor& tensor) {
    std::vector<at::Tensor> tensors{tensor};
    return group->reduce(tensors, {}, /*isGradient=*/true);
  };
  return {std::move(group), sum};
}

}  // namespace gloo_bypass::trainer
