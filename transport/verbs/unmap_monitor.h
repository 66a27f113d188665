// Tells when memory that was registered is unmapped, moved or thrown away (munmap, mremap, brk, madvise), by the
// kernel's userfaultfd events: the call that unmaps does not return before the event has been taken.
//
// Source: Linux userfaultfd(2), ioctl_userfaultfd(2): UFFD_FEATURE_EVENT_UNMAP, _REMOVE, _REMAP; ranges are registered
// in write-protect mode and never protected, so that no fault is ever held up. Another thread can be given the unmapped
// addresses before munmap has returned, and before its event is there; the kernel answers EAGAIN to UFFDIO_WRITEPROTECT
// as long as that is so, which anyUnmapped() asks.
//
// What it does not see: pages taken away through the file behind shared memory (ftruncate, punched holes) while it
// stays mapped. What it costs: munmap of watched memory waits for a thread's wake-up (about 10 us). Two system calls
// for anyUnmapped (0.3 us).
//
// Thread: any. A thread of its own takes the events; it never allocates or waits for anybody while it holds the lock,
// since the thread that unmaps may be inside malloc or free. One such thread a process, whatever the number of
// monitors: the kernel lets a page be watched once. After fork: a child's monitor watches nothing and says that
// everything may have been unmapped; it makes its own.
#pragma once

#include <cstddef>
#include <memory>

#include "transport/base/status.h"

namespace gloo_bypass::verbs {

class UnmapMonitor {
 public:
  // Errors: kUnavailable, with the reason (not built into the kernel, or forbidden by seccomp as containers often do).
  static Result<std::unique_ptr<UnmapMonitor>> make();
  virtual ~UnmapMonitor() = default;

  // From now on unmapping any of these whole pages is noted. False: this memory cannot be watched (a file's, a
  // device's, part of a huge page, another userfaultfd's). Watching twice is harmless.
  virtual bool watch(std::byte* begin, std::size_t length) = 0;
  // These whole pages, still mapped, are of no interest any more. Their events may go on.
  virtual void unwatch(std::byte* begin, std::size_t length) = 0;

  struct Range {
    std::byte* begin = nullptr;
    std::size_t length = 0;
  };
  // Takes up to `capacity` ranges that were unmapped and have not been taken. Once munmap has returned, in whichever
  // thread, its range is seen here. `*overflowed`: more happened than could be noted, so everything may have been
  // unmapped.
  virtual std::size_t takeUnmapped(Range* ranges, std::size_t capacity, bool* overflowed) = 0;
  // False: of the watched memory that is mapped now, nothing was unmapped since it was watched but what has been taken.
  // True as well while another thread is in the middle of unmapping; that passes when it has run again.
  virtual bool anyUnmapped() const = 0;
};

}  // namespace gloo_bypass::verbs
