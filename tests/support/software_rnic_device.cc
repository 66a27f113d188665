// Private to software_rnic: devices, contexts, protection domains and regions.
#include <arpa/inet.h>
#include <net/if.h>
#include <sys/mman.h>

#include <cstring>

#include "tests/support/software_rnic_data_path.h"
#include "tests/support/software_rnic_fabric.h"
#include "tests/support/software_rnic_verbs.h"

namespace gloo_bypass::test {
namespace {

constexpr std::uintptr_t kPageBytes = 4096;
constexpr int kWritingAccess =
    IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_MW_BIND;
// A key's low byte changes from one region to the next, as on hardware, so that no program takes keys for small
// numbers.
constexpr std::uint32_t kKeyShift = 8;
constexpr std::uint32_t kKeyVariant = 0x9d;

ibv_device** getDeviceList(int* count) {
  Fabric& fabric = Fabric::instance();
  const Fabric::Lock lock(fabric);
  auto* const list = new ibv_device*[fabric.devices.size() + 1];
  int found = 0;
  for (const auto& device : fabric.devices) {
    if (!device->removed) list[found++] = device.get();
  }
  list[found] = nullptr;
  if (count != nullptr) *count = found;
  ++fabric.deviceLists;
  return list;
}

void freeDeviceList(ibv_device** list) {
  Fabric& fabric = Fabric::instance();
  const Fabric::Lock lock(fabric);
  if (fabric.deviceLists > 0) --fabric.deviceLists;
  delete[] list;
}

const char* getDeviceName(ibv_device* device) { return device->name; }

ibv_mw* allocWindow(ibv_pd* pd, ibv_mw_type type);
int deallocWindow(ibv_mw* mw);

ibv_context* openDevice(ibv_device* device) {
  Fabric& fabric = Fabric::instance();
  SoftContext* opened = nullptr;
  {
    const Fabric::Lock lock(fabric);
    auto* const soft = static_cast<SoftDevice*>(device);
    if (soft->removed) return refuseWith<ibv_context>(ENODEV);
    auto context = std::make_unique<SoftContext>();
    context->device = device;
    context->soft = soft;
    context->cmd_fd = -1;
    context->async_fd = context->events.fd();
    context->num_comp_vectors = 1;
    fillDataPath(context->ops);
    context->ops.alloc_mw = allocWindow;
    context->ops.dealloc_mw = deallocWindow;
    opened = fabric.contexts.add(std::move(context));
  }
  fabric.contextOpened();
  return opened;
}

// As the kernel: everything of the context stops. What the program has not destroyed is left over, and counts as alive.
int closeDevice(ibv_context* context) {
  Fabric& fabric = Fabric::instance();
  {
    const Fabric::Lock lock(fabric);
    if (fabric.contexts.find(context) == nullptr) return 0;
    for (const auto& [address, qp] : fabric.queuePairs) {
      if (qp->owner != context) continue;
      fabric.kill(*qp);
      fabric.forget(*qp);
      fabric.queuePairByNumber.erase(qp->qp_num);
    }
    const auto ownedBy = [context](const auto& registry) {
      return std::any_of(registry.begin(), registry.end(),
                         [context](const auto& entry) { return entry.second->context == context; });
    };
    const bool childless = !ownedBy(fabric.domains) && !ownedBy(fabric.regions) && !ownedBy(fabric.windows) &&
                           !ownedBy(fabric.channels) && !ownedBy(fabric.completionQueues) &&
                           !ownedBy(fabric.queuePairs);
    // Its memory stays for what is left over.
    if (childless) {
      fabric.contexts.remove(context);
    } else {
      fabric.contexts.abandon(context);
    }
  }
  fabric.contextClosed();
  return 0;
}

int queryDevice(ibv_context* context, ibv_device_attr* attributes) {
  const Fabric::Lock lock(Fabric::instance());
  const SoftDevice& device = *static_cast<SoftContext*>(context)->soft;
  if (device.removed) return EIO;
  const SoftwareDeviceOptions& options = device.options;
  std::memset(attributes, 0, sizeof(*attributes));
  std::strcpy(attributes->fw_ver, "software");
  attributes->max_mr_size = UINT64_MAX;
  attributes->page_size_cap = kPageBytes;
  attributes->max_qp = options.maxQueuePairs;
  attributes->max_qp_wr = options.maxQueuePairRequests;
  attributes->max_sge = options.maxScatterGather;
  attributes->max_sge_rd = options.maxScatterGather;
  attributes->max_cq = options.maxCompletionQueues;
  attributes->max_cqe = options.maxCompletions;
  attributes->max_mr = options.maxRegions;
  attributes->max_mw = options.maxWindows;
  if (options.maxWindows > 0) attributes->device_cap_flags = IBV_DEVICE_MEM_WINDOW | IBV_DEVICE_MEM_WINDOW_TYPE_2B;
  attributes->max_pd = options.maxProtectionDomains;
  attributes->max_qp_rd_atom = options.maxReads;
  attributes->max_qp_init_rd_atom = options.maxReads;
  attributes->max_res_rd_atom = options.maxReads * options.maxQueuePairs;
  attributes->atomic_cap = IBV_ATOMIC_NONE;
  attributes->max_pkeys = 1;
  attributes->vendor_id = options.vendor;
  attributes->phys_port_cnt = 1;
  return 0;
}

// Fills what the exported ibv_query_port does: not the members that came later (port_cap_flags2).
int queryPort(ibv_context* context, std::uint8_t port, ibv_port_attr* attributes) {
  const Fabric::Lock lock(Fabric::instance());
  const SoftDevice& device = *static_cast<SoftContext*>(context)->soft;
  if (device.removed) return EIO;
  if (port != 1) return EINVAL;
  constexpr std::uint8_t kLinkUp = 5, kDisabled = 3;
  std::memset(attributes, 0, offsetof(ibv_port_attr, port_cap_flags2));
  attributes->state = device.options.portUp ? IBV_PORT_ACTIVE : IBV_PORT_DOWN;
  attributes->max_mtu = IBV_MTU_4096;
  attributes->active_mtu = device.options.activeMtu;
  attributes->gid_tbl_len = static_cast<int>(device.options.gids.size());
  attributes->port_cap_flags = IBV_PORT_CM_SUP | IBV_PORT_IP_BASED_GIDS;
  attributes->max_msg_sz = device.options.maxMessageBytes;
  attributes->pkey_tbl_len = 1;
  attributes->max_vl_num = 1;
  attributes->active_width = 1;
  attributes->active_speed = 32;
  attributes->phys_state = device.options.portUp ? kLinkUp : kDisabled;
  attributes->link_layer = static_cast<std::uint8_t>(device.options.linkLayer);
  return 0;
}

ssize_t queryGidTable(ibv_context* context, ibv_gid_entry* entries, std::size_t maxEntries, std::uint32_t flags,
                      std::size_t entrySize) {
  const Fabric::Lock lock(Fabric::instance());
  const SoftDevice& device = *static_cast<SoftContext*>(context)->soft;
  if (device.removed) return -EIO;
  if (flags != 0 || entrySize != sizeof(ibv_gid_entry)) return -EINVAL;
  std::size_t filled = 0;
  for (std::size_t index = 0; index < device.options.gids.size(); ++index) {
    const SoftwareGid& gid = device.options.gids[index];
    static constexpr ibv_gid kEmpty{};
    if (std::memcmp(&gid.gid, &kEmpty, sizeof(kEmpty)) == 0) continue;  // an empty slot of the table is not reported
    if (filled == maxEntries) return -EINVAL;
    ibv_gid_entry& entry = entries[filled++];
    entry.gid = gid.gid;
    entry.gid_index = static_cast<std::uint32_t>(index);
    entry.port_num = 1;
    entry.gid_type = gid.type;
    entry.ndev_ifindex = gid.interfaceIndex != 0 ? gid.interfaceIndex : ::if_nametoindex("lo");
  }
  return static_cast<ssize_t>(filled);
}

ibv_pd* allocProtectionDomain(ibv_context* context) {
  Fabric& fabric = Fabric::instance();
  const Fabric::Lock lock(fabric);
  const SoftDevice& device = *static_cast<SoftContext*>(context)->soft;
  if (device.removed) return refuseWith<ibv_pd>(EIO);
  if (fabric.domains.size() >= static_cast<std::size_t>(device.options.maxProtectionDomains)) {
    return refuseWith<ibv_pd>(ENOMEM);
  }
  auto domain = std::make_unique<SoftProtectionDomain>();
  domain->context = context;
  return fabric.domains.add(std::move(domain));
}

int freeProtectionDomain(ibv_pd* pd) {
  Fabric& fabric = Fabric::instance();
  const Fabric::Lock lock(fabric);
  const SoftProtectionDomain* const domain = fabric.domains.find(pd);
  if (domain == nullptr) return 0;
  if (domain->users > 0) return EBUSY;
  fabric.domains.remove(pd);
  return 0;
}

// Brings the pages in as pinning them would: not if they are not mapped, or not writable and to be written. 0 or an
// errno.
int touchPages(std::uintptr_t begin, std::uintptr_t end, int access) {
#if defined(MADV_POPULATE_READ) && defined(MADV_POPULATE_WRITE)
  static const bool supported = [] {
    alignas(kPageBytes) static std::byte page[kPageBytes];
    return ::madvise(page, sizeof(page), MADV_POPULATE_READ) == 0;
  }();
  if (!supported) return 0;  // Linux before 5.14
  const int advice = (access & kWritingAccess) != 0 ? MADV_POPULATE_WRITE : MADV_POPULATE_READ;
  return ::madvise(reinterpret_cast<void*>(begin), end - begin, advice) == 0 ? 0 : EFAULT;
#else
  (void)begin, (void)end, (void)access;
  return 0;
#endif
}

// 0 or an errno; reserves the bytes.
int reserve(Fabric& fabric, const SoftDevice& device, std::uint64_t bytes) {
  SoftwareRnicCounters& counters = fabric.counters;
  if (device.removed) return EIO;
  if (fabric.regions.size() >= static_cast<std::size_t>(device.options.maxRegions)) return ENOMEM;
  if (bytes > fabric.registrationLimit || counters.registeredBytes > fabric.registrationLimit - bytes) return ENOMEM;
  counters.registeredBytes += bytes;
  counters.peakRegisteredBytes = std::max(counters.peakRegisteredBytes, counters.registeredBytes);
  return 0;
}

ibv_mr* refuseRegistration(int error) {
  ++Fabric::instance().counters.failedRegistrations;
  return refuseWith<ibv_mr>(error);
}

ibv_mr* registerMemory(ibv_pd* pd, void* address, std::size_t length, int access) {
  Fabric& fabric = Fabric::instance();
  const auto begin = reinterpret_cast<std::uintptr_t>(address);
  const std::uintptr_t pageBegin = begin & ~(kPageBytes - 1);
  const std::uintptr_t pageEnd = (begin + length + kPageBytes - 1) & ~(kPageBytes - 1);
  const bool writesOnlyRemotely = (access & IBV_ACCESS_REMOTE_WRITE) != 0 && (access & IBV_ACCESS_LOCAL_WRITE) == 0;
  {
    const Fabric::Lock lock(fabric);
    if (length == 0 || begin + length < begin || writesOnlyRemotely) return refuseRegistration(EINVAL);
    const int error = reserve(fabric, *static_cast<SoftContext*>(pd->context)->soft, pageEnd - pageBegin);
    if (error != 0) return refuseRegistration(error);
  }
  const int error = touchPages(pageBegin, pageEnd, access);  // may take long
  const Fabric::Lock lock(fabric);
  if (error != 0) {
    fabric.counters.registeredBytes -= pageEnd - pageBegin;
    return refuseRegistration(error);
  }
  auto region = std::make_unique<SoftRegion>();
  region->context = pd->context;
  region->pd = pd;
  region->addr = address;
  region->length = length;
  region->access = access;
  region->pinnedBytes = pageEnd - pageBegin;
  const std::uint32_t number = fabric.nextKey++;
  region->lkey = region->rkey = (number << kKeyShift) | ((number * kKeyVariant) & 0xff);
  fabric.regionByKey.emplace(region->lkey, region.get());
  ++static_cast<SoftProtectionDomain*>(pd)->users;
  ++fabric.counters.registrations;
  return fabric.regions.add(std::move(region));
}

int deregisterMemory(ibv_mr* mr) {
  Fabric& fabric = Fabric::instance();
  const Fabric::Lock lock(fabric);
  const SoftRegion* const region = fabric.regions.find(mr);
  if (region == nullptr) return 0;
  if (region->windows > 0) return EBUSY;
  fabric.regionByKey.erase(region->lkey);
  fabric.counters.registeredBytes -= region->pinnedBytes;
  --static_cast<SoftProtectionDomain*>(region->pd)->users;
  fabric.regions.remove(mr);
  return 0;
}

ibv_mw* allocWindow(ibv_pd* pd, ibv_mw_type type) {
  Fabric& fabric = Fabric::instance();
  const Fabric::Lock lock(fabric);
  const SoftDevice& device = *static_cast<SoftContext*>(pd->context)->soft;
  if (device.removed) return refuseWith<ibv_mw>(EIO);
  if (type != IBV_MW_TYPE_2) return refuseWith<ibv_mw>(EINVAL);
  if (fabric.windows.size() >= static_cast<std::size_t>(device.options.maxWindows)) return refuseWith<ibv_mw>(ENOMEM);
  auto window = std::make_unique<SoftWindow>();
  window->context = pd->context;
  window->pd = pd;
  window->type = type;
  const std::uint32_t index = fabric.nextKey++;
  window->rkey = window->key = (index << kKeyShift) | ((index * kKeyVariant) & 0xff);
  fabric.windowByIndex.emplace(index, window.get());
  ++static_cast<SoftProtectionDomain*>(pd)->users;
  return fabric.windows.add(std::move(window));
}

int deallocWindow(ibv_mw* mw) {
  Fabric& fabric = Fabric::instance();
  const Fabric::Lock lock(fabric);
  SoftWindow* const window = fabric.windows.find(mw);
  if (window == nullptr) return 0;
  Fabric::unbind(*window);
  fabric.windowByIndex.erase(window->key >> kKeyShift);
  --static_cast<SoftProtectionDomain*>(window->pd)->users;
  fabric.windows.remove(mw);
  return 0;
}

int forkInit() { return 0; }

}  // namespace

ibv_gid mappedGid(const std::string& address) {
  ibv_gid gid{};
  gid.raw[10] = gid.raw[11] = 0xff;
  GLOO_BYPASS_CHECK(::inet_pton(AF_INET, address.c_str(), gid.raw + 12) == 1);
  return gid;
}

void fillDeviceVerbs(verbs::VerbsApi& api) {
  api.forkInit = forkInit;
  api.getDeviceList = getDeviceList;
  api.freeDeviceList = freeDeviceList;
  api.getDeviceName = getDeviceName;
  api.openDevice = openDevice;
  api.closeDevice = closeDevice;
  api.queryDevice = queryDevice;
  api.queryPort = queryPort;
  api.queryGidTable = queryGidTable;
  api.allocProtectionDomain = allocProtectionDomain;
  api.freeProtectionDomain = freeProtectionDomain;
  api.registerMemory = registerMemory;
  api.deregisterMemory = deregisterMemory;
}

}  // namespace gloo_bypass::test
