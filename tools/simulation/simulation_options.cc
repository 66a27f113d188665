#include "tools/simulation/simulation_options.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <map>

#include "tools/common/command_line.h"
#include "tools/common/version.h"
#include "tools/fabric/core/description_file.h"
#include "tools/fabric/core/edge_settings.h"
#include "tools/fabric/core/quantity.h"
#include "tools/fabric/description_flags.h"
#include "transport/wire/packet.h"

namespace gloo_bypass::sim {
namespace {

constexpr std::size_t kMostRanks = 128;
constexpr std::uint64_t kMostBytes = 16'000'000'000;

constexpr const char* kDescription =
    "Ring all-reduces over a described fabric in virtual time: the sessions are those that run over DPDK, the links "
    "are the emulator's "
    "that the\nfabric switch has, the schedule is Gloo's. Nothing is sent, no real time passes but what computing "
    "takes.";
constexpr const char* kFooter =
    R"(Each rank is a host of the description, and sends to the one before it as in Gloo. With --ranks another
number than it has, `ranks` of the description is replaced: on a [ring], N sites at equal distances;
with --sites M, N ranks in M sites at equal distances.

What simulated times stand beside:
  schedule    Gloo's own schedule, iteration by iteration, over a transport that adds nothing:
              iteration i waits for the receive and the send of i-2, data leaves when posted. One
              edge of one-way delay D: 2 N iterations in each D. Where edges lose frames, a second
              line has it with repetitions, each of which takes a round trip: no transport can do
              without, unless it sends repair frames (--fec)
  physics     propagation through 2(N-1) edges, the slowest way, plus 2(N-1)/N S with headers at the
              lowest rate; a time may lie below this, since the two overlap
  alpha-beta  2(N-1) alpha + 2(N-1)/N S / beta, alpha the mean delay, beta the lowest rate, no headers
With K groups each has 1/K of each rate. Jitter, queues, bursts of loss and timed changes are in none of them. Times
are medians over the measured all-reduces of all groups, each of which goes on until the last one is
done. Bytes sent are of one all-reduce; repetitions and losses of all, warm-ups too. Frames count as
in the switch: from the Ethernet header on. Fairness is Jain's index of what the groups received by
the time when the first is done: 1, equal shares; 1/K, one has all. An all-reduce begins on all ranks
at once, when the one before it is done on all; sums take no time. Payload is carried and checked, but
is the same buffer for every message. Timed changes count from the first all-reduce's beginning.

Descriptions: tools/fabric/core/README.md, examples/fabric/. Exit status: 0; 1, a run failed or a
result could not be written; 2, bad input; 130, interrupted: results so far are printed and written.)";

const std::map<std::string, CongestionControl> kCongestionControls{{"auto", CongestionControl::kAuto},
                                                                   {"fixed", CongestionControl::kFixed},
                                                                   {"swift", CongestionControl::kSwift},
                                                                   {"bbr", CongestionControl::kBbr}};

const std::map<std::string, Repair::Mode> kRepairModes{
    {"auto", Repair::Mode::kAuto}, {"off", Repair::Mode::kOff}, {"on", Repair::Mode::kOn}};

template <typename Value>
std::string nameOf(Value wanted, const std::map<std::string, Value>& names) {
  for (const auto& [name, value] : names) {
    if (value == wanted) return name;
  }
  return "unknown";
}

constexpr Duration kMostTime = std::chrono::hours(24);

// An option whose text `parse` makes a quantity of.
template <typename Quantity, typename Parse>
void addQuantity(CLI::App& app, const std::string& flag, Quantity& target, const std::string& byDefault,
                 const char* type, const char* what, Parse parse) {
  const auto read = [flag, &target, parse](const std::string& text) {
    const auto parsed = parse(text);
    if (!parsed) throw UsageError(fmt::format("{} {}: {}", flag, text, parsed.error().message));
    target = parsed.value();
  };
  if (!byDefault.empty()) read(byDefault);
  app.add_option_function<std::string>(flag, read, what)->type_name(type)->default_str(byDefault);
}

Result<std::uint64_t> parseSegment(const std::string& text) {
  if (text == "two") return std::uint64_t{0};
  return fabric::parseBytes(text, RingSchedule::kElementBytes, std::uint64_t{1} << 30);
}

Result<std::string> parseLoss(const std::string& text) {
  fabric::EdgeChange change;
  if (const Status set = fabric::setEdge(change, "loss", text); !set) return set.error();
  return text;
}

void addOptions(CLI::App& app, SimulationOptions& options, fabric::DescriptionFlags& description) {
  const auto upTo = [](Duration least) {
    return [least](const std::string& text) { return fabric::parseDuration(text, least, kMostTime); };
  };
  RingRunSettings& run = options.run;
  app.add_option("--config", options.configPath, "the description, a TOML file")
      ->type_name("FILE")
      ->capture_default_str();
  description.addTo(app);
  app.add_option("--ranks", options.ranks, "numbers of ranks, commas between; else as many as hosts are described")
      ->delimiter(',')
      ->check(CLI::Range(std::size_t{2}, kMostRanks))
      ->type_name("N,...");
  app.add_option("--sites", options.sites, "put the ranks into so many sites, one after the other; 0: as described")
      ->check(CLI::Range(std::size_t{0}, kMostRanks))
      ->type_name("M")
      ->capture_default_str();
  addQuantity(app, "--loss", options.loss, "", "SHARE", "of every edge, whatever is described, such as 0.1%",
              parseLoss);
  addQuantity(app, "--bytes", run.bytes, "10MB", "SIZE", "of the vector", [](const std::string& text) {
    return fabric::parseBytes(text, RingSchedule::kElementBytes, kMostBytes);
  });
  addQuantity(app, "--segment-bytes", run.maxSegmentBytes, "1MiB", "SIZE",
              "longest segment; \"two\": two segments a rank", parseSegment);
  app.add_option("--groups", run.groups, "process groups at once, each over all ranks and the same edges")
      ->check(CLI::Range(1, 16))
      ->type_name("K")
      ->capture_default_str();
  app.add_option("--warm-ups", run.warmUps, "all-reduces that are not measured")
      ->check(CLI::Range(0, 1000))
      ->capture_default_str();
  app.add_option("--iterations", run.measured, "all-reduces that are")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  app.add_option("--mtu", run.mtu, "longest IP packet")
      ->check(CLI::Range(wire::kMinDatagramBytes + 28, std::size_t{32768}))
      ->capture_default_str();
  app.add_option("--congestion-control", run.session.congestionControl,
                 "auto, fixed, swift or bbr; auto: swift, and bbr from --bbr-rtt on")
      ->transform(CLI::Transformer(kCongestionControls, CLI::ignore_case))
      ->check(CLI::IsMember({0, 1, 2, 3}).description("").name(""))
      ->option_text("NAME [auto]");
  app.add_option("--fec", run.session.repair.mode,
                 "repair frames: auto, off or on, as GLOO_BYPASS_FEC; auto: from --bbr-rtt on, where something is lost")
      ->transform(CLI::Transformer(kRepairModes, CLI::ignore_case))
      ->check(CLI::IsMember({0, 1, 2}).description("").name(""))
      ->option_text("MODE [auto]");
  addQuantity(app, "--long-path-rtt", run.session.longPathRtt, "300us", "TIME",
              "from this round-trip time on sends are buffered, and data does not wait for a grant", upTo(Duration{0}));
  addQuantity(app, "--bbr-rtt", run.session.bbrRtt, "1ms", "TIME",
              "from this round-trip time on auto has bbr, and repair frames", upTo(Duration{0}));
  addQuantity(app, "--time-limit", run.timeLimit, "1h", "TIME",
              "of virtual time, for all all-reduces of one number of ranks", upTo(std::chrono::microseconds(1)));
  app.add_option("--json", options.jsonPath, "write everything as JSON")->type_name("FILE");
  app.add_option("--csv", options.csvPath, "write a line for each number of ranks")->type_name("FILE");
  app.add_flag("--quiet", options.quiet, "no progress on standard error");
}

}  // namespace

std::variant<SimulationOptions, std::string> parseSimulationOptions(int argc, const char* const* argv) {
  SimulationOptions options;
  fabric::DescriptionFlags description("ranks");  // --ranks is a list here
  CLI::App app(kDescription, "fabric_simulation");
  app.footer(kFooter);
  app.get_formatter()->column_width(34);
  app.set_version_flag("--version", std::string("fabric_simulation ") + versionName());
  addOptions(app, options, description);
  if (auto text = readCommandLine(app, argc, argv)) return *std::move(text);
  options.flags = description.given();
  if (options.configPath.empty() && options.flags.empty()) {
    throw UsageError("over what fabric? give --config FILE, or --ranks and --defaults (see --help)");
  }
  return options;
}

fabric::Description describedFabric(const SimulationOptions& options, std::size_t ranks) {
  if (options.sites > 0 && options.sites > ranks) {
    throw UsageError(fmt::format("--sites {}: give --ranks too, at least as many", options.sites));
  }
  std::vector<fabric::DescriptionFlag> flags = options.flags;
  if (ranks > 0) flags.insert(flags.begin(), {"ranks", std::to_string(ranks)});
  for (std::size_t rank = 0; options.sites > 0 && rank < ranks; ++rank) {
    flags.push_back({"host", fmt::format("name=r{},site=s{}", rank, rank * options.sites / ranks)});
  }
  fabric::Description description = valueOrThrow<UsageError>(fabric::loadDescription(options.configPath, flags));
  if (ranks > 0 && description.hosts.size() != ranks) {
    throw UsageError(
        fmt::format("--ranks {}: the description has {} hosts, which its [[host]] entries name; leave --ranks out",
                    ranks, description.hosts.size()));
  }
  if (description.hosts.size() > kMostRanks) {
    throw UsageError(fmt::format("the description has {} hosts; at most {} ranks are simulated",
                                 description.hosts.size(), kMostRanks));
  }
  if (!options.loss.empty()) {
    fabric::EdgeChange change;
    if (const Status set = fabric::setEdge(change, "loss", options.loss); !set) throw UsageError(set.error().message);
    for (fabric::EdgeModel& edge : description.edges) change.applyTo(edge);
  }
  return description;
}

std::string repairModeName(Repair::Mode mode) { return nameOf(mode, kRepairModes); }

std::string congestionControlName(CongestionControl control) { return nameOf(control, kCongestionControls); }

}  // namespace gloo_bypass::sim
