// The directory in which memory links meet: private to one user, and swept of files that dead processes left.
//
//   <port id in hex>.sock   where peers connect; exists while the port lives
#pragma once

#include <cstddef>
#include <string>

#include "transport/base/config.h"
#include "transport/base/file_descriptor.h"
#include "transport/base/status.h"
#include "transport/dpdk/port_address.h"

namespace gloo_bypass::dpdk {

// A socket's path has at most 107 bytes; the names in the directory need the rest.
inline constexpr std::size_t kMaxMemifDirectoryBytes = 62;

// Creates it (0700) if it is missing, checks that it is ours alone and that paths in it fit a socket address, then
// removes sockets of processes that have ended. Errors: kConfiguration if the user named it, else kUnavailable.
Result<std::string> prepareMemifDirectory(const TransportConfig& config);
// Why a directory cannot be used, as an error of the function above.
Error unusableMemifDirectory(const TransportConfig& config, const std::string& directory, const std::string& why);

// While this lives, systemd-tmpfiles leaves the directory's sockets alone, however old they are (tmpfiles.d(5), "Age"):
// it takes renamed ones for nobody's. Empty where it cannot be done.
FileDescriptor keepFromAging(const std::string& directory);

// Its device and inode; zero if it is gone.
PortId directoryId(const std::string& directory);

// The same for all containers and pods on one kernel, different after each boot; zero if /proc does not say.
PortId machineId();
// The end of a port's id, by which a folder that machines share is swept.
void endWithMachine(PortId& id);

}  // namespace gloo_bypass::dpdk
