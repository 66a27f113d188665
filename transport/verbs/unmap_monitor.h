// Tells when memory that was registered is unmapped, moved or thrown away (munmap, mremap, brk, madvise), by the kernel's
// userfaultfd events: the call that unmaps does not return before the event has been taken.
//
// Source: Linux userfaultfd(2), ioctl_userfaultfd(2): UFFD_FEATURE_EVENT_UNMAP, _REMOVE, _REMAP; ranges are registered in
// write-protect mode and never protected, so that no fault is ever held up.
//
// Thread: any. A thread of its own takes the events; it never allocates or waits for anybody while it holds the lock, since the
// thread that unmaps may be inside malloc or free.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "transport/base/status.h"

namespace gloo_bypass {

class UnmapMonitor {
 public:
  // Errors: kUnavailable, with the reason (not built into the kernel, forbidden by seccomp or by vm.unprivileged_userfaultfd).
  static Result<std::unique_ptr<UnmapMonitor>> make();
  virtual ~UnmapMonitor() = default;

  // From now on unmapping any of these whole pages is noted. False: this memory cannot be watched (a file's, a device's, another
  // userfaultfd's). Watching twice is harmless.
  virtual bool watch(std::byte* begin, std::size_t length) = 0;

  struct Range {
    std::byte* begin = nullptr;
    std::size_t length = 0;
  };
  // Takes up to `capacity` ranges that were unmapped and have not been taken. Once munmap has returned, in whichever thread, its
  // range is seen here. `*overflowed`: more happened than could be noted, so everything may have been unmapped.
  virtual std::size_t takeUnmapped(Range* ranges, std::size_t capacity, bool* overflowed) = 0;
  // Cheap; false positives possible, false negatives not.
  virtual bool anyUnmapped() const = 0;
};

}  // namespace gloo_bypass
