// An RDMA adapter in software, inside one process: fills a VerbsApi, so that the RDMA back-end can be tested on a
// machine without an adapter, without libibverbs and without kernel modules, and with faults on demand.
//
// Queue pairs of all devices of this process reach each other by (GID, queue pair number). One adapter thread, running
// while a device is open, executes work requests; completions arrive asynchronously, as from hardware. What is strict
// on some real adapter is strict here:
//  - a buffer is read when its request is executed, not when it is posted (but for inline data);
//  - a slot of a send or receive queue is free again once a completion that covers it was polled, not before;
//  - a completion with an error has no valid opcode, length or flags (they hold garbage);
//  - requesting a notification says nothing of completions that are already there;
//  - a memory window of type 2 serves the queue pair that it was bound on, under its newest key; a region with bound
//    windows is not deregistered, nor their queue pair destroyed (as Linux' rdma_rxe);
//  - a time-out costs 4.096 us * 2^timeout for the first try and for each of retry_cnt repetitions.
// Large messages are executed in pieces, so that one can fail half way.
//
// Programs' errors that would corrupt memory or hang on hardware end the process with a message: destroying an object
// twice, or with events that were not acknowledged within a second.
//
// Thread: everything may be called from any thread. Source: InfiniBand Architecture Specification volume 1, chapters 9
// to 11; libibverbs' manual pages; Linux' rdma_rxe.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "transport/base/time.h"
#include "transport/verbs/verbs_api.h"

namespace gloo_bypass::test {

struct SoftwareGid {
  ibv_gid gid{};
  ibv_gid_type type = IBV_GID_TYPE_ROCE_V2;
  std::uint32_t interfaceIndex = 0;  // 0: lo's
};
// ::ffff:a.b.c.d, as RoCEv2 adapters have it for an IPv4 address. `address` in dotted form.
ibv_gid mappedGid(const std::string& address);

// What a device is and can. Small, as on modest adapters, so that a program that does not ask for limits finds them.
struct SoftwareDeviceOptions {
  std::string name = "soft0";
  std::vector<SoftwareGid> gids;  // empty: no address; index in the table as here
  bool portUp = true;
  int linkLayer = IBV_LINK_LAYER_ETHERNET;
  ibv_mtu activeMtu = IBV_MTU_4096;
  std::uint32_t maxMessageBytes = 8 * 1024 * 1024;
  int maxQueuePairs = 1024;
  int maxQueuePairRequests = 1024;  // of the send queue, and of the receive queue
  int maxScatterGather = 16;
  int maxInlineBytes = 256;
  int maxReads = 16;  // outstanding, in either direction
  int maxCompletionQueues = 1024;
  int maxCompletions = 16384;  // of one completion queue
  bool resizesCompletionQueues = true;
  int maxRegions = 65536;
  int maxWindows = 4096;  // of type 2B; 0: the device has none
  int maxProtectionDomains = 1024;
  std::uint32_t vendor = 0;
};
// Two devices: soft0 at 127.0.0.1 and soft1 at 127.0.0.2, both up.
std::vector<SoftwareDeviceOptions> defaultSoftwareDevices();

// One operation of a send queue ends badly.
struct OperationFault {
  const ibv_context* context = nullptr;  // only operations of this one; null: any
  std::optional<ibv_wr_opcode> opcode;   // only operations of this kind
  std::uint64_t skip = 0;                // how many matching operations succeed before
  ibv_wc_status status = IBV_WC_RETRY_EXC_ERR;
  bool delivered = false;  // true: it was executed, only its acknowledgement was lost
  Duration late{};         // not zero: it was executed, its acknowledgement comes so late, and it succeeds
};

struct SoftwareRnicCounters {
  std::uint64_t registrations = 0;  // calls of ibv_reg_mr that succeeded
  std::uint64_t failedRegistrations = 0;
  std::uint64_t registeredBytes = 0;  // whole pages, now
  std::uint64_t peakRegisteredBytes = 0;
  std::array<std::uint64_t, 16> operations{};  // executed with success, by ibv_wr_opcode
  std::uint64_t bytes = 0;                     // that they carried
  std::uint64_t receives = 0;                  // receive requests that were consumed
  std::uint64_t inlineOperations = 0;
  std::uint64_t completions = 0;        // delivered to completion queues
  std::uint64_t failedCompletions = 0;  // of them with an error, flushed ones included
  std::uint64_t completionEvents = 0;
  std::uint64_t asyncEvents = 0;
  std::uint64_t rnrNaks = 0;          // tries that met no posted receive
  std::uint64_t retransmissions = 0;  // tries after a time-out
};

// Everything that was made and not destroyed.
struct LiveObjects {
  std::size_t deviceLists = 0;
  std::size_t contexts = 0;
  std::size_t protectionDomains = 0;
  std::size_t regions = 0;
  std::size_t windows = 0;
  std::size_t channels = 0;
  std::size_t completionQueues = 0;
  std::size_t queuePairs = 0;

  std::size_t total() const {
    return deviceLists + contexts + protectionDomains + regions + windows + channels + completionQueues + queuePairs;
  }
  std::string describe() const;  // "2 regions, 1 queue pairs", or "nothing"
};

// The table to hand to the back-end. Valid for the whole process; a copy may be changed.
const verbs::VerbsApi& softwareVerbs();

// The test's side of the adapter. One a process.
class SoftwareRnic {
 public:
  static SoftwareRnic& instance();

  // As at the start of the process: the default devices, no fault, counters zero. What is still alive is forgotten: it
  // no longer counts or works, its memory stays, and destroying it later is harmless. For a test's SetUp and TearDown.
  void reset();
  // Other devices than the default ones. No context may be open.
  void setDevices(std::vector<SoftwareDeviceOptions> devices);
  // Later queries and objects of the device named so see them; GIDs count at once. Events: none.
  void changeDevice(const std::string& name, const SoftwareDeviceOptions& options);
  SoftwareDeviceOptions device(const std::string& name) const;

  // Down: packets to and from the device are lost, so that requests are repeated and at last fail with
  // IBV_WC_RETRY_EXC_ERR. Opened contexts get IBV_EVENT_PORT_ERR or IBV_EVENT_PORT_ACTIVE.
  void setPort(const std::string& name, bool up);
  // The port goes down, and comes up again once `tries` tries of whatever requests have been lost: by the adapter
  // itself, since a test that is kept waiting would bring it up when all retries are over.
  void losePort(const std::string& name, std::uint64_t tries);
  // As when the device is unplugged or its driver unloaded: IBV_EVENT_DEVICE_FATAL, every queue pair in error, the
  // device not listed any more, and every verb that makes or changes something fails with EIO.
  void removeDevice(const std::string& name);

  // As if the owner's process had died: peers see silence. The owner's objects stay, so that the test can destroy them;
  // nothing they posted is executed, and it completes (flushed) only if they are moved to the error state.
  void killContext(const ibv_context* context);
  void killQueuePair(std::uint32_t number);

  void failOperation(const OperationFault& fault);  // several may be set; each strikes once
  void setLatency(Duration latency);                // from posting to execution; order within a queue pair is kept
  // The adapter takes up no more work (time-outs included) until it is resumed. What is posted stays where it is.
  void setPaused(bool paused);
  // RLIMIT_MEMLOCK: registrations beyond this many bytes, in whole pages and of all contexts together, fail with
  // ENOMEM.
  void limitRegisteredBytes(std::uint64_t bytes);

  SoftwareRnicCounters counters() const;
  LiveObjects liveObjects() const;

 private:
  SoftwareRnic() = default;
};

}  // namespace gloo_bypass::test
