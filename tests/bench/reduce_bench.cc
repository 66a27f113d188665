// Measures element-wise reductions (collectives/reduce.h) on one thread, beside memcpy.
//
//   reduce_bench [--reduction NAME] [--inputs N]... [--bytes N]... [--every-set]
//
// Prints the bytes of one vector a second (GB means 1e9), the best of five rounds, and for one element the time of a
// call. A sum of two vectors of 64 MiB moves four times its figure: two reads, a write, and the read before the write.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "collectives/reduce_kernels.h"

namespace gloo_bypass::collectives {
namespace {

constexpr std::size_t kAlignment = 64;  // PyTorch's

template <typename Call>
double nanosecondsOf(const Call& call) {
  using Clock = std::chrono::steady_clock;
  constexpr std::chrono::duration<double, std::nano> kRound = std::chrono::milliseconds(5);
  const auto timed = [&](std::size_t calls) {
    const auto start = Clock::now();
    for (std::size_t i = 0; i < calls; ++i) {
      call();
      asm volatile("" ::: "memory");
    }
    return std::chrono::duration<double, std::nano>(Clock::now() - start).count() / static_cast<double>(calls);
  };
  timed(1);
  const auto calls = static_cast<std::size_t>(std::max(1.0, kRound.count() / std::max(1.0, timed(1))));
  double best = timed(calls);
  for (int round = 1; round < 5; ++round) best = std::min(best, timed(calls));
  return best;
}

struct Options {
  std::string reduction = "sum";
  std::vector<std::size_t> inputs{2, 8}, bytes{8 << 10, 64 << 20};
  bool everySet = false;
};

void measure(const Options& options, Reduction reduction) {
  constexpr std::array kTypes{ElementType::kFloat32, ElementType::kBfloat16, ElementType::kFloat16, ElementType::kInt8};
  const std::size_t most = *std::max_element(options.inputs.begin(), options.inputs.end());
  const std::size_t bytes = *std::max_element(options.bytes.begin(), options.bytes.end());
  std::vector<std::vector<std::byte>> vectors(most + 1, std::vector<std::byte>(bytes + kAlignment, std::byte{0x3c}));
  std::vector<std::byte*> inputs;
  for (auto& vector : vectors) {
    const auto address = reinterpret_cast<std::uintptr_t>(vector.data());
    inputs.push_back(vector.data() + (kAlignment - address % kAlignment) % kAlignment);
  }
  std::byte* const output = inputs.back();
  for (const std::size_t length : options.bytes) {
    const double copy = nanosecondsOf([&] { std::memcpy(output, inputs[0], length); });
    fmt::print("memcpy of {} bytes: {:.1f} GB/s\n", length, static_cast<double>(length) / copy);
  }
  auto sets = runnableReduceKernels();
  if (!options.everySet) sets = sets.last(1);
  for (const ReduceKernels* set : sets) {
    for (const ElementType type : kTypes) {
      const ReduceKernel kernel = set->kernels[static_cast<std::size_t>(reduction)][static_cast<std::size_t>(type)];
      if (kernel == nullptr) continue;
      const auto time = [&](std::size_t count, std::size_t elements) {
        return nanosecondsOf([&] { kernel(output, inputs.data(), count, elements, static_cast<int>(count)); });
      };
      fmt::print("{} {} of {}, 2 inputs of 1: {:.1f} ns\n", set->instructionSet, nameOf(reduction), nameOf(type),
                 time(2, 1));
      for (const std::size_t count : options.inputs) {
        for (const std::size_t length : options.bytes) {
          fmt::print("{} {} of {}, {} inputs of {} bytes: {:.1f} GB/s\n", set->instructionSet, nameOf(reduction),
                     nameOf(type), count, length, static_cast<double>(length) / time(count, length / sizeOf(type)));
        }
      }
    }
  }
}

int run(int argc, char** argv) {
  Options options;
  CLI::App app("Measures element-wise reductions on one thread.");
  app.add_option("--reduction", options.reduction, "sum, average, product, min, max, and, or, xor")
      ->capture_default_str();
  app.add_option("--inputs", options.inputs, "numbers of vectors")->check(CLI::Range(1, 64))->capture_default_str();
  app.add_option("--bytes", options.bytes, "lengths of a vector")
      ->check(CLI::Range(64, 1 << 30))
      ->capture_default_str();
  app.add_flag("--every-set", options.everySet, "every set of instructions of this processor, not the best alone");
  CLI11_PARSE(app, argc, argv);
  for (int reduction = 0; reduction < kReductions; ++reduction) {
    if (options.reduction != nameOf(static_cast<Reduction>(reduction))) continue;
    measure(options, static_cast<Reduction>(reduction));
    return 0;
  }
  fmt::print(stderr, "reduce_bench: there is no reduction '{}'\n", options.reduction);
  return 1;
}

}  // namespace
}  // namespace gloo_bypass::collectives

int main(int argc, char** argv) { return gloo_bypass::collectives::run(argc, argv); }
