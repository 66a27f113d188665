#include "tests/collectives/network/ranks.h"

#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <thread>
#include <utility>

#include "tests/support/loopback_port.h"
#include "tests/support/memory_transport.h"
#include "transport/datagram/datagram_transport.h"
#include "transport/progress/progress_engine.h"

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

float fromBfloat16(std::uint16_t bits) {
  const std::uint32_t word = std::uint32_t{bits} << 16;
  float value;
  std::memcpy(&value, &word, sizeof value);
  return value;
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

TimePoint soon() { return monotonicNow() + kPatience; }

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

Buffers::Buffers(Kind kind, ElementType type, int rank, int /*size*/)
    : call_{.kind = kind, .type = type}, rank_(rank) {}

Buffers& Buffers::inputs(const std::vector<std::size_t>& counts) {
  for (const std::size_t count : counts) {
    inputMemory_.emplace_back(count * sizeOf(call_.type));
    inputs_.push_back({inputMemory_.back().data(), count});
  }
  call_.inputs = inputs_;
  return *this;
}

Buffers& Buffers::outputs(const std::vector<std::size_t>& counts) {
  for (const std::size_t count : counts) {
    outputMemory_.emplace_back(count * sizeOf(call_.type), std::byte{0xee});
    outputs_.push_back({outputMemory_.back().data(), count});
  }
  call_.outputs = outputs_;
  return *this;
}

Buffers& Buffers::inPlace(std::size_t input, std::size_t output) {
  inputs_[input].data = outputs_[output].data;
  return *this;
}

double Buffers::value(int rank, std::size_t block, std::size_t index) {
  return static_cast<double>((static_cast<std::size_t>(rank) + 3 * block + 5 * index) % 4);
}

void Buffers::fill() {
  for (std::size_t block = 0; block < inputs_.size(); ++block) {
    auto* data = const_cast<std::byte*>(inputs_[block].data);
    for (std::size_t i = 0; i < inputs_[block].count; ++i) {
      write(data + i * sizeOf(call_.type), value(rank_, block, i));
    }
  }
}

double Buffers::output(std::size_t block, std::size_t index) const {
  return read(outputMemory_[block].data() + index * sizeOf(call_.type));
}

double Buffers::read(const std::byte* at) const {
  const auto as = [at](auto value) {
    std::memcpy(&value, at, sizeof value);
    return value;
  };
  switch (call_.type) {
    case ElementType::kFloat32:
      return static_cast<double>(as(float{}));
    case ElementType::kFloat64:
      return as(double{});
    case ElementType::kBfloat16:
      return static_cast<double>(fromBfloat16(as(std::uint16_t{})));
    case ElementType::kInt64:
      return static_cast<double>(as(std::int64_t{}));
    case ElementType::kInt32:
      return as(std::int32_t{});
    default:
      return as(std::uint8_t{});
  }
}

void Buffers::write(std::byte* at, double value) const {
  const auto put = [at](auto typed) { std::memcpy(at, &typed, sizeof typed); };
  switch (call_.type) {
    case ElementType::kFloat32:
      return put(static_cast<float>(value));
    case ElementType::kFloat64:
      return put(value);
    case ElementType::kBfloat16: {
      const auto single = static_cast<float>(value);
      std::uint32_t word;
      std::memcpy(&word, &single, sizeof word);
      return put(static_cast<std::uint16_t>(word >> 16));
    }
    case ElementType::kInt64:
      return put(static_cast<std::int64_t>(value));
    case ElementType::kInt32:
      return put(static_cast<std::int32_t>(value));
    default:
      return put(static_cast<std::uint8_t>(value));
  }
}

}  // namespace gloo_bypass::collectives::test
