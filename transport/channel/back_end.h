// A back-end as data. Each back-end's folder makes one descriptor (its back_end.h), and transport/process/back_ends.cc
// lists them all in one table. Registration, availability, the device library, the tools and the tests iterate over
// that table. docs/adding-a-backend.md walks through a new one.
//
// Thread: any. Descriptors are constant once made and never destroyed.
#pragma once

#include <functional>
#include <memory>
#include <new>
#include <string>
#include <system_error>
#include <vector>

#include "transport/base/config.h"
#include "transport/base/exhausted.h"
#include "transport/base/status.h"
#include "transport/channel/setting.h"
#include "transport/channel/transport_report.h"

namespace gloo_bypass {

class Transport;

// How a back-end uses the interface or host name that Gloo gives.
enum class InterfaceRule : std::uint8_t {
  kIgnored,   // unused
  kNamed,     // uses a named interface; without one the back-end chooses by itself. Ignores host names
  kSeveral,   // as kNamed, and accepts a comma-separated list, to use all of them
  kOptional,  // uses a named interface; without one it prefers the host name's
  kRequired,  // a missing interface, or one without an IPv4 address, is an error
};

// Changes a configuration for a trial that must leave nothing behind; the destructor undoes what it did elsewhere.
class Rehearsal {
 public:
  virtual ~Rehearsal() = default;
  // `text` with the names that a real start would have used.
  virtual std::string withRealNames(std::string text) const = 0;
};

// The report of the process's live transport of this back-end; nullopt if there is none. Any thread, until the process
// ends.
using ReportSource = std::function<std::optional<TransportReport>()>;

struct BackEnd {
  std::string name;  // the value of GLOO_DEVICE_TRANSPORT: "DPDK"

  // If this build lacks the back-end: why, and which package brings it. Empty if it is there; then `make` is set.
  std::string missing;  // "libdpdk was missing or disabled when it was built"
  std::string package;  // "libdpdk-dev"

  // Rows of the table of settings, in its order; also of a back-end that is not in this build. A row that several
  // back-ends have is made in one place.
  std::vector<Setting> (*settings)() = nullptr;
  // What must hold between them; the error names both. Null: nothing.
  Status (*checkSettings)(const TransportConfig&) = nullptr;

  // For makeTransport() below. Errors are one line: what is wrong and what to do. std::system_error: no thread could
  // start.
  std::function<Result<std::shared_ptr<Transport>>(const TransportConfig&)> make;

  InterfaceRule (*interfaceRule)(const TransportConfig&) = nullptr;

  // One line for each setting that is set but has no effect here; null: all have one.
  std::vector<std::string> (*ignoredSettings)(const TransportConfig&) = nullptr;

  // The back-end's own way to publish its report, called once its transport lives; null: none.
  Status (*publish)(const TransportConfig&, ReportSource) = nullptr;

  // True once the part that starts only once a process (such as DPDK's EAL) has started, or is known to fail: then a
  // trial in a forked child proves nothing. Null: never.
  bool (*decided)() = nullptr;
  // Null: a trial leaves nothing behind anyway.
  std::unique_ptr<Rehearsal> (*rehearse)(TransportConfig&) = nullptr;

  bool inThisBuild() const { return missing.empty(); }
};

// A transport of the back-end. The error is one line: `make`'s, or that the system has no thread or no memory for it.
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

}  // namespace gloo_bypass
