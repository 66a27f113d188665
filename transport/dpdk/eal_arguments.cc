#include "transport/dpdk/eal_arguments.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <string_view>

namespace gloo_bypass::dpdk {
namespace {

// DPDK 22.11's and 24.11's options: those that need a value, may have one, and have none. Those that would take cores,
// stop the process or start a second kind of process are absent on purpose.
constexpr std::string_view kWithValue[] = {
    "allow",      "base-virtaddr", "block",     "file-prefix",        "force-max-simd-bitwidth",
    "huge-dir",   "iova-mode",     "log-level", "mbuf-pool-ops-name", "socket-limit",
    "socket-mem", "syslog",        "trace",     "trace-bufsz",        "trace-dir",
    "trace-mode", "vdev",          "vfio-intr", "vfio-vf-token"};
constexpr std::string_view kWithOrWithoutValue[] = {"huge-unlink"};
constexpr std::string_view kWithoutValue[] = {
    "create-uio-dev", "in-memory", "legacy-mem",   "match-allocations",    "no-hpet",   "no-huge",
    "no-pci",         "no-shconf", "no-telemetry", "single-file-segments", "telemetry", "vmware-tsc-map"};
constexpr std::string_view kRefusedOptions[] = {
    "help",      "version",           "lcores",           "main-lcore",
    "proc-type", "huge-worker-stack", "service-corelist", "service-coremask"};
constexpr std::string_view kShortWithValue = "abdmnr";
constexpr std::string_view kRefusedShort = "hvclsS";

Error bad(std::string message) {
  return Error{ErrorScope::kDevice, ErrorCode::kConfiguration, "EAL arguments: " + std::move(message)};
}

// Appends the word that starts at text[i]; leaves i behind it.
Status takeWord(const std::string& text, std::size_t& i, std::string& word) {
  char quote = 0;
  for (; i < text.size(); ++i) {
    const char c = text[i];
    if (quote == 0 && (c == ' ' || c == '\t' || c == '\n')) break;
    if (quote == 0 && (c == '\'' || c == '"')) {
      quote = c;
    } else if (c == quote && quote != 0) {
      quote = 0;
    } else if (c == '\\' && quote != '\'') {
      if (++i == text.size()) return bad(fmt::format("'{}' ends in a backslash", text));
      word += text[i];
    } else {
      word += c;
    }
  }
  if (quote != 0) return bad(fmt::format("'{}' has an unclosed {} quote", text, quote));
  return {};
}

Status checkLong(const std::vector<std::string>& words, std::size_t& i) {
  const std::string_view word = std::string_view(words[i]).substr(2);
  const std::size_t equals = word.find('=');
  const std::string_view name = word.substr(0, equals);
  const auto isOf = [&](const auto& names) { return std::ranges::find(names, name) != std::end(names); };
  if (isOf(kRefusedOptions)) {
    return bad(fmt::format("--{} is not allowed here: the transport runs in the application's own threads", name));
  }
  const bool hasValue = equals != std::string_view::npos, needsValue = isOf(kWithValue),
             needsNone = isOf(kWithoutValue);
  if (!needsValue && !needsNone && !isOf(kWithOrWithoutValue)) return bad(fmt::format("unknown option --{}", name));
  if (needsNone && hasValue) return bad(fmt::format("--{} takes no value", name));
  if (needsValue && !hasValue && ++i == words.size()) return bad(fmt::format("--{} needs a value", name));
  return {};
}

}  // namespace

Result<std::vector<std::string>> splitShellWords(const std::string& text) {
  std::vector<std::string> words;
  for (std::size_t i = 0; i < text.size();) {
    if (text[i] == ' ' || text[i] == '\t' || text[i] == '\n') {
      ++i;
      continue;
    }
    std::string word;
    const Status taken = takeWord(text, i, word);
    if (!taken) return taken.error();
    words.push_back(std::move(word));
  }
  return words;
}

Status checkEalArguments(const std::vector<std::string>& words) {
  for (std::size_t i = 0; i < words.size(); ++i) {
    const std::string& word = words[i];
    if (word.rfind("--", 0) == 0 && word.size() > 2) {
      const Status status = checkLong(words, i);
      if (!status) return status;
      continue;
    }
    if (word.size() < 2 || word[0] != '-') return bad(fmt::format("'{}' is not an option", word));
    if (kRefusedShort.find(word[1]) != std::string_view::npos) {
      return bad(fmt::format("-{} is not allowed here: the transport runs in the application's own threads", word[1]));
    }
    if (kShortWithValue.find(word[1]) == std::string_view::npos) return bad(fmt::format("unknown option {}", word));
    if (word.size() == 2 && ++i == words.size()) return bad(fmt::format("{} needs a value", word));
  }
  return {};
}

bool isVirtualDeviceString(const std::string& address) { return address.starts_with("net_"); }

std::vector<std::string> buildEalArguments(const TransportConfig& config, const std::vector<std::string>& userWords,
                                           bool useHugePages, const std::string& cpus) {
  std::vector<std::string> words{"gloo-bypass", config.telemetry ? "--telemetry" : "--no-telemetry",
                                 "--lcores=0@(" + cpus + ")",
                                 "--file-prefix=gloo-bypass"};  // also where telemetry is found
  // DPDK refuses both together.
  if (std::ranges::none_of(userWords, [](const std::string& word) { return word.starts_with("--socket-mem"); })) {
    words.insert(words.end(), {"-m", std::to_string(config.memoryMiB)});
  }
  if (useHugePages) {
    words.push_back("--in-memory");  // no files in hugetlbfs, nothing to clean up
  } else {
    words.insert(words.end(), {"--no-huge", "--no-shconf"});
  }
  if (usesPci(config) && !isVirtualDeviceString(config.pciAddress)) {
    words.insert(words.end(), {"-a", config.pciAddress});
  } else {
    words.push_back("--no-pci");
  }
  words.insert(words.end(), userWords.begin(), userWords.end());
  return words;
}

}  // namespace gloo_bypass::dpdk
