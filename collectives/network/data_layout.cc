#include "collectives/network/data_layout.h"

#include <algorithm>

namespace gloo_bypass::collectives {
namespace {

// Parts of a vector begin at multiples of it, so that sums run over whole cache lines of every type.
constexpr std::size_t kGrain = 64;

std::size_t slicesFor(std::size_t count, std::size_t each) {
  return std::max<std::size_t>(1, (count + each - 1) / each);
}

template <typename Byte>
Byte* at(Byte* data, std::size_t bytes) {
  return data == nullptr ? nullptr : data + bytes;
}

}  // namespace

DataLayout::DataLayout(const Call& call, int rank, int size, int parts, std::size_t partBytes)
    : elementBytes_(sizeOf(call.type)), partCount_(std::max(kGrain, partBytes / elementBytes_)), parts_(parts) {
  isVector_ = call.kind == Kind::kAllReduce || call.kind == Kind::kReduce || call.kind == Kind::kBroadcast ||
              call.kind == Kind::kBarrier;
  if (!isVector_) {
    setBlocks(call, rank, size, parts);
    return;
  }
  if (!call.inputs.empty()) vector_ = {call.inputs[0].data, nullptr, call.inputs[0].count};
  if (!call.outputs.empty()) {
    vector_.output = call.outputs[0].data;
    vector_.count = call.outputs[0].count;
  }
  slices_ = slicesFor(vector_.count, partCount_ * static_cast<std::size_t>(parts));
}

void DataLayout::setBlocks(const Call& call, int rank, int size, int parts) {
  blocks_.resize(static_cast<std::size_t>(parts));
  const auto setInput = [&](int part, const ConstBlock& block) {
    Region& region = blocks_[static_cast<std::size_t>(part)];
    region.input = block.data;
    region.count = block.count;
  };
  const auto setOutput = [&](int part, const Block& block) {
    Region& region = blocks_[static_cast<std::size_t>(part)];
    region.output = block.data;
    region.count = block.count;
  };
  const bool exchanges = call.kind == Kind::kAllToAll;
  for (std::size_t i = 0; i < call.inputs.size(); ++i) {
    const int other = static_cast<int>(i);
    setInput(exchanges ? rank * size + other : call.inputs.size() == 1 ? rank : other, call.inputs[i]);
  }
  for (std::size_t i = 0; i < call.outputs.size(); ++i) {
    const int other = static_cast<int>(i);
    setOutput(exchanges ? other * size + rank : call.outputs.size() == 1 ? rank : other, call.outputs[i]);
  }
  for (const Region& block : blocks_) slices_ = std::max(slices_, slicesFor(block.count, partCount_));
}

std::size_t DataLayout::cut(std::size_t sliceCount, int part) const {
  const std::size_t parts = static_cast<std::size_t>(parts_);
  const std::size_t each = ((sliceCount + parts - 1) / parts + kGrain - 1) / kGrain * kGrain;
  return std::min(sliceCount, static_cast<std::size_t>(part) * each);
}

Region DataLayout::region(std::size_t slice, Parts parts) const {
  const Region& whole = isVector_ ? vector_ : blocks_[static_cast<std::size_t>(parts.begin)];
  const std::size_t each = isVector_ ? partCount_ * static_cast<std::size_t>(parts_) : partCount_;
  const std::size_t begin = std::min(whole.count, slice * each), count = std::min(each, whole.count - begin);
  const std::size_t from = isVector_ ? cut(count, parts.begin) : 0;
  const std::size_t to = isVector_ ? cut(count, parts.end) : parts.size() == 0 ? 0 : count;
  const std::size_t offset = (begin + from) * elementBytes_;
  return {at(whole.input, offset), at(whole.output, offset), to - from};
}

std::uint64_t DataLayout::blockBytes(int part) const {
  return isVector_ ? 0 : blocks_[static_cast<std::size_t>(part)].count * elementBytes_;
}

}  // namespace gloo_bypass::collectives
