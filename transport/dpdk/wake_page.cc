#include "transport/dpdk/wake_page.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>
#include <utility>

#include "transport/base/doorbell.h"
#include "transport/base/exhausted.h"
#include "transport/base/futex.h"
#include "transport/base/sealed_memory.h"

namespace gloo_bypass::dpdk {
namespace {

constexpr std::size_t kPageBytes = 4096;

}  // namespace

Result<WakePage> WakePage::create() {
  auto fd = makeSealedMemory("gloo-bypass-wake", kPageBytes);
  if (!fd) return fd.error();
  auto page = map(fd.value());
  if (page) page.value().fd_ = std::move(fd).value();
  return page;
}

Result<WakePage> WakePage::map(const FileDescriptor& fd) {
  struct stat status{};
  // Check the seals first: only files in memory have them, and fstat could block on another file system.
  const int seals = fd ? ::fcntl(fd.get(), F_GET_SEALS) : -1;
  if (seals < 0 || (seals & F_SEAL_SHRINK) == 0 || ::fstat(fd.get(), &status) != 0 ||
      status.st_size != static_cast<off_t>(kPageBytes)) {
    return Error{ErrorScope::kSession, ErrorCode::kPeerViolatedProtocol,
                 "peer's wake-up page is not a sealed memory page"};
  }
  void* address = ::mmap(nullptr, kPageBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
  if (address == MAP_FAILED) {
    const auto [code, text] = failedCall("mmap");
    return Error{ErrorScope::kDevice, code, "cannot map a wake-up page (" + text + ")"};
  }
  WakePage page;
  page.shared_.reset(static_cast<Shared*>(address));  // zero-filled by the kernel: valid initial values
  return page;
}

void WakePage::Unmap::operator()(Shared* page) const { ::munmap(page, kPageBytes); }

void WakePage::arm(Sleep where) {
  shared_->sleeping.store(static_cast<std::uint32_t>(where), std::memory_order_seq_cst);
  std::atomic_thread_fence(std::memory_order_seq_cst);
}

void WakePage::disarm() { shared_->sleeping.store(0, std::memory_order_seq_cst); }

void WakePage::block(Duration timeout) {
  if (timeout <= Duration::zero()) return;
  // Bounded, so that a peer that overwrites the page can cause a delay at most.
  timeout = std::min<Duration>(timeout, std::chrono::hours(1));
  sleepWhile(shared_->sleeping, 1, timeout);
}

void WakePage::wakeIfSleeping() {
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (sleeps()) wakeSlowly();
}

void WakePage::wakeIfWaitingForSpace() {
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (shared_->waitsForSpace.load(std::memory_order_relaxed) != 0 && sleeps()) wakeSlowly();
}

void WakePage::wakeSlowly() {
  switch (static_cast<Sleep>(shared_->sleeping.exchange(0, std::memory_order_seq_cst))) {
    case Sleep::kNot:
      return;
    case Sleep::kHere:
      wakeAll(shared_->sleeping);
      return;
    case Sleep::kElsewhere:
      if (doorbell_) Doorbell::ring(doorbell_.get());
      return;
  }
}

}  // namespace gloo_bypass::dpdk
