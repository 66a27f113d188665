// Our collectives as c10d's process group. They are the plug-in's, behind the table of C functions that it exports: the
// program links with no transport, and counters are those of the one plug-in.
#include <dlfcn.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <stdexcept>
#include <string_view>
#include <utility>
#include <vector>

#include <ATen/ATen.h>
#include <fmt/format.h>

#include "collectives/c_api.h"
#include "tools/common/error.h"
#include "trainer/distributed/process_groups.h"

namespace gloo_bypass::trainer {
namespace {

using Table = gloo_bypass_collectives;
using Tensors = std::vector<at::Tensor>;
using WorkPointer = c10::intrusive_ptr<c10d::Work>;

constexpr std::size_t kErrorBytes = 1024;
// How long a wait for a message goes on before it looks whether it was given up.
constexpr std::chrono::milliseconds kLookAgain{20};

// Null: no library that the process has loaded exports it.
const Table* loadedTable() {
  using Function = const Table*();
  void* const found = ::dlsym(RTLD_DEFAULT, "gloo_bypass_collectives_v1");
  return found == nullptr ? nullptr : reinterpret_cast<Function*>(found)();
}

// --- Rendezvous: c10d's store, as the table asks it. The context is an intrusive_ptr on the heap.

using StorePointer = c10::intrusive_ptr<c10d::Store>;

c10d::Store& storeIn(void* context) { return **static_cast<StorePointer*>(context); }

template <typename F>
int guarded(char* error, std::size_t capacity, F f) noexcept {
  try {
    return f();
  } catch (const std::exception& thrown) {
    const std::string text = oneLine(thrown.what());
    if (capacity > 0) error[text.copy(error, capacity - 1)] = '\0';
    return -1;
  }
}

int setInStore(void* context, const char* key, const void* value, std::size_t length, char* error,
               std::size_t capacity) {
  return guarded(error, capacity, [&] {
    const auto* bytes = static_cast<const std::uint8_t*>(value);
    storeIn(context).set(key, std::vector<std::uint8_t>(bytes, bytes + length));
    return 0;
  });
}

int getFromStore(void* context, const char* key, std::int64_t timeoutMs, void (*take)(void*, const void*, std::size_t),
                 void* taker, char* error, std::size_t capacity) {
  return guarded(error, capacity, [&] {
    storeIn(context).wait({key}, std::chrono::milliseconds(timeoutMs));
    const auto value = storeIn(context).get(key);
    take(taker, value.data(), value.size());
    return 0;
  });
}

int isInStore(void* context, const char* key, char* error, std::size_t capacity) {
  return guarded(error, capacity, [&] { return storeIn(context).check({key}) ? 1 : 0; });
}

gloo_bypass_store asked(const StorePointer& store) {
  return {.context = new StorePointer(store),
          .set = setInStore,
          .get = getFromStore,
          .has = isInStore,
          .release = [](void* context) { delete static_cast<StorePointer*>(context); }};
}

// --- Work

constexpr std::pair<at::ScalarType, std::uint8_t> kTypes[] = {
    {at::kBool, GLOO_BYPASS_BOOL},     {at::kByte, GLOO_BYPASS_UINT8},        {at::kChar, GLOO_BYPASS_INT8},
    {at::kShort, GLOO_BYPASS_INT16},   {at::kInt, GLOO_BYPASS_INT32},         {at::kLong, GLOO_BYPASS_INT64},
    {at::kHalf, GLOO_BYPASS_FLOAT16},  {at::kBFloat16, GLOO_BYPASS_BFLOAT16}, {at::kFloat, GLOO_BYPASS_FLOAT32},
    {at::kDouble, GLOO_BYPASS_FLOAT64}};

std::uint8_t typeOf(const at::Tensor& tensor) {
  for (const auto& [type, ours] : kTypes) {
    if (tensor.scalar_type() == type) return ours;
  }
  throw ProgramError(fmt::format("--collectives own exchanges no tensors of {}", c10::toString(tensor.scalar_type())));
}

gloo_bypass_block blockOf(const at::Tensor& tensor) {
  TORCH_CHECK(tensor.is_contiguous() && tensor.device().is_cpu(), "collectives take contiguous tensors of the CPU");
  return {tensor.data_ptr(), static_cast<std::size_t>(tensor.numel())};
}

// Common to collectives and messages. While it is under way, the C side holds a reference; Work that has ended, or was
// given up, may be forgotten.
class OwnWork : public c10d::Work {
 public:
  // `tensors`: what must live until the end; result() and the future have them too.
  OwnWork(const Table& table, gloo_bypass_group* group, c10d::OpType type, Tensors tensors)
      : Work(-1, type), table_(table), group_(group), tensors_(std::move(tensors)) {}

  Tensors result() override { return tensors_; }

 protected:
  const Table& table() const { return table_; }
  gloo_bypass_group* group() const { return group_; }
  const Tensors& tensors() const { return tensors_; }
  bool hasEnded() const { return ended_.load(std::memory_order_acquire); }
  static int workHasEnded(void* work) { return static_cast<OwnWork*>(work)->hasEnded() ? 1 : 0; }

  // The context of a gloo_bypass_done: `ended` below.
  void* heldByGroup() { return c10::intrusive_ptr<OwnWork>::reclaim_copy(this).release(); }
  static void ended(void* context, int failure, const char* error, int /*peer*/) noexcept {
    const auto work = c10::intrusive_ptr<OwnWork>::reclaim(static_cast<OwnWork*>(context));
    const auto exception =
        failure == 0 ? std::exception_ptr() : std::make_exception_ptr(std::runtime_error(oneLine(error)));
    work->complete(exception);
    work->ended_.store(true, std::memory_order_release);
    work->finish(exception);
  }

 private:
  virtual void complete(const std::exception_ptr& /*exception*/) {}

  const Table& table_;
  gloo_bypass_group* const group_;
  const Tensors tensors_;
  std::atomic<bool> ended_{false};
};

class CollectiveWork final : public OwnWork {
 public:
  using OwnWork::OwnWork;

  void start(gloo_bypass_call call, const std::vector<gloo_bypass_block>& inputs,
             const std::vector<gloo_bypass_block>& outputs) {
    call.inputs = inputs.data();
    call.input_blocks = inputs.size();
    call.outputs = outputs.data();
    call.output_blocks = outputs.size();
    table().start(group(), &call, ended, heldByGroup());
  }

  // On this thread, if no other has begun it.
  bool wait(std::chrono::milliseconds timeout) override {
    if (timeout == kNoTimeout) {
      table().assist(group(), workHasEnded, static_cast<OwnWork*>(this));
    } else {
      table().hasten(group());
    }
    return Work::wait(timeout);
  }
  bool isCompleted() override {
    table().hasten(group());
    return Work::isCompleted();
  }
  // Whoever takes the future need not wait here: the group's own thread ends the operation.
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override {
    table().hasten(group());
    return future_;
  }

 private:
  void complete(const std::exception_ptr& exception) override {
    if (exception) {
      future_->setError(exception);
    } else {
      future_->markCompleted(at::IValue(tensors()));
    }
  }

  const c10::intrusive_ptr<c10::ivalue::Future> future_ =
      c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()));
};

// A send or a receive. It can be given up; its tensor stays until the group has no use for it.
class MessageWork final : public OwnWork {
 public:
  MessageWork(const Table& table, gloo_bypass_group* group, c10d::OpType type, const at::Tensor& tensor, int peer,
              int tag, std::chrono::milliseconds timeout)
      : OwnWork(table, group, type, {tensor}), peer_(peer), tag_(tag), timeout_(timeout) {}

  void start() {
    const at::Tensor& tensor = tensors()[0];
    const gloo_bypass_message message{.peer = peer_,
                                      .tag = static_cast<std::uint32_t>(tag_),
                                      .data = blockOf(tensor).data,
                                      .bytes = static_cast<std::size_t>(tensor.nbytes())};
    const auto begin = isSend() ? table().send : table().receive;
    begin(group(), &message, ended, heldByGroup());
  }

  bool wait(std::chrono::milliseconds limit) override {
    const auto until = std::chrono::steady_clock::now() + (limit == kNoTimeout ? timeout_ : limit);
    while (!isOver()) {
      if (std::chrono::steady_clock::now() >= until) {
        throw ProgramError(fmt::format("rank {} {} no message within {:.0f} s", peer_, isSend() ? "took" : "sent",
                                       std::chrono::duration<double>(timeout_).count()));
      }
      table().wait(group(), workIsOver, this, kLookAgain.count());
    }
    return hasEnded() ? Work::wait(kNoTimeout) : false;
  }
  void abort() override { isGivenUp_.store(true, std::memory_order_release); }

 private:
  bool isSend() { return retrieveOpType() == c10d::OpType::SEND; }
  bool isOver() const { return hasEnded() || isGivenUp_.load(std::memory_order_acquire); }
  static int workIsOver(void* work) { return static_cast<MessageWork*>(work)->isOver() ? 1 : 0; }

  const int peer_, tag_;
  const std::chrono::milliseconds timeout_;
  std::atomic<bool> isGivenUp_{false};
};

// --- The group

const char* nameOrEmpty(const char* variable) {
  const char* const value = std::getenv(variable);
  return value == nullptr ? "" : value;
}

class OwnProcessGroup final : public torch_version::CollectiveBackend {
 public:
  OwnProcessGroup(const Table& table, const StorePointer& store, const GroupPlace& place, const std::string& transport,
                  std::shared_ptr<WindowClock> clock)
      : torch_version::CollectiveBackend(place.rank, place.worldSize),
        table_(table),
        timeout_(place.timeout),
        clock_(std::move(clock)) {
    const gloo_bypass_store rendezvous = asked(store);
    char error[kErrorBytes] = "";
    int failure = 0;
    group_ = table_.create(place.rank, place.worldSize, place.timeout.count(), transport.c_str(),
                           nameOrEmpty("GLOO_SOCKET_IFNAME"), &rendezvous, error, sizeof(error), &failure);
    if (group_ == nullptr) throw ProgramError(error);
  }
  // What is under way is aborted.
  ~OwnProcessGroup() override { table_.destroy(group_); }

  const std::string getBackendName() const override { return "bypass"; }

  WorkPointer sum(const at::Tensor& tensor) {
    const auto block = blockOf(tensor);
    return started(c10d::OpType::ALLREDUCE, {tensor}, {.kind = GLOO_BYPASS_ALL_REDUCE, .type = typeOf(tensor)}, {block},
                   {block});
  }

  WorkPointer allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) override {
    auto operation = options.reduceOp;
    TORCH_CHECK(tensors.size() == 1 && operation == c10d::ReduceOp::SUM, "the trainer sums one tensor at a time");
    const auto bucket = clock_->handedOver(tensors[0]);
    return stamped(clock_, bucket, sum(tensors[0]));
  }

  WorkPointer broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) override {
    TORCH_CHECK(tensors.size() == 1, "the trainer broadcasts one tensor at a time");
    const std::vector block{blockOf(tensors[0])};
    const bool isRoot = options.rootRank == getRank();
    return started(c10d::OpType::BROADCAST, tensors,
                   {.kind = GLOO_BYPASS_BROADCAST,
                    .type = typeOf(tensors[0]),
                    .root = static_cast<std::int32_t>(options.rootRank)},
                   isRoot ? block : Blocks{}, isRoot ? Blocks{} : block);
  }

  WorkPointer allgather(std::vector<Tensors>& outputs, Tensors& inputs, const c10d::AllgatherOptions&) override {
    TORCH_CHECK(inputs.size() == 1 && outputs.size() == 1, "the trainer gathers one tensor of each rank");
    Blocks to;
    for (const auto& output : outputs[0]) to.push_back(blockOf(output));
    Tensors kept = outputs[0];
    kept.push_back(inputs[0]);
    return started(c10d::OpType::ALLGATHER, std::move(kept),
                   {.kind = GLOO_BYPASS_ALL_GATHER, .type = typeOf(inputs[0])}, {blockOf(inputs[0])}, to);
  }

  // The reduce-scatters of --zero: equal parts.
  WorkPointer alltoall_base(at::Tensor& output, at::Tensor& input, std::vector<int64_t>& outputSplits,
                            std::vector<int64_t>& inputSplits, const c10d::AllToAllOptions&) override {
    TORCH_CHECK(outputSplits.empty() && inputSplits.empty() && input.numel() % getSize() == 0,
                "the trainer exchanges equal parts");
    const auto bucket = clock_->handedOver(static_cast<int64_t>(input.nbytes()));
    return stamped(clock_, bucket,
                   started(c10d::OpType::ALLTOALL_BASE, {output, input},
                           {.kind = GLOO_BYPASS_ALL_TO_ALL, .type = typeOf(input)}, partsOf(input), partsOf(output)));
  }

  WorkPointer barrier(const c10d::BarrierOptions&) override {
    return started(c10d::OpType::BARRIER, {}, {.kind = GLOO_BYPASS_BARRIER}, {}, {});
  }

  WorkPointer send(Tensors& tensors, int rank, int tag) override {
    return message(c10d::OpType::SEND, tensors, rank, tag);
  }
  WorkPointer recv(Tensors& tensors, int rank, int tag) override {
    return message(c10d::OpType::RECV, tensors, rank, tag);
  }

 private:
  using Blocks = std::vector<gloo_bypass_block>;

  Blocks partsOf(const at::Tensor& tensor) const {
    const auto whole = blockOf(tensor);
    const std::size_t count = whole.count / static_cast<std::size_t>(getSize());
    Blocks parts;
    for (int rank = 0; rank < getSize(); ++rank) {
      const auto at = static_cast<std::size_t>(rank) * count * tensor.element_size();
      parts.push_back({static_cast<std::byte*>(whole.data) + at, count});
    }
    return parts;
  }

  WorkPointer started(c10d::OpType type, Tensors tensors, const gloo_bypass_call& call, const Blocks& inputs,
                      const Blocks& outputs) {
    auto work = c10::make_intrusive<CollectiveWork>(table_, group_, type, std::move(tensors));
    work->start(call, inputs, outputs);
    return work;
  }

  WorkPointer message(c10d::OpType type, const Tensors& tensors, int rank, int tag) {
    TORCH_CHECK(tensors.size() == 1, "the trainer sends one tensor at a time");
    auto work = c10::make_intrusive<MessageWork>(table_, group_, type, tensors[0], rank, tag, timeout_);
    work->start();
    return work;
  }

  const Table& table_;
  const std::chrono::milliseconds timeout_;
  const std::shared_ptr<WindowClock> clock_;
  gloo_bypass_group* group_ = nullptr;
};

}  // namespace

void requireOwnCollectives() {
  const Table* const table = loadedTable();
  if (table == nullptr || table->version != GLOO_BYPASS_COLLECTIVES_VERSION) {
    throw UsageError("--collectives own needs the collectives of the plug-in of this version (--plugin FILE names it)");
  }
}

TimedGroup makeOwnGroup(const c10::intrusive_ptr<c10d::Store>& store, const GroupPlace& place,
                        std::shared_ptr<WindowClock> clock, const std::string& transport) {
  requireOwnCollectives();
  auto group = c10::make_intrusive<OwnProcessGroup>(*loadedTable(), store, place, transport, std::move(clock));
  return {group, [group = group.get()](const at::Tensor& tensor) { return group->sum(tensor); }};
}

}  // namespace gloo_bypass::trainer
