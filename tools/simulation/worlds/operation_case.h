// An operation with memory of its own, and its plain result: what every executor is compared with, in tests and in the
// simulator.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "collectives/operation.h"

namespace gloo_bypass::collectives {

// One rank's side of an operation.
class OperationBuffers {
 public:
  // Counts in elements. In place: output i is input i, or the rank's own block.
  OperationBuffers(Kind kind, ElementType type, int rank, int size);
  Call& call() { return call_; }
  OperationBuffers& inputs(const std::vector<std::size_t>& counts);
  OperationBuffers& outputs(const std::vector<std::size_t>& counts);
  // The output at `output` shares the memory of the input at `input`.
  OperationBuffers& inPlace(std::size_t input, std::size_t output);

  // Small whole numbers, exact in every type and in any order of additions.
  static double value(int rank, std::size_t block, std::size_t index);
  void fill();  // inputs
  double output(std::size_t block, std::size_t index) const;
  const std::vector<std::byte>& outputBytes(std::size_t block) const { return outputMemory_[block]; }
  const std::vector<std::vector<std::byte>>& outputMemory() const { return outputMemory_; }
  std::byte* inputData(std::size_t block) { return inputMemory_[block].data(); }

 private:
  double read(const std::byte* at) const;
  void write(std::byte* at, double value) const;

  Call call_;
  const int rank_;
  std::vector<std::vector<std::byte>> inputMemory_, outputMemory_;
  std::vector<ConstBlock> inputs_;
  std::vector<Block> outputs_;
};

struct OperationCase {
  Kind kind;
  ElementType type;
  std::size_t count;
  int size, root;
  bool uneven, inPlace;
};

// Whether a kind has a block for each rank; only then may counts differ.
bool hasBlocks(Kind kind);
// Filled. The buffers must outlive its call().
OperationBuffers buffersFor(const OperationCase& c, int rank);
std::string describe(const OperationCase& c, Reduction reduction, int rank);
// After the case: its first output that is wrong, for sums, averages and greatest values; empty: none.
std::string faultOf(const OperationCase& c, int rank, Reduction reduction, OperationBuffers& buffers);

}  // namespace gloo_bypass::collectives
