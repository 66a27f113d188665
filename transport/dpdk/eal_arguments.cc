#include "transport/dpdk/eal_arguments.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>

namespace gloo_bypass::dpdk {
namespace {

enum class Value { kNone, kRequired, kOptional };
struct Option {
  std::string_view name;
  Value value;
};

// Options of DPDK 22.11 and 24.11. Options that would take cores, stop the process or start a second kind of process
// are absent on purpose.
constexpr std::array kLongOptions{
    Option{"allow", Value::kRequired},
    Option{"base-virtaddr", Value::kRequired},
    Option{"block", Value::kRequired},
    Option{"create-uio-dev", Value::kNone},
    Option{"file-prefix", Value::kRequired},
    Option{"force-max-simd-bitwidth", Value::kRequired},
    Option{"huge-dir", Value::kRequired},
    Option{"huge-unlink", Value::kOptional},
    Option{"in-memory", Value::kNone},
    Option{"iova-mode", Value::kRequired},
    Option{"legacy-mem", Value::kNone},
    Option{"log-level", Value::kRequired},
    Option{"match-allocations", Value::kNone},
    Option{"mbuf-pool-ops-name", Value::kRequired},
    Option{"no-hpet", Value::kNone},
    Option{"no-huge", Value::kNone},
    Option{"no-pci", Value::kNone},
    Option{"no-shconf", Value::kNone},
    Option{"no-telemetry", Value::kNone},
    Option{"single-file-segments", Value::kNone},
    Option{"socket-limit", Value::kRequired},
    Option{"socket-mem", Value::kRequired},
    Option{"syslog", Value::kRequired},
    Option{"telemetry", Value::kNone},
    Option{"trace", Value::kRequired},
    Option{"trace-bufsz", Value::kRequired},
    Option{"trace-dir", Value::kRequired},
    Option{"trace-mode", Value::kRequired},
    Option{"vdev", Value::kRequired},
    Option{"vfio-intr", Value::kRequired},
    Option{"vfio-vf-token", Value::kRequired},
    Option{"vmware-tsc-map", Value::kNone},
};
constexpr std::array<std::string_view, 8> kRefusedOptions{
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
  if (std::find(kRefusedOptions.begin(), kRefusedOptions.end(), name) != kRefusedOptions.end()) {
    return bad(fmt::format("--{} is not allowed here: the transport runs in the application's own threads", name));
  }
  const auto option =
      std::find_if(kLongOptions.begin(), kLongOptions.end(), [&](const Option& o) { return o.name == name; });
  if (option == kLongOptions.end()) return bad(fmt::format("unknown option --{}", name));
  if (equals != std::string_view::npos) {
    if (option->value == Value::kNone) return bad(fmt::format("--{} takes no value", name));
  } else if (option->value == Value::kRequired) {
    if (++i == words.size()) return bad(fmt::format("--{} needs a value", name));
  }
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
  std::vector<std::string> words{"gloo-bypass",
                                 config.telemetry ? "--telemetry" : "--no-telemetry",
                                 "--lcores=0@(" + cpus + ")",
                                 "-m",
                                 std::to_string(config.memoryMiB),
                                 "--file-prefix=gloo-bypass"};  // also where telemetry is found
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
