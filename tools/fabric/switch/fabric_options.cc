#include "tools/fabric/switch/fabric_options.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>

#include "tools/common/command_line.h"
#include "tools/common/version.h"
#include "tools/fabric/description_flags.h"

namespace gloo_bypass::fabric {
namespace {

constexpr const char* kDescription =
    "A switch in user space that emulates the links between hosts: rate, delay, jitter, loss, duplication, reordering, "
    "corruption and\n"
    "queue limit of each directed edge, and when they change. Hosts are attached by memif sockets (ranks over DPDK) or "
    "by network\n"
    "interfaces (kernel TCP); both cross the same emulated edges. scripts/fabric-run sets up interfaces and ranks "
    "around it.\n"
    "Says 'fabric: ready' on stdout once hosts can be attached. SIGINT and SIGTERM end it in good order: what it made "
    "is removed,\n"
    "the counters are printed. SIGUSR1 prints them within an interval.";
constexpr const char* kFooter =
    "Descriptions: tools/fabric/core/README.md, examples/fabric/. Flags stand behind the file, with the same keys:\n"
    "  fabric --config FILE --host name=r0,memif=/run/r0.sock --host name=r1,interface=veth1 --edge "
    "from=r0,to=*,delay=300ms\n"
    "  fabric --check FILE\n"
    "Exit status: 0; 1 a port could not be made, or counters not be written; 2 bad input, nothing was started.";

// What the command line has in another form than FabricOptions.
struct Texts {
  std::string checkPath;
  DescriptionFlags description;
  std::size_t memoryMiB = SwitchLimits{}.memoryBytes >> 20, queueMiB = SwitchLimits{}.portQueueBytes >> 20;
};

// What is emulated, and what may be done with it instead.
void addDescriptionOptions(CLI::App& app, FabricOptions& options, Texts& texts) {
  auto* config = app.add_option("--config", options.configPath, "the description, a TOML file");
  auto* check = app.add_option("--check", texts.checkPath,
                               "check this description (without FILE, the flags alone), print what it says, and end")
                    ->expected(0, 1)
                    ->option_text("[FILE]")
                    ->excludes(config);
  app.add_flag("--json", options.json, "what --check prints is JSON")->needs(check);
  oneValueEachTime(app.add_option("--netem", options.netem,
                                  "print a script for sh that gives this interface of this host its edges by the "
                                  "kernel's netem, and end; may be repeated"))
      ->option_text("HOST=INTERFACE")
      ->excludes(check);
  texts.description.addTo(app);
}

void addLimitOptions(CLI::App& app, FabricOptions& options, Texts& texts) {
  app.add_option("--mtu", options.mtu, "longest IP packet; frames are 14 bytes longer")
      ->check(CLI::Range(576, 32000))
      ->capture_default_str();
  app.add_option("--memory", texts.memoryMiB,
                 "MiB for frames under way, at most: rate times delay of all edges; taken when needed")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  app.add_option("--port-queue", texts.queueMiB, "MiB of arrived frames that a host has not taken, at most")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
}

void addCounterOptions(CLI::App& app, FabricOptions& options) {
  app.add_flag("--live", options.live, "print the counters of the edges each interval; on a terminal in place");
  app.add_option("--stats", options.statsPath,
                 "write all counters to this file as JSON, at the start and at the end, whole each time");
  app.add_option("--samples", options.samplesPath,
                 "write a line of JSON to this new file each interval: the edges that have been used in it");
}

void addCaptureOptions(CLI::App& app, CaptureOptions& options) {
  auto* capture =
      app.add_option("--capture", options.path,
                     "write each frame as it enters at a port to this new pcapng file, an interface for each host");
  app.add_option("--snap", options.snapLength, "keep so many bytes of each frame; 0: all")
      ->check(CLI::Range(0, 65536))
      ->capture_default_str()
      ->needs(capture);
  app.add_option("--markers", options.markersAddress,
                 "take step markers (ddp_train --step-markers) from the kernel's network here, port 9999 unless given, "
                 "and put them into "
                 "the capture: for ranks on memif sockets, whose own markers do not cross the fabric")
      ->option_text("ADDRESS[:PORT]")
      ->needs(capture);
}

void addRunOptions(CLI::App& app, FabricOptions& options) {
  app.add_option("--interval", options.intervalSeconds, "seconds")
      ->check(CLI::Range(0.1, 3600.0))
      ->capture_default_str();
  app.add_option("--duration", options.durationSeconds, "end after so many seconds; 0: when a signal says so")
      ->check(CLI::Range(0.0, 1e7))
      ->capture_default_str();
  app.add_flag("--normal-priority", options.normalPriority,
               "do not go before other processes; else the fabric has real-time priority where "
               "it may, so that frames are in time while ranks compute");
  app.add_option("--eal-arguments", options.ealArguments,
                 "added to those of DPDK's environment abstraction layer (interfaces only)");
}

// Into `options`, which has all that CLI11 sets directly.
void readTexts(const Texts& texts, FabricOptions& options) {
  if (options.checkOnly) options.configPath = texts.checkPath;
  options.flags = texts.description.given();
  if (options.configPath.empty() && options.flags.empty()) {
    throw UsageError("what is to be emulated? give --config FILE, or --host and --edge (see --help)");
  }
  options.limits.memoryBytes = texts.memoryMiB << 20;
  options.limits.portQueueBytes = texts.queueMiB << 20;
}

}  // namespace

std::variant<FabricOptions, std::string> parseFabricOptions(int argc, const char* const* argv) {
  FabricOptions options;
  Texts texts;
  CLI::App app{kDescription, "fabric"};
  app.footer(kFooter);
  app.set_version_flag("--version", std::string("fabric ") + versionName());
  addDescriptionOptions(app, options, texts);
  addLimitOptions(app, options, texts);
  addCounterOptions(app, options);
  addCaptureOptions(app, options.capture);
  addRunOptions(app, options);
  // It emulates nothing, and ends.
  for (const char* name : {"--live", "--stats", "--samples", "--capture"}) {
    app.get_option("--netem")->excludes(app.get_option(name));
  }
  if (auto text = readCommandLine(app, argc, argv)) return *std::move(text);
  options.checkOnly = app.count("--check") > 0;
  readTexts(texts, options);
  return options;
}

}  // namespace gloo_bypass::fabric
