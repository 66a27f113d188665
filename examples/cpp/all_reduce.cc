// An all-reduce over DPDK, UDP or RDMA in C++, without PyTorch. Start one process a rank:
//
//   make
//   store=$(mktemp -d)
//   ./all_reduce 0 2 $store & ./all_reduce 1 2 $store; wait
//
// Everything but the line with createDevice is Gloo's usual code. RANK SIZE FOLDER may be followed by UDP or RDMA.
#include <cstdlib>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include <gloo/allreduce.h>
#include <gloo/math.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo_bypass/device.h>

namespace {

std::shared_ptr<gloo::transport::Device> makeDevice(const std::string& transport) {
  auto options = gloo_bypass::DeviceOptions::fromEnvironment();
  options.set(gloo_bypass::setting::kConnectTimeoutMs, std::chrono::seconds(10));
  return gloo_bypass::createDevice(transport, options);
}

// Rank r contributes r + 1 everywhere; so each element becomes 1 + 2 + ... + size.
bool reduceOnes(const std::shared_ptr<gloo::Context>& context) {
  std::vector<float> data(1000000, static_cast<float>(context->rank + 1));
  gloo::AllreduceOptions options(context);
  options.setOutput(data.data(), data.size());
  options.setReduceFunction(static_cast<void (*)(void*, const void*, const void*, size_t)>(&gloo::sum<float>));
  gloo::allreduce(options);
  const float expected = static_cast<float>(context->size * (context->size + 1) / 2);
  for (const float element : data) {
    if (element != expected) return false;
  }
  return true;
}

// Checks the counters. A program that has a JSON parser can read more of them.
bool wentOver(const std::string& transport) {
  return gloo_bypass::countersJson().find("\"transport\":\"" + transport + "\"") != std::string::npos;
}

using Context = gloo::rendezvous::Context;
using Store = gloo::rendezvous::Store;
using DevicePointer = std::shared_ptr<gloo::transport::Device>;

// connectFullMesh takes a reference to the store before 2025, a shared pointer since.
[[maybe_unused]] void connect(Context& context, void (Context::*connectFullMesh)(Store&, DevicePointer&),
                              const std::shared_ptr<Store>& store, DevicePointer& device) {
  (context.*connectFullMesh)(*store, device);
}

[[maybe_unused]] void connect(Context& context,
                              void (Context::*connectFullMesh)(std::shared_ptr<Store>, DevicePointer&),
                              const std::shared_ptr<Store>& store, DevicePointer& device) {
  (context.*connectFullMesh)(store, device);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 4) {
    std::cerr << "usage: all_reduce RANK SIZE FOLDER-THAT-ALL-RANKS-SHARE [DPDK|UDP|RDMA]\n";
    return 2;
  }
  try {
    auto context = std::make_shared<Context>(std::atoi(argv[1]), std::atoi(argv[2]));
    const auto store = std::make_shared<gloo::rendezvous::FileStore>(argv[3]);
    const std::string transport = argc > 4 ? argv[4] : "DPDK";
    auto device = makeDevice(transport);
    connect(*context, &Context::connectFullMesh, store, device);
    const bool right = reduceOnes(context);
    std::cout << "rank " << context->rank << " of " << context->size << " over " << device->str() << ": "
              << (right ? "the sum is right" : "THE SUM IS WRONG") << std::endl;
    if (!wentOver(transport)) std::cerr << "all_reduce: not over " << transport << "\n";
    return right && wentOver(transport) ? 0 : 1;
  } catch (const gloo::Exception& error) {
    std::cerr << "all_reduce: " << error.what() << "\n";
    return 1;
  }
}
