// The EAL's command line: what we ask for, and what the user appends.
#pragma once

#include <string>
#include <vector>

#include "transport/base/config.h"
#include "transport/base/status.h"

namespace gloo_bypass::dpdk {

// Splits as a POSIX shell would into words: blanks, '...', "..." and backslash. Nothing is expanded and nothing is run.
Result<std::vector<std::string>> splitShellWords(const std::string& text);

// Refuses what would end or confuse the process: unknown options, missing values, --help, --version, worker cores.
// One clear line instead of DPDK's page of usage.
Status checkEalArguments(const std::vector<std::string>& words);

// True when a device address names a virtual device ("net_virtio_user0,path=...") instead of a PCI one.
bool isVirtualDeviceString(const std::string& address);

// argv of the EAL. `useHugePages` and `cpus` ("0,1,5-7": where the EAL's threads may run) were found out by the caller.
std::vector<std::string> buildEalArguments(const TransportConfig& config, const std::vector<std::string>& userWords,
                                           bool useHugePages, const std::string& cpus);

}  // namespace gloo_bypass::dpdk
