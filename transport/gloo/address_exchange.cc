#include "transport/gloo/address_exchange.h"

#include <pthread.h>

#include <algorithm>
#include <exception>
#include <iterator>
#include <string_view>
#include <system_error>
#include <utility>

#include <gloo/common/error.h>
#include <gloo/common/string.h>

#include "transport/base/printable.h"
#include "transport/gloo/address.h"
#include "transport/gloo/group.h"

namespace gloo_bypass::adapter {
namespace {

using std::chrono::milliseconds;

// The thread waits for the store in slices: a pair that is first used meanwhile waits until one ends. Stores answer as
// soon as the key is set, so a longer slice does not delay the pair that waits, and asks the store less often.
constexpr milliseconds kFirstSlice{20}, kLongestSlice{100};
// A counter must be polled: often while the peer is probably about to use the pair too.
constexpr milliseconds kFirstPause{1}, kLaterPause{10};
constexpr milliseconds kAtOnce{50}, kSoon{1000};  // ages of the youngest pair that waits

constexpr const char* kTold = "/told";

std::string keyOf(int from, int to) { return ::gloo::MakeString("lazy/", from, "/", to); }

// A store's text may have line breaks, and whatever a server has sent.
std::string reasonOf(const std::exception& error) {
  const std::string_view text = error.what();
  return printable(text.substr(0, text.find('\n')));
}

}  // namespace

AddressExchange::AddressExchange(Group& group, std::shared_ptr<gloo_version::ContextStore> store)
    : group_(group), store_(std::move(store)), counts_(gloo_version::canCount(*store_)) {}

AddressExchange::~AddressExchange() {
  {
    const MutexLock lock(mutex_);
    stopping_ = true;
  }
  changed_.notifyOne();
  if (thread_.joinable()) thread_.join();
}

Failure AddressExchange::begin(Connection& connection) {
  Introduction introduction;
  introduction.connection = &connection;
  introduction.ownKey = keyOf(group_.rank(), connection.peerRank);
  introduction.peerKey = keyOf(connection.peerRank, group_.rank());
  introduction.ownAddress = encodeAddress(connection.localAddress());
  introduction.begun = monotonicNow();
  const MutexLock lock(mutex_);
  new_.push_back(std::move(introduction));
  if (running_) {
    changed_.notifyOne();
    return nullptr;
  }
  if (thread_.joinable()) thread_.join();  // it has left its loop
  try {
    thread_ = std::thread([this] { run(); });
  } catch (const std::system_error& e) {
    new_.pop_back();  // the only one: nothing is left where no thread runs
    return makeFailure(GLOO_ERROR_MSG("Rank ", group_.rank(), " cannot connect to ", connection.describePeer(),
                                      ": no thread can be started to ask for its address: ", e.what(),
                                      "; raise the limit of threads or memory"));
  }
  pthread_setname_np(thread_.native_handle(), "gloo-bypass-ask");
  running_ = true;
  return nullptr;
}

void AddressExchange::run() {
  std::vector<Introduction> open;
  while (takeNew(open)) {
    for (Introduction& introduction : open) {
      if (!introduction.told) tell(introduction);
    }
    const milliseconds each = slice(open);
    const TimePoint begun = monotonicNow();
    std::erase_if(open, [&](Introduction& introduction) { return look(introduction, each); });
    // A store that refuses at once is not asked in a tight loop.
    if (!open.empty() && monotonicNow() - begun < each) pause(begun + each);
  }
}

bool AddressExchange::takeNew(std::vector<Introduction>& open) {
  const MutexLock lock(mutex_);
  std::move(new_.begin(), new_.end(), std::back_inserter(open));
  new_.clear();
  running_ = !stopping_ && !open.empty();
  return running_;
}

void AddressExchange::tell(Introduction& introduction) {
  try {
    store_->set(introduction.ownKey, introduction.ownAddress);
    if (counts_) gloo_version::count(*store_, introduction.ownKey + kTold, 1);
    introduction.told = true;
  } catch (const std::exception& e) {
    introduction.error = reasonOf(e);
  }
}

milliseconds AddressExchange::slice(const std::vector<Introduction>& open) const {
  TimePoint youngest = open.front().begun;
  for (const Introduction& introduction : open) youngest = std::max(youngest, introduction.begun);
  const Duration age = monotonicNow() - youngest;
  if (counts_) return age < kAtOnce ? kFirstPause : age < kSoon ? kLaterPause : kLongestSlice;
  return std::max(milliseconds(1), (age < kSoon ? kFirstSlice : kLongestSlice) / static_cast<int>(open.size()));
}

bool AddressExchange::isTold(const std::string& key, milliseconds slice) {
  if (counts_) return gloo_version::count(*store_, key + kTold, 0) > 0;
  store_->wait({key}, slice);
  return true;
}

bool AddressExchange::look(Introduction& introduction, milliseconds slice) {
  std::vector<char> bytes;
  try {
    if (!isTold(introduction.peerKey, slice)) return giveUp(introduction);
    bytes = store_->get(introduction.peerKey);
  } catch (const std::exception& e) {
    // Also what a store throws when the key was not set in time.
    introduction.error = reasonOf(e);
    return giveUp(introduction);
  }
  group_.exclusive([&] { introduction.connection->connectTo(bytes); });
  return true;
}

bool AddressExchange::giveUp(Introduction& introduction) {
  bool over = false;
  group_.exclusive([&] {
    Connection& connection = *introduction.connection;
    over = connection.failure() != nullptr;
    if (over || monotonicNow() < connection.firstUseDeadline()) return;
    connection.failFirstUse(introduction.error);
    over = true;
  });
  return over;
}

void AddressExchange::pause(TimePoint end) {
  const auto until = std::chrono::steady_clock::now() + (end - monotonicNow());
  const MutexLock lock(mutex_);
  while (!stopping_ && new_.empty() && changed_.waitUntil(mutex_, until)) {
  }
}

}  // namespace gloo_bypass::adapter
