#include "collectives/operation.h"

#include <fmt/format.h>

namespace gloo_bypass::collectives {
namespace {

constexpr const char* kKindNames[kKinds] = {"all-reduce", "reduce",  "reduce-scatter", "all-gather", "gather",
                                            "broadcast",  "scatter", "all-to-all",     "barrier"};
constexpr const char* kTypeNames[kElementTypes] = {"bool",  "uint8",   "int8",     "int16",   "int32",
                                                   "int64", "float16", "bfloat16", "float32", "float64"};
constexpr const char* kReductionNames[kReductions] = {"sum", "average", "product", "min", "max", "and", "or", "xor"};

constexpr std::uint64_t kInPieces = 0x80;  // beside the reduction

bool isFloatingPoint(ElementType type) { return type >= ElementType::kFloat16; }
bool hasRoot(Kind kind) {
  return kind == Kind::kReduce || kind == Kind::kGather || kind == Kind::kBroadcast || kind == Kind::kScatter;
}

// The numbers of input and output blocks that a kind needs at this rank; -1: either none or one.
struct Shape {
  int inputs, outputs;
};
Shape shapeOf(Kind kind, bool root, int size) {
  switch (kind) {
    case Kind::kAllReduce:
      return {1, 1};
    case Kind::kReduce:
      return {1, root ? 1 : 0};
    case Kind::kReduceScatter:
      return {size, 1};
    case Kind::kAllGather:
      return {1, size};
    case Kind::kGather:
      return {1, root ? size : 0};
    case Kind::kBroadcast:
      return root ? Shape{1, -1} : Shape{0, 1};
    case Kind::kScatter:
      return {root ? size : 0, 1};
    case Kind::kAllToAll:
      return {size, size};
    case Kind::kBarrier:
      return {0, 0};
  }
  return {};
}

}  // namespace

bool reduces(Kind kind) { return kind <= Kind::kReduceScatter; }

std::size_t sizeOf(ElementType type) {
  constexpr std::uint8_t kSizes[kElementTypes] = {1, 1, 1, 2, 4, 8, 2, 2, 4, 8};
  return kSizes[static_cast<std::size_t>(type)];
}
const char* nameOf(Kind kind) { return kKindNames[static_cast<std::size_t>(kind)]; }
const char* nameOf(ElementType type) { return kTypeNames[static_cast<std::size_t>(type)]; }
const char* nameOf(Reduction reduction) { return kReductionNames[static_cast<std::size_t>(reduction)]; }

bool isDefined(Reduction reduction, ElementType type) {
  if (reduction == Reduction::kAverage) return isFloatingPoint(type);
  return reduction < Reduction::kBitAnd || !isFloatingPoint(type);
}

std::string textOf(const Description& description) {
  std::string text = nameOf(description.kind);
  if (description.kind == Kind::kBarrier) return text;
  text += description.count > 0 ? fmt::format(" of {} {}", description.count, nameOf(description.type))
                                : fmt::format(" of {}", nameOf(description.type));
  if (reduces(description.kind)) text += fmt::format(", {}", nameOf(description.reduction));
  if (hasRoot(description.kind)) {
    const bool spreads = description.kind == Kind::kBroadcast || description.kind == Kind::kScatter;
    text += fmt::format(" {} rank {}", spreads ? "from" : "to", description.root);
  }
  return description.inPieces ? text + ", in pieces" : text;
}

DescriptionWords wordsOf(const Description& description) {
  return {static_cast<std::uint64_t>(description.kind) | static_cast<std::uint64_t>(description.type) << 8 |
              (static_cast<std::uint64_t>(description.reduction) | (description.inPieces ? kInPieces : 0)) << 16 |
              static_cast<std::uint64_t>(description.root) << 32,
          description.count};
}

std::optional<Description> descriptionOf(const DescriptionWords& words) {
  const auto byte = [&](int index) { return words.first >> (8 * index) & 0xff; };
  const std::uint64_t reduction = byte(2) & ~kInPieces;
  if (byte(0) >= kKinds || byte(1) >= kElementTypes || reduction >= kReductions || byte(3) != 0) return std::nullopt;
  return Description{static_cast<Kind>(byte(0)),
                     static_cast<ElementType>(byte(1)),
                     static_cast<Reduction>(reduction),
                     static_cast<std::uint32_t>(words.first >> 32),
                     words.count,
                     (byte(2) & kInPieces) != 0};
}

std::string textOfWords(const DescriptionWords& words) {
  const auto description = descriptionOf(words);
  return description ? textOf(*description) : "something that no rank of this version calls";
}

std::string disagreement(int rank, const DescriptionWords& words, int other, const DescriptionWords& others) {
  if (other < rank) return disagreement(other, others, rank, words);
  const std::string first = textOfWords(words), second = textOfWords(others);
  const std::string what = first == second
                               ? fmt::format("both call {}, with blocks of other lengths than the other expects", first)
                               : fmt::format("rank {} calls {}, rank {} calls {}", rank, first, other, second);
  return fmt::format("ranks {} and {} of this group disagree: {}", rank, other, what);
}

Description describe(const Call& call) {
  if (call.whole != nullptr) return *call.whole;
  Description description{.kind = call.kind};
  if (call.kind == Kind::kBarrier) return description;
  description.type = call.type;
  if (reduces(call.kind)) description.reduction = call.reduction;
  if (hasRoot(call.kind)) description.root = static_cast<std::uint32_t>(call.root);
  if (call.uneven || call.kind == Kind::kAllToAll) return description;
  if (call.kind == Kind::kReduceScatter) {
    // Places may have different counts; their sum is the same in every rank.
    for (const ConstBlock& block : call.inputs) description.count += block.count;
  } else {
    const bool fromInput = call.kind != Kind::kScatter && !call.inputs.empty();
    description.count = fromInput ? call.inputs[0].count : call.outputs[0].count;
  }
  return description;
}

std::string faultOf(const Call& call, int rank, int size) {
  if (hasRoot(call.kind) && (call.root < 0 || call.root >= size)) {
    return fmt::format("{}: there is no rank {} in a group of {}", nameOf(call.kind), call.root, size);
  }
  if (reduces(call.kind) && !isDefined(call.reduction, call.type)) {
    return fmt::format("{}: {} is not defined for {}", nameOf(call.kind), nameOf(call.reduction), nameOf(call.type));
  }
  const auto inputs = static_cast<int>(call.inputs.size()), outputs = static_cast<int>(call.outputs.size());
  const Shape needs = shapeOf(call.kind, rank == call.root, size);
  if (inputs != needs.inputs) {
    return fmt::format("{}: {} inputs, this rank needs {}", nameOf(call.kind), inputs, needs.inputs);
  }
  if (needs.outputs >= 0 ? outputs != needs.outputs : outputs > 1) {
    return fmt::format("{}: {} outputs, this rank needs {}", nameOf(call.kind), outputs,
                       needs.outputs >= 0 ? needs.outputs : 1);
  }
  const auto differ = [&](std::size_t input, std::size_t output) {
    return input == output
               ? std::string()
               : fmt::format("{}: the input has {} elements, the output {}", nameOf(call.kind), input, output);
  };
  const auto self = static_cast<std::size_t>(rank);
  switch (call.kind) {
    case Kind::kAllReduce:
    case Kind::kReduce:
    case Kind::kBroadcast:
      return inputs == 1 && outputs == 1 ? differ(call.inputs[0].count, call.outputs[0].count) : std::string();
    case Kind::kReduceScatter:
      return differ(call.inputs[self].count, call.outputs[0].count);
    case Kind::kAllGather:
    case Kind::kGather:
      return outputs == 0 ? std::string() : differ(call.inputs[0].count, call.outputs[self].count);
    case Kind::kScatter:
      return inputs == 0 ? std::string() : differ(call.inputs[self].count, call.outputs[0].count);
    case Kind::kAllToAll:
      for (std::size_t peer = 0; peer < call.inputs.size(); ++peer) {
        const bool isEmpty = call.inputs[peer].count == 0 || call.outputs[peer].count == 0;
        if (peer != self && !isEmpty && call.inputs[peer].data == call.outputs[peer].data) {
          return fmt::format("{}: the block for rank {} and the one from it are the same memory", nameOf(call.kind),
                             peer);
        }
      }
      return differ(call.inputs[self].count, call.outputs[self].count);
    case Kind::kBarrier:
      return {};
  }
  return {};
}

}  // namespace gloo_bypass::collectives
