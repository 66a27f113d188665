#include "tools/all_reduce_perf/perf_options.h"

#include <algorithm>
#include <array>
#include <set>
#include <utility>

#include <fmt/format.h>
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "tools/all_reduce_perf/device_factory.h"
#include "tools/all_reduce_perf/own_collectives.h"
#include "tools/common/command_line.h"
#include "tools/common/error.h"
#include "tools/common/version.h"
#include "transport/base/joined.h"

namespace gloo_bypass {
namespace {

template <typename T>
struct Named {
  const char* name;
  T value;
};
constexpr std::array<Named<DataType>, 7> kDataTypes{{{"int8", DataType::kInt8},
                                                     {"uint8", DataType::kUint8},
                                                     {"int32", DataType::kInt32},
                                                     {"int64", DataType::kInt64},
                                                     {"half", DataType::kHalf},
                                                     {"float", DataType::kFloat},
                                                     {"double", DataType::kDouble}}};
constexpr std::array<Named<ReduceOp>, 4> kReduceOps{
    {{"sum", ReduceOp::kSum}, {"prod", ReduceOp::kProd}, {"min", ReduceOp::kMin}, {"max", ReduceOp::kMax}}};
constexpr std::array<Named<AllReduceAlgorithm>, 4> kAlgorithms{
    {{"ring", AllReduceAlgorithm::kRing},
     {"halving_doubling", AllReduceAlgorithm::kHalvingDoubling},
     {"bcube", AllReduceAlgorithm::kBcube},
     {"ring_chunked", AllReduceAlgorithm::kRingChunked}}};

// Terabyte sizes are typing errors here; the bound also catches "-4", which CLI11 reads as a huge unsigned number.
constexpr std::uint64_t kMaxSizeBytes = std::uint64_t{1} << 40;
constexpr std::uint64_t kMaxSizes = 10'000;
constexpr std::uint64_t kMaxSamples = 1'000'000;  // a rank and size: they travel to rank 0
constexpr unsigned kMaxRanks = 256;
constexpr unsigned kMaxFirstCalls = 100'000;
constexpr char kAlgorithmMark = ':';
// AllreduceHalvingDoubling and AllreduceRingChunked count bytes in an int.
constexpr std::uint64_t kMaxBoundBytes = (std::uint64_t{1} << 31) - 1;

template <typename T, std::size_t kCount>
std::string_view find(const std::array<Named<T>, kCount>& table, T value) {
  for (const auto& entry : table)
    if (entry.value == value) return entry.name;
  return "?";
}

// CLI11's own mapping check quotes the mapped numbers too; a plain list of names is easier to read.
template <typename T, std::size_t kCount>
void addNamed(CLI::App& app, const std::string& flags, T& target, const std::array<Named<T>, kCount>& table,
              const std::string& what) {
  std::vector<const char*> names;
  for (const auto& entry : table) names.push_back(entry.name);
  const std::string list = joined(names);
  app.add_option_function<std::string>(
         flags,
         [&target, &table, list, flags](const std::string& text) {
           const auto found = std::find_if(table.begin(), table.end(), [&](auto& entry) { return entry.name == text; });
           if (found == table.end()) throw CLI::ValidationError(flags, fmt::format("'{}' is none of {}", text, list));
           target = found->value;
         },
         fmt::format("{}: {}", what, list))
      ->default_str(std::string(find(table, target)));
}

constexpr const char* kDescription =
    "All-reduce over Gloo transports, with nccl-tests' flags and table.\n"
    "What is measured: for each size and transport, after -w iterations untimed, rounds of -n iterations. The ranks "
    "meet\n"
    "in a barrier of the same transport before each round; with several transports the rounds alternate (A B A B).\n"
    "time: mean over iterations, rounds and ranks. p50, p99: over every single iteration of every rank and round.\n"
    "algbw = size / time, busbw = algbw * 2(n-1)/n, GB = 1e9 bytes. ratio = p50 of the first transport / p50 of this "
    "one.\n"
    "#wrong: elements that differ from the exact result, over all ranks and -c checked iterations (not timed).";

void addMeasurementOptions(CLI::App& app, PerfOptions& options) {
  const auto addSize = [&app](const char* flags, std::uint64_t& size, const char* what) {
    return app.add_option(flags, size, what)->transform(CLI::AsSizeValue(false));
  };
  addSize("-b,--minbytes", options.minBytes, "smallest size; K, M, G are powers of 1024")->default_str("32M");
  addSize("-e,--maxbytes", options.maxBytes, "largest size")->default_str("32M");
  auto* step = addSize("-i,--stepbytes", options.stepBytes, "add this from size to size")->default_str("1M");
  app.add_option("-f,--stepfactor", options.stepFactor, "multiply by this from size to size")
      ->check(CLI::Range(2u, 1'000'000u))
      ->excludes(step);
  const auto addCount = [&app](const char* flags, unsigned& count, const char* what, unsigned least, unsigned most) {
    app.add_option(flags, count, what)->check(CLI::Range(least, most))->capture_default_str();
  };
  addCount("-n,--iters", options.iterations, "timed iterations of a round", 1, 1'000'000);
  addCount("-w,--warmup_iters", options.warmupIterations, "untimed iterations first", 0, 1'000'000);
  addCount("-c,--check", options.checkIterations, "checked iterations; 0: none", 0, 1'000'000);
  addCount("--rounds", options.rounds, "rounds of each transport; 0: 1 with one transport, 5 with several", 0, 10'000);
  addNamed(app, "-d,--datatype", options.dataType, kDataTypes, "element type");
  addNamed(app, "-o,--op", options.reduceOp, kReduceOps, "reduction");
  addNamed(app, "--algorithm", options.algorithm, kAlgorithms, "Gloo's algorithm");
  addSize("--segment-bytes", options.segmentBytes, "ring: largest send; 0: Gloo's default, 1M");
  app.add_option("--compute", options.computeMilliseconds,
                 "milliseconds that each rank computes before each all-reduce, as programs do; times are then of the "
                 "call alone, and the column adds says how much longer a round takes than without all-reduces")
      ->check(CLI::Range(0.0, 10'000.0));
  app.add_option("--first", options.firstCalls,
                 "the first so many all-reduces after connecting, of the smallest size, reported apart")
      ->check(CLI::Range(0u, kMaxFirstCalls));
  app.add_flag("--cpu", options.cpuColumn, "a column with the CPU time of a rank, in % of a core");
  app.add_option("--idle", options.idleSeconds,
                 "instead of timing: connect, reduce -w times at -e bytes, stay idle for so many seconds, and report "
                 "CPU and memory of each rank; each transport in fresh processes")
      ->check(CLI::Range(0.0, 3600.0));
}

void addRunOptions(CLI::App& app, PerfOptions& options, std::vector<std::string>& collectives) {
  app.add_option("--transports", options.transports,
                 "comma-separated: " + knownTransports() +
                     "; with our own collectives as the table calls them: UDP/own, or by one algorithm UDP/own:ring")
      ->delimiter(',')
      ->default_str("TCP");
  app.add_option("--collectives", collectives,
                 "comma-separated: gloo, own. own: gloo-bypass's own collectives, over each of our transports; the "
                 "table calls them DPDK/own. --algorithm and --segment-bytes are Gloo's")
      ->delimiter(',')
      ->check(CLI::IsMember({"gloo", "own"}))
      ->default_str("gloo");
  app.add_option("--ranks", options.ranks,
                 "start so many ranks here; without it RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT are read")
      ->check(CLI::Range(1u, kMaxRanks));
  app.add_option("--interface", options.interface,
                 "network interface for the devices (default: without --ranks those of GLOO_SOCKET_IFNAME)");
  app.add_option("--hostname", options.hostname,
                 "host name or address for Gloo's devices (default: 127.0.0.1 with --ranks, else the host's name)")
      ->excludes("--interface");
  app.add_option("--store-dir", options.storeDirectory,
                 "without --ranks: ranks meet by files in this fresh folder and not at MASTER_ADDR:MASTER_PORT")
      ->excludes("--ranks");
  app.add_option("--json", options.jsonPath, "write the results to this file too");
  app.add_option("--timeout", options.timeoutSeconds, "seconds any one operation may take")
      ->check(CLI::Range(0.1, 86'400.0))
      ->capture_default_str();
  app.add_option("--deadline", options.deadlineSeconds, "with --ranks: seconds after which all ranks are ended")
      ->check(CLI::Range(1.0, 86'400.0))
      ->needs("--ranks")
      ->capture_default_str();
}

void checkSizes(const PerfOptions& options) {
  for (const auto& [flag, value] :
       {std::pair{"--minbytes", options.minBytes}, std::pair{"--maxbytes", options.maxBytes},
        std::pair{"--stepbytes", options.stepBytes}, std::pair{"--segment-bytes", options.segmentBytes}}) {
    if (value > kMaxSizeBytes) throw UsageError(fmt::format("{}: must be from 0 to 1T (2^40 bytes)", flag));
  }
  if (options.minBytes > options.maxBytes)
    throw UsageError(fmt::format("--minbytes {} is larger than --maxbytes {}", options.minBytes, options.maxBytes));
  const auto checkHoldsOne = [element = elementBytes(options.dataType), &options](const char* flag,
                                                                                  std::uint64_t value) {
    if (value < element)
      throw UsageError(
          fmt::format("{} {} is less than one {} ({} bytes)", flag, value, nameOf(options.dataType), element));
  };
  checkHoldsOne("--minbytes", options.minBytes);
  if (options.stepFactor == 0 && options.minBytes != options.maxBytes) {
    checkHoldsOne("--stepbytes", options.stepBytes);
    if ((options.maxBytes - options.minBytes) / options.stepBytes >= kMaxSizes)
      throw UsageError(fmt::format("--stepbytes {} makes more than {} sizes; use a larger step or --stepfactor",
                                   options.stepBytes, kMaxSizes));
  }
  if (usesBoundBuffers(options.algorithm) && options.maxBytes > kMaxBoundBytes)
    throw UsageError(
        fmt::format("--maxbytes {}: Gloo's {} takes less than 2G", options.maxBytes, nameOf(options.algorithm)));
}

// Our own collectives take none of Gloo's algorithms.
void checkForOwn(const PerfOptions& options, const CLI::App& app) {
  const auto& all = options.transports;
  if (!std::all_of(all.begin(), all.end(), usesOwnCollectives)) return;
  for (const char* flag : {"--algorithm", "--segment-bytes"}) {
    if (app.count(flag) > 0)
      throw UsageError(
          fmt::format("{} is Gloo's, and none of its collectives runs: name ours as in UDP/own:ring", flag));
  }
}

// What follows the transport's own name.
void checkCollectives(const std::string& transport) {
  if (!usesOwnCollectives(transport)) return;
  if (!hasOwnCollectives(linkOf(transport)))
    throw UsageError(fmt::format("--transports: {} has no collectives of gloo-bypass", linkOf(transport)));
  if (transport.find(kAlgorithmMark) == std::string::npos) return;
  if (const auto known = choicesOf(ownAlgorithmOf(transport)); !known)
    throw UsageError(fmt::format("--transports {}: {}", transport, known.error().message));
}

// Each transport with each of the collectives that it has.
std::vector<std::string> contenders(const std::vector<std::string>& transports,
                                    const std::vector<std::string>& collectives) {
  std::vector<std::string> all;
  for (const std::string& transport : transports) {
    if (usesOwnCollectives(transport)) {  // named with them
      all.push_back(transport);
      continue;
    }
    for (const std::string& collective : collectives) {
      if (collective == "gloo") all.push_back(transport);
      if (collective == "own" && hasOwnCollectives(transport)) all.push_back(transport + std::string(kOwnSuffix));
    }
  }
  return all;
}

void checkOptions(const PerfOptions& options) {
  checkSizes(options);
  if (options.segmentBytes != 0 && options.algorithm != AllReduceAlgorithm::kRing)
    throw UsageError(fmt::format("--segment-bytes belongs to --algorithm ring, not to {}", nameOf(options.algorithm)));
  if (options.segmentBytes != 0 && options.segmentBytes < elementBytes(options.dataType))
    throw UsageError(
        fmt::format("--segment-bytes {} is less than one {}", options.segmentBytes, nameOf(options.dataType)));
  if (std::uint64_t{options.iterations} * options.effectiveRounds() > kMaxSamples)
    throw UsageError(fmt::format("--iters {} x --rounds {} is more than {} samples a size", options.iterations,
                                 options.effectiveRounds(), kMaxSamples));
  if (options.transports.empty()) {
    throw UsageError("--transports names none that has these --collectives; known are " + knownTransports());
  }
  std::set<std::string> seen;
  for (const std::string& transport : options.transports) {
    if (const auto problem = transportProblem(linkOf(transport)); !problem.empty())
      throw UsageError("--transports: " + problem);
    checkCollectives(transport);
    if (hasBoundBuffersOnly(transport) && !usesBoundBuffers(options.algorithm))
      throw UsageError(
          fmt::format("--transports: {} has bound buffers only: it runs --algorithm ring_chunked and "
                      "halving_doubling, not {}",
                      transport, nameOf(options.algorithm)));
    if (!seen.insert(transport).second) throw UsageError(fmt::format("--transports names {} twice", transport));
  }
  if (options.idleSeconds > 0 && (options.computeMilliseconds > 0 || options.firstCalls > 0))
    throw UsageError("--idle goes without --compute and --first: idle ranks do neither");
  if (options.idleSeconds > 0 && options.ranks == 0 && options.transports.size() > 1)
    throw UsageError("--idle with several --transports needs --ranks: each is measured in fresh processes");
}

}  // namespace

CommandLine parseCommandLine(int argc, const char* const* argv) {
  PerfOptions options;
  CLI::App app{kDescription, "all_reduce_perf"};
  app.set_version_flag("--version", "all_reduce_perf " + buildVersion());
  addMeasurementOptions(app, options);
  std::vector<std::string> collectives{"gloo"};
  addRunOptions(app, options, collectives);
  if (auto text = readCommandLine(app, argc, argv)) return *std::move(text);
  // A default never contradicts the other bound.
  if (app.count("--minbytes") == 0) options.minBytes = std::min(options.minBytes, options.maxBytes);
  if (app.count("--maxbytes") == 0) options.maxBytes = std::max(options.minBytes, options.maxBytes);
  options.transports = contenders(options.transports, collectives);
  checkOptions(options);
  checkForOwn(options, app);
  return options;
}

std::size_t elementBytes(DataType type) {
  constexpr std::size_t kBytes[] = {1, 1, 4, 8, 2, 4, 8};  // in the order of DataType
  return kBytes[static_cast<std::size_t>(type)];
}

bool usesBoundBuffers(AllReduceAlgorithm algorithm) {
  return algorithm == AllReduceAlgorithm::kHalvingDoubling || algorithm == AllReduceAlgorithm::kRingChunked;
}

bool usesOwnCollectives(std::string_view transport) {
  return transport.substr(0, transport.find(kAlgorithmMark)).ends_with(kOwnSuffix);
}
std::string_view linkOf(std::string_view transport) {
  const std::string_view name = transport.substr(0, transport.find(kAlgorithmMark));
  return name.ends_with(kOwnSuffix) ? name.substr(0, name.size() - kOwnSuffix.size()) : transport;
}
std::string_view ownAlgorithmOf(std::string_view transport) {
  const std::size_t mark = usesOwnCollectives(transport) ? transport.find(kAlgorithmMark) : std::string_view::npos;
  return mark == std::string_view::npos ? std::string_view() : transport.substr(mark + 1);
}

std::string_view nameOf(DataType type) { return find(kDataTypes, type); }
std::string_view nameOf(ReduceOp op) { return find(kReduceOps, op); }
std::string_view nameOf(AllReduceAlgorithm algorithm) { return find(kAlgorithms, algorithm); }

std::vector<std::uint64_t> scanSizes(const PerfOptions& options) {
  const std::uint64_t element = elementBytes(options.dataType);
  std::vector<std::uint64_t> sizes;
  for (std::uint64_t size = options.minBytes; size <= options.maxBytes;) {
    const std::uint64_t rounded = size / element * element;
    if (rounded != 0 && (sizes.empty() || sizes.back() != rounded)) sizes.push_back(rounded);
    // Neither overflows: sizes are below 2^40 and factors below 2^20.
    size = options.stepFactor > 1 ? size * options.stepFactor : size + std::max<std::uint64_t>(options.stepBytes, 1);
  }
  return sizes;
}

nlohmann::json toJson(const PerfOptions& options) {
  return {{"min_bytes", options.minBytes},
          {"max_bytes", options.maxBytes},
          {"step_bytes", options.stepFactor > 1 ? 0 : options.stepBytes},
          {"step_factor", options.stepFactor},
          {"iterations", options.iterations},
          {"warmup_iterations", options.warmupIterations},
          {"check_iterations", options.checkIterations},
          {"rounds", options.effectiveRounds()},
          {"type", nameOf(options.dataType)},
          {"redop", nameOf(options.reduceOp)},
          {"algorithm", nameOf(options.algorithm)},
          {"segment_bytes", options.segmentBytes},
          {"transports", options.transports},
          {"compute_milliseconds", options.computeMilliseconds},
          {"first_calls", options.firstCalls},
          {"timeout_seconds", options.timeoutSeconds},
          {"idle_seconds", options.idleSeconds}};
}

}  // namespace gloo_bypass
