#include "trainer/distributed/compression/exchange.h"

#include <condition_variable>
#include <deque>
#include <exception>
#include <map>
#include <mutex>
#include <thread>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <ATen/core/ivalue.h>

#include "plugin/compatibility/torch/reducer.h"

namespace gloo_bypass::trainer {
namespace {

using FuturePtr = c10::intrusive_ptr<c10::ivalue::Future>;

// Counts what it hands over.
class CountedWire final : public Wire {
 public:
  explicit CountedWire(GroupCommunicator& communicator) : communicator_(communicator) {}
  int rank() const override { return communicator_.rank(); }
  int worldSize() const override { return communicator_.worldSize(); }
  void sum(at::Tensor& tensor) override {
    bytes_ += static_cast<int64_t>(tensor.nbytes());
    communicator_.sum(tensor);
  }
  std::vector<at::Tensor> gather(const at::Tensor& bytes) override {
    bytes_ += static_cast<int64_t>(bytes.nbytes());
    return communicator_.gather(bytes);
  }
  int64_t bytes() const { return bytes_; }
  void reset() { bytes_ = 0; }

 private:
  GroupCommunicator& communicator_;
  int64_t bytes_ = 0;
};

}  // namespace

class CompressedExchange::Worker {
 public:
  Worker(const CompressionOptions& options, const Gpt2& model, GroupCommunicator& communicator, uint64_t seed)
      : plainSteps_(options.plainSteps()),
        compressor_(makeCompressor(options, model.named(), seed)),
        communicator_(communicator),
        wire_(communicator) {
    for (std::size_t i = 0; i < model.named().size(); ++i) {
      numbers_[model.named()[i].second.unsafeGetTensorImpl()] = i;
    }
    thread_ = std::thread([this] { work(); });
  }
  ~Worker() {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }

  FuturePtr handOver(const c10d::GradBucket& bucket) {
    Job job{bucket.getBuffer(), bucket.getParameters(), bucket.getGradients(),
            communicator_.bucketHandedOver(static_cast<int64_t>(bucket.getBuffer().nbytes())),
            c10::make_intrusive<c10::ivalue::Future>(c10::TensorType::get())};
    auto future = job.done;
    {
      const std::lock_guard lock(mutex_);
      jobs_.push_back(std::move(job));
    }
    changed_.notify_all();
    return future;
  }

  void beginStep(int64_t step) {
    const std::lock_guard lock(mutex_);
    step_ = step;
    wire_.reset();
  }
  int64_t sentBytes() const {
    const std::lock_guard lock(mutex_);
    return wire_.bytes();
  }
  RankState state() const { return compressor_->state(); }

 private:
  struct Job {
    at::Tensor buffer;                              // (n): the bucket
    std::vector<at::Tensor> parameters, gradients;  // the gradients are views into it
    BucketTicket ticket;
    FuturePtr done;
  };

  void work() {
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(lock, [this] { return stopping_ || !jobs_.empty(); });
      if (jobs_.empty()) return;
      Job job = std::move(jobs_.front());
      jobs_.pop_front();
      const int64_t step = step_;
      lock.unlock();
      run(job, step);
      lock.lock();
    }
  }

  // The reducer looks at the wire's count only after the future is complete.
  void run(Job& job, int64_t step) {
    const at::NoGradGuard noGrad;
    try {
      if (step < plainSteps_) {
        wire_.sum(job.buffer.div_(wire_.worldSize()));
      } else {
        std::vector<GradientPart> parts;
        for (std::size_t i = 0; i < job.parameters.size(); ++i) {
          parts.push_back({numbers_.at(job.parameters[i].unsafeGetTensorImpl()), job.gradients[i]});
        }
        compressor_->reduce(parts, step, wire_);
      }
      communicator_.bucketDone(job.ticket);
      job.done->markCompleted(job.buffer);
    } catch (...) {
      communicator_.bucketDone(job.ticket);
      job.done->setError(std::current_exception());
    }
  }

  const int64_t plainSteps_;
  const std::unique_ptr<Compressor> compressor_;
  GroupCommunicator& communicator_;
  CountedWire wire_;
  std::map<const at::TensorImpl*, std::size_t> numbers_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Job> jobs_;  // at most as many as there are buckets
  int64_t step_ = 0;
  bool stopping_ = false;
  std::thread thread_;
};

namespace {

template <typename Worker>
class Hook final : public c10d::CommHookInterface {
 public:
  explicit Hook(std::shared_ptr<Worker> worker) : worker_(std::move(worker)) {}
  FuturePtr runHook(c10d::GradBucket& bucket) override { return worker_->handOver(bucket); }
  at::Tensor parseHookResult(const c10::IValue& result) override { return result.toTensor(); }

 private:
  const std::shared_ptr<Worker> worker_;
};

}  // namespace

CompressedExchange::CompressedExchange(const CompressionOptions& options, const Gpt2& model,
                                       GroupCommunicator& communicator, uint64_t seed, c10d::Reducer& reducer)
    : worker_(std::make_shared<Worker>(options, model, communicator, seed)) {
  reducer.register_comm_hook(std::make_unique<Hook<Worker>>(worker_));
}

CompressedExchange::~CompressedExchange() = default;

void CompressedExchange::beginStep(int64_t step) { worker_->beginStep(step); }
int64_t CompressedExchange::sentBytes() const { return worker_->sentBytes(); }
RankState CompressedExchange::state() const { return worker_->state(); }

}  // namespace gloo_bypass::trainer
