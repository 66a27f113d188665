// Connections on demand: tells peers this rank's channel addresses through the context's store, and waits for theirs.
//
//   first use --begin--> told (lazy/<this rank>/<peer> is set) --> lazy/<peer>/<this rank> appears --> connect
//                          |
//                          `--> nothing, and an operation has waited for the pair's timeout: the pair fails
//
// Where the store counts, the key's counter lazy/.../told is looked at, since it answers at once; else the key is
// waited for, in slices.
//
// Both ranks do the same, whoever is first, so it does not matter who is. The key appears once the peer has used its
// side: what is posted before waits in the channel.
//
// Thread: one of its own while a pair waits for its peer; none otherwise. Only this thread queries the store, without
// exclusive access, so a slow store delays only the pair that needs it.
// Errors: a store that does not answer counts as a peer that has not come; the error names what the store said last.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "transport/base/mutex.h"
#include "transport/base/time.h"
#include "transport/compatibility/gloo/transport.h"
#include "transport/gloo/operation.h"

namespace gloo_bypass::adapter {

class Connection;
class Group;

class AddressExchange {
 public:
  // `group` must outlive it.
  AddressExchange(Group& group, std::shared_ptr<gloo_version::ContextStore> store);
  // Without exclusive access. Waits for the question that the store is being asked: kLongestSlice at most if it waits
  // for a key there, else as long as the store takes to answer.
  ~AddressExchange();
  AddressExchange(const AddressExchange&) = delete;
  AddressExchange& operator=(const AddressExchange&) = delete;

  // `connection` is open and is to be connected. Needs exclusive access. Failure: no thread can be started, and nothing
  // has begun.
  Failure begin(Connection& connection);

 private:
  struct Introduction {
    Connection* connection;
    std::string ownKey, peerKey;
    std::vector<char> ownAddress;
    TimePoint begun;
    bool told = false;
    std::string error;  // the store's last one
  };

  void run();
  // False: the destructor was called, or nothing is left to do.
  bool takeNew(std::vector<Introduction>& open);
  void tell(Introduction& introduction);
  // How long to wait for one address; where the store counts, the pause between two looks.
  std::chrono::milliseconds slice(const std::vector<Introduction>& open) const;
  // Throws what the store throws. False: not yet.
  bool isTold(const std::string& key, std::chrono::milliseconds slice);
  // True: over, with success or without.
  bool look(Introduction& introduction, std::chrono::milliseconds slice);
  bool giveUp(Introduction& introduction);
  // Sleeps until `end`, or until there is something new.
  void pause(TimePoint end);

  Group& group_;
  const std::shared_ptr<gloo_version::ContextStore> store_;
  const bool counts_;
  Mutex mutex_;  // taken with or without exclusive access, which nobody acquires while holding it
  Condition changed_;
  std::vector<Introduction> new_ GLOO_BYPASS_GUARDED_BY(mutex_);
  bool running_ GLOO_BYPASS_GUARDED_BY(mutex_) = false;
  bool stopping_ GLOO_BYPASS_GUARDED_BY(mutex_) = false;
  std::thread thread_;  // touched with exclusive access, then by the destructor
};

}  // namespace gloo_bypass::adapter
