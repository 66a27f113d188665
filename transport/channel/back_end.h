// A back-end as data: what everybody who asks "which transports are there?" needs to know of one. Each back-end's
// folder makes one (its back_end.h); transport/process/back_ends.cc has the one table of them, and registration,
// availability, the device library, the tools and the tests iterate over that table. docs/adding-a-backend.md walks
// through a new one.
//
// Thread: any; descriptors are constant once made and never destroyed.
#pragma once

#include <functional>
#include <memory>
#include <new>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "transport/base/config.h"
#include "transport/base/exhausted.h"
#include "transport/base/status.h"
#include "transport/channel/transport_report.h"

namespace gloo_bypass {

class Transport;

// What a back-end makes of the interface or host name that Gloo gives.
enum class InterfaceRule : std::uint8_t {
  kIgnored,   // it has no use for one
  kNamed,     // a named interface; where there is none it finds its way by itself, and host names do not matter
  kSeveral,   // as kNamed; of a list of names, commas between, all are used
  kOptional,  // a named interface; the host name's apart, as one to prefer where none is named
  kRequired,  // none, or one without an IPv4 address, is an error
};

// Changes a configuration for an attempt that must leave nothing behind, and undoes on destruction what it did outside
// it.
class Rehearsal {
 public:
  virtual ~Rehearsal() = default;
  // `text` with the names that a real attempt would have used.
  virtual std::string withRealNames(std::string text) const = 0;
};

// The report of the process's live transport of this back-end; nothing if there is none. Any thread, until the process
// ends.
using ReportSource = std::function<std::optional<TransportReport>()>;

struct BackEnd {
  std::string name;  // as GLOO_DEVICE_TRANSPORT has it: "DPDK"

  // Not in this build: why, and which package brings it. Empty: it is, and `make` is set.
  std::string missing;  // "libdpdk was missing or disabled when it was built"
  std::string package;  // "libdpdk-dev"

  // For makeTransport() below. Errors are one line that says what is wrong and what to do; std::system_error: no
  // thread.
  std::function<Result<std::shared_ptr<Transport>>(const TransportConfig&)> make;

  InterfaceRule (*interfaceRule)(const TransportConfig&) = nullptr;

  // One line for each setting that is set and does nothing here; null: all do.
  std::vector<std::string> (*ignoredSettings)(const TransportConfig&) = nullptr;

  // The back-end's own way of showing its report, once its transport lives; null: none.
  Status (*publish)(const TransportConfig&, ReportSource) = nullptr;

  // What it is made of starts once a process, and has (or is known to fail): an attempt in a forked child says nothing.
  // Null: never.
  bool (*decided)() = nullptr;
  // Null: an attempt leaves nothing behind anyway.
  std::unique_ptr<Rehearsal> (*rehearse)(TransportConfig&) = nullptr;

  bool inThisBuild() const { return missing.empty(); }
};

// A transport of the back-end, or one line: `make`'s, or that the system gives no thread or no memory for it.
inline Result<std::shared_ptr<Transport>> makeTransport(const BackEnd& backEnd, const TransportConfig& config) {
  try {
    return backEnd.make(config);
  } catch (const std::system_error& error) {
    return Error{ErrorScope::kDevice, ErrorCode::kExhausted, noThread(error)};
  } catch (const std::bad_alloc&) {
    return Error{ErrorScope::kDevice, ErrorCode::kExhausted,
                 "this process gets no more memory: raise its limit (ulimit -v; a container's memory.max)"};
  }
}

// For a build without what the back-end needs.
inline BackEnd missingBackEnd(std::string name, std::string missing, std::string package) {
  BackEnd backEnd;
  backEnd.name = std::move(name);
  backEnd.missing = std::move(missing);
  backEnd.package = std::move(package);
  return backEnd;
}

}  // namespace gloo_bypass
