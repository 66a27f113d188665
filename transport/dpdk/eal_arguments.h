// The EAL's command line: our arguments, then the user's.
#pragma once

#include <string>
#include <vector>

#include "transport/base/config.h"
#include "transport/base/status.h"

namespace gloo_bypass::dpdk {

// Splits into words as a POSIX shell would: blanks, '...', "..." and backslash. Expands nothing and runs nothing.
Result<std::vector<std::string>> splitShellWords(const std::string& text);

// Refuses what would end or confuse the process: unknown options, missing values, --help, --version, worker cores. The
// error is one clear line instead of DPDK's page of usage.
Status checkEalArguments(const std::vector<std::string>& words);

// True when a device address names a virtual device ("net_virtio_user0,path=...") instead of a PCI one.
bool isVirtualDeviceString(const std::string& address);

// argv of the EAL. The caller determines `useHugePages` and `cpus` ("0,1,5-7": where the EAL's threads may run).
std::vector<std::string> buildEalArguments(const TransportConfig& config, const std::vector<std::string>& userWords,
                                           bool useHugePages, const std::string& cpus);

}  // namespace gloo_bypass::dpdk
