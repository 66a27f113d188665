#include "transport/dpdk/eal.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_log.h>
#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <optional>
#include <string>
#include <string_view>
#include <thread>

#include "transport/base/file_descriptor.h"
#include "transport/base/mutex.h"
#include "transport/base/printable.h"
#include "transport/base/signals_blocked.h"
#include "transport/dpdk/eal_arguments.h"
#include "transport/dpdk/telemetry.h"

namespace gloo_bypass::dpdk {
namespace {

struct EalState {
  Mutex mutex;
  std::optional<Status> outcome GLOO_BYPASS_GUARDED_BY(mutex);  // of the one start
  pid_t pid GLOO_BYPASS_GUARDED_BY(mutex) = 0;
  bool scannedPci GLOO_BYPASS_GUARDED_BY(mutex) = false;
  bool logAsked = false;  // by the user's arguments; before the first line
  // Any thread may log, even while `mutex` is held.
  Mutex logMutex;
  std::string lastError GLOO_BYPASS_GUARDED_BY(logMutex);
};

EalState& state() {
  static auto* const s = new EalState;  // never destroyed: EAL threads may log at exit
  return *s;
}

// DPDK logs warnings and errors about much that is normal here; our own errors quote what matters.
ssize_t writeLogLine(void*, const char* text, std::size_t size) {
  std::string_view line(text, size);
  while (!line.empty() && line.back() == '\n') line.remove_suffix(1);
  const int level = rte_log_cur_msg_loglevel();
  if (level <= static_cast<int>(RTE_LOG_ERR)) {
    const MutexLock lock(state().logMutex);
    state().lastError = printable(line);
  }
  if (level <= static_cast<int>(RTE_LOG_CRIT) || state().logAsked) {
    std::fprintf(stderr, "gloo-bypass: DPDK: %s\n", printable(line).c_str());
  }
  return static_cast<ssize_t>(size);
}

void redirectLog() {
  cookie_io_functions_t functions{};
  functions.write = writeLogLine;
  std::FILE* stream = fopencookie(nullptr, "w", functions);
  if (stream == nullptr) return;
  std::setvbuf(stream, nullptr, _IOLBF, 1024);
  (void)rte_openlog_stream(stream);
}

// Of the system's default size, which mmap() takes.
std::size_t hugePageBytes() {
  std::ifstream file("/proc/meminfo");
  for (std::string line; std::getline(file, line);) {
    std::size_t kib = 0;
    if (std::sscanf(line.c_str(), "Hugepagesize: %zu kB", &kib) == 1 && kib > 0) return kib << 10;
  }
  return 2u << 20;
}

// Whether this user can have `bytes` of huge pages; tries to map them. munmap() takes whole pages only.
bool hugePagesAvailable(std::size_t bytes) {
  const std::size_t page = hugePageBytes();
  bytes = (bytes + page - 1) / page * page;
  void* address = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB, -1, 0);
  if (address == MAP_FAILED) return false;
  ::munmap(address, bytes);
  return true;
}

bool contains(const std::vector<std::string>& words, std::string_view word) {
  return std::ranges::find(words, word) != words.end();
}

// For a bad value DPDK prints its usage to stdout and an alarm to stderr: our own error line says it instead.
class QuietOutput {
 public:
  QuietOutput() {
    // Not all files: buffered output inherited from a parent process is the parent's to write.
    std::fflush(stdout);
    std::fflush(stderr);
    const FileDescriptor null(::open("/dev/null", O_WRONLY | O_CLOEXEC));
    for (std::size_t i = 0; i < kStreams.size(); ++i) {
      saved_[i].reset(::fcntl(kStreams[i], F_DUPFD_CLOEXEC, 3));
      if (saved_[i] && null) ::dup2(null.get(), kStreams[i]);
    }
  }
  ~QuietOutput() {
    std::fflush(stdout);
    for (std::size_t i = 0; i < kStreams.size(); ++i) {
      if (saved_[i]) ::dup2(saved_[i].get(), kStreams[i]);
    }
  }
  QuietOutput(const QuietOutput&) = delete;
  QuietOutput& operator=(const QuietOutput&) = delete;

 private:
  static constexpr std::array<int, 2> kStreams{STDOUT_FILENO, STDERR_FILENO};
  std::array<FileDescriptor, 2> saved_;
};

Status runInit(std::vector<std::string> words, bool userArguments) {
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  int result = -1;
  int cause = 0;
  // In a separate thread: the EAL pins the thread that starts it, and its threads inherit this one's signal mask.
  std::thread starter;
  {
    const SignalsBlocked blocked;
    starter = std::thread([&] {
      std::optional<QuietOutput> quiet;
      if (userArguments && !state().logAsked) quiet.emplace();
      result = rte_eal_init(static_cast<int>(words.size()), argv.data());
      cause = rte_errno;
    });
  }
  starter.join();
  if (result >= 0) return {};
  std::string line;
  for (std::size_t i = 1; i < words.size(); ++i) line += " " + words[i];
  return Status(ErrorScope::kDevice, userArguments ? ErrorCode::kConfiguration : ErrorCode::kUnavailable,
                fmt::format("DPDK's EAL does not start: {}{}; its arguments were:{}", rte_strerror(cause),
                            Eal::lastErrorSuffix(), line));
}

Status startOnce(const TransportConfig& config) GLOO_BYPASS_REQUIRES(state().mutex) {
  auto words = splitShellWords(config.ealArguments);
  if (!words) return words.error();
  const Status checked = checkEalArguments(words.value());
  if (!checked) return checked;
  const bool asked = contains(words.value(), "--in-memory");
  const bool refused = contains(words.value(), "--no-huge") || config.hugePages == HugePages::kOff;
  const bool available = !refused && hugePagesAvailable(config.memoryMiB << 20);
  if (config.hugePages == HugePages::kOn && !available && !asked) {
    return Status(ErrorScope::kDevice, ErrorCode::kUnavailable,
                  fmt::format("GLOO_BYPASS_HUGE_PAGES=on, but {} MiB of huge pages are not free: reserve some "
                              "(sysctl vm.nr_hugepages), or set GLOO_BYPASS_HUGE_PAGES=auto",
                              config.memoryMiB));
  }
  const auto cpus = Eal::usableCpus("/sys/devices/system/cpu");
  if (!cpus) return cpus.error();
  // The EAL would see words that both we and the user give as contradictions.
  std::erase(words.value(), "--no-huge");
  std::erase(words.value(), "--in-memory");
  state().logAsked = std::any_of(words.value().begin(), words.value().end(),
                                 [](const std::string& word) { return word.starts_with("--log-level"); });
  state().scannedPci = usesPci(config) && !isVirtualDeviceString(config.pciAddress);
  redirectLog();
  // Longer than any number of ranks needs on one machine; DPDK starts even without a turn.
  constexpr std::chrono::seconds kTurnLimit(20);
  const FileDescriptor turn =
      config.telemetry ? awaitTelemetryTurn(config.dpdkDirectory, kTurnLimit) : FileDescriptor();
  return runInit(buildEalArguments(config, words.value(), asked || available, cpus.value()), !words.value().empty());
}

}  // namespace

Status Eal::start(const TransportConfig& config) {
  const MutexLock lock(state().mutex);
  if (!state().outcome) {
    state().pid = ::getpid();
    state().outcome = startOnce(config);
    return *state().outcome;
  }
  if (state().pid != ::getpid()) {
    return Status(ErrorScope::kDevice, ErrorCode::kUnavailable,
                  fmt::format("this process was forked from process {}, which had already started DPDK; DPDK cannot be "
                              "used on both sides of a fork: create the first Gloo device after forking, or start "
                              "workers with 'spawn' or 'forkserver'",
                              state().pid));
  }
  if (!state().outcome->ok()) return *state().outcome;
  if (usesPci(config) && !isVirtualDeviceString(config.pciAddress) && !state().scannedPci) {
    return Status(ErrorScope::kDevice, ErrorCode::kConfiguration,
                  "DPDK was started in this process for another link mode, without PCI: use one link mode a process");
  }
  return {};
}

// The EAL counts a processor as present if sysfs has its topology, and prints its usage if the list names another.
Result<std::string> Eal::usableCpus(const std::string& folder) {
  cpu_set_t cpus;
  CPU_ZERO(&cpus);
  (void)sched_getaffinity(0, sizeof(cpus), &cpus);
  std::string list, missing;
  for (unsigned cpu = 0; cpu < CPU_SETSIZE && cpu < RTE_MAX_LCORE; ++cpu) {
    if (!CPU_ISSET(cpu, &cpus)) continue;
    const std::string file = fmt::format("{}/cpu{}/topology/core_id", folder, cpu);
    if (::access(file.c_str(), F_OK) == 0) {
      list += fmt::format("{}{}", list.empty() ? "" : ",", cpu);
    } else if (missing.empty()) {
      missing = file;
    }
  }
  if (!list.empty()) return list;
  return Error{
      ErrorScope::kDevice, ErrorCode::kUnavailable,
      missing.empty()
          ? fmt::format("DPDK knows processors 0 to {} only, and this process may run on none of them: see taskset",
                        RTE_MAX_LCORE - 1)
          : fmt::format("DPDK finds out about processors in /sys, and {} is not there: mount it (mount -t sysfs "
                        "sysfs /sys), in a chroot or container too",
                        missing)};
}

bool Eal::decided() {
  const MutexLock lock(state().mutex);
  return state().outcome.has_value();
}

std::string Eal::lastErrorSuffix() {
  const MutexLock lock(state().logMutex);
  return state().lastError.empty() ? "" : fmt::format(" ({})", state().lastError);
}

void Eal::forgetLastError() {
  const MutexLock lock(state().logMutex);
  state().lastError.clear();
}

}  // namespace gloo_bypass::dpdk
