#include "plugin/process_transport.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <filesystem>
#include <future>
#include <thread>

#include <nlohmann/json.hpp>

#include "tests/support/temporary_folder.h"
#include "transport/io/progress_engine.h"

namespace gloo_bypass {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class IdlePollable : public Pollable {
 public:
  bool poll(TimePoint) noexcept override { return false; }
  void flush(TimePoint) noexcept override {}
  TimePoint nextDeadline() const noexcept override { return kNever; }
  void armWakeup() noexcept override {}
  void disarmWakeup() noexcept override {}
  void block(Duration timeout) noexcept override {
    std::unique_lock lock(mutex_);
    wake_.wait_for(lock, std::min<Duration>(timeout, std::chrono::milliseconds(100)), [&] { return woken_; });
    woken_ = false;
  }
  void wake() noexcept override {
    std::lock_guard lock(mutex_);
    woken_ = true;
    wake_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable wake_;
  bool woken_ = false;
};

class FakeTransport : public Transport {
 public:
  explicit FakeTransport(std::atomic<int>* alive = nullptr,
                         std::string json = R"({"bytes_sent": 42, "port": {"packets_sent": 7}})")
      : alive_(alive), json_(std::move(json)), engine_(pollable_, {}) {
    if (alive_ != nullptr) ++*alive_;
  }
  ~FakeTransport() override {
    if (alive_ != nullptr) --*alive_;
  }
  ProgressEngine& progress() override { return engine_; }
  std::string describe() const override { return "fake"; }
  Result<std::unique_ptr<MessageChannel>> openChannel(const ChannelOptions&, ChannelObserver*) override {
    return Error{ErrorScope::kDevice, ErrorCode::kUnavailable, "fake"};
  }
  std::string countersJson() const override { return json_; }

 private:
  std::atomic<int>* alive_;
  const std::string json_;
  IdlePollable pollable_;
  ProgressEngine engine_;
};

Result<std::shared_ptr<Transport>> makeFake(const TransportConfig&) {
  return std::shared_ptr<Transport>(new FakeTransport);
}

Result<std::shared_ptr<Transport>> noSuchInterface(const TransportConfig&) {
  return Error{ErrorScope::kDevice, ErrorCode::kUnavailable, "no such interface"};
}

Result<std::shared_ptr<Transport>> neverCalled(const TransportConfig&) {
  ADD_FAILURE() << "called";
  return std::shared_ptr<Transport>();
}

TEST(ProcessTransport_Acquire, ManyThreadsAtOnce_OneTransport) {
  ProcessTransport process;
  std::atomic<int> made = 0;
  const auto factory = [&](const TransportConfig& config) {
    ++made;
    return makeFake(config);
  };
  std::vector<std::thread> threads;
  std::vector<std::shared_ptr<Transport>> got(8);
  for (std::size_t i = 0; i < got.size(); ++i) {
    threads.emplace_back([&, i] { got[i] = process.acquire(BackEnd::kDpdk, {}, factory).value(); });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(made, 1);
  for (const auto& transport : got) EXPECT_EQ(transport, got[0]);
}

TEST(ProcessTransport_Acquire, OtherConfiguration_IsRefusedNamingBothValues) {
  ProcessTransport process;
  ASSERT_TRUE(process.acquire(BackEnd::kDpdk, {}, makeFake));
  TransportConfig other;
  other.session.minRto = std::chrono::milliseconds(7);
  other.link = LinkMode::kNetdev;
  const auto refused = process.acquire(BackEnd::kDpdk, other, makeFake);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kConfiguration);
  EXPECT_THAT(refused.error().message, AllOf(HasSubstr("GLOO_BYPASS_LINK: 'memif' and 'netdev'"),
                                             HasSubstr("GLOO_BYPASS_MIN_RTO_US: '5000' and '7000'")));
  EXPECT_TRUE(process.acquire(BackEnd::kDpdk, {}, makeFake));
}

TEST(ProcessTransport_Acquire, InvalidConfiguration_FactoryIsNotCalled) {
  ProcessTransport process;
  TransportConfig config;
  config.memoryMiB = 1;
  EXPECT_THAT(process.acquire(BackEnd::kDpdk, config, neverCalled).error().message, HasSubstr("GLOO_BYPASS_MEMORY_MIB"));
}

TEST(ProcessTransport_Acquire, FactoryFails_NextCallTriesAgain) {
  ProcessTransport process;
  EXPECT_EQ(process.acquire(BackEnd::kDpdk, {}, noSuchInterface).error().message, "no such interface");
  EXPECT_TRUE(process.acquire(BackEnd::kDpdk, {}, makeFake));
}

TEST(ProcessTransport_Fork, ParentHadStarted_ChildIsRefusedNamingParent) {
  ProcessTransport process;
  ASSERT_TRUE(process.acquire(BackEnd::kDpdk, {}, makeFake));
  process.becomeChildOf(4711);
  const auto refused = process.acquire(BackEnd::kDpdk, {}, makeFake);
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message, AllOf(HasSubstr("4711"), HasSubstr("fork")));
  process.becomeChildOf(4712);  // a grandchild
  EXPECT_THAT(process.acquire(BackEnd::kDpdk, {}, makeFake).error().message, HasSubstr("4711"));
  EXPECT_EQ(process.countersJson(), "{}");
}

TEST(ProcessTransport_BackEnds, BothInUse_EachHasItsOwnTransportAndConfiguration) {
  ProcessTransport process;
  TransportConfig other;
  other.spin = std::chrono::microseconds(7);
  const auto dpdk = process.acquire(BackEnd::kDpdk, {}, makeFake);
  const auto rdma = process.acquire(BackEnd::kRdma, other, makeFake);
  ASSERT_TRUE(dpdk);
  ASSERT_TRUE(rdma) << rdma.error().message;
  EXPECT_NE(dpdk.value(), rdma.value());
  EXPECT_EQ(process.acquire(BackEnd::kRdma, other, makeFake).value(), rdma.value());
  EXPECT_THAT(process.acquire(BackEnd::kRdma, {}, makeFake).error().message,
              HasSubstr("GLOO_BYPASS_SPIN_US: '7' and '200'"));
}

TEST(ProcessTransport_BackEnds, CountersJson_OneAsItIsBothByName) {
  ProcessTransport process;
  ASSERT_TRUE(process.acquire(BackEnd::kRdma, {}, makeFake));
  EXPECT_TRUE(process.countersJson().starts_with("{\"bytes_sent\": 42")) << process.countersJson();
  EXPECT_TRUE(process.countersJson().ends_with(", \"transport\": \"RDMA\"}")) << process.countersJson();
  ASSERT_TRUE(process.acquire(BackEnd::kDpdk, {}, makeFake));
  EXPECT_TRUE(process.countersJson().starts_with("{\"DPDK\": {\"bytes_sent\": 42")) << process.countersJson();
  EXPECT_THAT(countersAsText(process.countersJson()),
              AllOf(HasSubstr("DPDK.bytes_sent"), HasSubstr("RDMA.port.packets_sent")));
}

TEST(ProcessTransport_BackEnds, Settled_LiveOrBegunByParent_ThatOneOnly) {
  ProcessTransport process;
  EXPECT_FALSE(process.settled(BackEnd::kDpdk));
  ASSERT_TRUE(process.acquire(BackEnd::kDpdk, {}, makeFake));
  EXPECT_TRUE(process.settled(BackEnd::kDpdk));
  EXPECT_FALSE(process.settled(BackEnd::kRdma));
  process.becomeChildOf(4711);
  EXPECT_TRUE(process.settled(BackEnd::kDpdk));
  EXPECT_FALSE(process.settled(BackEnd::kRdma));
}

TEST(ProcessTransport_BackEnds, Settled_FactoryFailed_OnlyForChildren) {
  ProcessTransport process;
  ASSERT_FALSE(process.acquire(BackEnd::kDpdk, {}, noSuchInterface));
  EXPECT_FALSE(process.settled(BackEnd::kDpdk)) << "the next acquire calls the factory";
  process.becomeChildOf(4711);
  EXPECT_TRUE(process.settled(BackEnd::kDpdk));
}

TEST(ProcessTransport_BackEnds, OneStatsFile_HoldsBothCounters) {
  TemporaryFolder folder;
  ProcessTransport process;
  TransportConfig config;
  config.stats = folder.path + "/stats.json";
  ASSERT_TRUE(process.acquire(BackEnd::kDpdk, config, makeFake));
  ASSERT_TRUE(process.acquire(BackEnd::kRdma, config, makeFake));
  process.shutDown();
  EXPECT_THAT(contentsOf(config.stats), AllOf(HasSubstr("\"DPDK\": {"), HasSubstr("\"RDMA\": {")));
}

TEST(ProcessTransport_BackEnds, ForkAfterOneStarted_OnlyThatOneIsRefused) {
  ProcessTransport process;
  ASSERT_TRUE(process.acquire(BackEnd::kRdma, {}, makeFake));
  process.becomeChildOf(4711);
  EXPECT_THAT(process.acquire(BackEnd::kRdma, {}, makeFake).error().message,
              AllOf(HasSubstr("4711"), HasSubstr("RDMA")));
  EXPECT_TRUE(process.acquire(BackEnd::kDpdk, {}, makeFake));
}

TEST(ProcessTransport_Fork, ParentHadNotStarted_ChildMakesItsOwn) {
  ProcessTransport process;
  process.becomeChildOf(4711);
  EXPECT_TRUE(process.acquire(BackEnd::kDpdk, {}, makeFake));
}

TEST(ProcessTransport_ShutDown, StatsFile_HoldsCountersAndNothingElseRemains) {
  TemporaryFolder folder;
  ProcessTransport process;
  TransportConfig config;
  config.stats = folder.path + "/rank-%p.json";
  ASSERT_TRUE(process.acquire(BackEnd::kDpdk, config, makeFake));
  process.shutDown();
  const auto json = nlohmann::json::parse(contentsOf(folder.path + "/rank-" + std::to_string(getpid()) + ".json"));
  EXPECT_EQ(json.at("bytes_sent"), 42);
  EXPECT_EQ(json.at("latencies").at("connect").at("count"), 0) << "with statistics come histograms";
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path), {}), 1);
}

TEST(ProcessTransport_ShutDown, StatsFileNotWritable_OneLineAndNoCrash) {
  ProcessTransport process;
  TransportConfig config;
  config.stats = "/nowhere/at/all.json";
  ASSERT_TRUE(process.acquire(BackEnd::kDpdk, config, makeFake));
  ::testing::internal::CaptureStderr();
  process.shutDown();
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              AllOf(HasSubstr("GLOO_BYPASS_STATS='/nowhere/at/all.json'"), HasSubstr("No such file")));
}

TEST(ProcessTransport_ShutDown, TransportStillInUse_LivesOn) {
  std::atomic<int> alive = 0;
  ProcessTransport process;
  auto user = process
                  .acquire(BackEnd::kDpdk, {},
                           [&](const TransportConfig&) -> Result<std::shared_ptr<Transport>> {
                             return std::shared_ptr<Transport>(new FakeTransport(&alive));
                           })
                  .value();
  process.shutDown();
  user.reset();
  EXPECT_EQ(alive, 1) << "must not be destroyed while the process comes apart";
  EXPECT_THAT(process.acquire(BackEnd::kDpdk, {}, makeFake).error().message, HasSubstr("exiting"));
}

TEST(ProcessTransport_ShutDown, NobodyUsesTransport_IsDestroyed) {
  std::atomic<int> alive = 0;
  ProcessTransport process;
  ASSERT_TRUE(process.acquire(BackEnd::kDpdk, {}, [&](const TransportConfig&) -> Result<std::shared_ptr<Transport>> {
    return std::shared_ptr<Transport>(new FakeTransport(&alive));
  }));
  EXPECT_EQ(alive, 1);
  process.shutDown();
  EXPECT_EQ(alive, 0);
}

// The port of the line that an endpoint says at its start; 0 without one.
int announcedPort(const std::string& line) {
  int port = 0;
  (void)std::sscanf(line.c_str(), "gloo-bypass: process %*d: metrics at http://127.0.0.1:%d/metrics", &port);
  return port;
}

bool somebodyListens(int port) {
  const int connection = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in name{};
  name.sin_family = AF_INET;
  name.sin_port = htons(static_cast<std::uint16_t>(port));
  name.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const bool connected = ::connect(connection, reinterpret_cast<const sockaddr*>(&name), sizeof(name)) == 0;
  ::close(connection);
  return connected;
}

// exit() called where the transport can never answer: the wait is bounded.
TEST(ProcessTransport_ShutDown, ExitInsideExclusiveAccess_Ends) {
  auto* process = new ProcessTransport;  // its worker never ends
  TransportConfig config;
  config.stats = "stderr";
  config.metrics = "http://:auto";
  ::testing::internal::CaptureStderr();
  auto acquired = process->acquire(BackEnd::kDpdk, config, makeFake);
  const int port = announcedPort(::testing::internal::GetCapturedStderr());
  if (!acquired) {  // built without the endpoint
    config.metrics.clear();
    acquired = process->acquire(BackEnd::kDpdk, config, makeFake);
  }
  ASSERT_TRUE(acquired) << acquired.error().message;
  ::testing::internal::CaptureStderr();
  acquired.value()->progress().exclusive([&] { process->shutDown(); });
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr("did not stop within"));
  EXPECT_FALSE(somebodyListens(port)) << "the endpoint's thread outlives the exit handlers";
}

TEST(ProcessTransport_Exit, RealProcessAndForkedChild_OnlyTheOwnerWrites) {
  TemporaryFolder folder;
  const pid_t owner = fork();
  ASSERT_GE(owner, 0);
  if (owner == 0) {
    TransportConfig config;
    config.stats = folder.path + "/%p.json";
    if (!ProcessTransport::instance().acquire(BackEnd::kDpdk, config, makeFake)) _exit(2);
    const pid_t child = fork();
    if (child == 0) std::exit(0);
    int status = 0;
    waitpid(child, &status, 0);
    std::exit(WIFEXITED(status) && WEXITSTATUS(status) == 0 ? 0 : 3);
  }
  int status = 0;
  ASSERT_EQ(waitpid(owner, &status, 0), owner);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path), {}), 1);
  EXPECT_TRUE(std::filesystem::exists(folder.path + "/" + std::to_string(owner) + ".json"));
}

TEST(ProcessTransport_Metrics, File_HoldsLastCountersAfterShutDown) {
  TemporaryFolder folder;
  ProcessTransport process;
  TransportConfig config;
  config.metrics = "file:" + folder.path + "/x.prom";
  config.rank = "5";
  ASSERT_TRUE(process.acquire(BackEnd::kRdma, config, makeFake));
  process.shutDown();
  EXPECT_THAT(contentsOf(folder.path + "/x.prom"),
              AllOf(HasSubstr("gloo_bypass_port_sent_bytes_total{rank=\"5\",transport=\"RDMA\"} 42\n"),
                    HasSubstr("gloo_bypass_connect_seconds_count{rank=\"5\",transport=\"RDMA\"} 0\n")));
}

TEST(ProcessTransport_Metrics, TargetCannotWork_DeviceIsRefusedAndNoTransportMade) {
  ProcessTransport process;
  TransportConfig config;
  config.metrics = "file:/nowhere/at/all.prom";
  EXPECT_THAT(process.acquire(BackEnd::kDpdk, config, neverCalled).error().message, HasSubstr("GLOO_BYPASS_METRICS="));
}

TEST(ProcessTransport_Metrics, FactoryFails_ExportEndsAndOtherTargetIsFree) {
  TemporaryFolder folder;
  ProcessTransport process;
  TransportConfig config;
  config.metrics = "file:" + folder.path + "/a.prom";
  config.rank = "5";
  EXPECT_FALSE(process.acquire(BackEnd::kDpdk, config, noSuchInterface));
  EXPECT_THAT(contentsOf(folder.path + "/a.prom"), HasSubstr("gloo_bypass_info{rank=\"5\",")) << "another series";
  config.metrics = "file:" + folder.path + "/b.prom";
  EXPECT_TRUE(process.acquire(BackEnd::kDpdk, config, makeFake));
  config.metrics = "file:" + folder.path + "/c.prom";
  EXPECT_THAT(process.acquire(BackEnd::kRdma, config, makeFake).error().message,
              AllOf(HasSubstr("b.prom"), HasSubstr("c.prom")));
}

TEST(ProcessTransport_Metrics, NoTransportWasMade_LastTextHasTheRank) {
  TemporaryFolder folder;
  ProcessTransport process;
  TransportConfig config;
  config.metrics = "file:" + folder.path + "/a.prom";
  config.rank = "5";
  const auto throwing = [](const TransportConfig&) -> Result<std::shared_ptr<Transport>> {
    throw std::runtime_error("out of something");
  };
  EXPECT_THROW((void)process.acquire(BackEnd::kDpdk, config, throwing), std::runtime_error);
  std::filesystem::remove(folder.path + "/a.prom");
  process.shutDown();
  EXPECT_THAT(contentsOf(folder.path + "/a.prom"), HasSubstr("gloo_bypass_info{rank=\"5\","));
}

TEST(ProcessTransport_Metrics, CannotBeMadeAtExit_OneLineAndStatisticsAreThere) {
  TemporaryFolder folder;
  ProcessTransport process;
  TransportConfig config;
  config.histograms = Histograms::kOff;
  config.metrics = "file:" + folder.path + "/a.prom";
  config.stats = folder.path + "/stats.json";
  const auto broken = [](const TransportConfig&) -> Result<std::shared_ptr<Transport>> {
    return std::shared_ptr<Transport>(new FakeTransport(nullptr, "{\"name\": \"\xff\"}"));
  };
  ASSERT_TRUE(process.acquire(BackEnd::kDpdk, config, broken));
  ::testing::internal::CaptureStderr();
  process.shutDown();
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr("GLOO_BYPASS_METRICS='" + config.metrics + "'"));
  EXPECT_THAT(contentsOf(config.stats), HasSubstr("\"name\""));
}

TEST(ProcessTransport_Telemetry, AskedForWithRdma_SaysThatThereIsNone) {
  ProcessTransport process;
  TransportConfig config;
  config.telemetry = true;
  ::testing::internal::CaptureStderr();
  ASSERT_TRUE(process.acquire(BackEnd::kDpdk, config, makeFake));
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
  ::testing::internal::CaptureStderr();
  ASSERT_TRUE(process.acquire(BackEnd::kRdma, config, makeFake));
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              AllOf(HasSubstr("GLOO_BYPASS_TELEMETRY='on'"), HasSubstr("use GLOO_BYPASS_METRICS")));
}

TEST(ProcessTransport_Metrics, ForkedChild_NeitherExportsNorKeepsThePort) {
  ProcessTransport process;
  TransportConfig config;
  config.metrics = "http://:auto";
  ::testing::internal::CaptureStderr();
  const auto transport = process.acquire(BackEnd::kDpdk, config, makeFake);
  const std::string line = ::testing::internal::GetCapturedStderr();
  if (!transport && transport.error().message.find("not in this build") != std::string::npos) {
    GTEST_SKIP() << transport.error().message;
  }
  ASSERT_TRUE(transport) << transport.error().message;
  const int port = announcedPort(line);
  ASSERT_NE(port, 0) << line;
  EXPECT_TRUE(somebodyListens(port));
  int ready[2], done[2];
  ASSERT_EQ(pipe(ready), 0);
  ASSERT_EQ(pipe(done), 0);
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    process.becomeChildOf(getppid());
    ::close(ready[1]);
    ::close(done[1]);
    char byte;
    const bool parentDone = ::read(done[0], &byte, 1) == 0;
    process.shutDown();  // has nothing to stop
    _exit(parentDone ? 0 : 1);
  }
  ::close(ready[1]);
  char byte;
  EXPECT_EQ(::read(ready[0], &byte, 1), 0);
  EXPECT_TRUE(somebodyListens(port)) << "the child has taken it from the parent";
  process.shutDown();
  EXPECT_FALSE(somebodyListens(port)) << "the child keeps it";
  for (const int fd : {ready[0], done[0], done[1]}) ::close(fd);
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

TEST(CountersAsText, Histogram_IsItsSummaryOnly) {
  const std::string text = countersAsText(R"({"a": {"count": 3, "p50": 1.5, "buckets": [[1.024, 3]]}})");
  EXPECT_THAT(text, AllOf(HasSubstr("a.p50 "), ::testing::Not(HasSubstr("buckets"))));
}

TEST(CountersAsText, NestedObject_OneNameAndValueALine) {
  const std::string text = countersAsText(R"({"a": 1, "b": {"c": 2.5, "d": "x"}, "e": [3]})");
  EXPECT_THAT(text, AllOf(HasSubstr("a "), HasSubstr("b.c "), HasSubstr("2.5"), HasSubstr("b.d "), HasSubstr("e[0]")));
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 4);
}

}  // namespace
}  // namespace gloo_bypass
