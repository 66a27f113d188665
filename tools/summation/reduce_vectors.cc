// reduce_vectors: the bits that Gloo's all-reduces make of given vectors. See docs/studies/summation/README.md.
//
// N ranks on this machine, over TCP, reduce one vector each, once. Input: the ranks' vectors one after the other,
// elements as this machine holds them. Output: each rank's result, in the same way; whole or not at all.
#include <sys/mman.h>

#include <cstring>
#include <fstream>
#include <map>
#include <memory>
#include <sstream>
#include <string>
#include <variant>

#include <fmt/format.h>
#include <gloo/barrier.h>
#include <gloo/rendezvous/context.h>
#include <CLI/CLI.hpp>

#include "tools/all_reduce_perf/collective.h"
#include "tools/all_reduce_perf/device_factory.h"
#include "tools/all_reduce_perf/key_value_store.h"
#include "tools/common/command_line.h"
#include "tools/common/error.h"
#include "tools/common/rank_processes.h"
#include "tools/common/result_file.h"
#include "tools/common/run_program.h"
#include "tools/common/version.h"
#include "transport/compatibility/gloo/rendezvous.h"

namespace gloo_bypass {
namespace {

constexpr std::size_t kMaxInputBytes = std::size_t{1} << 30;
constexpr std::chrono::seconds kTimeout{30};    // of an operation
constexpr std::chrono::seconds kRunLimit{120};  // of all ranks

struct ReduceOptions {
  int ranks = 2;
  std::string input, output;
  CollectiveOptions collective{.timeout = kTimeout};
};

std::variant<ReduceOptions, std::string> parse(int argc, const char* const* argv) {
  ReduceOptions options;
  CLI::App app("Reduces given vectors once by one of Gloo's all-reduces, over TCP, to compare their bits.",
               "reduce_vectors");
  app.set_version_flag("--version", "reduce_vectors " + std::string(commitName()));
  app.add_option("--ranks", options.ranks, "how many to start here")->check(CLI::Range(1, 64))->required();
  app.add_option("--algorithm", options.collective.algorithm, "ring, bcube, halving_doubling or ring_chunked")
      ->transform(CLI::CheckedTransformer(
          std::map<std::string, AllReduceAlgorithm>{{"ring", AllReduceAlgorithm::kRing},
                                                    {"bcube", AllReduceAlgorithm::kBcube},
                                                    {"halving_doubling", AllReduceAlgorithm::kHalvingDoubling},
                                                    {"ring_chunked", AllReduceAlgorithm::kRingChunked}}))
      ->required();
  app.add_option("--type", options.collective.dataType, "float or double")
      ->transform(CLI::CheckedTransformer(
          std::map<std::string, DataType>{{"float", DataType::kFloat}, {"double", DataType::kDouble}}))
      ->required();
  app.add_option("--segment-bytes", options.collective.segmentBytes, "of the ring; 0: Gloo's default, 1 MiB")
      ->check(CLI::Range(std::size_t{0}, std::size_t{1} << 31));
  app.add_option("--input", options.input, "file with the ranks' vectors, one after the other")->required();
  app.add_option("--output", options.output, "file for the ranks' results")->required();
  if (auto text = readCommandLine(app, argc, argv)) return *std::move(text);
  if (options.collective.segmentBytes != 0 && options.collective.algorithm != AllReduceAlgorithm::kRing)
    throw UsageError(
        fmt::format("--segment-bytes belongs to --algorithm ring, not to {}", nameOf(options.collective.algorithm)));
  return options;
}

// What children write and the parent reads.
class SharedBytes {
 public:
  explicit SharedBytes(std::size_t size) : size_(size) {
    data_ = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (data_ == MAP_FAILED) throw ProgramError(fmt::format("no memory for {} bytes", size));
  }
  ~SharedBytes() { ::munmap(data_, size_); }
  SharedBytes(const SharedBytes&) = delete;
  SharedBytes& operator=(const SharedBytes&) = delete;
  char* data() const { return static_cast<char*>(data_); }
  std::size_t size() const { return size_; }

 private:
  void* data_;
  std::size_t size_;
};

std::string readInput(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream text;
  text << file.rdbuf();
  if (!file || text.str().empty()) throw UsageError(fmt::format("--input: cannot read {}, or it is empty", path));
  return text.str();
}

// In a child: reduces the rank's part of `vectors` where it lies.
int reduceAsRank(const ReduceOptions& options, const SharedBytes& vectors, int rank, std::uint16_t port) {
  try {
    const auto store = std::make_shared<KeyValueClient>("127.0.0.1", port, kTimeout);
    auto device = makeDevice("TCP", {.interface = "", .hostName = "127.0.0.1"});
    const auto context = std::make_shared<::gloo::rendezvous::Context>(rank, options.ranks);
    context->setTimeout(kTimeout);
    gloo_version::connectFullMesh(*context, store, device);
    std::uint32_t tag = 0;
    const auto barrier = [&] {
      ::gloo::BarrierOptions call(context);
      call.setTag(tag++);
      ::gloo::barrier(call);
    };
    const std::size_t bytes = vectors.size() / static_cast<std::size_t>(options.ranks);
    char* mine = vectors.data() + bytes * static_cast<std::size_t>(rank);
    const auto collective =
        makeCollective(options.collective, context, &tag, mine, bytes / elementBytes(options.collective.dataType));
    barrier();  // bound buffers exist on all ranks before anyone writes to them, and until the last rank is done
    collective->run();
    barrier();
    return 0;
  } catch (const std::exception& error) {
    complain("reduce_vectors", fmt::format("rank {}: {}", rank, error.what()));
    return kExitFailure;
  }
}

int run(const ReduceOptions& options) {
  const std::string input = readInput(options.input);
  const std::size_t whole = static_cast<std::size_t>(options.ranks) * elementBytes(options.collective.dataType);
  if (input.size() % whole != 0 || input.size() > kMaxInputBytes)
    throw UsageError(fmt::format("--input {}: {} bytes are not whole vectors of {} ranks, or more than {}",
                                 options.input, input.size(), options.ranks, kMaxInputBytes));
  checkWritable("--output", options.output);
  const SharedBytes vectors(input.size());
  std::memcpy(vectors.data(), input.data(), input.size());
  KeyValueServer server(Reach::kThisMachine, 0);
  RankProcesses ranks(options.ranks, [&](int rank) { return reduceAsRank(options, vectors, rank, server.port()); });
  server.start();
  const RanksEnd end = ranks.supervise({.limit = kRunLimit, .limitName = "the limit of 120 s"});
  if (end.exitStatus != 0) throw ProgramError(end.message, end.exitStatus);
  writeResult("--output", options.output, std::string(vectors.data(), vectors.size()));
  return 0;
}

}  // namespace
}  // namespace gloo_bypass

int main(int argc, char** argv) {
  return gloo_bypass::runProgram("reduce_vectors", gloo_bypass::parse, gloo_bypass::run, argc, argv);
}
