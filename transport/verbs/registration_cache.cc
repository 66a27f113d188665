#include "transport/verbs/registration_cache.h"

#include <fmt/format.h>
#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

#include "transport/base/check.h"
#include "transport/verbs/memory_limit.h"

namespace gloo_bypass::verbs {
namespace {

// How often to check the monitor while another thread is in the middle of unmapping, with a yield in between; after
// that the cache is not used.
constexpr int kSettleTries = 100;
constexpr std::size_t kRangesATime = 64;

struct Pages {
  std::byte* begin = nullptr;
  std::byte* end = nullptr;
  std::size_t bytes() const { return static_cast<std::size_t>(end - begin); }
};

std::uintptr_t pageBytes() {
  static const auto bytes = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
  return bytes;
}
std::byte* pageOf(const std::byte* address) {
  return reinterpret_cast<std::byte*>(reinterpret_cast<std::uintptr_t>(address) & ~(pageBytes() - 1));
}
// The whole pages around it, which are pinned and watched.
Pages pagesOf(const Registration& entry) {
  return {pageOf(entry.begin), pageOf(entry.begin + entry.length - 1) + pageBytes()};
}

// The kernel returns ENOMEM for unmapped memory too. MS_ASYNC checks the mappings and does nothing else.
bool isMapped(const Pages& pages) { return ::msync(pages.begin, pages.bytes(), MS_ASYNC) == 0 || errno != ENOMEM; }

}  // namespace

RegistrationCache::RegistrationCache(const VerbsApi& api, std::vector<ibv_pd*> domains, std::size_t maxBytes,
                                     ReadRight right)
    : RegistrationCache(api, std::move(domains), maxBytes, UnmapMonitor::make(), right) {}

RegistrationCache::RegistrationCache(const VerbsApi& api, std::vector<ibv_pd*> domains, std::size_t maxBytes,
                                     Result<std::unique_ptr<UnmapMonitor>> monitor, ReadRight right)
    : api_(api), domains_(std::move(domains)), maxBytes_(maxBytes), right_(right) {
  GLOO_BYPASS_CHECK(!domains_.empty());
  if (monitor)
    monitor_ = std::move(monitor).value();
  else
    whyNotWatching_ = monitor.error().message;
}

RegistrationCache::~RegistrationCache() {
  for (std::list<Entry>* entries : {&inUse_, &unused_})
    for (Entry& entry : *entries) deregister(&entry);
}

// What the adapter may do with a registration.
int RegistrationCache::flagsOf(Access access) const {
  switch (access) {
    case kToReceive:
      return IBV_ACCESS_LOCAL_WRITE;
    case kToSend:
      return IBV_ACCESS_REMOTE_READ;
    case kToSendAndReceive:
      break;
  }
  return IBV_ACCESS_LOCAL_WRITE | (right_ == ReadRight::kWindow ? IBV_ACCESS_MW_BIND : IBV_ACCESS_REMOTE_READ);
}

// Whether the index is reliable: everything unmapped has been dropped from it. False if another thread stays in the
// middle of unmapping: its addresses may be in use again already.
bool RegistrationCache::settled() {
  if (!monitor_) return true;
  for (int i = 0; i < kSettleTries; ++i) {
    if (!monitor_->anyUnmapped()) return true;
    dropUnmapped();
    ::sched_yield();
  }
  return false;
}

RegistrationCache::Entry* RegistrationCache::find(const std::byte* first, const std::byte* last,
                                                  RegistrationUse use) const {
  if (Entry* entry = indices_[kToSendAndReceive].covering(first, last)) return entry;
  return indices_[use == RegistrationUse::kRemoteRead ? kToSend : kToReceive].covering(first, last);
}

Result<const Registration*> RegistrationCache::acquire(const std::byte* data, std::size_t length, RegistrationUse use) {
  GLOO_BYPASS_CHECK(length > 0);
  const auto address = reinterpret_cast<std::uintptr_t>(data);
  if (address > UINTPTR_MAX - length || address + length > UINTPTR_MAX - pageBytes())
    return Error{ErrorScope::kOperation, ErrorCode::kInvalidArgument,
                 fmt::format("{} bytes at {:#x} reach beyond the address space", length, address)};

  const bool reliable = settled();
  if (Entry* entry = reliable ? find(data, data + length, use) : nullptr) {
    ++counters_.hits;
    if (entry->users++ == 0) {
      unusedBytes_ -= pagesOf(*entry).bytes();
      inUse_.splice(inUse_.end(), unused_, entry->self);
    }
    return entry;
  }
  ++counters_.misses;
  const auto self = inUse_.emplace(inUse_.end());
  self->self = self;
  self->begin = const_cast<std::byte*>(data);
  self->length = length;
  // Watch before registering, so that no unmapping falls in between.
  const Pages pages = pagesOf(*self);
  bool watched = reliable && monitor_ && monitor_->watch(pages.begin, pages.bytes());
  if (Status registered = registerPages(&*self, use, &watched); !registered) {
    if (watched) unwatchAlone(pages.begin, pages.end);
    inUse_.erase(self);
    return registered.error();
  }
  self->users = 1;
  self->needsWindow = right_ == ReadRight::kWindow && self->access == kToSendAndReceive;
  if (watched && !mayKeep(self->access)) {
    unwatchAlone(pages.begin, pages.end);
    watched = false;
  }
  if (watched)
    keep(&*self);
  else
    ++counters_.uncached;
  return &*self;
}

void RegistrationCache::release(const Registration* registration) {
  auto* entry = static_cast<Entry*>(const_cast<Registration*>(registration));
  GLOO_BYPASS_CHECK(entry->users > 0);
  if (--entry->users > 0) return;
  if (!entry->indexed) {
    deregister(entry);
    inUse_.erase(entry->self);
    return;
  }
  unused_.splice(unused_.end(), inUse_, entry->self);
  unusedBytes_ += pagesOf(*entry).bytes();
  evictBeyondBounds();
}

// `watched`: whether the entry's pages are watched; set to false if they cannot be any more.
Status RegistrationCache::registerPages(Entry* entry, RegistrationUse use, bool* watched) {
  const std::size_t bytes = pagesOf(*entry).bytes();
  entry->access = use == RegistrationUse::kRemoteRead ? kToSendAndReceive : kToReceive;
  for (;;) {
    const int error = registerOnRails(entry);
    if (error == 0) break;
    if (error == ENOMEM && makeRoom(bytes)) {
      // An evicted entry may have shared pages with this one, and no index has this one yet.
      if (*watched) {
        const Pages pages = pagesOf(*entry);
        *watched = monitor_->watch(pages.begin, pages.bytes());
      }
      continue;
    }
    // A program may send memory that it cannot write.
    if (!mayBeReadOnly(error) || entry->access != kToSendAndReceive) return refusal(*entry, error);
    entry->access = kToSend;
  }
  ++counters_.registrations;
  counters_.pinnedBytes += bytes;
  counters_.peakPinnedBytes = std::max(counters_.peakPinnedBytes, counters_.pinnedBytes);
  return {};
}

// Linux answers EFAULT, some drivers the other two. Without a window all peers may read, so only for what is certain.
bool RegistrationCache::mayBeReadOnly(int error) const {
  return error == EFAULT || (right_ == ReadRight::kRegistration && (error == EACCES || error == EPERM));
}

// All rails or none. Returns 0 or the errno.
int RegistrationCache::registerOnRails(Entry* entry) {
  entry->regions.reserve(domains_.size());
  for (ibv_pd* domain : domains_) {
    errno = 0;
    ibv_mr* region = api_.registerMemory(domain, entry->begin, entry->length, flagsOf(entry->access));
    if (region == nullptr) {
      int error = errno != 0 ? errno : EIO;
      if (error == ENOMEM && !isMapped(pagesOf(*entry))) error = EFAULT;
      for (ibv_mr* done : entry->regions) api_.deregisterMemory(done);
      entry->regions.clear();
      return error;
    }
    entry->regions.push_back(region);
  }
  return 0;
}

Status RegistrationCache::refusal(const Entry& entry, int error) const {
  if (mayBeReadOnly(error))
    return {ErrorScope::kOperation, ErrorCode::kInvalidArgument,
            fmt::format("cannot register {} bytes of memory at {} for RDMA: it is not mapped, or not writable where it "
                        "is to be received into ({})",
                        entry.length, static_cast<const void*>(entry.begin), std::strerror(error))};
  return {ErrorScope::kOperation, error == ENOMEM ? ErrorCode::kExhausted : ErrorCode::kUnavailable,
          registrationFailure(error, entry.length, pinnedBytes(), "a message's buffer")};
}

void RegistrationCache::deregister(Entry* entry) {
  for (ibv_mr* region : entry->regions) {
    const int error = api_.deregisterMemory(region);
    if (error != 0) {
      std::fprintf(stderr, "gloo-bypass: RDMA: %zu bytes at %p stay registered: %s\n", entry->length,
                   static_cast<const void*>(entry->begin), std::strerror(error));
    }
  }
  entry->regions.clear();
  counters_.pinnedBytes -= pagesOf(*entry).bytes();
}

// From here on acquire finds it, in place of the entries that it covers and allows.
void RegistrationCache::keep(Entry* entry) {
  for (const Access access : {kToReceive, kToSend, kToSendAndReceive}) {
    if ((flagsOf(access) & ~flagsOf(entry->access)) != 0) continue;
    while (Entry* inner = indices_[access].within(entry->begin, entry->end())) forget(inner);
  }
  entry->indexed = true;
  indexOf(*entry).add(entry);
  evictBeyondBounds();
}

// acquire never finds it again; deregistered now or, if it is in use, at its release.
void RegistrationCache::forget(Entry* entry) {
  indexOf(*entry).remove(entry);
  entry->indexed = false;
  if (entry->users > 0) return;
  deregister(entry);
  unusedBytes_ -= pagesOf(*entry).bytes();
  unused_.erase(entry->self);
}

void RegistrationCache::dropUnmapped() {
  if (!monitor_) return;
  std::array<UnmapMonitor::Range, kRangesATime> ranges;
  std::size_t taken = 0;
  do {
    bool overflowed = false;
    taken = monitor_->takeUnmapped(ranges.data(), ranges.size(), &overflowed);
    for (std::size_t i = 0; i < taken; ++i) invalidate(ranges[i].begin, ranges[i].begin + ranges[i].length);
    if (overflowed) invalidate(nullptr, reinterpret_cast<const std::byte*>(UINTPTR_MAX));
  } while (taken == ranges.size());
}

// The rest of the entry's pages stay watched: another entry may use them by now, and an extra event does no harm.
void RegistrationCache::invalidate(const std::byte* first, const std::byte* last) {
  for (const AddressIndex& index : indices_) {
    while (Entry* entry = index.touching(first, last)) {
      forget(entry);
      ++counters_.invalidations;
    }
  }
}

void RegistrationCache::evict(Entry* entry) {
  const Pages pages = pagesOf(*entry);
  forget(entry);
  unwatchAlone(pages.begin, pages.end);
  ++counters_.evictions;
}

bool RegistrationCache::makeRoom(std::size_t bytes) {
  if (unused_.empty()) return false;
  for (std::size_t freed = 0; freed < bytes && !unused_.empty();) {
    freed += pagesOf(unused_.front()).bytes();
    evict(&unused_.front());
  }
  return true;
}

void RegistrationCache::evictBeyondBounds() {
  while (!unused_.empty() && (unusedBytes_ > maxBytes_ || kept() > kMaxEntries)) evict(&unused_.front());
}

// Ends the watch over those pages of [first, last) that hold no byte of an entry.
void RegistrationCache::unwatchAlone(std::byte* first, std::byte* last) {
  while (first < last) {
    std::byte *covered = first, *next = last;
    for (const AddressIndex& index : indices_) {
      if (const Entry* entry = index.touching(first, first + pageBytes()))
        covered = std::max(covered, pagesOf(*entry).end);
      next = std::min(next, pageOf(index.nextBegin(first, last)));
    }
    if (covered == first) monitor_->unwatch(first, static_cast<std::size_t>(next - first));
    first = covered == first ? next : covered;
  }
}

}  // namespace gloo_bypass::verbs
