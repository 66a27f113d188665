#include "trainer/distributed/compression/exchange.h"

#include <chrono>
#include <condition_variable>
#include <deque>
#include <exception>
#include <map>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <ATen/core/ivalue.h>

#include "plugin/compatibility/torch/reducer.h"

namespace gloo_bypass::trainer {
namespace {

using FuturePtr = c10::intrusive_ptr<c10::ivalue::Future>;
using Clock = std::chrono::steady_clock;

// While one bucket is on the wire, the next is compressed.
constexpr int kBucketsAtOnce = 2;

double secondsSince(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

// The collectives of one bucket come before those of the next, at all ranks.
class Turns {
 public:
  void wait(int64_t bucket) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return bucket == next_; });
  }
  // Of the bucket whose turn it is.
  void pass() {
    {
      const std::lock_guard lock(mutex_);
      ++next_;
    }
    changed_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int64_t next_ = 0;
};

// For one bucket. Counts what it hands over, and the time outside of collectives.
class BucketWire final : public Wire {
 public:
  BucketWire(GroupCommunicator& communicator, Turns& turns, int64_t bucket)
      : communicator_(communicator), turns_(turns), bucket_(bucket) {}
  ~BucketWire() override { finished(); }
  BucketWire(const BucketWire&) = delete;
  BucketWire& operator=(const BucketWire&) = delete;

  int rank() const override { return communicator_.rank(); }
  int worldSize() const override { return communicator_.worldSize(); }
  void sum(at::Tensor& tensor) override {
    begin(tensor);
    communicator_.sum(tensor);
    resumed_ = Clock::now();
  }
  std::vector<at::Tensor> gather(const at::Tensor& bytes) override {
    begin(bytes);
    auto gathered = communicator_.gather(bytes);
    resumed_ = Clock::now();
    return gathered;
  }
  void finished() override {
    if (std::exchange(finished_, true)) return;
    turns_.wait(bucket_);
    turns_.pass();
  }
  // When the bucket is reduced.
  CompressionCost cost() const {
    CompressionCost cost = cost_;
    cost.decompressSeconds = secondsSince(resumed_);
    return cost;
  }

 private:
  void begin(const at::Tensor& tensor) {
    cost_.compressSeconds += secondsSince(resumed_);
    cost_.sentBytes += static_cast<int64_t>(tensor.nbytes());
    turns_.wait(bucket_);
  }

  GroupCommunicator& communicator_;
  Turns& turns_;
  const int64_t bucket_;
  bool finished_ = false;
  CompressionCost cost_;
  Clock::time_point resumed_ = Clock::now();  // when the last collective ended
};

}  // namespace

class CompressedExchange::Worker {
 public:
  Worker(std::unique_ptr<Compressor> compressor, int64_t plainSteps, bool mayUndo, const Gpt2& model,
         GroupCommunicator& communicator)
      : plainSteps_(plainSteps), mayUndo_(mayUndo), compressor_(std::move(compressor)), communicator_(communicator) {
    for (std::size_t i = 0; i < model.named().size(); ++i) {
      numbers_[model.named()[i].second.unsafeGetTensorImpl()] = i;
    }
    for (int i = 0; i < kBucketsAtOnce; ++i) {
      threads_.emplace_back([this] { work(); });
    }
  }
  ~Worker() {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    changed_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }

  FuturePtr handOver(const c10d::GradBucket& bucket) {
    Job job{0,
            0,
            bucket.getBuffer(),
            bucket.getParameters(),
            bucket.getGradients(),
            communicator_.bucketHandedOver(static_cast<int64_t>(bucket.getBuffer().nbytes())),
            c10::make_intrusive<c10::ivalue::Future>(c10::TensorType::get())};
    auto future = job.done;
    {
      const std::lock_guard lock(mutex_);
      job.number = buckets_++;
      job.step = step_;
      jobs_.push_back(std::move(job));
    }
    changed_.notify_all();
    return future;
  }

  void beginStep(int64_t step) {
    const std::lock_guard lock(mutex_);
    step_ = step;
    cost_ = {};
  }
  void beginBackward() {
    const std::lock_guard lock(mutex_);
    if (!mayUndo_ || step_ < plainSteps_) return;
    const auto begin = Clock::now();
    const auto state = compressor_->state();
    before_.resize(state.size());
    for (std::size_t i = 0; i < state.size(); ++i) {
      before_[i] = before_[i].defined() ? before_[i].copy_(state[i].second) : state[i].second.clone();
    }
    cost_.compressSeconds += secondsSince(begin);
  }
  void undoStep() {
    const auto state = compressor_->state();
    for (std::size_t i = 0; i < before_.size(); ++i) {
      at::Tensor(state[i].second).copy_(before_[i]);
    }
  }
  void scaleOwed(double factor) { compressor_->scaleOwed(factor); }
  CompressionCost cost() const {
    const std::lock_guard lock(mutex_);
    return cost_;
  }
  RankState state() const { return compressor_->state(); }

 private:
  struct Job {
    int64_t number, step;
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
      lock.unlock();
      run(job);
      lock.lock();
    }
  }

  // The reducer looks at the cost only after the future is complete.
  void run(Job& job) {
    const at::NoGradGuard noGrad;
    try {
      const CompressionCost cost = reduce(job);
      {
        const std::lock_guard lock(mutex_);
        cost_ += cost;
      }
      communicator_.bucketDone(job.ticket);
      job.done->markCompleted(job.buffer);
    } catch (...) {
      communicator_.bucketDone(job.ticket);
      job.done->setError(std::current_exception());
    }
  }

  CompressionCost reduce(const Job& job) {
    BucketWire wire(communicator_, turns_, job.number);
    if (job.step < plainSteps_) {
      at::Tensor buffer = job.buffer;
      wire.sum(buffer.div_(wire.worldSize()));
      return {.sentBytes = wire.cost().sentBytes};
    }
    std::vector<GradientPart> parts;
    for (std::size_t i = 0; i < job.parameters.size(); ++i) {
      parts.push_back({numbers_.at(job.parameters[i].unsafeGetTensorImpl()), job.gradients[i]});
    }
    compressor_->reduce(parts, job.step, wire);
    return wire.cost();
  }

  const int64_t plainSteps_;
  const bool mayUndo_;
  std::vector<at::Tensor> before_;  // the compressor's state before this step
  const std::unique_ptr<Compressor> compressor_;
  GroupCommunicator& communicator_;
  Turns turns_;
  std::map<const at::TensorImpl*, std::size_t> numbers_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Job> jobs_;  // at most as many as there are buckets
  int64_t buckets_ = 0;   // handed over so far
  int64_t step_ = 0;
  CompressionCost cost_;  // of the buckets of this step
  bool stopping_ = false;
  std::vector<std::thread> threads_;
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

CompressedExchange::CompressedExchange(std::unique_ptr<Compressor> compressor, int64_t plainSteps, bool mayUndo,
                                       const Gpt2& model, GroupCommunicator& communicator, c10d::Reducer& reducer)
    : worker_(std::make_shared<Worker>(std::move(compressor), plainSteps, mayUndo, model, communicator)) {
  reducer.register_comm_hook(std::make_unique<Hook<Worker>>(worker_));
}

CompressedExchange::~CompressedExchange() = default;

void CompressedExchange::beginStep(int64_t step) { worker_->beginStep(step); }
void CompressedExchange::beginBackward() { worker_->beginBackward(); }
CompressionCost CompressedExchange::cost() const { return worker_->cost(); }
RankState CompressedExchange::state() const { return worker_->state(); }
void CompressedExchange::undoStep() { worker_->undoStep(); }
void CompressedExchange::scaleOwed(double factor) { worker_->scaleOwed(factor); }

}  // namespace gloo_bypass::trainer
