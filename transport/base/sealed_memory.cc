#include "transport/base/sealed_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <string>

#include "transport/base/exhausted.h"

namespace gloo_bypass {
namespace {

Error refused(std::size_t bytes, const char* call) {
  const auto [code, text] = failedCall(call);
  return {ErrorScope::kSession, code,
          "cannot make " + std::to_string(bytes) + " bytes of memory to share (" + text + ")"};
}

}  // namespace

Result<FileDescriptor> makeSealedMemory(const char* name, std::size_t bytes) {
  // Above this limit the kernel would send SIGXFSZ, which ends most programs.
  rlimit limit{};
  if (::getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur < bytes) {
    return Error{ErrorScope::kSession, ErrorCode::kUnavailable,
                 "memory to share is a file of " + std::to_string(bytes) + " bytes, and files may have " +
                     std::to_string(limit.rlim_cur) + " (ulimit -f)"};
  }
  FileDescriptor file(::memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!file) return refused(bytes, "memfd_create");
  if (::ftruncate(file.get(), static_cast<off_t>(bytes)) != 0) return refused(bytes, "ftruncate");
  if (::fcntl(file.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
    return refused(bytes, "F_ADD_SEALS");
  }
  return file;
}

}  // namespace gloo_bypass
