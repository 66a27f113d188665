#include "tests/conformance/backend.h"

#include <atomic>
#include <mutex>
#include <thread>
#include <utility>

#include <gloo/common/error.h>
#include <gloo/rendezvous/hash_store.h>
#include <gloo/transport/pair.h>
#include <gloo/transport/tcp/device.h>

#include "tests/conformance/on_demand_backends.h"
#include "tests/support/loopback_port.h"
#include "tests/support/media/media.h"
#include "tests/support/memory_transport.h"
#include "transport/compatibility/gloo/own_transports.h"
#include "transport/compatibility/gloo/rendezvous.h"
#include "transport/datagram/datagram_transport.h"
#include "transport/gloo/device.h"

namespace gloo_bypass::test {
namespace {

// Turns a transport into a device: makeDevice, or a wrapper that observes.
using Wrap = std::function<std::shared_ptr<::gloo::transport::Device>(std::shared_ptr<Transport>)>;

std::shared_ptr<::gloo::transport::Device> connectingAtOnce(std::shared_ptr<Transport> transport) {
  return makeDevice(std::move(transport));
}

Backend glooTcp() {
  return {"GlooTcp", [] { return ::gloo::transport::tcp::CreateDevice(::gloo::transport::tcp::attr("127.0.0.1")); },
          /*reference=*/true};
}

// One process a rank.
Backend memory(const std::string& name, const MemoryTransportOptions& options, const Wrap& wrap = connectingAtOnce) {
  auto fabric = MemoryFabric::make();
  return {name, [=] { return wrap(fabric->makeTransport(options)); }};
}

// All ranks in one process share one transport, and so its progress engine. It lives as long as one of its devices.
Backend shared(const std::string& name, const std::function<std::shared_ptr<Transport>()>& makeTransport,
               const Wrap& wrap = connectingAtOnce) {
  auto current = std::make_shared<std::weak_ptr<Transport>>();
  auto mutex = std::make_shared<std::mutex>();
  return {name, [=] {
            std::lock_guard<std::mutex> lock(*mutex);
            std::shared_ptr<Transport> transport = current->lock();
            if (transport == nullptr) *current = transport = makeTransport();
            return wrap(transport);
          }};
}

// Sessions over an in-memory port, which may lose datagrams.
Backend loopback(const std::string& name, const LoopbackImpairment& impairment, const SessionConfig& session,
                 const Wrap& wrap = connectingAtOnce, Security security = Security::kOff) {
  constexpr std::size_t kDatagramBytes = 8192, kQueueDatagrams = 256;
  TransportConfig config;
  config.session = session;
  config.security = security;
  const auto makeTransport = [=] {
    return makeDatagramTransport(config, makeLoopbackPort(kDatagramBytes, kQueueDatagrams, impairment)).value();
  };
  return shared(name, makeTransport, wrap);
}

Backend over(const Medium& medium, const Wrap& wrap = connectingAtOnce) {
  Backend backend{medium.name, [make = medium.makeTransport, wrap] { return wrap(make()); }};
  backend.largeSendWaits = medium.largeSendWaits;
  return backend;
}

// A transport that counts the channels it opens.
class Counting final : public Transport {
 public:
  Counting(std::shared_ptr<Transport> inner, std::shared_ptr<std::atomic<int>> channels)
      : inner_(std::move(inner)), channels_(std::move(channels)) {}

  ProgressEngine& progress() override { return inner_->progress(); }
  std::string describe() const override { return inner_->describe(); }
  Result<std::unique_ptr<MessageChannel>> openChannel(const ChannelOptions& options,
                                                      ChannelObserver* observer) override {
    channels_->fetch_add(1);
    return inner_->openChannel(options, observer);
  }
  void closeAll() override { inner_->closeAll(); }
  TransportReport report() const override { return inner_->report(); }

 private:
  const std::shared_ptr<Transport> inner_;
  const std::shared_ptr<std::atomic<int>> channels_;
};

}  // namespace

std::vector<OnDemandBackend> onDemandBackends() {
  std::vector<OnDemandBackend> all;
  const ::gloo::transport::tcp::attr loopbackInterface("127.0.0.1");
  if (gloo_version::makeLazyTcpDevice(loopbackInterface) != nullptr) {
    const auto make = [=] { return gloo_version::makeLazyTcpDevice(loopbackInterface); };
    all.push_back({{"GlooTcp", make, /*reference=*/true}, nullptr});
  }
  const auto add = [&](const std::function<Backend(const Wrap&)>& make) {
    auto channels = std::make_shared<std::atomic<int>>(0);
    const Wrap onDemand = [channels](std::shared_ptr<Transport> transport) {
      return makeDevice(std::make_shared<Counting>(std::move(transport), channels), ConnectMode::kOnDemand);
    };
    all.push_back({make(onDemand), channels});
  };
  MemoryTransportOptions slow;
  slow.delay = std::chrono::microseconds(200);
  add([](const Wrap& wrap) { return memory("Memory", {}, wrap); });
  add([&](const Wrap& wrap) { return memory("MemoryDelayed", slow, wrap); });
  add([](const Wrap& wrap) { return loopback("Loopback", {}, {}, wrap); });
  for (const Medium& medium : backEndMedia()) {
    if (!medium.variant) add([&](const Wrap& wrap) { return over(medium, wrap); });
  }
  return all;
}

std::vector<Backend> backends() {
  MemoryTransportOptions slow;
  slow.delay = std::chrono::microseconds(200);
  slow.rendezvousBytes = 256;
  auto fabric = MemoryFabric::make();
  LoopbackImpairment lossy;
  lossy.loss = lossy.duplication = lossy.reordering = lossy.corruption = 0.01;
  // A short path however busy the machine: the long path is a separate backend.
  SessionConfig shortPath;
  shortPath.longPathRtt = std::chrono::seconds(60);
  SessionConfig checked = shortPath;
  checked.payloadChecksum = PayloadChecksum::kOn;
  SessionConfig longPath;
  longPath.longPathRtt = longPath.bbrRtt = Duration(0);
  Backend buffered = loopback("LoopbackLongPath", {}, longPath);
  buffered.largeSendWaits = false;
  std::vector<Backend> all = {glooTcp(),
                              memory("Memory", {}),
                              memory("MemoryDelayed", slow),
                              shared("MemoryShared", [fabric] { return fabric->makeTransport(); }),
                              loopback("Loopback", {}, shortPath),
                              loopback("LoopbackLossy", lossy, checked),
                              buffered,
                              loopback("LoopbackSealed", lossy, shortPath, connectingAtOnce, Security::kEncrypt)};
  for (const Medium& medium : backEndMedia()) all.push_back(over(medium));
  return all;
}

void spawn(const Backend& backend, int size, const std::function<void(ContextPtr)>& body, Milliseconds timeout) {
  const auto store = std::make_shared<::gloo::rendezvous::HashStore>();
  // A rank that fails must not take its pairs from others that are about to finish.
  std::barrier done(size);
  inThreads(size, [&](int rank) {
    ContextPtr kept;
    try {
      auto device = backend.makeDevice();
      auto context = std::make_shared<::gloo::rendezvous::Context>(rank, size);
      context->setTimeout(timeout);
      gloo_version::connectFullMesh(*context, store, device);
      kept = context;
      context.reset();
      body(kept);
    } catch (const std::exception& e) {
      ADD_FAILURE() << "rank " << rank << ": " << e.what();
    }
    done.arrive_and_wait();
  });
}

std::vector<ContextPtr> connectedContexts(const Backend& backend, int size, Milliseconds timeout) {
  std::vector<ContextPtr> contexts(static_cast<std::size_t>(size));
  spawn(backend, size, [&](ContextPtr c) { contexts[static_cast<std::size_t>(c->rank)] = c; }, timeout);
  return contexts;
}

Mesh connectedMesh(const Backend& backend, int size, Milliseconds timeout) {
  Mesh mesh;
  using Addresses = std::vector<std::vector<char>>;
  std::vector<Addresses> addresses(static_cast<std::size_t>(size), Addresses(static_cast<std::size_t>(size)));
  for (int rank = 0; rank < size; ++rank) {
    mesh.devices.push_back(backend.makeDevice());
    mesh.contexts.push_back(mesh.devices.back()->createContext(rank, size));
    mesh.contexts.back()->setTimeout(timeout);
    for (int peer = 0; peer < size; ++peer) {
      if (peer == rank) continue;
      addresses[static_cast<std::size_t>(rank)][static_cast<std::size_t>(peer)] =
          mesh.contexts.back()->createPair(peer)->address().bytes();
    }
  }
  inThreads(size, [&](int rank) {
    for (int peer = 0; peer < size; ++peer) {
      if (peer == rank) continue;
      mesh.contexts[static_cast<std::size_t>(rank)]->getPair(peer)->connect(
          addresses[static_cast<std::size_t>(peer)][static_cast<std::size_t>(rank)]);
    }
  });
  return mesh;
}

std::string ioExceptionOf(const std::function<void()>& f) {
  try {
    f();
  } catch (const ::gloo::IoException& e) {
    EXPECT_STRNE(e.what(), "");
    return e.what();
  } catch (const std::exception& e) {
    ADD_FAILURE() << "not an IoException: " << e.what();
  }
  return "";
}

}  // namespace gloo_bypass::test
