// Reports when watched memory is unmapped, moved or discarded (munmap, mremap, brk, madvise). It uses the kernel's
// userfaultfd events: the call that unmaps does not return before the event has been taken.
//
// Source: Linux userfaultfd(2), ioctl_userfaultfd(2): UFFD_FEATURE_EVENT_UNMAP, _REMOVE, _REMAP. Ranges are registered
// in write-protect mode and never protected, so that no fault ever waits. Another thread can get the unmapped addresses
// before munmap has returned, and before its event arrives. Meanwhile the kernel answers EAGAIN to UFFDIO_WRITEPROTECT;
// anyUnmapped() checks that.
//
// It does not see pages that disappear through the file behind shared memory (ftruncate, punched holes) while it stays
// mapped. Cost: munmap of watched memory waits for a thread's wake-up (about 10 us); anyUnmapped takes two system calls
// (0.3 us).
//
// Thread: any. Its own thread takes the events; that thread never allocates or blocks while it holds the lock, since
// the thread that unmaps may be inside malloc or free. There is one such thread a process, whatever the number of
// monitors: the kernel lets a page be watched once. After fork: a child's monitor watches nothing and reports that
// everything may have been unmapped; the child makes its own.
#pragma once

#include <cstddef>
#include <memory>

#include "transport/base/status.h"

namespace gloo_bypass::verbs {

class UnmapMonitor {
 public:
  // Errors: kUnavailable, with the reason (not in this kernel, or forbidden by seccomp, as often in containers).
  static Result<std::unique_ptr<UnmapMonitor>> make();
  virtual ~UnmapMonitor() = default;

  // Starts to report unmapping of any of these whole pages. False: this memory cannot be watched (a file's, a device's,
  // part of a huge page, another userfaultfd's). Watching twice is harmless.
  virtual bool watch(std::byte* begin, std::size_t length) = 0;
  // Stops watching these whole pages, still mapped. Their events may go on.
  virtual void unwatch(std::byte* begin, std::size_t length) = 0;

  struct Range {
    std::byte* begin = nullptr;
    std::size_t length = 0;
  };
  // Takes up to `capacity` unmapped ranges that have not been taken. Once munmap has returned, in whichever thread,
  // this call sees its range. `*overflowed`: too many to remember, so everything may have been unmapped.
  virtual std::size_t takeUnmapped(Range* ranges, std::size_t capacity, bool* overflowed) = 0;
  // False: of the watched memory that is mapped now, no other part was unmapped than what has been taken. True as well
  // while another thread is in the middle of unmapping; that passes once it has run again.
  virtual bool anyUnmapped() const = 0;
};

}  // namespace gloo_bypass::verbs
