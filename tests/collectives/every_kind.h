// What every Executor must do, whatever it runs over: operations of all kinds, and their plain results. An executor's
// test makes the ranks, as threads of one process, and runs cases on them.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <vector>

#include "collectives/executor.h"
#include "collectives/operation.h"
#include "transport/base/time.h"

namespace gloo_bypass::collectives::test {

inline constexpr std::chrono::seconds kPatience{30};  // long enough for a loaded machine
TimePoint soon();                                     // kPatience from now

inline constexpr ElementType kTypes[] = {ElementType::kFloat32, ElementType::kBfloat16, ElementType::kInt64,
                                         ElementType::kUint8};

// One rank's side of an operation, with memory of its own.
class Buffers {
 public:
  // Counts in elements. In place: output i is input i, or the rank's own block.
  Buffers(Kind kind, ElementType type, int rank, int size);
  Call& call() { return call_; }
  Buffers& inputs(const std::vector<std::size_t>& counts);
  Buffers& outputs(const std::vector<std::size_t>& counts);
  // The output at `output` shares the memory of the input at `input`.
  Buffers& inPlace(std::size_t input, std::size_t output);

  // Small whole numbers, exact in every type and in any order of additions.
  static double value(int rank, std::size_t block, std::size_t index);
  void fill();  // inputs
  double output(std::size_t block, std::size_t index) const;
  const std::vector<std::byte>& outputBytes(std::size_t block) const { return outputMemory_[block]; }
  std::byte* inputData(std::size_t block) { return inputMemory_[block].data(); }

 private:
  double read(const std::byte* at) const;
  void write(std::byte* at, double value) const;

  Call call_;
  const int rank_;
  std::vector<std::vector<std::byte>> inputMemory_, outputMemory_;
  std::vector<ConstBlock> inputs_;
  std::vector<Block> outputs_;
  std::vector<std::size_t> sharedInput_;  // for each output; SIZE_MAX: its own
};

struct Case {
  Kind kind;
  ElementType type;
  std::size_t count;
  int size, root;
  bool uneven, inPlace;
};

// Whether a kind has a block for each rank; only then may counts differ.
bool hasBlocks(Kind kind);
// Of several counts and types, each root in turn.
std::vector<Case> casesOf(Kind kind, int size);
// Runs the case's part of `rank`, and compares what it gives with a plain loop.
::testing::AssertionResult runsRight(Executor& executor, const Case& c, int rank, Reduction reduction);

}  // namespace gloo_bypass::collectives::test
