// The program itself: its table, files and exit statuses.
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "tests/support/program.h"
#include "tests/support/temporary_folder.h"
#include "tests/tools/capture/capture_builder.h"
#include "tests/tools/capture/operation_frames.h"

namespace gloo_bypass::capture {
namespace {

using test::host;
using test::Octets;

ProgramResult analyse(const std::vector<std::string>& arguments) {
  return runProgram(CAPTURE_ANALYSER_PATH, arguments);
}

// Two steps of 0.5 s with 1,000 bytes each, on the wire; the first from .2 to .3, the second back.
Octets twoSteps() {
  test::PcapFile pcap(1, 128);
  for (std::uint64_t step = 1; step <= 2; ++step) {
    const std::uint64_t at = step * 1'000'000'000;
    pcap.add(at, test::markerFrame(step, false));
    const test::Endpoint from{host(step == 1 ? 2 : 3), 1}, to{host(step == 1 ? 3 : 2), 2};
    pcap.add(at + 100'000'000, test::tcpSegment(from, to, 1, 1000 - 54));
    pcap.add(at + 500'000'000, test::markerFrame(step, true));
  }
  return pcap.bytes();
}

TEST(CaptureAnalyser, Capture_IsTableAndJsonAndCsv) {
  const TemporaryFolder folder;
  const std::string capture = test::writeFile(folder.path, "a.pcap", twoSteps());
  const std::string json = folder.path + "/a.json", throughput = folder.path + "/t.csv", steps = folder.path + "/s.csv";
  const auto result = analyse(
      {capture, "--json", json, "--csv-throughput", throughput, "--csv-steps", steps, "--interval", "0.5", "--steps"});
  EXPECT_EQ(result.exitStatus, 0) << result.err;
  EXPECT_NE(result.out.find("2 steps"), std::string::npos) << result.out;
  EXPECT_NE(result.out.find("10.32.0.3"), std::string::npos);
  const auto report = nlohmann::json::parse(contentsOf(json))["captures"][0];
  EXPECT_EQ(report["per_step"]["bytes"]["median"], 1000.0);
  EXPECT_EQ(report["per_step"]["duration_s"]["median"], 0.5);
  EXPECT_EQ(report["per_step"]["th_peak_bit_s"]["max"], 16'000.0);
  EXPECT_DOUBLE_EQ(report["th_avg_bit_s"].get<double>(), 2000 * 8 / 1.5);
  EXPECT_EQ(report["matrix"]["training"]["directions"].size(), 2u);
  const nlohmann::json there{
      {"from", "10.32.0.2"}, {"to", "10.32.0.3"}, {"interval_s", 0.5}, {"bytes_by_interval", {1000}}},
      back{{"from", "10.32.0.3"}, {"to", "10.32.0.2"}, {"interval_s", 0.5}, {"bytes_by_interval", {0, 0, 1000}}};
  EXPECT_EQ(report["directions_over_time"], nlohmann::json({there, back}));
  EXPECT_EQ(report["snap_length"], 128);
  EXPECT_EQ(report["faults"].size(), 0u);
  EXPECT_EQ(contentsOf(throughput),
            "time_s,bytes,throughput_bit_s,cumulative_bytes\n0,1000,16000,1000\n0.5,0,0,1000\n1,1000,16000,2000\n");
  EXPECT_EQ(contentsOf(steps),
            "step,begin_s,duration_s,bytes,frames,throughput_bit_s,complete\n"
            "1,0.000000000,0.500000000,1000,1,16000,1\n2,1.000000000,0.500000000,1000,1,16000,1\n");
}

TEST(CaptureAnalyser, CollectiveOperations_AreInTableAndJsonAndCsv) {
  const collectives::Description sum{
      .kind = collectives::Kind::kAllReduce, .type = collectives::ElementType::kFloat32, .count = 25};
  test::OperationSender there({host(2), 7000}, {host(3), 7001}, 1), back({host(3), 7001}, {host(2), 7000}, 2);
  test::PcapFile pcap(1, 256);
  pcap.add(1'000'000'000, there.header(9, sum, 100));
  pcap.add(1'250'000'000, back.header(9, sum, 100));
  const TemporaryFolder folder;
  const std::string capture = test::writeFile(folder.path, "a.pcap", pcap.bytes()), json = folder.path + "/a.json",
                    csv = folder.path + "/o.csv";
  const auto result = analyse({capture, "--operations", "--json", json, "--csv-operations", csv});
  EXPECT_EQ(result.exitStatus, 0) << result.err;
  EXPECT_NE(result.out.find("1 collective operation of 1 group, by call"), std::string::npos) << result.out;
  EXPECT_NE(result.out.find("all-reduce of 25 float32, sum (ring)"), std::string::npos);
  EXPECT_NE(result.out.find("10.32.0.3:7001"), std::string::npos);
  const auto report = nlohmann::json::parse(contentsOf(json))["captures"][0];
  EXPECT_EQ(report["per_call"][0]["duration_s"]["median"], 0.25);
  const auto operation = report["operations"][0];
  EXPECT_EQ(operation["operation"], 9);
  EXPECT_EQ(operation["kind"], "all-reduce");
  EXPECT_EQ(operation["type"], "float32");
  EXPECT_EQ(operation["count"], 25);
  EXPECT_EQ(operation["bytes"], 2 * (42 + 100 + 148));
  EXPECT_EQ(operation["repeated_bytes"], 0);
  EXPECT_EQ(operation["ranks"][1]["rank"], "10.32.0.3:7001");
  EXPECT_EQ(operation["ranks"][1]["first_s"], 0.25);
  const std::string lines = contentsOf(csv), call = "1,9,all-reduce,float32,sum,25,0,ring,1,0.000000000,0.250000000,";
  EXPECT_NE(lines.find(call + "10.32.0.2:7000,0.000000000,0.000000000,290,1,148,0\n"), std::string::npos) << lines;
  EXPECT_NE(lines.find(call + "10.32.0.3:7001,0.250000000,0.250000000,290,1,148,0\n"), std::string::npos) << lines;
}

TEST(CaptureAnalyser, FileCutOff_IsAnalysedAndSaid) {
  const TemporaryFolder folder;
  Octets bytes = twoSteps();
  bytes.resize(bytes.size() - 10);
  const auto result = analyse({test::writeFile(folder.path, "a.pcap", bytes), "--json", folder.path + "/a.json"});
  EXPECT_EQ(result.exitStatus, 3);
  EXPECT_NE(result.err.find("after 5 frames"), std::string::npos) << result.err;
  const auto report = nlohmann::json::parse(contentsOf(folder.path + "/a.json"))["captures"][0];
  EXPECT_EQ(report["per_step"]["steps"], 1);
  EXPECT_EQ(report["faults"][0]["frames_before"], 5);
}

TEST(CaptureAnalyser, Filter_LetsMarkersThrough) {
  const TemporaryFolder folder;
  const std::string capture = test::writeFile(folder.path, "a.pcap", twoSteps());
  const auto result = analyse({capture, "--filter", "src host 10.32.0.3", "--json", folder.path + "/a.json"});
  EXPECT_EQ(result.exitStatus, 0) << result.err;
  const auto report = nlohmann::json::parse(contentsOf(folder.path + "/a.json"))["captures"][0];
  EXPECT_EQ(report["per_step"]["bytes"]["min"], 0.0);
  EXPECT_EQ(report["per_step"]["bytes"]["max"], 1000.0);
}

TEST(CaptureAnalyser, FilesJoined_AreOneCapture) {
  const TemporaryFolder folder;
  test::PcapFile first, second;
  first.add(1'000'000'000, test::markerFrame(1, false));
  second.add(2'000'000'000, test::markerFrame(1, true));
  const std::string a = test::writeFile(folder.path, "a", first.bytes()),
                    b = test::writeFile(folder.path, "b", second.bytes());
  EXPECT_NE(analyse({a, b, "--join"}).out.find("Bytes_AR"), std::string::npos);
  EXPECT_EQ(analyse({a, b}).out.find("Bytes_AR"), std::string::npos);
}

TEST(CaptureAnalyser, NoMarkers_AreSaid) {
  const TemporaryFolder folder;
  test::PcapFile pcap;
  pcap.add(1, test::tcpSegment({host(2), 1}, {host(3), 2}, 1, 10));
  const auto result = analyse({test::writeFile(folder.path, "a.pcap", pcap.bytes())});
  EXPECT_EQ(result.exitStatus, 0);
  EXPECT_NE(result.out.find("no step marker"), std::string::npos) << result.out;
}

TEST(CaptureAnalyser, TableCannotBeWritten_FilesAreThere) {
  const TemporaryFolder folder;
  const std::string capture = test::writeFile(folder.path, "a.pcap", twoSteps()), json = folder.path + "/a.json";
  const std::string command =
      std::string("exec ") + CAPTURE_ANALYSER_PATH + " " + capture + " --json " + json + " > /dev/full";
  const auto result = runProgram("/bin/sh", {"-c", command});
  EXPECT_EQ(result.exitStatus, 1) << result.err;
  EXPECT_EQ(nlohmann::json::parse(contentsOf(json))["captures"].size(), 1u);
}

TEST(CaptureAnalyser, BadInput_IsOneLineAndAStatus) {
  const TemporaryFolder folder;
  const std::string empty = test::writeFile(folder.path, "empty", {});
  for (const std::vector<std::string>& arguments : {std::vector<std::string>{},
                                                    {empty},
                                                    {"/no/such/file"},
                                                    {"--interval", "0", empty},
                                                    {"--marker-port", "0", empty}}) {
    const auto result = analyse(arguments);
    EXPECT_EQ(result.exitStatus, 2) << result.err;
    EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1) << result.err;
  }
  EXPECT_NE(analyse({empty}).err.find("empty"), std::string::npos);
  const std::string capture = test::writeFile(folder.path, "a.pcap", twoSteps());
  const auto unwritable = analyse({capture, "--json", "/no/such/folder/a.json"});
  EXPECT_EQ(unwritable.exitStatus, 1);
  EXPECT_EQ(unwritable.out, "");  // it says so before it reads
  EXPECT_NE(unwritable.err.find("/no/such/folder"), std::string::npos) << unwritable.err;
}

}  // namespace
}  // namespace gloo_bypass::capture
