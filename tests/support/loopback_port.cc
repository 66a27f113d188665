#include "tests/support/loopback_port.h"

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <mutex>
#include <random>

namespace gloo_bypass::test {
namespace {

constexpr LinkId kSelf = 1;
constexpr std::size_t kFrameHeaderBytes = 42;  // Ethernet, IPv4, UDP: to compare counters with other ports

class LoopbackPort final : public PacketPort {
 public:
  LoopbackPort(std::size_t maxDatagramBytes, std::size_t queueDatagrams, const LoopbackImpairment& impairment)
      : maxDatagramBytes_(maxDatagramBytes),
        queueDatagrams_(queueDatagrams),
        impairment_(impairment),
        impaired_(impairment.loss > 0 || impairment.duplication > 0 || impairment.reordering > 0 ||
                  impairment.corruption > 0),
        random_(impairment.seed) {}

  std::vector<std::byte> localAddress() const override {
    std::vector<std::byte> bytes;
    for (char c : std::string_view("loopback")) bytes.push_back(static_cast<std::byte>(c));
    const auto self = reinterpret_cast<std::uintptr_t>(this);
    for (std::size_t i = 0; i < sizeof(self); ++i) bytes.push_back(static_cast<std::byte>(self >> (8 * i)));
    return bytes;
  }

  std::string describe() const override { return "loopback in memory"; }

  Result<LinkId> openLink(std::span<const std::byte> remoteAddress) override {
    const auto own = localAddress();
    if (!std::equal(own.begin(), own.end(), remoteAddress.begin(), remoteAddress.end())) {
      return Error{ErrorScope::kSession, ErrorCode::kConfiguration,
                   "this rank's port is a loopback in memory, the peer's is not the same one"};
    }
    return kSelf;
  }

  void closeLink(LinkId) override {}

  LinkProperties linkProperties(LinkId) const override {
    return LinkProperties{.maxDatagramBytes = maxDatagramBytes_, .lossless = !impaired_, .local = true};
  }

  std::size_t receive(PacketSink& sink, std::size_t maxDatagrams) override {
    std::size_t received = 0;
    if (impaired_ && !queue_.empty()) sink.onArrivals();
    while (received < maxDatagrams && !queue_.empty()) {
      copyLent(queue_.front());
      std::vector<std::byte> datagram = std::move(queue_.front().bytes);
      queue_.pop_front();
      ++received;
      ++counters_.packetsReceived;
      counters_.bytesReceived += datagram.size() + kFrameHeaderBytes;
      sink.onDatagram(kSelf, datagram);
      recycle(std::move(datagram));
    }
    return received;
  }

  std::size_t transmit(LinkId, std::span<const OutgoingDatagram> datagrams) override {
    std::size_t sent = 0;
    for (const OutgoingDatagram& datagram : datagrams) {
      if (queue_.size() >= queueDatagrams_) {
        ++counters_.transmitFull;
        break;
      }
      ++sent;
      ++counters_.packetsSent;
      counters_.bytesSent += datagram.header.size() + datagram.payload.size() + kFrameHeaderBytes;
      if (impaired_ && happens(impairment_.loss)) continue;
      const int copies = impaired_ && happens(impairment_.duplication) ? 2 : 1;
      for (int i = 0; i < copies; ++i) enqueue(datagram);
    }
    if (sent > 0) wake();
    return sent;
  }

  // Only now: a session must not release the payload earlier.
  void wakePeers() override {
    for (Waiting& waiting : queue_) copyLent(waiting);
  }

  void armWakeup() override {
    std::lock_guard<std::mutex> lock(wakeMutex_);
    armed_ = true;
    woken_ = false;
  }

  void block(Duration timeout) override {
    std::unique_lock<std::mutex> lock(wakeMutex_);
    wakeCondition_.wait_for(lock, timeout, [this] { return woken_ || !armed_; });
  }

  void disarmWakeup() override {
    std::lock_guard<std::mutex> lock(wakeMutex_);
    armed_ = false;
  }

  void wake() override {
    std::lock_guard<std::mutex> lock(wakeMutex_);
    if (!armed_) return;
    woken_ = true;
    wakeCondition_.notify_all();
  }

  PortCounters counters() const override { return counters_; }

 private:
  struct Waiting {
    std::vector<std::byte> bytes;
    std::span<const std::byte> lent;  // the rest, until `whole`
    bool whole = false;
  };

  bool happens(double probability) { return std::uniform_real_distribution<double>(0, 1)(random_) < probability; }

  void enqueue(const OutgoingDatagram& datagram) {
    std::vector<std::byte> copy;
    if (!spare_.empty()) {
      copy = std::move(spare_.back());
      spare_.pop_back();
    }
    copy.assign(datagram.header.begin(), datagram.header.end());
    Waiting waiting{std::move(copy), datagram.payload};
    if (!datagram.lent) copyLent(waiting);
    auto place = queue_.end();
    if (impaired_ && happens(impairment_.reordering)) {
      place = queue_.begin() + static_cast<std::ptrdiff_t>(random_() % (queue_.size() + 1));
    }
    queue_.insert(place, std::move(waiting));
  }

  void copyLent(Waiting& waiting) {
    if (waiting.whole) return;
    std::vector<std::byte>& bytes = waiting.bytes;
    bytes.insert(bytes.end(), waiting.lent.begin(), waiting.lent.end());
    waiting.whole = true;
    if (impaired_ && happens(impairment_.corruption) && !bytes.empty()) {
      bytes[random_() % bytes.size()] ^= static_cast<std::byte>(1u << (random_() % 8));
    }
  }

  void recycle(std::vector<std::byte> datagram) {
    if (spare_.size() < queueDatagrams_) spare_.push_back(std::move(datagram));
  }

  const std::size_t maxDatagramBytes_;
  const std::size_t queueDatagrams_;
  const LoopbackImpairment impairment_;
  const bool impaired_;
  std::mt19937_64 random_;
  std::deque<Waiting> queue_;
  std::vector<std::vector<std::byte>> spare_;
  PortCounters counters_;
  std::mutex wakeMutex_;  // guards the three below; block() reads them without exclusive access
  std::condition_variable wakeCondition_;
  bool armed_ = false;
  bool woken_ = false;
};

}  // namespace

std::unique_ptr<PacketPort> makeLoopbackPort(std::size_t maxDatagramBytes, std::size_t queueDatagrams,
                                             const LoopbackImpairment& impairment) {
  return std::make_unique<LoopbackPort>(maxDatagramBytes, queueDatagrams, impairment);
}

}  // namespace gloo_bypass::test
