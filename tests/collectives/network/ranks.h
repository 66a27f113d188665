// Ranks of a network executor as threads of one process, over each medium.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "collectives/network/network_executor.h"
#include "tests/support/media/media.h"
#include "tests/support/memory_rendezvous.h"

namespace gloo_bypass::collectives::test {

using gloo_bypass::test::Medium;
using gloo_bypass::test::MemoryRendezvous;

// In memory, over ports in memory that lose datagrams or not, and over every back-end.
std::vector<Medium> media();
inline std::string nameOf(const ::testing::TestParamInfo<Medium>& info) { return info.param.name; }

inline constexpr std::chrono::seconds kPatience{30};  // long enough for a loaded machine
TimePoint soon();                                     // kPatience from now

// Runs `body(rank)` in `count` threads; an exception fails the test.
void inThreads(int count, const std::function<void(int)>& body);

// Connected executors, by rank. `change` may set options.
using Change = std::function<void(NetworkOptions&)>;
std::vector<std::unique_ptr<NetworkExecutor>> connected(const Medium& medium, int size, const Change& change = {});
std::vector<std::unique_ptr<NetworkExecutor>> connected(const std::vector<std::shared_ptr<Transport>>& transports,
                                                        const Change& change = {});

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

}  // namespace gloo_bypass::collectives::test
