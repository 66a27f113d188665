// Metrics without a real transport: their targets, their text, and access to them.
#include <arpa/inet.h>
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <pthread.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <optional>
#include <set>
#include <sstream>
#include <thread>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "tests/support/no_more_threads.h"
#include "tests/support/temporary_folder.h"
#include "transport/base/file_descriptor.h"
#include "transport/base/whole_file.h"
#include "transport/process/metrics_endpoint.h"
#include "transport/process/metrics_exporter.h"
#include "transport/process/metrics_target.h"
#include "transport/process/metrics_text.h"
#include "transport/process/report_json.h"

namespace gloo_bypass {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

TEST(MetricsTarget_Parse, EveryForm_IsTakenApart) {
  using Kind = MetricsTarget::Kind;
  EXPECT_EQ(parseMetricsTarget("file:/run/a_%p.prom")->path, "/run/a_%p.prom");
  EXPECT_EQ(parseMetricsTarget("file:/run/a_%p.prom")->kind, Kind::kFile);
  EXPECT_EQ(parseMetricsTarget("unix:/run/a_%p.sock")->path, "/run/a_%p.sock");
  EXPECT_EQ(parseMetricsTarget("unix:/run/a_%p.sock")->kind, Kind::kSocket);
  EXPECT_EQ(parseMetricsTarget("http://:9400")->kind, Kind::kPort);
  for (const char* loopback : {"http://127.0.0.1:9400", "http://:9400", "http://localhost:9400"}) {
    ASSERT_TRUE(parseMetricsTarget(loopback)) << loopback;
    EXPECT_EQ(parseMetricsTarget(loopback)->address, "127.0.0.1");
    EXPECT_EQ(parseMetricsTarget(loopback)->port, 9400);
  }
  EXPECT_EQ(parseMetricsTarget("http://0.0.0.0:9400+3")->port, 9403);
  EXPECT_EQ(parseMetricsTarget("http://10.0.0.1:auto")->port, 0);
}

TEST(MetricsTarget_Parse, Nonsense_IsRefused) {
  for (const char* text : {"",
                           "file:",
                           "file:x",
                           "file:/run/",
                           "http://",
                           "http://127.0.0.1",
                           "http://127.0.0.1:",
                           "http://:65536",
                           "http://:65535+1",
                           "http://:0+1",
                           "http://:-1",
                           "http://host.example:1",
                           "https://:9400",
                           "http://:9400/metrics",
                           "http://[::1]:9400",
                           "/run/x",
                           "file:/a\nb",
                           "unix:",
                           "unix:x",
                           "unix:/run/"}) {
    EXPECT_FALSE(parseMetricsTarget(text)) << text;
  }
}

ChannelReport channelReport(std::uint64_t number, const std::string& peer) {
  ChannelReport channel{
      .number = number, .peer = peer, .localRank = 0, .peerRank = 1, .counters = {}, .path = PathFigures{}};
  channel.counters.messagesSent = 5;
  channel.path->smoothedRtt = std::chrono::nanoseconds(12500);
  return channel;
}

TransportReport reportWithEverything() {
  TransportReport report;
  report.total.messagesSent = 7;
  report.total.payloadBytesSent = 18446744073709551615u;
  report.description = "memif in \"/tmp\\x\"";
  report.port = {{"packets_sent", "port_packets_sent_total", "Packets the port has sent", 3}};
  report.bytesSent = 99;
  report.channels = {channelReport(0, "rank 1\nof \"b\"")};
  DurationHistogram h;
  h.add(std::chrono::microseconds(3));
  h.add(std::chrono::hours(1));
  report.operations.emplace();
  report.operations->sizes[0].times = report.operations->peers["b"] = {h, h};
  return report;
}

std::string textOf(const TransportReport& report, const std::string& rank = "3") {
  const NamedReport transports[] = {{"DPDK", report}};
  return metricsText(transports, rank);
}

TEST(MetricsText_Counters, Numbers_AreExactWithLabelsAndType) {
  EXPECT_THAT(
      textOf(reportWithEverything()),
      AllOf(HasSubstr("# TYPE gloo_bypass_messages_sent_total counter\n"
                      "gloo_bypass_messages_sent_total{rank=\"3\",transport=\"DPDK\"} 7\n"),
            HasSubstr("gloo_bypass_payload_sent_bytes_total{rank=\"3\",transport=\"DPDK\"} 18446744073709551615\n"),
            HasSubstr("gloo_bypass_port_sent_bytes_total{rank=\"3\",transport=\"DPDK\"} 99\n"),
            HasSubstr("gloo_bypass_channel_smoothed_rtt_seconds{rank=\"3\",transport=\"DPDK\",channel=\"0\",")));
  EXPECT_THAT(textOf({}, ""), Not(HasSubstr("rank=")));
}

TEST(MetricsText_Labels, HostileNames_AreEscaped) {
  EXPECT_THAT(textOf(reportWithEverything()),
              AllOf(HasSubstr("peer=\"rank 1\\nof \\\"b\\\"\""), HasSubstr("port=\"memif in \\\"/tmp\\\\x\\\"\"")));
}

TEST(MetricsText_Labels, RankOfNoUtf8_BecomesWellFormed) {
  EXPECT_THAT(textOf({},
                     "a\xff"
                     "b\xc3"),
              HasSubstr("{rank=\"a\xef\xbf\xbd"
                        "b\xef\xbf\xbd\","));
}

TEST(MetricsText_Histogram, Buckets_AreCumulativeAndEndInCount) {
  const std::string text = textOf(reportWithEverything());
  const std::string name = "gloo_bypass_send_seconds";
  const std::string labels = "{rank=\"3\",transport=\"DPDK\",size=\"up_to_1KiB\"";
  EXPECT_THAT(text, AllOf(HasSubstr("# TYPE " + name + " histogram\n"),
                          HasSubstr(name + "_bucket" + labels + ",le=\"2.048e-06\"} 0\n"),
                          HasSubstr(name + "_bucket" + labels + ",le=\"4.096e-06\"} 1\n"),
                          HasSubstr(name + "_bucket" + labels + ",le=\"68.719476736\"} 1\n"),
                          HasSubstr(name + "_bucket" + labels + ",le=\"+Inf\"} 2\n"),
                          HasSubstr(name + "_sum" + labels + "} 3600.000003\n"),
                          HasSubstr(name + "_count" + labels + "} 2\n")));
  EXPECT_THAT(text, HasSubstr("gloo_bypass_connect_seconds_count{rank=\"3\",transport=\"DPDK\"} 0\n"));
  EXPECT_THAT(
      text,
      HasSubstr(
          "gloo_bypass_peer_send_seconds{rank=\"3\",transport=\"DPDK\",peer=\"b\",quantile=\"0.5\"} 3.071e-06\n"));
}

TEST(MetricsText_TwoTransports, EachMetric_StandsTogetherUnderOneType) {
  const NamedReport transports[] = {{"DPDK", reportWithEverything()}, {"RDMA", reportWithEverything()}};
  std::istringstream lines(metricsText(transports, "0"));
  std::set<std::string> finished;
  std::string line, current;
  int samples = 0;
  while (std::getline(lines, line)) {
    if (line.starts_with("# HELP ")) continue;
    if (line.starts_with("# TYPE ")) {
      EXPECT_TRUE(finished.insert(current).second) << current;
      current = line.substr(7, line.find(' ', 7) - 7);
      EXPECT_FALSE(finished.contains(current)) << current << " appears in two places";
      continue;
    }
    ++samples;
    EXPECT_THAT(line, StartsWith(current));
  }
  EXPECT_GT(samples, 100);
}

TEST(MetricsText_ManyChannels, Series_AreBoundedAndTheRestIsCounted) {
  TransportReport report;
  for (std::uint64_t i = 0; i < 300; ++i) report.channels.push_back(channelReport(i, "p"));
  const std::string text = textOf(report);
  EXPECT_THAT(text, AllOf(HasSubstr("gloo_bypass_open_channels{rank=\"3\",transport=\"DPDK\"} 300\n"),
                          HasSubstr("channel=\"255\""), Not(HasSubstr("channel=\"256\"")),
                          HasSubstr("gloo_bypass_channels_left_out{rank=\"3\",transport=\"DPDK\"} 44\n")));
}

// All formats come from the one table; each row must name a different field and use unique names.
TEST(ChannelCounters_Table, EveryRow_IsInJsonMetricsAndSumsByItsOwnNames) {
  TransportReport report;
  std::uint64_t value = 1000;
  for (const ChannelCounterRow& row : channelCounterRows()) report.total.*row.field = ++value;
  const json written = reportJson("DPDK", report);
  const std::string text = textOf(report);
  ChannelCounters doubled = report.total;
  doubled += report.total;
  value = 1000;
  for (const ChannelCounterRow& row : channelCounterRows()) {
    EXPECT_EQ(report.total.*row.field, ++value) << row.name << ": its field has another row";
    EXPECT_EQ(written.at(row.name), value);
    EXPECT_THAT(text,
                HasSubstr(fmt::format("gloo_bypass_{}{{rank=\"3\",transport=\"DPDK\"}} {}\n", row.metric, value)));
    EXPECT_EQ(doubled.*row.field, 2 * value);
  }
}

TEST(MetricsExporter_File, Written_AtStartAtIntervalsAndAtTheEnd) {
  TemporaryFolder folder;
  TransportConfig config;
  config.metrics = "file:" + folder.path + "/%p.prom";
  config.metricsInterval = std::chrono::milliseconds(100);
  const std::string path = folder.path + "/" + std::to_string(getpid()) + ".prom";
  std::atomic<int> calls = 0;
  std::atomic<bool> firstWasRead = false;
  auto started = MetricsExporter::start(config, "first", [&] {
    while (!firstWasRead) std::this_thread::yield();
    return fmt::format("call {}", ++calls);
  });
  ASSERT_TRUE(started) << started.error().message;
  EXPECT_EQ(contentsOf(path), "first");
  firstWasRead = true;
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (calls < 2 && std::chrono::steady_clock::now() < deadline) std::this_thread::yield();
  EXPECT_GE(calls, 2);
  started.value()->stop([] { return std::string("last"); });
  EXPECT_EQ(contentsOf(path), "last");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path), {}), 1) << "a temporary file was left";
}

TEST(MetricsExporter_File, FolderMissing_IsToldAtStart) {
  TransportConfig config;
  config.metrics = "file:/nowhere/at/all.prom";
  const auto started = MetricsExporter::start(config, "first", [] { return std::string(); });
  ASSERT_FALSE(started);
  EXPECT_THAT(started.error().message,
              AllOf(HasSubstr("GLOO_BYPASS_METRICS='file:/nowhere/at/all.prom'"), HasSubstr("No such file")));
}

TEST(MetricsExporter_File, TextFails_IsToldOnce) {
  TemporaryFolder folder;
  TransportConfig config;
  config.metrics = "file:" + folder.path + "/x";
  config.metricsInterval = std::chrono::milliseconds(100);
  std::atomic<int> calls = 0;
  ::testing::internal::CaptureStderr();
  auto started = MetricsExporter::start(config, "first", [&]() -> std::string {
    ++calls;
    throw std::runtime_error("no numbers");
  });
  ASSERT_TRUE(started) << started.error().message;
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (calls < 2 && std::chrono::steady_clock::now() < deadline) std::this_thread::yield();
  EXPECT_GE(calls, 2);
  started.value()->stop([]() -> std::string { throw std::runtime_error("none at the end either"); });
  EXPECT_EQ(::testing::internal::GetCapturedStderr(),
            fmt::format("gloo-bypass: GLOO_BYPASS_METRICS='{}': {}/x could not be written: no numbers\n",
                        config.metrics, folder.path));
  EXPECT_EQ(contentsOf(folder.path + "/x"), "first");
}

TEST(MetricsExporter_File, NoThreadToBeHad_IsToldAtStart) {
  TemporaryFolder folder;
  TransportConfig config;
  config.metrics = "file:" + folder.path + "/x";
  std::optional<test::NoMoreThreads> none(std::in_place);
  const auto start = [&] { return MetricsExporter::start(config, "first", [] { return std::string(); }); };
  std::string message = "started";
  EXPECT_NO_THROW(if (const auto started = start(); !started) message = started.error().message);
  none.reset();
  EXPECT_THAT(message, AllOf(StartsWith("GLOO_BYPASS_METRICS='" + config.metrics + "': no thread can be started"),
                             Not(HasSubstr("\n"))));
}

bool isA(mode_t kind, const std::string& path) {
  struct stat status{};
  return ::lstat(path.c_str(), &status) == 0 && (status.st_mode & S_IFMT) == kind;
}

TEST(WholeFile_Write, CharacterDevice_IsWrittenToAndStays) {
  EXPECT_TRUE(writeWholeFile("/dev/null", "x"));
  EXPECT_TRUE(isA(S_IFCHR, "/dev/null"));
  TemporaryFolder folder;
  const std::string link = folder.path + "/link";
  ASSERT_EQ(::symlink("/dev/null", link.c_str()), 0);
  EXPECT_TRUE(writeWholeFile(link, "x"));
  EXPECT_TRUE(isA(S_IFLNK, link));
}

TEST(WholeFile_Write, Fifo_ReaderGetsTheTextAndNobodyIsWaitedForInVain) {
  TemporaryFolder folder;
  const std::string path = folder.path + "/fifo";
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  EXPECT_THAT(writeWholeFile(path, "x").error().message, HasSubstr("nobody reads"));
  FileDescriptor reader(::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  EXPECT_TRUE(writeWholeFile(path, "text"));
  char got[8];
  EXPECT_EQ(::read(reader.get(), got, sizeof(got)), 4);
  EXPECT_THAT(writeWholeFile(path, std::string(1 << 20, 'x')).error().message, HasSubstr("does not take"));
  EXPECT_TRUE(isA(S_IFIFO, path));
}

TEST(WholeFile_Write, ReaderOfFifoGoesAmidst_IsAnErrorAndNoSignal) {
  TemporaryFolder folder;
  const std::string path = folder.path + "/fifo";
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  std::string said;
  // Repeats if the reader was delayed for so long that the writer gave up on it.
  do {
    FileDescriptor reader(::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
    std::thread leaving([&reader] {
      pollfd something{.fd = reader.get(), .events = POLLIN, .revents = 0};
      EXPECT_EQ(::poll(&something, 1, 30'000), 1);
      reader.reset();
    });
    said = writeWholeFile(path, std::string(1 << 20, 'x')).error().message;
    leaving.join();
  } while (said.find("does not take") != std::string::npos);
  EXPECT_THAT(said, HasSubstr("Broken pipe"));
}

TEST(WholeFile_Write, LinkToFileOrFolder_IsRefusedAndBothStay) {
  TemporaryFolder folder;
  const std::string file = folder.path + "/file", link = folder.path + "/link";
  ASSERT_TRUE(writeWholeFile(file, "before"));
  ASSERT_EQ(::symlink(file.c_str(), link.c_str()), 0);
  EXPECT_THAT(writeWholeFile(link, "x").error().message, HasSubstr("symbolic link"));
  EXPECT_TRUE(isA(S_IFLNK, link));
  EXPECT_EQ(contentsOf(file), "before");
  EXPECT_THAT(writeWholeFile(folder.path, "x").error().message, HasSubstr("neither a file"));
}

// A process that guesses the temporary file's name must not make us write elsewhere.
TEST(WholeFile_Write, LinkInPlaceOfTheTemporaryFile_IsNotFollowed) {
  TemporaryFolder folder;
  const std::string path = folder.path + "/file", other = folder.path + "/other";
  ASSERT_TRUE(writeWholeFile(other, "before"));
  ASSERT_EQ(::symlink(other.c_str(), fmt::format("{}.{}.tmp", path, getpid()).c_str()), 0);
  EXPECT_TRUE(writeWholeFile(path, "x"));
  EXPECT_EQ(contentsOf(path), "x");
  EXPECT_TRUE(isA(S_IFREG, path));
  EXPECT_EQ(contentsOf(other), "before");
}

template <typename Name>
FileDescriptor connectTo(const Name& name, int family) {
  FileDescriptor socket(::socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const timeval bound{.tv_sec = 20, .tv_usec = 0};
  setsockopt(socket.get(), SOL_SOCKET, SO_RCVTIMEO, &bound, sizeof(bound));
  if (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&name), sizeof(name)) != 0) return FileDescriptor();
  return socket;
}
FileDescriptor connectTo(std::uint16_t port) {
  sockaddr_in name{};
  name.sin_family = AF_INET;
  name.sin_port = htons(port);
  name.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return connectTo(name, AF_INET);
}
FileDescriptor connectTo(const std::string& path) {
  sockaddr_un name{};
  name.sun_family = AF_UNIX;
  path.copy(name.sun_path, sizeof(name.sun_path) - 1);
  return connectTo(name, AF_UNIX);
}

// Stopping and continuing a process interrupts its receives that have a time limit.
ssize_t receive(const FileDescriptor& socket, char* bytes, std::size_t size) {
  return TEMP_FAILURE_RETRY(::recv(socket.get(), bytes, size, 0));
}

// `place`: a port, or a socket's path.
template <typename Place>
std::string ask(const Place& place, const std::string& request) {
  const FileDescriptor socket = connectTo(place);
  std::string answer;
  if (!socket || ::send(socket.get(), request.data(), request.size(), MSG_NOSIGNAL) < 0) return answer;
  char piece[4096];
  for (ssize_t got; (got = receive(socket, piece, sizeof(piece))) > 0;)
    answer.append(piece, static_cast<std::size_t>(got));
  return answer;
}

template <typename Place>
std::string get(const Place& place, const std::string& path, const std::string& method = "GET") {
  return ask(place, method + " " + path + " HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
}

MetricsTarget atPort(std::uint16_t port, const std::string& address = "127.0.0.1") {
  return {.kind = MetricsTarget::Kind::kPort, .path = "", .address = address, .port = port};
}
MetricsTarget atSocket(const std::string& path) {
  return {.kind = MetricsTarget::Kind::kSocket, .path = path, .address = "", .port = 0};
}
auto open(const MetricsTarget& target) {
  return MetricsEndpoint::open(target, [] { return std::string("a_metric 1\n"); });
}

class Endpoint : public ::testing::Test {
 protected:
  void SetUp() override { start(atPort(0)); }
  void start(const MetricsTarget& target) {
    auto opened = open(target);
    if (!opened && opened.error().message.find("not in this build") != std::string::npos)
      GTEST_SKIP() << opened.error().message;
    ASSERT_TRUE(opened) << opened.error().message;
    endpoint = std::move(opened).value();
  }
  std::unique_ptr<MetricsEndpoint> endpoint;
};

TEST_F(Endpoint, Metrics_AreServedWithTheirType) {
  const std::string answer = get(endpoint->port(), "/metrics");
  EXPECT_THAT(answer, AllOf(StartsWith("HTTP/1.1 200"), HasSubstr("text/plain; version=0.0.4"),
                            HasSubstr("\r\n\r\na_metric 1\n")));
  EXPECT_THAT(get(endpoint->port(), "/metrics?x=1"), StartsWith("HTTP/1.1 200"));
}

TEST_F(Endpoint, AnythingElse_IsRefused) {
  for (const char* path : {"/", "/metrics/", "/metrics/../etc/passwd", "/etc/passwd", "//metrics"}) {
    EXPECT_THAT(get(endpoint->port(), path), StartsWith("HTTP/1.1 404")) << path;
  }
  EXPECT_THAT(get(endpoint->port(), "/metrics", "DELETE"), StartsWith("HTTP/1.1 405"));
  EXPECT_THAT(ask(endpoint->port(), "POST /metrics HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000000\r\n\r\n"),
              StartsWith("HTTP/1.1 405"));
}

TEST_F(Endpoint, HostileRequests_AreRefusedAndTheNextIsServed) {
  EXPECT_THAT(ask(endpoint->port(), "GET /" + std::string(1'000'000, 'a') + " HTTP/1.1\r\n\r\n"),
              Not(StartsWith("HTTP/1.1 200")));
  EXPECT_THAT(ask(endpoint->port(), std::string(64, '\0') + "\r\n\r\n"), Not(StartsWith("HTTP/1.1 200")));
  std::string headers = "GET /metrics HTTP/1.1\r\n";
  for (int i = 0; i < 10'000; ++i) headers += fmt::format("X{}: y\r\n", i);
  EXPECT_THAT(ask(endpoint->port(), headers + "\r\n"), Not(StartsWith("HTTP/1.1 200")));
  EXPECT_THAT(get(endpoint->port(), "/metrics"), StartsWith("HTTP/1.1 200"));
}

// Silent connections take all places; they are closed after kIdleSeconds.
TEST_F(Endpoint, SilentConnections_AreClosedAndTheNextIsServed) {
  std::vector<FileDescriptor> silent;
  for (unsigned i = 0; i < MetricsEndpoint::kMaxConnections; ++i) silent.push_back(connectTo(endpoint->port()));
  char byte;
  EXPECT_EQ(receive(silent.front(), &byte, 1), 0) << "not closed";
  EXPECT_THAT(get(endpoint->port(), "/metrics"), StartsWith("HTTP/1.1 200"));
}

TEST_F(Endpoint, PortInUse_OneLineWithAddressAndAdvice) {
  const auto second = open(atPort(endpoint->port()));
  ASSERT_FALSE(second);
  EXPECT_THAT(second.error().message, AllOf(HasSubstr("127.0.0.1:" + std::to_string(endpoint->port())),
                                            HasSubstr("in use"), HasSubstr("PORT+%r or auto"), Not(HasSubstr("\n"))));
  EXPECT_THAT(open(atPort(0, "192.0.2.1")).error().message, HasSubstr("192.0.2.1"));
}

TEST_F(Endpoint, ForkedChild_DoesNotKeepThePort) {
  const std::uint16_t port = endpoint->port();
  int ready[2], done[2];
  ASSERT_EQ(pipe(ready), 0);
  ASSERT_EQ(pipe(done), 0);
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    endpoint->leaveToParent();
    ::close(ready[1]);
    ::close(done[1]);
    char byte;
    _exit(::read(done[0], &byte, 1) == 0 ? 0 : 1);  // lives until the parent is done
  }
  ::close(ready[1]);
  char byte;
  EXPECT_EQ(::read(ready[0], &byte, 1), 0);
  endpoint.reset();
  EXPECT_FALSE(connectTo(port)) << "somebody still listens";
  EXPECT_TRUE(open(atPort(port)));
  for (const int fd : {ready[0], done[0], done[1]}) ::close(fd);
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

class SocketEndpoint : public Endpoint {
 protected:
  void SetUp() override { start(atSocket(path)); }
  mode_t mode() const {
    struct stat status{};
    EXPECT_EQ(::lstat(path.c_str(), &status), 0);
    return status.st_mode;
  }

  TemporaryFolder folder;
  const std::string path = folder.path + "/metrics";
};

TEST_F(SocketEndpoint, Metrics_AreServedToThisUserAlone) {
  EXPECT_EQ(mode(), S_IFSOCK | S_IRUSR | S_IWUSR);
  EXPECT_EQ(endpoint->port(), 0);
  EXPECT_THAT(get(path, "/metrics"), AllOf(StartsWith("HTTP/1.1 200"), HasSubstr("\r\n\r\na_metric 1\n")));
  EXPECT_THAT(get(path, "/"), StartsWith("HTTP/1.1 404"));
  EXPECT_THAT(get(path, "/metrics", "DELETE"), StartsWith("HTTP/1.1 405"));
  endpoint.reset();
  EXPECT_TRUE(std::filesystem::is_empty(folder.path));
}

TEST_F(SocketEndpoint, SocketInUse_OneLineWithPathAndAdvice) {
  EXPECT_THAT(open(atSocket(path)).error().message,
              AllOf(HasSubstr(path), HasSubstr("another process"), HasSubstr("%r")));
  EXPECT_THAT(get(path, "/metrics"), StartsWith("HTTP/1.1 200"));
}

TEST_F(SocketEndpoint, SocketOfAKilledProcess_IsReplaced) {
  const std::string old = folder.path + "/old";
  ASSERT_EQ(std::rename(path.c_str(), old.c_str()), 0);
  endpoint.reset();  // leaves the socket that has another name now
  start(atSocket(old));
  EXPECT_THAT(get(old, "/metrics"), StartsWith("HTTP/1.1 200"));
}

// Ranks that were given one path by mistake start together.
TEST_F(SocketEndpoint, ManyAtOnce_OneServesAndTheOthersSayWhy) {
  endpoint.reset();
  constexpr int kRanks = 8;
  int begin[2], answers[2], end[2];
  for (auto* ends : {begin, answers, end}) ASSERT_EQ(pipe(ends), 0);
  std::vector<pid_t> children;
  for (int rank = 0; rank < kRanks; ++rank) {
    children.push_back(fork());
    ASSERT_GE(children.back(), 0);
    if (children.back() != 0) continue;
    for (const int fd : {begin[1], answers[0], end[1]}) ::close(fd);
    char byte;
    (void)!::read(begin[0], &byte, 1);
    auto opened = open(atSocket(path));
    const char answer = opened ? 'y' : opened.error().message.find("another process") != std::string::npos ? 'n' : '?';
    (void)!::write(answers[1], &answer, 1);
    (void)!::read(end[0], &byte, 1);  // serves until all have tried
    if (opened) opened.value().reset();
    _exit(0);
  }
  for (const int fd : {begin[0], begin[1], answers[1], end[0]}) ::close(fd);
  std::string said;
  char byte;
  while (said.size() < kRanks && ::read(answers[0], &byte, 1) == 1) said += byte;
  EXPECT_EQ(std::count(said.begin(), said.end(), 'y'), 1) << said;
  EXPECT_EQ(std::count(said.begin(), said.end(), 'n'), kRanks - 1) << said;
  EXPECT_THAT(get(path, "/metrics"), StartsWith("HTTP/1.1 200"));
  for (const int fd : {answers[0], end[1]}) ::close(fd);
  for (const pid_t child : children) ASSERT_EQ(waitpid(child, nullptr, 0), child);
  EXPECT_TRUE(std::filesystem::is_empty(folder.path));
}

TEST_F(SocketEndpoint, OwnTemporaryNameOfAnother_Stays) {
  const std::string file = path + "2.tmp";
  ASSERT_TRUE(writeWholeFile(file, "before"));
  ASSERT_TRUE(open(atSocket(path + "2")));
  EXPECT_EQ(contentsOf(file), "before");
}

TEST_F(SocketEndpoint, OtherFilesAndImpossiblePaths_AreRefusedAndStay) {
  const std::string file = folder.path + "/file", link = folder.path + "/link";
  ASSERT_TRUE(writeWholeFile(file, "before"));
  ASSERT_EQ(::symlink(path.c_str(), link.c_str()), 0);
  for (const std::string& taken : {file, link}) {
    EXPECT_THAT(open(atSocket(taken)).error().message, AllOf(HasSubstr(taken), HasSubstr("no socket")));
  }
  EXPECT_EQ(contentsOf(file), "before");
  EXPECT_THAT(open(atSocket("/nowhere/at/all")).error().message, HasSubstr("No such file"));
  EXPECT_THAT(open(atSocket("/tmp/" + std::string(100, 'x'))).error().message, HasSubstr("at most 92 bytes"));
}

// Another process may have taken the path meanwhile.
TEST_F(SocketEndpoint, SocketOfAnother_StaysAtTheEnd) {
  ASSERT_EQ(::unlink(path.c_str()), 0);
  auto second = open(atSocket(path));
  ASSERT_TRUE(second) << second.error().message;
  endpoint.reset();
  EXPECT_THAT(get(path, "/metrics"), StartsWith("HTTP/1.1 200"));
}

TEST(MetricsExporter_Socket, Started_SaysWhereAndServes) {
  TemporaryFolder folder;
  TransportConfig config;
  config.metrics = "unix:" + folder.path + "/%p";
  const std::string path = folder.path + "/" + std::to_string(getpid());
  ::testing::internal::CaptureStderr();
  auto started = MetricsExporter::start(config, "first", [] { return std::string("text\n"); });
  const std::string said = ::testing::internal::GetCapturedStderr();
  if (!started && started.error().message.find("not in this build") != std::string::npos)
    GTEST_SKIP() << started.error().message;
  ASSERT_TRUE(started) << started.error().message;
  EXPECT_THAT(said, HasSubstr("metrics at the socket " + path + ", path /metrics\n"));
  EXPECT_THAT(get(path, "/metrics"), HasSubstr("\r\n\r\ntext\n"));
  started.value()->stop([] { return std::string(); });
  EXPECT_FALSE(std::filesystem::exists(path));
}

}  // namespace
}  // namespace gloo_bypass
