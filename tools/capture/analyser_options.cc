#include "tools/capture/analyser_options.h"

#include <CLI/CLI.hpp>
#include <cmath>

#include "tools/common/command_line.h"
#include "tools/common/version.h"

namespace gloo_bypass::capture {
namespace {

constexpr const char* kFooter =
    R"(Figures, as "Distributed AI fabrics: a network-side perspective" (master's thesis, 2026) defines them:
  Bytes_AR    bytes on the wire between the two markers of a step
  Dur/event   time between the two markers
  TH_peak     Bytes_AR x 8 / Dur/event
  TH_avg      all bytes x 8 / the time that they took, from the first marker to the last
min, p25, median, p75 and max are over the steps that have both markers. Bytes are counted from the
Ethernet header on, as the frames were and not as they were kept, without preamble and checksum.
Markers are UDP datagrams to port 9999 from port 40000 + step (modulo 25,536), as ddp_train
--step-markers sends them: the first when a step's first bucket is handed over, the second when its
last one has completed. They are not counted. A marker that comes twice counts once.

Of gloo-bypass's own collectives over UDP and DPDK it tells each operation: group, number, kind, type,
count; first and last packet, bytes and retransmitted bytes of each rank. Kind, type and count need a
snap length of 256 bytes.

MB is 1e6 bytes. A file is read once, in bounded memory.

Exit status: 0, all was read; 1, a result could not be written; 2, wrong command line, or a file that
is no capture; 3, a file is damaged or cut off: what comes before is in the figures, and a line on
standard error says where it ended.)";

AnalyserOptions checked(AnalyserOptions options, double intervalSeconds, unsigned markerPort) {
  options.analysis.interval = std::chrono::nanoseconds(std::llround(intervalSeconds * 1e9));
  options.analysis.markerPort = static_cast<std::uint16_t>(markerPort);
  return options;
}

}  // namespace

std::variant<AnalyserOptions, std::string> parseAnalyserOptions(int argc, const char* const* argv) {
  AnalyserOptions options;
  double intervalSeconds = 0.1;
  unsigned markerPort = options.analysis.markerPort;
  CLI::App app(
      "What a capture (pcap or pcapng) of data-parallel training shows: bytes, time and throughput of each step's "
      "all-reduce, "
      "who sent how much to whom, and traffic over time. TCP, gloo-bypass over UDP, RoCEv2.",
      "capture_analyser");
  app.footer(kFooter);
  app.get_formatter()->column_width(30);
  app.option_defaults()->always_capture_default();
  app.set_version_flag("--version", std::string("capture_analyser ") + versionName());
  app.add_option("files", options.files, "captures, each analysed by itself; - is standard input")
      ->required()
      ->type_name("FILE");
  app.add_flag("--join", options.join, "the files are one capture, in this order (tcpdump -C)");
  app.add_option("--filter", options.filter, "count only frames that match, in tcpdump's words; markers always do")
      ->type_name("EXPRESSION");
  app.add_option("--marker-port", markerPort, "UDP port that step markers go to")
      ->check(CLI::Range(1, 65535))
      ->type_name("PORT");
  app.add_option("--interval", intervalSeconds,
                 "of traffic over time; doubled until a capture has at most 65,536 of them")
      ->check(CLI::Range(1e-6, 86400.0))
      ->type_name("SECONDS");
  app.add_flag("--steps", options.table.everyStep, "a line for each step in the table");
  app.add_flag("--operations", options.table.everyOperation,
               "a line for each collective operation and its ranks in the table");
  app.add_option("--json", options.jsonPath, "write everything as JSON")->type_name("FILE");
  app.add_option("--csv-throughput", options.throughputPath, "write traffic over time as CSV")->type_name("FILE");
  app.add_option("--csv-steps", options.stepsPath, "write the steps as CSV")->type_name("FILE");
  app.add_option("--csv-operations", options.operationsPath, "write the collective operations, by rank, as CSV")
      ->type_name("FILE");
  if (auto text = readCommandLine(app, argc, argv)) return *std::move(text);
  return checked(std::move(options), intervalSeconds, markerPort);
}

}  // namespace gloo_bypass::capture
