// The functions of libibverbs that this back-end uses, as a table. It is filled at run time from libibverbs.so.1, so
// that a program loads on a machine without it, or by a test with a software adapter.
//
// The table has only what the library exports. The data path (ibv_post_send, ibv_poll_cq, ibv_req_notify_cq,
// ibv_post_recv) and memory windows (ibv_alloc_mw, ibv_dealloc_mw) are inline in <infiniband/verbs.h> and go through
// ibv_context::ops of the opened device. Call everything else through the table: a direct call would need the library
// when the program is linked.
//
// Source: libibverbs' manual pages (rdma-core 44); InfiniBand Architecture Specification, volume 1, chapter 11.
#pragma once

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>

#include "transport/base/status.h"

// Macros of verbs.h that would replace the members' names.
#undef ibv_query_port
#undef ibv_reg_mr

namespace gloo_bypass::verbs {

struct VerbsApi {
  decltype(&::ibv_fork_init) forkInit = nullptr;
  decltype(&::ibv_get_device_list) getDeviceList = nullptr;
  decltype(&::ibv_free_device_list) freeDeviceList = nullptr;
  decltype(&::ibv_get_device_name) getDeviceName = nullptr;
  decltype(&::ibv_open_device) openDevice = nullptr;
  decltype(&::ibv_close_device) closeDevice = nullptr;
  decltype(&::ibv_query_device) queryDevice = nullptr;
  // The exported function fills only the fields of its first version: zero the structure before.
  int (*queryPort)(ibv_context* context, std::uint8_t port, ibv_port_attr* attributes) = nullptr;
  // Returns how many of `entries` it filled, or a negative errno. Calls _ibv_query_gid_table.
  ssize_t (*queryGidTable)(ibv_context* context, ibv_gid_entry* entries, std::size_t maxEntries, std::uint32_t flags,
                           std::size_t entrySize) = nullptr;
  decltype(&::ibv_get_async_event) getAsyncEvent = nullptr;
  decltype(&::ibv_ack_async_event) ackAsyncEvent = nullptr;
  decltype(&::ibv_event_type_str) eventTypeName = nullptr;
  decltype(&::ibv_wc_status_str) completionStatusName = nullptr;
  decltype(&::ibv_alloc_pd) allocProtectionDomain = nullptr;
  decltype(&::ibv_dealloc_pd) freeProtectionDomain = nullptr;
  ibv_mr* (*registerMemory)(ibv_pd* domain, void* address, std::size_t length, int access) = nullptr;
  decltype(&::ibv_dereg_mr) deregisterMemory = nullptr;
  decltype(&::ibv_create_comp_channel) createCompletionChannel = nullptr;
  decltype(&::ibv_destroy_comp_channel) destroyCompletionChannel = nullptr;
  decltype(&::ibv_create_cq) createCompletionQueue = nullptr;
  decltype(&::ibv_resize_cq) resizeCompletionQueue = nullptr;
  decltype(&::ibv_destroy_cq) destroyCompletionQueue = nullptr;
  decltype(&::ibv_get_cq_event) getCompletionEvent = nullptr;
  decltype(&::ibv_ack_cq_events) ackCompletionEvents = nullptr;
  decltype(&::ibv_create_qp) createQueuePair = nullptr;
  decltype(&::ibv_modify_qp) modifyQueuePair = nullptr;
  decltype(&::ibv_destroy_qp) destroyQueuePair = nullptr;
};

// libibverbs.so.1, loaded once and never unloaded: providers start threads and exit handlers. Also calls ibv_fork_init,
// so that a child of fork does not share the pages of registered memory (not needed from kernel 5.12 on). Errors:
// kUnavailable, with the missing library or symbol and the package that has it.
Result<const VerbsApi*> systemVerbs();

}  // namespace gloo_bypass::verbs
