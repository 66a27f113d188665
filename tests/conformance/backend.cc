#include "tests/conformance/backend.h"

#include <array>
#include <atomic>
#include <mutex>
#include <stdexcept>
#include <thread>
#include <utility>

#include <gloo/common/error.h>
#include <gloo/rendezvous/hash_store.h>
#include <gloo/transport/pair.h>
#include <gloo/transport/tcp/device.h>

#include "compatibility/gloo/own_transports.h"
#include "compatibility/gloo/rendezvous.h"
#include "tests/conformance/on_demand_backends.h"
#include "tests/support/memory_transport.h"
#include "transport/gloo/device.h"
#include "transport/io/datagram_transport.h"
#ifdef GLOO_BYPASS_TEST_DPDK
#include "transport/dpdk/dpdk_port.h"
#endif
#ifdef GLOO_BYPASS_TEST_VERBS
#include "tests/support/software_rnic.h"
#include "transport/verbs/verbs_transport.h"
#endif

namespace gloo_bypass::test {
namespace {

// What makes a device of a transport: makeDevice, or something that looks on.
using Wrap = std::function<std::shared_ptr<::gloo::transport::Device>(std::shared_ptr<Transport>)>;

std::shared_ptr<::gloo::transport::Device> connectingAtOnce(std::shared_ptr<Transport> transport) {
  return makeDevice(std::move(transport));
}

Backend glooTcp() {
  return {"GlooTcp", [] { return ::gloo::transport::tcp::CreateDevice(::gloo::transport::tcp::attr("127.0.0.1")); },
          /*reference=*/true};
}

// A process a rank.
Backend memory(const std::string& name, const MemoryTransportOptions& options, const Wrap& wrap = connectingAtOnce) {
  auto fabric = MemoryFabric::make();
  return {name, [=] { return wrap(fabric->makeTransport(options)); }};
}

// All ranks in one process: they share one transport, and so its progress engine. It lives as long as a device of it.
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

// Sessions over datagrams that an in-memory port delivers, or does not.
Backend loopback(const std::string& name, const LoopbackImpairment& impairment, const SessionConfig& session,
                 const Wrap& wrap = connectingAtOnce) {
  constexpr std::size_t kDatagramBytes = 8192, kQueueDatagrams = 256;
  TransportConfig config;
  config.session = session;
  config.session.maxDatagramBytes = kDatagramBytes;
  const auto makeTransport = [=] {
    return makeDatagramTransport(config, makeLoopbackPort(kDatagramBytes, kQueueDatagrams, impairment));
  };
  return shared(name, makeTransport, wrap);
}

#ifdef GLOO_BYPASS_TEST_DPDK
// Real memif links. Devices take turns between two ports, as if every second rank lived in another process: two ranks
// meet over shared memory, or over a port's link to itself.
Backend dpdkMemif(const Wrap& wrap = connectingAtOnce) {
  struct Ports {
    std::mutex mutex;
    std::array<std::weak_ptr<Transport>, 2> transports;
    std::size_t turn = 0;
  };
  auto ports = std::make_shared<Ports>();
  Backend backend{"DpdkMemif", [ports, wrap] {
                    std::lock_guard<std::mutex> lock(ports->mutex);
                    std::weak_ptr<Transport>& place = ports->transports[ports->turn++ % ports->transports.size()];
                    std::shared_ptr<Transport> transport = place.lock();
                    if (transport == nullptr) {
                      const TransportConfig config;
                      auto port = makeDpdkPort(config);
                      if (!port.ok()) throw std::runtime_error(port.error().message);
                      place = transport = makeDatagramTransport(config, std::move(port).value());
                    }
                    return wrap(transport);
                  }};
  backend.largeSendWaits = false;
  return backend;
}
#endif

#ifdef GLOO_BYPASS_TEST_VERBS
// A process a rank, as it were.
Backend verbs(const std::string& name, const VerbsApi& api, const RdmaConfig& rdma,
              const Wrap& wrap = connectingAtOnce) {
  TransportConfig config;
  config.rdma = rdma;
  return {name, [&api, config, wrap] {
            auto transport = makeVerbsTransport(api, config);
            if (!transport.ok()) throw std::runtime_error(transport.error().message);
            return wrap(std::move(transport).value());
          }};
}

std::vector<Backend> verbsBackends() {
  RdmaConfig one, two;
  one.devices = "soft0";
  // Everything small: credits run out, windows fill, messages are cut.
  two.devices = "soft0,soft1";
  two.credits = 4;
  two.eagerBytes =
      4096;  // Gloo's ReduceScatterHalvingDoubling overwrites what it sends without a wait: its messages stay eager
  two.chunkBytes = 64 * 1024;
  std::vector<Backend> all = {verbs("VerbsSoftware", softwareVerbs(), one),
                              verbs("VerbsSoftwareRails", softwareVerbs(), two)};
  // What this machine has: SoftRoCE in the guest, or a real adapter. Left out where there is none.
  if (const auto system = systemVerbs(); system.ok() && makeVerbsTransport(*system.value(), {}).ok()) {
    all.push_back(verbs("Rdma", *system.value(), {}));
  }
  return all;
}
#endif

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
  std::string countersJson() const override { return inner_->countersJson(); }

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
#ifdef GLOO_BYPASS_TEST_DPDK
  add([](const Wrap& wrap) { return dpdkMemif(wrap); });
#endif
#ifdef GLOO_BYPASS_TEST_VERBS
  add([](const Wrap& wrap) {
    RdmaConfig one;
    one.devices = "soft0";
    return verbs("VerbsSoftware", softwareVerbs(), one, wrap);
  });
#endif
  return all;
}

std::vector<Backend> backends() {
  MemoryTransportOptions slow;
  slow.delay = std::chrono::microseconds(200);
  slow.rendezvousBytes = 256;
  auto fabric = MemoryFabric::make();
  LoopbackImpairment lossy;
  lossy.loss = lossy.duplication = lossy.reordering = lossy.corruption = 0.01;
  // However busy the machine: a long path is the backend of that name.
  SessionConfig shortPath;
  shortPath.longPathRtt = std::chrono::seconds(60);
  SessionConfig checked = shortPath;
  checked.payloadChecksum = PayloadChecksum::kOn;
  SessionConfig longPath;
  longPath.longPathRtt = longPath.bbrRtt = Duration(0);
  Backend buffered = loopback("LoopbackLongPath", {}, longPath);
  buffered.largeSendWaits = false;
  std::vector<Backend> all = {
#ifdef GLOO_BYPASS_TEST_DPDK
      dpdkMemif(),
#endif
      glooTcp(),
      memory("Memory", {}),
      memory("MemoryDelayed", slow),
      shared("MemoryShared", [fabric] { return fabric->makeTransport(); }),
      loopback("Loopback", {}, shortPath),
      loopback("LoopbackLossy", lossy, checked),
      buffered};
#ifdef GLOO_BYPASS_TEST_VERBS
  for (Backend& backend : verbsBackends()) all.push_back(std::move(backend));
#endif
  return all;
}

void inThreads(int count, const std::function<void(int)>& body) {
  std::vector<std::thread> threads;
  for (int i = 0; i < count; ++i) {
    threads.emplace_back([&body, i] {
      try {
        body(i);
      } catch (const std::exception& e) {
        ADD_FAILURE() << "thread " << i << ": " << e.what();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

void spawn(const Backend& backend, int size, const std::function<void(ContextPtr)>& body, Milliseconds timeout) {
  const auto store = std::make_shared<::gloo::rendezvous::HashStore>();
  // A rank that fails must not pull its pairs away from others that are about to finish.
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
  spawn(
      backend, size, [&](ContextPtr c) { contexts[static_cast<std::size_t>(c->rank)] = c; }, timeout);
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
