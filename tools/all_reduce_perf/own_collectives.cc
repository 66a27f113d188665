#include "tools/all_reduce_perf/own_collectives.h"

#include <exception>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "tools/common/error.h"
#include "transport/progress/progress_engine.h"

namespace gloo_bypass {
namespace {

using collectives::Block;
using collectives::Call;
using collectives::ChoiceTable;
using collectives::ConstBlock;
using collectives::ElementType;
using collectives::Group;
using collectives::Kind;
using collectives::kReductions;
using collectives::nameOf;
using collectives::Reduction;
using collectives::Rendezvous;

void require(const Status& status) {
  if (!status) throw ProgramError(status.error().message);
}

class StoreRendezvous final : public Rendezvous {
 public:
  explicit StoreRendezvous(gloo_version::StorePointer store) : store_(std::move(store)) {}

  Status set(const std::string& key, std::span<const std::byte> value) override {
    const auto* text = reinterpret_cast<const char*>(value.data());
    return guarded([&] { store_->set(key, std::vector<char>(text, text + value.size())); });
  }
  Result<std::vector<std::byte>> get(const std::string& key, std::chrono::milliseconds timeout) override {
    std::vector<std::byte> value;
    const TimePoint asked = monotonicNow();
    Status status = guarded([&] {
      store_->wait({key}, timeout);
      const std::vector<char> text = store_->get(key);
      const auto bytes = std::as_bytes(std::span(text));
      value.assign(bytes.begin(), bytes.end());
    });
    if (!status) return collectives::noValue(status.error().message, monotonicNow() - asked, timeout);
    return value;
  }
  Result<bool> has(const std::string& key) override {
    return guarded([&] { store_->wait({key}, std::chrono::milliseconds(1)); }).ok();
  }

 private:
  template <typename F>
  static Status guarded(F f) {
    try {
      f();
      return {};
    } catch (const std::exception& error) {
      return {ErrorScope::kSession, ErrorCode::kTimedOut, oneLine(error.what())};
    }
  }
  const gloo_version::StorePointer store_;
};

ElementType elementTypeOf(DataType type) {
  constexpr ElementType kTypes[] = {ElementType::kInt8,   ElementType::kUint8,   ElementType::kInt32,
                                    ElementType::kInt64,  ElementType::kFloat16, ElementType::kFloat32,
                                    ElementType::kFloat64};  // in the order of DataType
  return kTypes[static_cast<std::size_t>(type)];
}

Reduction reductionOf(ReduceOp op) {
  constexpr Reduction kReductions[] = {Reduction::kSum, Reduction::kProduct, Reduction::kMin, Reduction::kMax};
  return kReductions[static_cast<std::size_t>(op)];  // in the order of ReduceOp
}

class OwnAllReduce final : public Collective {
 public:
  OwnAllReduce(const CollectiveOptions& options, Group& group, void* data, std::size_t count)
      : group_(group),
        input_{static_cast<const std::byte*>(data), count},
        output_{static_cast<std::byte*>(data), count},
        call_{.kind = Kind::kAllReduce,
              .type = elementTypeOf(options.dataType),
              .reduction = reductionOf(options.reduceOp),
              .inputs = {&input_, 1},
              .outputs = {&output_, 1}} {}
  void run() override { require(group_.run(call_, {})); }

 private:
  Group& group_;
  const ConstBlock input_;
  const Block output_;
  const Call call_;
};

}  // namespace

Result<ChoiceTable> choicesOf(std::string_view algorithm) {
  ChoiceTable choices;
  if (Status known = choices.prefer(fmt::format("{}={}", nameOf(Kind::kAllReduce), algorithm)); !known)
    return known.error();
  return choices;
}

std::unique_ptr<Group> makeOwnGroup(const OwnLink& link, int rank, int size, std::chrono::milliseconds timeout,
                                    gloo_version::StorePointer store, const std::optional<ChoiceTable>& choices) {
  auto group = Group::make({.rank = rank,
                            .size = size,
                            .timeout = timeout,
                            .transport = std::string(link.transport),
                            .interface = std::string(link.interface),
                            .choices = choices},
                           std::make_shared<StoreRendezvous>(std::move(store)));
  if (!group) throw ProgramError(group.error().message);
  return std::move(group).value();
}

std::unique_ptr<Collective> makeOwnCollective(const CollectiveOptions& options, Group& group, void* data,
                                              std::size_t count) {
  return std::make_unique<OwnAllReduce>(options, group, data, count);
}

void ownBarrier(Group& group) { require(group.run({}, {})); }

}  // namespace gloo_bypass
