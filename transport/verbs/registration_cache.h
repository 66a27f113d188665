// Registers memory for the adapters, and keeps registrations for the next use of the same buffer.
//
//   acquire --hit--> in use --release--> cached --evicted (bound reached), or its memory was unmapped--> deregistered
//      `----miss: ibv_reg_mr of exactly these bytes, on every rail
//
// A registration pins physical pages. If the program unmaps memory and maps other memory at the same address, an old
// registration would still reach the old pages: silent corruption. UnmapMonitor reports it before munmap returns. If it
// cannot watch (no userfaultfd, or another kind of memory), nothing is cached and every acquire registers anew.
// Counters show which is the case.
//
// Access rights: no registration lets a peer write, since peers only read, and this side's own reads and receives write
// what arrives. Peers cannot read memory that is only received into. A buffer to send from is often received into as
// well: writable memory is registered for both. ReadRight::kRegistration: every peer may read its bytes until it is
// deregistered, not only while the message lasts. ReadRight::kWindow: nobody may, but for the peer that has a window to
// a part of it (memory_windows.h). Memory that Linux cannot pin writable (EFAULT, from ib_umem_get) has no windows, by
// the rules of verbs: it is registered for its message alone, and peers may read it meanwhile. After any other error
// nothing is registered.
//
// Owner: the transport. Thread: every method needs the progress engine's exclusive access.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "transport/base/check.h"
#include "transport/base/status.h"
#include "transport/verbs/unmap_monitor.h"
#include "transport/verbs/verbs_api.h"

namespace gloo_bypass::verbs {

struct Registration {
  std::byte* begin = nullptr;
  std::size_t length = 0;
  std::vector<ibv_mr*> regions;  // one for each protection domain, in their order
  bool needsWindow = false;      // peers do not read by the regions' keys
};

// What lets peers read a registration's bytes.
enum class ReadRight : std::uint8_t { kRegistration, kWindow };

// The use of a registration. A program may send from memory that it cannot write.
enum class RegistrationUse : std::uint8_t { kRemoteRead, kLocalWrite };

struct RegistrationCounters {
  std::uint64_t registrations = 0;     // successful calls of ibv_reg_mr on one rail
  std::uint64_t hits = 0, misses = 0;  // of acquire()
  std::uint64_t uncached = 0;       // misses that were not kept: not watchable, just being unmapped, or for one message
  std::uint64_t invalidations = 0;  // entries dropped because their memory was unmapped
  std::uint64_t evictions = 0;      // entries dropped for a bound: the cache's, or the kernel's on pinned memory
  std::uint64_t pinnedBytes = 0;    // on one rail, now
  std::uint64_t peakPinnedBytes = 0;
};

class RegistrationCache {
 public:
  // Most entries kept: each may split one of the program's mappings in three, and the kernel bounds mappings.
  static constexpr std::size_t kMaxEntries = 4096;

  // `api` and `domains` must outlive the cache. `maxBytes` bounds unused registrations; the program's own buffers bound
  // those in use.
  RegistrationCache(const VerbsApi& api, std::vector<ibv_pd*> domains, std::size_t maxBytes,
                    ReadRight right = ReadRight::kRegistration);
  // With a test's monitor, or the reason why there is none.
  RegistrationCache(const VerbsApi& api, std::vector<ibv_pd*> domains, std::size_t maxBytes,
                    Result<std::unique_ptr<UnmapMonitor>> monitor, ReadRight right = ReadRight::kRegistration);
  ~RegistrationCache();
  RegistrationCache(const RegistrationCache&) = delete;
  RegistrationCache& operator=(const RegistrationCache&) = delete;

  // A registration that covers [data, data + length), length > 0. Valid until release(); call that once for each
  // acquire. Errors: kExhausted if the memory cannot be locked, with RLIMIT_MEMLOCK, its value and the need, after
  // freeing everything unused; kInvalidArgument for memory that is not mapped, or not writable for kLocalWrite.
  Result<const Registration*> acquire(const std::byte* data, std::size_t length, RegistrationUse use);
  void release(const Registration* registration);

  // Deregisters memory that was unmapped since the last call. acquire() does so itself; call it now and then, so that
  // the pages of unmapped memory do not stay pinned while nothing is sent.
  void dropUnmapped();

  // Deregisters what is unused, the longest unused first, until it is as much as `bytes`. False: there was none.
  bool makeRoom(std::size_t bytes);
  // What others register beside the cache, for the texts of errors.
  void addPinnedBeside(std::size_t bytes) { pinnedBeside_ += bytes; }
  std::size_t pinnedBytes() const { return counters_.pinnedBytes + pinnedBeside_; }

  const RegistrationCounters& counters() const { return counters_; }
  // False: this process cannot watch memory, for the reason below.
  bool watching() const { return monitor_ != nullptr; }
  const std::string& whyNotWatching() const { return whyNotWatching_; }

 private:
  // What the adapter may do with a registration; there is an index for each.
  enum Access : std::size_t { kToReceive, kToSend, kToSendAndReceive };
  bool mayBeReadOnly(int error) const;
  bool mayKeep(Access access) const { return access != kToSend || right_ == ReadRight::kRegistration; }
  int flagsOf(Access access) const;

  struct Entry : Registration {
    std::list<Entry>::iterator self;
    Access access = kToReceive;
    bool indexed = false;  // acquire may find it
    unsigned users = 0;

    std::byte* end() const { return begin + length; }
    bool covers(const std::byte* first, const std::byte* last) const { return begin <= first && last <= end(); }
  };

  // Entries by address, none within another: ends ascend as begins do. So the last that begins at or before an address
  // is the one that reaches farthest from there.
  class AddressIndex {
   public:
    Entry* covering(const std::byte* first, const std::byte* last) const {
      const auto after = byBegin_.upper_bound(first);
      if (after == byBegin_.begin()) return nullptr;
      Entry* entry = std::prev(after)->second;
      return entry->covers(first, last) ? entry : nullptr;
    }
    // Any of those that touch [first, last), or null.
    Entry* touching(const std::byte* first, const std::byte* last) const {
      const auto after = byBegin_.lower_bound(last);
      if (after == byBegin_.begin()) return nullptr;
      Entry* entry = std::prev(after)->second;
      return entry->end() > first ? entry : nullptr;
    }
    // One that lies within [first, last), or null.
    Entry* within(const std::byte* first, const std::byte* last) const {
      const auto at = byBegin_.lower_bound(first);
      return at != byBegin_.end() && at->second->end() <= last ? at->second : nullptr;
    }
    // Where the first entry after `address` begins, or `limit` if that comes before.
    std::byte* nextBegin(std::byte* address, std::byte* limit) const {
      const auto after = byBegin_.upper_bound(address);
      return after == byBegin_.end() ? limit : std::min(limit, after->second->begin);
    }
    void add(Entry* entry) { GLOO_BYPASS_CHECK(byBegin_.emplace(entry->begin, entry).second); }
    void remove(Entry* entry) { GLOO_BYPASS_CHECK(byBegin_.erase(entry->begin) == 1); }
    std::size_t size() const { return byBegin_.size(); }

   private:
    std::map<const std::byte*, Entry*> byBegin_;
  };

  bool settled();
  Entry* find(const std::byte* first, const std::byte* last, RegistrationUse use) const;
  Status registerPages(Entry* entry, RegistrationUse use, bool* watched);
  int registerOnRails(Entry* entry);
  Status refusal(const Entry& entry, int error) const;
  void deregister(Entry* entry);
  void keep(Entry* entry);
  void forget(Entry* entry);
  void invalidate(const std::byte* first, const std::byte* last);
  void evict(Entry* entry);
  void evictBeyondBounds();
  void unwatchAlone(std::byte* first, std::byte* last);
  AddressIndex& indexOf(const Entry& entry) { return indices_[entry.access]; }
  std::size_t kept() const {
    std::size_t entries = 0;
    for (const AddressIndex& index : indices_) entries += index.size();
    return entries;
  }

  const VerbsApi& api_;
  const std::vector<ibv_pd*> domains_;
  const std::size_t maxBytes_;
  const ReadRight right_;
  std::unique_ptr<UnmapMonitor> monitor_;
  std::string whyNotWatching_;

  std::list<Entry> inUse_;
  std::list<Entry> unused_;  // indexed, all of them; the one longest unused comes first
  std::size_t unusedBytes_ = 0, pinnedBeside_ = 0;
  std::array<AddressIndex, 3> indices_;  // by Access
  RegistrationCounters counters_;
};

}  // namespace gloo_bypass::verbs
