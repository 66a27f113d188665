#include "tools/simulation/worlds/operation_case.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "transport/base/flat_map.h"

namespace gloo_bypass::collectives {
namespace {

float fromBfloat16(std::uint16_t bits) {
  const std::uint32_t word = std::uint32_t{bits} << 16;
  float value;
  std::memcpy(&value, &word, sizeof value);
  return value;
}

double sumOf(int size, std::size_t block, std::size_t index, Reduction reduction) {
  double sum = 0, most = 0;
  for (int rank = 0; rank < size; ++rank) {
    sum += OperationBuffers::value(rank, block, index);
    most = std::max(most, OperationBuffers::value(rank, block, index));
  }
  return reduction == Reduction::kMax ? most : reduction == Reduction::kAverage ? sum / size : sum;
}

// A count for a place, where they differ; some are zero.
std::size_t uneven(std::size_t count, int place) {
  return place % 3 == 1 ? 0 : count + static_cast<std::size_t>(place);
}

std::vector<std::size_t> counts(const OperationCase& c) {
  std::vector<std::size_t> all;
  for (int place = 0; place < c.size; ++place) all.push_back(c.uneven ? uneven(c.count, place) : c.count);
  return all;
}

// The value that belongs at an index of an output block.
double expected(const OperationCase& c, int rank, std::size_t block, std::size_t index, Reduction reduction) {
  const auto self = static_cast<std::size_t>(rank);
  switch (c.kind) {
    case Kind::kReduceScatter:
      return sumOf(c.size, self, index, reduction);
    case Kind::kAllGather:
    case Kind::kGather:
      return OperationBuffers::value(static_cast<int>(block), 0, index);
    case Kind::kBroadcast:
      return OperationBuffers::value(c.root, 0, index);
    case Kind::kScatter:
      return OperationBuffers::value(c.root, self, index);
    case Kind::kAllToAll:
      return OperationBuffers::value(static_cast<int>(block), self, index);
    default:
      return sumOf(c.size, 0, index, reduction);
  }
}

}  // namespace

OperationBuffers buffersFor(const OperationCase& c, int rank) {
  OperationBuffers b(c.kind, c.type, rank, c.size);
  const std::size_t own = counts(c)[static_cast<std::size_t>(rank)];
  const bool isRoot = rank == c.root;
  const auto self = static_cast<std::size_t>(rank);
  b.call().root = c.root;
  b.call().uneven = c.uneven;
  switch (c.kind) {
    case Kind::kAllReduce:
      b.outputs({c.count}).inputs({c.count});
      if (c.inPlace) b.inPlace(0, 0);
      break;
    case Kind::kReduce:
      if (isRoot) b.outputs({c.count});
      b.inputs({c.count});
      if (isRoot && c.inPlace) b.inPlace(0, 0);
      break;
    case Kind::kReduceScatter:
      b.outputs({own}).inputs(counts(c));
      if (c.inPlace) b.inPlace(self, 0);
      break;
    case Kind::kAllGather:
      b.outputs(counts(c)).inputs({own});
      if (c.inPlace) b.inPlace(0, self);
      break;
    case Kind::kGather:
      if (isRoot) b.outputs(counts(c));
      b.inputs({own});
      if (isRoot && c.inPlace) b.inPlace(0, self);
      break;
    case Kind::kBroadcast:
      if (!isRoot || !c.inPlace) b.outputs({c.count});
      if (isRoot) b.inputs({c.count});
      break;
    case Kind::kScatter:
      b.outputs({own});
      if (isRoot) b.inputs(counts(c));
      if (isRoot && c.inPlace) b.inPlace(self, 0);
      break;
    case Kind::kAllToAll: {
      // From rank s to rank d: as many as the place s + d has.
      std::vector<std::size_t> each;
      for (int other = 0; other < c.size; ++other) each.push_back(c.uneven ? uneven(c.count, rank + other) : c.count);
      b.outputs(each).inputs(each);
      if (c.inPlace) b.inPlace(self, self);
      break;
    }
    case Kind::kBarrier:
      break;
  }
  b.fill();
  return b;
}

bool hasBlocks(Kind kind) {
  return kind != Kind::kAllReduce && kind != Kind::kReduce && kind != Kind::kBroadcast && kind != Kind::kBarrier;
}

OperationBuffers::OperationBuffers(Kind kind, ElementType type, int rank, int /*size*/)
    : call_{.kind = kind, .type = type}, rank_(rank) {}

OperationBuffers& OperationBuffers::inputs(const std::vector<std::size_t>& counts) {
  for (const std::size_t count : counts) {
    inputMemory_.emplace_back(count * sizeOf(call_.type));
    inputs_.push_back({inputMemory_.back().data(), count});
  }
  call_.inputs = inputs_;
  return *this;
}

OperationBuffers& OperationBuffers::outputs(const std::vector<std::size_t>& counts) {
  for (const std::size_t count : counts) {
    outputMemory_.emplace_back(count * sizeOf(call_.type), std::byte{0xee});
    outputs_.push_back({outputMemory_.back().data(), count});
  }
  call_.outputs = outputs_;
  return *this;
}

OperationBuffers& OperationBuffers::inPlace(std::size_t input, std::size_t output) {
  inputs_[input].data = outputs_[output].data;
  return *this;
}

double OperationBuffers::value(int rank, std::size_t block, std::size_t index) {
  // Mixed, so that what lies at another place than it should is seen.
  return static_cast<double>(mixBits(index * 1024 + block * 32 + static_cast<std::size_t>(rank)) % 4);
}

void OperationBuffers::fill() {
  for (std::size_t block = 0; block < inputs_.size(); ++block) {
    auto* data = const_cast<std::byte*>(inputs_[block].data);
    for (std::size_t i = 0; i < inputs_[block].count; ++i) {
      write(data + i * sizeOf(call_.type), value(rank_, block, i));
    }
  }
}

double OperationBuffers::output(std::size_t block, std::size_t index) const {
  return read(outputMemory_[block].data() + index * sizeOf(call_.type));
}

double OperationBuffers::read(const std::byte* at) const {
  const auto as = [at](auto value) {
    std::memcpy(&value, at, sizeof value);
    return value;
  };
  switch (call_.type) {
    case ElementType::kFloat32:
      return static_cast<double>(as(float{}));
    case ElementType::kFloat64:
      return as(double{});
    case ElementType::kBfloat16:
      return static_cast<double>(fromBfloat16(as(std::uint16_t{})));
    case ElementType::kInt64:
      return static_cast<double>(as(std::int64_t{}));
    case ElementType::kInt32:
      return as(std::int32_t{});
    default:
      return as(std::uint8_t{});
  }
}

void OperationBuffers::write(std::byte* at, double value) const {
  const auto put = [at](auto typed) { std::memcpy(at, &typed, sizeof typed); };
  switch (call_.type) {
    case ElementType::kFloat32:
      return put(static_cast<float>(value));
    case ElementType::kFloat64:
      return put(value);
    case ElementType::kBfloat16: {
      const auto single = static_cast<float>(value);
      std::uint32_t word;
      std::memcpy(&word, &single, sizeof word);
      return put(static_cast<std::uint16_t>(word >> 16));
    }
    case ElementType::kInt64:
      return put(static_cast<std::int64_t>(value));
    case ElementType::kInt32:
      return put(static_cast<std::int32_t>(value));
    default:
      return put(static_cast<std::uint8_t>(value));
  }
}

std::string describe(const OperationCase& c, Reduction reduction, int rank) {
  return std::string(nameOf(c.kind)) + " of " + std::to_string(c.count) + " " + nameOf(c.type) + ", " +
         nameOf(reduction) + ", " + std::to_string(c.size) + " ranks, root " + std::to_string(c.root) +
         (c.uneven ? ", uneven" : "") + (c.inPlace ? ", in place" : "") + ", rank " + std::to_string(rank);
}

std::string faultOf(const OperationCase& c, int rank, Reduction reduction, OperationBuffers& buffers) {
  for (std::size_t block = 0; block < buffers.call().outputs.size(); ++block) {
    for (std::size_t i = 0; i < buffers.call().outputs[block].count; ++i) {
      const double is = buffers.output(block, i), shouldBe = expected(c, rank, block, i, reduction);
      if (is == shouldBe) continue;
      return describe(c, reduction, rank) + ": block " + std::to_string(block) + " index " + std::to_string(i) +
             " is " + std::to_string(is) + ", not " + std::to_string(shouldBe);
    }
  }
  return "";
}

}  // namespace gloo_bypass::collectives
