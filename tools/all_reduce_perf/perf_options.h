// The command line of all_reduce_perf: nccl-tests' flags, and those for transports, ranks and output.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include <nlohmann/json_fwd.hpp>

namespace gloo_bypass {

// The types PyTorch hands to Gloo.
enum class DataType : std::uint8_t { kInt8, kUint8, kInt32, kInt64, kHalf, kFloat, kDouble };
enum class ReduceOp : std::uint8_t { kSum, kProd, kMin, kMax };
enum class AllReduceAlgorithm : std::uint8_t { kRing, kHalvingDoubling, kBcube, kRingChunked };

struct PerfOptions {
  std::uint64_t minBytes = 32u << 20;
  std::uint64_t maxBytes = 32u << 20;
  std::uint64_t stepBytes = 1u << 20;  // used when stepFactor is 0
  unsigned stepFactor = 0;
  unsigned iterations = 20;  // timed, in each round
  unsigned warmupIterations = 5;
  unsigned checkIterations = 1;
  unsigned rounds = 0;  // 0: 1 with one transport, 5 with several
  DataType dataType = DataType::kFloat;
  ReduceOp reduceOp = ReduceOp::kSum;
  AllReduceAlgorithm algorithm = AllReduceAlgorithm::kRing;
  std::uint64_t segmentBytes = 0;  // ring only; 0: Gloo's default, 1 MiB
  // Each is measured: a transport's name, with Gloo's algorithms; with kOwnSuffix, with our own collectives; with that,
  // a colon and an algorithm's name, with that algorithm of ours: "UDP/own:ring".
  std::vector<std::string> transports = {"TCP"};
  unsigned ranks = 0;  // 0: RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT say
  std::string interface;
  std::string hostname;
  std::string storeDirectory;
  std::string jsonPath;
  double timeoutSeconds = 30;
  double deadlineSeconds = 3600;
  double idleSeconds = 0;          // > 0: measure idle ranks instead of bandwidth
  double computeMilliseconds = 0;  // > 0: each rank computes so long before each all-reduce
  unsigned firstCalls = 0;         // so many of the smallest size right after connecting, reported apart
  bool cpuColumn = false;

  unsigned effectiveRounds() const { return rounds != 0 ? rounds : (transports.size() > 1 ? 5 : 1); }
};

inline constexpr std::string_view kOwnSuffix = "/own";
bool usesOwnCollectives(std::string_view transport);
// Without the suffix and what follows it.
std::string_view linkOf(std::string_view transport);
// Of our own collectives, by name; empty: their table chooses.
std::string_view ownAlgorithmOf(std::string_view transport);

// The options to run with, or text (--help, --version) to print instead.
using CommandLine = std::variant<PerfOptions, std::string>;
// Throws UsageError.
CommandLine parseCommandLine(int argc, const char* const* argv);

std::size_t elementBytes(DataType type);
// Gloo's older algorithms, which run over every transport; the others need unbound buffers.
bool usesBoundBuffers(AllReduceAlgorithm algorithm);
std::string_view nameOf(DataType type);
std::string_view nameOf(ReduceOp op);
std::string_view nameOf(AllReduceAlgorithm algorithm);

// The sizes of the scan in bytes, ascending, each a multiple of the element's size and without repetition.
std::vector<std::uint64_t> scanSizes(const PerfOptions& options);

// What all ranks must agree on and what a report quotes.
nlohmann::json toJson(const PerfOptions& options);

}  // namespace gloo_bypass
