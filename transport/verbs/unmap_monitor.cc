#include "transport/verbs/unmap_monitor.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/userfaultfd.h>
#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <utility>

#include "transport/base/file_descriptor.h"
#include "transport/base/mutex.h"

#ifndef UFFD_USER_MODE_ONLY
#define UFFD_USER_MODE_ONLY 1  // Linux 5.11; older headers lack it
#endif

namespace gloo_bypass::verbs {
namespace {

// Ranges that are remembered for a monitor that does not ask; after more, it must assume that everything is unmapped.
constexpr std::size_t kNotes = 1024;
constexpr std::size_t kEventsARead = 16;
constexpr std::uint64_t kFeatures =
    UFFD_FEATURE_PAGEFAULT_FLAG_WP | UFFD_FEATURE_EVENT_UNMAP | UFFD_FEATURE_EVENT_REMOVE | UFFD_FEATURE_EVENT_REMAP;

Error unavailable(std::string message) {
  return Error{ErrorScope::kDevice, ErrorCode::kUnavailable, std::move(message)};
}

Result<FileDescriptor> openUserfaultfd() {
  // Handling faults of the kernel's own accesses would need a privilege; we handle none.
  constexpr int kFlags = O_CLOEXEC | O_NONBLOCK | UFFD_USER_MODE_ONLY;
  FileDescriptor descriptor(static_cast<int>(::syscall(SYS_userfaultfd, kFlags)));
  const int reason = errno;
  if (!descriptor) {
    // Works despite a container's seccomp filter, if the container has the device.
    const FileDescriptor device(::open("/dev/userfaultfd", O_RDWR | O_CLOEXEC));
    if (device) descriptor.reset(::ioctl(device.get(), _IO(0xAA, 0x00), kFlags));  // USERFAULTFD_IOC_NEW, Linux 6.1
  }
  if (!descriptor)
    return unavailable(
        fmt::format("userfaultfd: {}; it needs Linux 5.11 and, in a container, --device /dev/userfaultfd or a seccomp "
                    "profile that allows it",
                    std::strerror(reason)));
  uffdio_api api{};
  api.api = UFFD_API;
  api.features = kFeatures;
  if (::ioctl(descriptor.get(), UFFDIO_API, &api) != 0)
    return unavailable(fmt::format("userfaultfd: this kernel does not report unmapping ({})", std::strerror(errno)));
  // A child that lived on with it would keep munmap() of registered memory waiting for a reader once this process ends.
  return std::move(descriptor).leftByForkedChildren();
}

// The process's one userfaultfd and the thread that reads it.
class UnmapWatcher {
 public:
  static Result<std::shared_ptr<UnmapWatcher>> ofThisProcess();
  ~UnmapWatcher();

  // The number of earlier events; a monitor starts there.
  std::uint64_t addMonitor();
  void removeMonitor();
  bool watch(std::byte* begin, std::size_t length);
  void unwatch(std::byte* begin, std::size_t length);
  bool changedSince(std::uint64_t cursor);
  std::size_t take(std::uint64_t* cursor, UnmapMonitor::Range* ranges, std::size_t capacity, bool* overflowed);

 private:
  explicit UnmapWatcher(FileDescriptor events) : events_(std::move(events)), stop_(::eventfd(0, EFD_CLOEXEC)) {}
  Status start();
  void run();
  bool readEvents();
  void note(const uffd_msg& message) GLOO_BYPASS_REQUIRES(mutex_);
  bool ofAnotherProcess() const { return ::getpid() != process_; }

  const pid_t process_ = ::getpid();
  FileDescriptor events_;  // the thread closes it as it ends, which releases threads that wait in munmap
  const FileDescriptor stop_;
  pthread_t thread_{};
  bool started_ = false;

  // Orders watch and unwatch; never held together with the next.
  Mutex watchMutex_;
  int monitors_ GLOO_BYPASS_GUARDED_BY(watchMutex_) = 0;

  // Nobody allocates, frees or makes a system call that waits while holding it, but for reading events, which does not
  // wait.
  Mutex mutex_;
  // The newest; number n is at n % kNotes.
  std::array<UnmapMonitor::Range, kNotes> notes_ GLOO_BYPASS_GUARDED_BY(mutex_);
  std::uint64_t noted_ GLOO_BYPASS_GUARDED_BY(mutex_) = 0;  // in total
  bool blind_ GLOO_BYPASS_GUARDED_BY(mutex_) = false;       // events can no longer be read
};

Result<std::shared_ptr<UnmapWatcher>> UnmapWatcher::ofThisProcess() {
  static Mutex mutex;
  static std::weak_ptr<UnmapWatcher> current;
  const MutexLock lock(mutex);
  if (auto watcher = current.lock(); watcher && !watcher->ofAnotherProcess()) return watcher;
  auto descriptor = openUserfaultfd();
  if (!descriptor) return descriptor.error();
  const std::shared_ptr<UnmapWatcher> watcher(new UnmapWatcher(std::move(descriptor).value()));
  if (Status started = watcher->start(); !started) return started;
  current = watcher;
  return watcher;
}

Status UnmapWatcher::start() {
  if (!stop_) return unavailable(fmt::format("eventfd: {}", std::strerror(errno)));
  // The program's signal handlers must run in its own threads; one that unmaps would wait for this thread.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  const int error = pthread_create(
      &thread_, nullptr,
      [](void* self) -> void* {
        static_cast<UnmapWatcher*>(self)->run();
        return nullptr;
      },
      this);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (error != 0) return unavailable(fmt::format("no thread to take userfaultfd events: {}", std::strerror(error)));
  pthread_setname_np(thread_, "gloo-unmap");
  started_ = true;
  return {};
}

UnmapWatcher::~UnmapWatcher() {
  if (!started_ || ofAnotherProcess()) return;  // fork does not copy the thread
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(stop_.get(), &one, sizeof one);
  pthread_join(thread_, nullptr);
}

void UnmapWatcher::run() {
  for (;;) {
    pollfd wanted[2] = {{events_.get(), POLLIN, 0}, {stop_.get(), POLLIN, 0}};
    if (::poll(wanted, 2, -1) < 0 && errno != EINTR) break;
    if (wanted[1].revents != 0) {
      std::uint64_t stop = 0;  // for ThreadSanitizer, which does not know that poll() orders
      [[maybe_unused]] const ssize_t got = ::read(stop_.get(), &stop, sizeof stop);
      // Before the thread ends: an allocator may unmap what it kept for the thread, and no one would take that event.
      events_.reset();
      return;
    }
    if (wanted[0].revents != 0 && !readEvents()) break;
  }
  // Happens only if the program closed a descriptor that is not its own; the number may belong to another file by now.
  const MutexLock lock(mutex_);
  blind_ = true;
}

bool UnmapWatcher::readEvents() {
  // Lock before reading the event: the kernel lets munmap return from within read(), and from then on the range must be
  // visible.
  const MutexLock lock(mutex_);
  uffd_msg messages[kEventsARead];
  const ssize_t got = ::read(events_.get(), messages, sizeof messages);
  if (got <= 0) return got < 0 && (errno == EAGAIN || errno == EINTR);
  for (std::size_t i = 0; i < static_cast<std::size_t>(got) / sizeof(uffd_msg); ++i) note(messages[i]);
  return true;
}

void UnmapWatcher::note(const uffd_msg& message) {
  std::uint64_t begin = 0, end = 0;
  if (message.event == UFFD_EVENT_UNMAP || message.event == UFFD_EVENT_REMOVE) {
    begin = message.arg.remove.start;
    end = message.arg.remove.end;
  } else if (message.event == UFFD_EVENT_REMAP) {
    begin = message.arg.remap.from;
    end = begin + message.arg.remap.len;
  } else {
    return;
  }
  notes_[noted_++ % kNotes] = {reinterpret_cast<std::byte*>(begin), end - begin};
}

std::uint64_t UnmapWatcher::addMonitor() {
  {
    const MutexLock lock(watchMutex_);
    ++monitors_;
  }
  const MutexLock lock(mutex_);
  return noted_;
}

void UnmapWatcher::removeMonitor() {
  if (ofAnotherProcess()) return;
  const MutexLock lock(watchMutex_);
  --monitors_;
}

bool UnmapWatcher::watch(std::byte* begin, std::size_t length) {
  if (ofAnotherProcess()) return false;
  const MutexLock lock(watchMutex_);
  uffdio_register request{};
  request.range = {reinterpret_cast<std::uintptr_t>(begin), length};
  request.mode = UFFDIO_REGISTER_MODE_WP;
  return ::ioctl(events_.get(), UFFDIO_REGISTER, &request) == 0;
}

void UnmapWatcher::unwatch(std::byte* begin, std::size_t length) {
  if (ofAnotherProcess()) return;
  const MutexLock lock(watchMutex_);
  if (monitors_ != 1) return;  // another may be interested in the same page
  uffdio_range range{reinterpret_cast<std::uintptr_t>(begin), length};
  ::ioctl(events_.get(), UFFDIO_UNREGISTER, &range);
}

bool UnmapWatcher::changedSince(std::uint64_t cursor) {
  if (ofAnotherProcess()) return true;
  // An empty range, so EINVAL; but EAGAIN while a mapping is changing and its event has not been taken.
  uffdio_writeprotect nothing{};
  if (::ioctl(events_.get(), UFFDIO_WRITEPROTECT, &nothing) == 0 || errno != EINVAL) return true;
  const MutexLock lock(mutex_);
  return blind_ || noted_ != cursor;
}

std::size_t UnmapWatcher::take(std::uint64_t* cursor, UnmapMonitor::Range* ranges, std::size_t capacity,
                               bool* overflowed) {
  *overflowed = true;
  if (ofAnotherProcess()) return 0;
  const MutexLock lock(mutex_);
  if (blind_ || noted_ - *cursor > kNotes) {
    *cursor = noted_;
    return 0;
  }
  *overflowed = false;
  std::size_t taken = 0;
  while (taken < capacity && *cursor != noted_) ranges[taken++] = notes_[(*cursor)++ % kNotes];
  return taken;
}

class UserfaultMonitor : public UnmapMonitor {
 public:
  explicit UserfaultMonitor(std::shared_ptr<UnmapWatcher> watcher)
      : watcher_(std::move(watcher)), cursor_(watcher_->addMonitor()) {}
  ~UserfaultMonitor() override { watcher_->removeMonitor(); }
  UserfaultMonitor(const UserfaultMonitor&) = delete;
  UserfaultMonitor& operator=(const UserfaultMonitor&) = delete;

  bool watch(std::byte* begin, std::size_t length) override { return watcher_->watch(begin, length); }
  void unwatch(std::byte* begin, std::size_t length) override { watcher_->unwatch(begin, length); }
  std::size_t takeUnmapped(Range* ranges, std::size_t capacity, bool* overflowed) override {
    return watcher_->take(&cursor_, ranges, capacity, overflowed);
  }
  bool anyUnmapped() const override { return watcher_->changedSince(cursor_); }

 private:
  const std::shared_ptr<UnmapWatcher> watcher_;
  std::uint64_t cursor_;
};

}  // namespace

Result<std::unique_ptr<UnmapMonitor>> UnmapMonitor::make() {
  auto watcher = UnmapWatcher::ofThisProcess();
  if (!watcher) return watcher.error();
  return std::unique_ptr<UnmapMonitor>(std::make_unique<UserfaultMonitor>(std::move(watcher).value()));
}

}  // namespace gloo_bypass::verbs
