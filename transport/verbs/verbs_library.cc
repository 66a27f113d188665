#include "transport/verbs/verbs_library.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <cstdio>
#include <cstring>
#include <utility>

namespace gloo_bypass::verbs {
namespace {

Error unavailable(std::string message) {
  return Error{ErrorScope::kDevice, ErrorCode::kUnavailable, std::move(message)};
}

// Looks up symbols until one is missing, and remembers that one.
class Symbols {
 public:
  explicit Symbols(void* library) : library_(library) {}

  template <typename Function>
  void find(Function*& function, const char* name, const char* version = "IBVERBS_1.1") {
    function = reinterpret_cast<Function*>(::dlvsym(library_, name, version));
    if (function == nullptr && missing_.empty()) missing_ = fmt::format("{} (version {})", name, version);
  }
  const std::string& missing() const { return missing_; }

 private:
  void* library_;
  std::string missing_;
};

// The versions are those of libibverbs.map (rdma-core 44); older ones, mostly IBVERBS_1.0, take other structures.
void findDevices(Symbols& symbols, VerbsApi& api) {
  symbols.find(api.forkInit, "ibv_fork_init");
  symbols.find(api.getDeviceList, "ibv_get_device_list");
  symbols.find(api.freeDeviceList, "ibv_free_device_list");
  symbols.find(api.getDeviceName, "ibv_get_device_name");
  symbols.find(api.openDevice, "ibv_open_device");
  symbols.find(api.closeDevice, "ibv_close_device");
  symbols.find(api.queryDevice, "ibv_query_device");
  symbols.find(api.queryPort, "ibv_query_port");
  symbols.find(api.queryGidTable, "_ibv_query_gid_table", "IBVERBS_1.11");
  symbols.find(api.getAsyncEvent, "ibv_get_async_event");
  symbols.find(api.ackAsyncEvent, "ibv_ack_async_event");
  symbols.find(api.eventTypeName, "ibv_event_type_str");
  symbols.find(api.completionStatusName, "ibv_wc_status_str");
}

void findQueues(Symbols& symbols, VerbsApi& api) {
  symbols.find(api.allocProtectionDomain, "ibv_alloc_pd");
  symbols.find(api.freeProtectionDomain, "ibv_dealloc_pd");
  symbols.find(api.registerMemory, "ibv_reg_mr");
  symbols.find(api.deregisterMemory, "ibv_dereg_mr");
  symbols.find(api.createCompletionChannel, "ibv_create_comp_channel", "IBVERBS_1.0");
  symbols.find(api.destroyCompletionChannel, "ibv_destroy_comp_channel", "IBVERBS_1.0");
  symbols.find(api.createCompletionQueue, "ibv_create_cq");
  symbols.find(api.resizeCompletionQueue, "ibv_resize_cq");
  symbols.find(api.destroyCompletionQueue, "ibv_destroy_cq");
  symbols.find(api.getCompletionEvent, "ibv_get_cq_event");
  symbols.find(api.ackCompletionEvents, "ibv_ack_cq_events");
  symbols.find(api.createQueuePair, "ibv_create_qp");
  symbols.find(api.modifyQueuePair, "ibv_modify_qp");
  symbols.find(api.destroyQueuePair, "ibv_destroy_qp");
}

Result<VerbsApi> loadSystemVerbs() {
  auto loaded = loadVerbs("libibverbs.so.1");
  if (!loaded) return loaded;
  if (const int error = loaded.value().forkInit(); error != 0) {
    std::fprintf(stderr,
                 "gloo-bypass: RDMA: ibv_fork_init: %s; a child of fork may share pages that an adapter writes\n",
                 std::strerror(error));
  }
  return loaded;
}

}  // namespace

Result<VerbsApi> loadVerbs(const std::string& library) {
  // RTLD_LOCAL: no other library should find its functions here. Adapters' providers depend on libibverbs by name, so
  // they find it.
  void* handle = ::dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (handle == nullptr)
    return unavailable(
        fmt::format("RDMA needs libibverbs: {}; install libibverbs1 and ibverbs-providers (rdma-core)", ::dlerror()));
  VerbsApi api;
  Symbols symbols(handle);
  findDevices(symbols, api);
  findQueues(symbols, api);
  if (!symbols.missing().empty())
    return unavailable(
        fmt::format("RDMA: {} has no {}; install libibverbs1 and ibverbs-providers of rdma-core 32 or later", library,
                    symbols.missing()));
  return api;
}

Result<const VerbsApi*> systemVerbs() {
  static const Result<VerbsApi> loaded = loadSystemVerbs();
  if (!loaded) return loaded.error();
  return &loaded.value();
}

}  // namespace gloo_bypass::verbs
