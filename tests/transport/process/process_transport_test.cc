#include "transport/process/process_transport.h"
#include "transport/process/report_json.h"

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

#include "tests/support/no_more_threads.h"
#include "tests/support/temporary_folder.h"
#include "transport/progress/progress_engine.h"

// Read by AddressSanitizer when the program starts. Transports in use are left to the end of the process on purpose,
// and a leak check in a forked child does not see what the other threads' stacks refer to.
extern "C" const char* __asan_default_options() { return "detect_leaks=0"; }

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
  explicit FakeTransport(std::atomic<int>* alive = nullptr) : alive_(alive), engine_(pollable_, {}) {
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
  TransportReport report() const override {
    TransportReport report;
    report.description = "fake";
    report.bytesSent = 42;
    report.port = {{"packets_sent", "port_packets_sent_total", "", 7}};
    return report;
  }

 private:
  std::atomic<int>* alive_;
  IdlePollable pollable_;
  ProgressEngine engine_;
};

// Back-ends with the names of real ones. They must live as long as the ProcessTransport, so they are never destroyed.
template <typename Make>
const BackEnd& dpdk(Make make) {
  return *new BackEnd{.name = "DPDK", .missing = "", .package = "", .make = std::move(make)};
}
template <typename Make>
const BackEnd& rdma(Make make) {
  return *new BackEnd{.name = "RDMA", .missing = "", .package = "", .make = std::move(make)};
}

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
    threads.emplace_back([&, i] { got[i] = process.acquire(dpdk(factory), {}).value(); });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(made, 1);
  for (const auto& transport : got) EXPECT_EQ(transport, got[0]);
}

TEST(ProcessTransport_Acquire, OtherConfiguration_IsRefusedNamingBothValues) {
  ProcessTransport process;
  ASSERT_TRUE(process.acquire(dpdk(makeFake), {}));
  TransportConfig other;
  other.session.minRto = std::chrono::milliseconds(7);
  other.link = LinkMode::kNetdev;
  const auto refused = process.acquire(dpdk(makeFake), other);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kConfiguration);
  EXPECT_THAT(refused.error().message, AllOf(HasSubstr("GLOO_BYPASS_LINK: 'auto' and 'netdev'"),
                                             HasSubstr("GLOO_BYPASS_MIN_RTO_US: '5000' and '7000'")));
  EXPECT_TRUE(process.acquire(dpdk(makeFake), {}));
}

// As when somebody logs in, and /run/user/1000 is there from then on.
TEST(ProcessTransport_Acquire, DefaultFolderIsAnotherMeanwhile_TheFirstOneStays) {
  ProcessTransport process;
  TransportConfig first, second;
  first.memifDirectory = "/tmp/gloo-bypass-7";
  second.memifDirectory = "/run/user/7/gloo-bypass";
  first.memifDirectoryIsDefault = second.memifDirectoryIsDefault = true;
  const auto made = process.acquire(dpdk(makeFake), first);
  ASSERT_TRUE(made);
  EXPECT_EQ(process.acquire(dpdk(makeFake), second).value(), made.value());
  second.memifDirectoryIsDefault = false;
  EXPECT_THAT(process.acquire(dpdk(makeFake), second).error().message, HasSubstr("GLOO_BYPASS_MEMIF_DIRECTORY"));
}

TEST(ProcessTransport_Acquire, SecondInterface_SharesTheTransportAndIsSaidOnce) {
  for (const InterfaceRule sharing : {InterfaceRule::kNamed, InterfaceRule::kSeveral}) {
    static InterfaceRule rule;
    rule = sharing;
    ProcessTransport process;
    BackEnd backEnd = dpdk(makeFake);
    TransportConfig first, second;
    first.interface = "eth0";
    second.interface = "eth1\033";
    backEnd.interfaceRule = [](const TransportConfig&) { return rule; };
    const auto made = process.acquire(backEnd, first);
    ASSERT_TRUE(made);
    ::testing::internal::CaptureStderr();
    EXPECT_EQ(process.acquire(backEnd, second).value(), made.value());
    EXPECT_EQ(process.acquire(backEnd, second).value(), made.value());
    const std::string said = ::testing::internal::GetCapturedStderr();
    EXPECT_THAT(said, AllOf(HasSubstr("'eth0' carries all"), HasSubstr("'eth1\\x1b' is not used")));
    EXPECT_EQ(std::count(said.begin(), said.end(), '\n'), 1);
    rule = InterfaceRule::kRequired;
    EXPECT_THAT(process.acquire(backEnd, second).error().message, HasSubstr("GLOO_BYPASS_INTERFACE: 'eth0' and 'eth1"));
  }
}

TEST(ProcessTransport_Acquire, InvalidConfiguration_FactoryIsNotCalled) {
  ProcessTransport process;
  TransportConfig config;
  config.memoryMiB = 1;
  EXPECT_THAT(process.acquire(dpdk(neverCalled), config).error().message, HasSubstr("GLOO_BYPASS_MEMORY_MIB"));
}

TEST(ProcessTransport_Acquire, NoThreadOrMemoryIsLeft_OneLineNamesTheLimitAndNextCallTriesAgain) {
  ProcessTransport process;
  const auto noThreads = [](const TransportConfig&) -> Result<std::shared_ptr<Transport>> {
    throw std::system_error(EAGAIN, std::generic_category());
  };
  const auto noMemory = [](const TransportConfig&) -> Result<std::shared_ptr<Transport>> { throw std::bad_alloc(); };
  EXPECT_THAT(process.acquire(dpdk(noThreads), {}).error().message, HasSubstr("raise the limit of threads (ulimit -u"));
  EXPECT_THAT(process.acquire(dpdk(noMemory), {}).error().message, HasSubstr("no more memory: raise its limit"));
  EXPECT_TRUE(process.acquire(dpdk(makeFake), {}));
}

TEST(ProcessTransport_Acquire, NoThreadIsLeftForMetrics_OneLineNamesTheLimits) {
  const TemporaryFolder folder;
  for (const std::string& target : {"file:" + (folder / "metrics"), std::string("http://127.0.0.1:auto")}) {
    ProcessTransport process;
    TransportConfig config;
    config.metrics = target;
    const test::NoMoreThreads none;
    EXPECT_THAT(process.acquire(dpdk(makeFake), config).error().message,
                AllOf(HasSubstr(target), HasSubstr("ulimit -u")));
  }
}

TEST(ProcessTransport_Acquire, FactoryFails_NextCallTriesAgain) {
  ProcessTransport process;
  EXPECT_EQ(process.acquire(dpdk(noSuchInterface), {}).error().message, "no such interface");
  EXPECT_TRUE(process.acquire(dpdk(makeFake), {}));
}

TEST(ProcessTransport_Fork, ParentHadStarted_ChildIsRefusedNamingParent) {
  ProcessTransport process;
  ASSERT_TRUE(process.acquire(dpdk(makeFake), {}));
  process.becomeChildOf(4711);
  const auto refused = process.acquire(dpdk(makeFake), {});
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message, AllOf(HasSubstr("4711"), HasSubstr("fork")));
  process.becomeChildOf(4712);  // a grandchild
  EXPECT_THAT(process.acquire(dpdk(makeFake), {}).error().message, HasSubstr("4711"));
  EXPECT_EQ(process.countersJson(), "{}");
}

TEST(ProcessTransport_BackEnds, BothInUse_EachHasItsOwnTransportAndConfiguration) {
  ProcessTransport process;
  TransportConfig other;
  other.spin = std::chrono::microseconds(7);
  const auto overDpdk = process.acquire(dpdk(makeFake), {});
  const auto overRdma = process.acquire(rdma(makeFake), other);
  ASSERT_TRUE(overDpdk);
  ASSERT_TRUE(overRdma) << overRdma.error().message;
  EXPECT_NE(overDpdk.value(), overRdma.value());
  EXPECT_EQ(process.acquire(rdma(makeFake), other).value(), overRdma.value());
  EXPECT_THAT(process.acquire(rdma(makeFake), {}).error().message, HasSubstr("GLOO_BYPASS_SPIN_US: '7' and '200'"));
}

TEST(ProcessTransport_BackEnds, CountersJson_OneAsItIsBothByName) {
  ProcessTransport process;
  ASSERT_TRUE(process.acquire(rdma(makeFake), {}));
  const auto one = nlohmann::json::parse(process.countersJson());
  EXPECT_EQ(one.at("bytes_sent"), 42);
  EXPECT_EQ(one.at("transport"), "RDMA");
  ASSERT_TRUE(process.acquire(dpdk(makeFake), {}));
  const auto both = nlohmann::json::parse(process.countersJson());
  EXPECT_EQ(both.size(), 2u);
  EXPECT_EQ(both.at("DPDK").at("transport"), "DPDK");
  EXPECT_THAT(asText(both), AllOf(HasSubstr("DPDK.bytes_sent"), HasSubstr("RDMA.port.packets_sent")));
}

TEST(ProcessTransport_BackEnds, Settled_LiveOrBegunByParent_ThatOneOnly) {
  ProcessTransport process;
  EXPECT_FALSE(process.settled(dpdk(makeFake)));
  ASSERT_TRUE(process.acquire(dpdk(makeFake), {}));
  EXPECT_TRUE(process.settled(dpdk(makeFake)));
  EXPECT_FALSE(process.settled(rdma(makeFake)));
  process.becomeChildOf(4711);
  EXPECT_TRUE(process.settled(dpdk(makeFake)));
  EXPECT_FALSE(process.settled(rdma(makeFake)));
}

TEST(ProcessTransport_BackEnds, Settled_FactoryFailed_OnlyForChildren) {
  ProcessTransport process;
  ASSERT_FALSE(process.acquire(dpdk(noSuchInterface), {}));
  EXPECT_FALSE(process.settled(dpdk(makeFake))) << "the next acquire calls the factory";
  process.becomeChildOf(4711);
  EXPECT_TRUE(process.settled(dpdk(makeFake)));
}

TEST(ProcessTransport_BackEnds, OneStatsFile_HoldsBothCounters) {
  TemporaryFolder folder;
  ProcessTransport process;
  TransportConfig config;
  config.stats = folder.path + "/stats.json";
  ASSERT_TRUE(process.acquire(dpdk(makeFake), config));
  ASSERT_TRUE(process.acquire(rdma(makeFake), config));
  process.shutDown();
  EXPECT_THAT(contentsOf(config.stats), AllOf(HasSubstr("\"DPDK\":{"), HasSubstr("\"RDMA\":{")));
}

TEST(ProcessTransport_BackEnds, ForkAfterOneStarted_OnlyThatOneIsRefused) {
  ProcessTransport process;
  ASSERT_TRUE(process.acquire(rdma(makeFake), {}));
  process.becomeChildOf(4711);
  EXPECT_THAT(process.acquire(rdma(makeFake), {}).error().message, AllOf(HasSubstr("4711"), HasSubstr("RDMA")));
  EXPECT_TRUE(process.acquire(dpdk(makeFake), {}));
}

TEST(ProcessTransport_Fork, ParentHadNotStarted_ChildMakesItsOwn) {
  ProcessTransport process;
  process.becomeChildOf(4711);
  EXPECT_TRUE(process.acquire(dpdk(makeFake), {}));
}

TEST(ProcessTransport_ShutDown, StatsFile_HoldsCountersAndNothingElseRemains) {
  TemporaryFolder folder;
  ProcessTransport process;
  TransportConfig config;
  config.stats = folder.path + "/rank-%p.json";
  ASSERT_TRUE(process.acquire(dpdk(makeFake), config));
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
  ASSERT_TRUE(process.acquire(dpdk(makeFake), config));
  ::testing::internal::CaptureStderr();
  process.shutDown();
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              AllOf(HasSubstr("GLOO_BYPASS_STATS='/nowhere/at/all.json'"), HasSubstr("No such file")));
}

TEST(ProcessTransport_ShutDown, TransportStillInUse_LivesOn) {
  std::atomic<int> alive = 0;
  ProcessTransport process;
  auto user = process
                  .acquire(dpdk([&](const TransportConfig&) -> Result<std::shared_ptr<Transport>> {
                             return std::shared_ptr<Transport>(new FakeTransport(&alive));
                           }),
                           {})
                  .value();
  process.shutDown();
  user.reset();
  EXPECT_EQ(alive, 1) << "must not be destroyed while the process comes apart";
  EXPECT_THAT(process.acquire(dpdk(makeFake), {}).error().message, HasSubstr("exiting"));
}

TEST(ProcessTransport_ShutDown, NobodyUsesTransport_IsDestroyed) {
  std::atomic<int> alive = 0;
  ProcessTransport process;
  const BackEnd& backEnd = dpdk([&](const TransportConfig&) -> Result<std::shared_ptr<Transport>> {
    return std::shared_ptr<Transport>(new FakeTransport(&alive));
  });
  ASSERT_TRUE(process.acquire(backEnd, {}));
  EXPECT_EQ(alive, 1);
  process.shutDown();
  EXPECT_EQ(alive, 0);
}

// The port in the line that an endpoint prints at its start; 0 without one.
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

// A shut-down that uses processor time: many connections, or a machine with more processes than cores.
class SlowToEnd : public FakeTransport {
 public:
  SlowToEnd(std::atomic<int>* alive, Duration work) : FakeTransport(alive), work_(work) {}
  ~SlowToEnd() override {
    for (const TimePoint end = monotonicNow() + work_; monotonicNow() < end;) {
    }
  }

 private:
  const Duration work_;
};

constexpr ProcessTransport::ShutDownBounds kShort{std::chrono::milliseconds(250), std::chrono::seconds(30)};

TEST(ProcessTransport_ShutDown, TransportGetsOnFarLongerThanTheBoundForStandstill_IsWaitedFor) {
  ProcessTransport process;
  std::atomic<int> alive = 0;
  const auto make = [&](const TransportConfig&) -> Result<std::shared_ptr<Transport>> {
    return std::shared_ptr<Transport>(new SlowToEnd(&alive, 4 * kShort.standstill));
  };
  ASSERT_TRUE(process.acquire(dpdk(make), TransportConfig{}));
  ::testing::internal::CaptureStderr();
  process.shutDown(kShort);
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
  EXPECT_EQ(alive, 0);
}

TEST(ProcessTransport_ShutDown, TransportGetsOnForEver_IsLeftAtTheBoundForAll) {
  auto* process = new ProcessTransport;
  const auto make = [&](const TransportConfig&) -> Result<std::shared_ptr<Transport>> {
    return std::shared_ptr<Transport>(new SlowToEnd(nullptr, std::chrono::seconds(2)));
  };
  ASSERT_TRUE(process->acquire(dpdk(make), TransportConfig{}));
  ::testing::internal::CaptureStderr();
  process->shutDown({.standstill = kShort.standstill, .total = std::chrono::milliseconds(500)});
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr("did not stop within"));
}

// exit() called where the transport can never answer: the wait is bounded.
TEST(ProcessTransport_ShutDown, ExitInsideExclusiveAccess_Ends) {
  auto* process = new ProcessTransport;  // its worker never ends
  TransportConfig config;
  config.stats = "stderr";
  config.metrics = "http://:auto";
  ::testing::internal::CaptureStderr();
  auto acquired = process->acquire(dpdk(makeFake), config);
  const int port = announcedPort(::testing::internal::GetCapturedStderr());
  if (!acquired) {  // built without the endpoint
    config.metrics.clear();
    acquired = process->acquire(dpdk(makeFake), config);
  }
  ASSERT_TRUE(acquired) << acquired.error().message;
  ::testing::internal::CaptureStderr();
  acquired.value()->progress().exclusive([&] { process->shutDown({.standstill = std::chrono::milliseconds(200)}); });
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr("did not stop within"));
  EXPECT_FALSE(somebodyListens(port)) << "the endpoint's thread outlives the exit handlers";
}

TEST(ProcessTransport_Exit, RealProcessAndForkedChild_OnlyTheOwnerWrites) {
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "ThreadSanitizer allows no thread in a child of a threaded program, as the test above leaves it";
#endif
  TemporaryFolder folder;
  const pid_t owner = fork();
  ASSERT_GE(owner, 0);
  if (owner == 0) {
    TransportConfig config;
    config.stats = folder.path + "/%p.json";
    if (!ProcessTransport::instance().acquire(dpdk(makeFake), config)) _exit(2);
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
  ASSERT_TRUE(process.acquire(rdma(makeFake), config));
  process.shutDown();
  EXPECT_THAT(contentsOf(folder.path + "/x.prom"),
              AllOf(HasSubstr("gloo_bypass_port_sent_bytes_total{rank=\"5\",transport=\"RDMA\"} 42\n"),
                    HasSubstr("gloo_bypass_connect_seconds_count{rank=\"5\",transport=\"RDMA\"} 0\n")));
}

TEST(ProcessTransport_Metrics, TargetCannotWork_DeviceIsRefusedAndNoTransportMade) {
  ProcessTransport process;
  TransportConfig config;
  config.metrics = "file:/nowhere/at/all.prom";
  EXPECT_THAT(process.acquire(dpdk(neverCalled), config).error().message, HasSubstr("GLOO_BYPASS_METRICS="));
}

TEST(ProcessTransport_Metrics, FactoryFails_ExportEndsAndOtherTargetIsFree) {
  TemporaryFolder folder;
  ProcessTransport process;
  TransportConfig config;
  config.metrics = "file:" + folder.path + "/a.prom";
  config.rank = "5";
  EXPECT_FALSE(process.acquire(dpdk(noSuchInterface), config));
  EXPECT_THAT(contentsOf(folder.path + "/a.prom"), HasSubstr("gloo_bypass_info{rank=\"5\",")) << "another series";
  config.metrics = "file:" + folder.path + "/b.prom";
  EXPECT_TRUE(process.acquire(dpdk(makeFake), config));
  config.metrics = "file:" + folder.path + "/c.prom";
  EXPECT_THAT(process.acquire(rdma(makeFake), config).error().message, AllOf(HasSubstr("b.prom"), HasSubstr("c.prom")));
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
  EXPECT_THROW((void)process.acquire(dpdk(throwing), config), std::runtime_error);
  std::filesystem::remove(folder.path + "/a.prom");
  process.shutDown();
  EXPECT_THAT(contentsOf(folder.path + "/a.prom"), HasSubstr("gloo_bypass_info{rank=\"5\","));
}

TEST(ProcessTransport_Metrics, RankWithControlCharacters_IsShownEscaped) {
  ProcessTransport process;
  TransportConfig config;
  config.metrics = "http://:auto";
  config.rank = "1\033[2J\n";
  ::testing::internal::CaptureStderr();
  const auto made = process.acquire(dpdk(makeFake), config);
  const std::string said = ::testing::internal::GetCapturedStderr();
  ASSERT_TRUE(made) << made.error().message;
  EXPECT_THAT(said, HasSubstr("gloo-bypass: rank 1\\x1b[2J\\x0a, process "));
}

TEST(ProcessTransport_Metrics, CannotBeMadeAtExit_OneLineAndStatisticsAreThere) {
  TemporaryFolder folder;
  ProcessTransport process;
  TransportConfig config;
  config.histograms = Histograms::kOff;
  config.metrics = "file:" + folder.path + "/a.prom";
  config.stats = folder.path + "/stats.json";
  class FailingOnce final : public FakeTransport {
   public:
    TransportReport report() const override {
      if (!std::exchange(failed_, true)) throw std::runtime_error("out of something");
      return FakeTransport::report();
    }

   private:
    mutable bool failed_ = false;
  };
  const auto failingOnce = [](const TransportConfig&) -> Result<std::shared_ptr<Transport>> {
    return std::shared_ptr<Transport>(new FailingOnce);
  };
  ASSERT_TRUE(process.acquire(dpdk(failingOnce), config));
  ::testing::internal::CaptureStderr();
  process.shutDown();
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr("GLOO_BYPASS_METRICS='" + config.metrics + "'"));
  EXPECT_THAT(contentsOf(config.stats), HasSubstr("\"bytes_sent\":42"));
}

TEST(ProcessTransport_IgnoredSettings, BackEndNamesThem_EachIsALine) {
  ProcessTransport process;
  TransportConfig config;
  config.telemetry = true;
  ::testing::internal::CaptureStderr();
  ASSERT_TRUE(process.acquire(dpdk(makeFake), config));
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
  BackEnd ignoring = rdma(makeFake);
  ignoring.ignoredSettings = [](const TransportConfig& c) {
    return std::vector<std::string>(c.telemetry ? 1 : 0, "telemetry does nothing");
  };
  ::testing::internal::CaptureStderr();
  ASSERT_TRUE(process.acquire(ignoring, config));
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "gloo-bypass: telemetry does nothing\n");
}

TEST(ProcessTransport_Publish, Fails_NoTransportIsKept) {
  ProcessTransport process;
  BackEnd unpublished = dpdk(makeFake);
  unpublished.publish = [](const TransportConfig&, ReportSource) -> Status {
    return {ErrorScope::kDevice, ErrorCode::kUnavailable, "no socket"};
  };
  EXPECT_EQ(process.acquire(unpublished, {}).error().message, "no socket");
  EXPECT_FALSE(process.settled(unpublished));
}

TEST(ProcessTransport_Metrics, ForkedChild_NeitherExportsNorKeepsThePort) {
  ProcessTransport process;
  TransportConfig config;
  config.metrics = "http://:auto";
  ::testing::internal::CaptureStderr();
  const auto transport = process.acquire(dpdk(makeFake), config);
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

TEST(ReportAsText, Histogram_IsItsSummaryOnly) {
  const std::string text = asText(nlohmann::json::parse(R"({"a": {"count": 3, "p50": 1.5, "buckets": [[1.024, 3]]}})"));
  EXPECT_THAT(text, AllOf(HasSubstr("a.p50 "), ::testing::Not(HasSubstr("buckets"))));
}

TEST(ReportAsText, NestedObject_OneNameAndValueALine) {
  const std::string text = asText(nlohmann::json::parse(R"({"a": 1, "b": {"c": 2.5, "d": "x"}, "e": [3]})"));
  EXPECT_THAT(text, AllOf(HasSubstr("a "), HasSubstr("b.c "), HasSubstr("2.5"), HasSubstr("b.d "), HasSubstr("e[0]")));
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 4);
}

TEST(ReportAsText, ControlCharacters_AreShownEscaped) {
  EXPECT_THAT(asText(nlohmann::json{{"peer", "a\033[2J\nb"}}), HasSubstr("a\\x1b[2J\\x0ab\n"));
}

}  // namespace
}  // namespace gloo_bypass
