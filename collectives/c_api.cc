// collectives/c_api.h over Group.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "collectives/c_table.h"
#include "collectives/group.h"
#include "collectives/interruption.h"
#include "transport/base/c_text.h"
#include "transport/base/exhausted.h"
#include "transport/base/printable.h"
#include "transport/progress/progress_engine.h"

using namespace gloo_bypass;
using namespace gloo_bypass::collectives;

struct gloo_bypass_group {
  std::unique_ptr<Group> group;
};

namespace {

static_assert(sizeof(gloo_bypass_block) == sizeof(Block) &&
              offsetof(gloo_bypass_block, count) == offsetof(Block, count));
static_assert(GLOO_BYPASS_BARRIER == static_cast<int>(Kind::kBarrier) &&
              GLOO_BYPASS_FLOAT64 == static_cast<int>(ElementType::kFloat64) &&
              GLOO_BYPASS_XOR == static_cast<int>(Reduction::kBitXor));

int failureOf(const Error& error) {
  switch (error.code) {
    case ErrorCode::kInvalidArgument:
      return error.scope == ErrorScope::kOperation ? GLOO_BYPASS_ARGUMENT : GLOO_BYPASS_INVALID;
    case ErrorCode::kMessageTooLong:
      return GLOO_BYPASS_INVALID;
    case ErrorCode::kTimedOut:
      return GLOO_BYPASS_TIMED_OUT;
    case ErrorCode::kPeerVanished:
    case ErrorCode::kPeerClosed:
      return GLOO_BYPASS_PEER_LOST;
    case ErrorCode::kCancelled:
      return GLOO_BYPASS_ABORTED;
    default:
      return GLOO_BYPASS_FAILED;
  }
}

int answer(const Status& status, char* error, std::size_t capacity) {
  if (status) return 0;
  copyInC(status.error().message, error, capacity);
  return failureOf(status.error());
}

// No exception leaves the functions below: what they call throws when memory or threads run out.
template <typename F>
int guarded(char* error, std::size_t capacity, F f) noexcept {
  try {
    return f();
  } catch (const std::system_error& thrown) {  // a thread that cannot start
    copyInC(noThread(thrown), error, capacity);
    return GLOO_BYPASS_FAILED;
  } catch (const std::exception& thrown) {
    copyInC(thrown.what(), error, capacity);
    return GLOO_BYPASS_FAILED;
  }
}

// Whether the numbers of a call are among the enumerators.
bool isKnown(const gloo_bypass_call& call) {
  return call.kind < kKinds && call.type < kElementTypes && call.reduction < kReductions;
}

Call callOf(const gloo_bypass_call& call) {
  return {.kind = static_cast<Kind>(call.kind),
          .type = static_cast<ElementType>(call.type),
          .reduction = static_cast<Reduction>(call.reduction),
          .root = call.root,
          .inputs = {reinterpret_cast<const ConstBlock*>(call.inputs), call.input_blocks},
          .outputs = {reinterpret_cast<const Block*>(call.outputs), call.output_blocks},
          .uneven = call.uneven != 0};
}

// As the caller's milliseconds, but no longer than a deadline can be away.
std::chrono::milliseconds timeoutOf(std::int64_t milliseconds) {
  constexpr std::chrono::milliseconds kLongest = std::chrono::years(100);
  return std::min(std::chrono::milliseconds(milliseconds), kLongest);
}

const Status kUnknown{ErrorScope::kOperation, ErrorCode::kInvalidArgument, "no such kind, type or reduction"};

class Store final : public Rendezvous {
 public:
  explicit Store(const gloo_bypass_store& store) : store_(store) {}
  ~Store() override {
    if (store_.release != nullptr) store_.release(store_.context);
  }
  Status set(const std::string& key, std::span<const std::byte> value) override {
    char error[1024] = "";
    if (store_.set(store_.context, key.c_str(), value.data(), value.size(), error, sizeof(error)) == 0) return {};
    return failed(error);
  }
  Result<std::vector<std::byte>> get(const std::string& key, std::chrono::milliseconds timeout) override {
    char error[1024] = "";
    std::vector<std::byte> value;
    const auto take = [](void* taker, const void* data, std::size_t length) {
      const auto* bytes = static_cast<const std::byte*>(data);
      static_cast<std::vector<std::byte>*>(taker)->assign(bytes, bytes + length);
    };
    const TimePoint asked = monotonicNow();
    if (store_.get(store_.context, key.c_str(), timeout.count(), take, &value, error, sizeof(error)) == 0) return value;
    return noValue(failed(error).message, monotonicNow() - asked, timeout);
  }
  Result<bool> has(const std::string& key) override {
    char error[1024] = "";
    const int there = store_.has(store_.context, key.c_str(), error, sizeof(error));
    if (there < 0) return failed(error);
    return there > 0;
  }

 private:
  static Error failed(const char* why) {
    return {ErrorScope::kSession, ErrorCode::kTimedOut, "the store has no answer: " + printable(why)};
  }
  const gloo_bypass_store store_;
};

gloo_bypass_group* create(int rank, int size, int64_t timeout_ms, const char* transport, const char* interface,
                          const gloo_bypass_store* store, char* error, size_t capacity, int* failure) {
  gloo_bypass_group* made = nullptr;
  *failure = guarded(error, capacity, [&] {
    auto rendezvous = std::make_shared<Store>(*store);
    auto group = Group::make(
        {.rank = rank, .size = size, .timeout = timeoutOf(timeout_ms), .transport = transport, .interface = interface},
        std::move(rendezvous));
    if (!group) return answer(group.error(), error, capacity);
    made = new gloo_bypass_group{std::move(group).value()};
    return 0;
  });
  return made;
}

void destroy(gloo_bypass_group* group) { delete group; }

int run(gloo_bypass_group* group, const gloo_bypass_call* call, char* error, size_t capacity) {
  return guarded(error, capacity, [&] {
    if (!isKnown(*call)) return answer(kUnknown, error, capacity);
    Call made = callOf(*call);
    Description whole;
    if (call->whole_count > 0) {
      if (const std::string fault = faultOf(made, group->group->rank(), group->group->size()); !fault.empty()) {
        return answer({ErrorScope::kOperation, ErrorCode::kInvalidArgument, fault}, error, capacity);
      }
      whole = describe(made);
      whole.count = call->whole_count;
      whole.inPieces = true;
      made.whole = &whole;
    }
    return answer(group->group->run(made, timeoutOf(call->timeout_ms)), error, capacity);
  });
}

void reportTo(gloo_bypass_done done, void* context, const Status& status, int peer) {
  if (status) {
    done(context, 0, "", peer);
  } else {
    done(context, failureOf(status.error()), status.error().message.c_str(), peer);
  }
}

// Begins what `post` begins with the report that it gets; reports too if it throws.
template <typename Post>
void post(gloo_bypass_done done, void* context, Post post) {
  char error[256] = "";
  const int failure = guarded(error, sizeof(error), [&] {
    post([done, context](const Status& status, int peer) { reportTo(done, context, status, peer); });
    return 0;
  });
  if (failure != 0) done(context, failure, error, -1);
}

void start(gloo_bypass_group* group, const gloo_bypass_call* call, gloo_bypass_done done, void* context) {
  if (!isKnown(*call)) return reportTo(done, context, kUnknown, -1);
  post(done, context, [&](auto report) {
    group->group->start(callOf(*call), timeoutOf(call->timeout_ms),
                        [report](const Status& status) { report(status, -1); });
  });
}

void assist(gloo_bypass_group* group, int (*reached)(void*), void* data) {
  (void)guarded(nullptr, 0, [&] {
    group->group->assist([&] { return reached(data) != 0; });
    return 0;
  });
}

void hasten(gloo_bypass_group* group) { group->group->hasten(); }

Message messageOf(const gloo_bypass_message& message) {
  return {
      .peer = message.peer, .tag = message.tag, .data = static_cast<std::byte*>(message.data), .bytes = message.bytes};
}

void send(gloo_bypass_group* group, const gloo_bypass_message* message, gloo_bypass_done done, void* context) {
  post(done, context, [&](auto report) { group->group->send(messageOf(*message), report); });
}

void receive(gloo_bypass_group* group, const gloo_bypass_message* message, gloo_bypass_done done, void* context) {
  post(done, context, [&](auto report) { group->group->receive(messageOf(*message), report); });
}

int waitFor(gloo_bypass_group* group, int (*reached)(void*), void* data, int64_t timeout_ms) {
  const int result = guarded(nullptr, 0, [&] {
    const TimePoint deadline = monotonicNow() + timeoutOf(timeout_ms);
    return group->group->wait([&] { return reached(data) != 0; }, deadline) ? 1 : 0;
  });
  return result == 1 ? 1 : 0;
}

void abortGroup(gloo_bypass_group* group) { group->group->abort(); }

int describeGroup(gloo_bypass_group* group, char* buffer, size_t capacity) {
  return answerInC(buffer, capacity, [&] { return group->group->describe(); });
}

std::atomic<int (*)(void)> askedInC{nullptr};

void setInterruption(int (*asked)(void)) {
  askedInC.store(asked);
  interruptedHook.store(asked == nullptr ? nullptr : Interrupted([] {
    const auto ask = askedInC.load();
    return ask != nullptr && ask() != 0;
  }));
}

constexpr gloo_bypass_collectives kTable = {.version = GLOO_BYPASS_COLLECTIVES_VERSION,
                                            .create = create,
                                            .destroy = destroy,
                                            .run = run,
                                            .start = start,
                                            .assist = assist,
                                            .hasten = hasten,
                                            .send = send,
                                            .receive = receive,
                                            .wait = waitFor,
                                            .abort = abortGroup,
                                            .describe = describeGroup,
                                            .set_interruption = setInterruption};

}  // namespace

const gloo_bypass_collectives& gloo_bypass::collectives::cTable() { return kTable; }
