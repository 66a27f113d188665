// What ranks agree on before they exchange a byte: the kind of a collective operation, its element type, reduction,
// count and root. Ranks compare these descriptions, so that two ranks that call different operations get an error that
// names both, and never a wrong sum. Pure.
//
// Semantics are those of torch.distributed (c10d::ProcessGroup); the fields of Call say how they map.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

namespace gloo_bypass::collectives {

enum class Kind : std::uint8_t {
  kAllReduce,      // every rank gets the reduction of all ranks' inputs
  kReduce,         // the root gets it
  kReduceScatter,  // rank r gets the reduction of all ranks' r-th inputs
  kAllGather,      // every rank gets all ranks' inputs
  kGather,         // the root gets them
  kBroadcast,      // every rank gets the root's input
  kScatter,        // rank r gets the root's r-th input
  kAllToAll,       // rank r gets all ranks' r-th inputs
  kBarrier,        // no data: nobody returns before everybody has called
};
inline constexpr int kKinds = 9;

enum class ElementType : std::uint8_t {
  kBool,  // one byte, 0 or 1
  kUint8,
  kInt8,
  kInt16,
  kInt32,
  kInt64,
  kFloat16,   // IEEE binary16; reduced in float, rounded once
  kBfloat16,  // the upper half of a float; reduced in float, rounded once
  kFloat32,
  kFloat64,
};
inline constexpr int kElementTypes = 10;

enum class Reduction : std::uint8_t {
  kSum,
  kAverage,  // of floating-point types only: the sum, divided by the number of ranks
  kProduct,
  kMin,  // NaN if any input is NaN, as torch.minimum
  kMax,
  kBitAnd,  // of integers and bool only
  kBitOr,
  kBitXor,
};
inline constexpr int kReductions = 8;

std::size_t sizeOf(ElementType type);  // bytes
const char* nameOf(Kind kind);         // "all-reduce"
const char* nameOf(ElementType type);  // "float32"
const char* nameOf(Reduction reduction);
bool reduces(Kind kind);
// Whether elements of this type can be reduced so: no average of integers, no bits of floating-point numbers.
bool isDefined(Reduction reduction, ElementType type);

// As ranks compare it. Fields that do not matter for a kind are zero in every rank: counts that may differ between
// ranks (uneven all-gather, splits), the reduction of an operation that reduces nothing, the root of one without.
struct Description {
  Kind kind = Kind::kBarrier;
  ElementType type = ElementType::kUint8;
  Reduction reduction = Reduction::kSum;
  std::uint32_t root = 0;
  std::uint64_t count = 0;  // elements that each rank contributes; 0 if ranks' counts may differ
  bool inPieces = false;    // the caller has cut it, and this is of the whole: pieces meet no whole operation

  bool operator==(const Description&) const = default;
};

// "all-reduce of 1024 float32, sum", "broadcast of 10 int64 from rank 3".
std::string textOf(const Description& description);

// 16 bytes for shared memory and the wire: two little-endian words.
struct DescriptionWords {
  std::uint64_t first = 0;  // kind 8, type 8, reduction 7, in pieces 1, zero 8, root 32
  std::uint64_t count = 0;
  bool operator==(const DescriptionWords&) const = default;
};
DescriptionWords wordsOf(const Description& description);
// Words from a peer are hostile: nullopt if no rank of this version writes them.
std::optional<Description> descriptionOf(const DescriptionWords& words);
// As of a description; in words where they are none.
std::string textOfWords(const DescriptionWords& words);

// "ranks 0 and 1 of this group disagree: rank 0 calls ..., rank 1 calls ...": the lower rank first, so that both say
// the same.
std::string disagreement(int rank, const DescriptionWords& words, int other, const DescriptionWords& others);

// Memory of `count` elements. May be empty; then `data` may be null.
template <typename Byte>
struct BasicBlock {
  Byte* data = nullptr;
  std::size_t count = 0;
};
using Block = BasicBlock<std::byte>;
using ConstBlock = BasicBlock<const std::byte>;

// One rank's side of an operation. The buffers stay the caller's, and live until the operation has ended. An input and
// the output at the same place may be the same memory (in place); otherwise they do not overlap. In an all-to-all only
// this rank's own block may be in place: a peer's block may come before the block for it has left.
//
//   kind             inputs                   outputs
//   kAllReduce       1                        1, of the same count
//   kReduce          1                        1 at the root; elsewhere none. The input is not changed
//   kReduceScatter   one for each rank        1, of the count of this rank's input. Counts may differ between places
//   kAllGather       1                        one for each rank; counts may differ between ranks (uneven)
//   kGather          1                        one for each rank at the root; elsewhere none
//   kBroadcast       1 at the root, else none 1, except at the root, where it may be missing
//   kScatter         one for each rank        1
//                    at the root; else none
//   kAllToAll        one for each rank        one for each rank
//   kBarrier         none                     none
struct Call {
  Kind kind = Kind::kBarrier;
  ElementType type = ElementType::kUint8;
  Reduction reduction = Reduction::kSum;
  int root = 0;
  std::span<const ConstBlock> inputs;
  std::span<const Block> outputs;
  bool uneven = false;  // kAllGather, kGather, kScatter: the caller says that counts may differ between ranks
  // Of an operation that this one is a step of: ranks compare and name it instead of the step. Null: none.
  const Description* whole = nullptr;
};

Description describe(const Call& call);  // of the whole operation

// What is wrong with it for rank `rank` of `size`, in one line; empty: nothing.
std::string faultOf(const Call& call, int rank, int size);

}  // namespace gloo_bypass::collectives
