#include "tests/collectives/network/ranks.h"

#include <stdexcept>
#include <utility>

#include "tests/support/loopback_port.h"
#include "tests/support/memory_transport.h"
#include "transport/datagram/datagram_transport.h"

namespace gloo_bypass::collectives::test {
namespace {

Medium overLoopback(const std::string& name, const gloo_bypass::test::LoopbackImpairment& impairment) {
  constexpr std::size_t kDatagramBytes = 8192, kQueueDatagrams = 256;
  TransportConfig config;
  config.session.longPathRtt = std::chrono::seconds(60);  // a short path however busy the machine
  config.session.payloadChecksum = PayloadChecksum::kOn;
  return {.name = name,
          .makeTransport = gloo_bypass::test::betweenPorts({config}, [=](const TransportConfig&) {
            return Result(gloo_bypass::test::makeLoopbackPort(kDatagramBytes, kQueueDatagrams, impairment));
          })};
}

}  // namespace

std::vector<Medium> media() {
  auto fabric = gloo_bypass::test::MemoryFabric::make();
  gloo_bypass::test::LoopbackImpairment lossy;
  lossy.loss = lossy.duplication = lossy.reordering = lossy.corruption = 0.01;
  std::vector<Medium> all = {{.name = "Memory", .makeTransport = [fabric] { return fabric->makeTransport(); }},
                             overLoopback("Loopback", {}),
                             overLoopback("LoopbackLossy", lossy)};
  for (Medium& medium : gloo_bypass::test::backEndMedia()) all.push_back(std::move(medium));
  return all;
}

std::vector<std::unique_ptr<NetworkExecutor>> connected(const std::vector<std::shared_ptr<Transport>>& transports,
                                                        const Change& change) {
  MemoryRendezvous rendezvous;
  std::vector<std::unique_ptr<NetworkExecutor>> executors(transports.size());
  inThreads(static_cast<int>(transports.size()), [&](int rank) {
    NetworkOptions options{.rank = rank, .size = static_cast<int>(transports.size()), .timeout = kPatience};
    if (change) change(options);
    auto made = NetworkExecutor::connect(options, transports[static_cast<std::size_t>(rank)], rendezvous);
    if (!made) throw std::runtime_error(made.error().message);
    executors[static_cast<std::size_t>(rank)] = std::move(made).value();
  });
  return executors;
}

std::vector<std::unique_ptr<NetworkExecutor>> connected(const Medium& medium, int size, const Change& change) {
  std::vector<std::shared_ptr<Transport>> transports;
  for (int rank = 0; rank < size; ++rank) transports.push_back(medium.makeTransport());
  return connected(transports, change);
}

}  // namespace gloo_bypass::collectives::test
