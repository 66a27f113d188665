#include "transport/verbs/rdma_address.h"

#include <algorithm>
#include <cstring>

#include "transport/base/byte_order.h"
#include "transport/base/check.h"

namespace gloo_bypass::verbs {
namespace {

constexpr std::array<char, 4> kMagic = {'R', 'D', 'M', '1'};
constexpr std::size_t kFixedBytes = 4 + 16 + 2 + 4 + 4 + 8 + 1;
constexpr std::size_t kRailBytes = 16 + 4 + 4 + 2 + 1 + 1 + 1;
constexpr std::uint32_t kMax24Bits = 0xffffff;
constexpr std::uint32_t kMaxEagerBytes = 1 << 20, kMaxCredits = 1 << 16;
constexpr std::uint64_t kMaxEagerWindow = 1ull << 40;

template <typename T>
std::byte* put(std::byte* to, T value) {
  storeLittle(to, value);
  return to + sizeof(T);
}

std::byte* put(std::byte* to, const GidBytes& gid) {
  std::memcpy(to, gid.data(), gid.size());
  return to + gid.size();
}

template <typename T>
T take(std::span<const std::byte>* from) {
  const T value = loadLittle<T>(from->data());
  *from = from->subspan(sizeof(T));
  return value;
}

GidBytes takeGid(std::span<const std::byte>* from) {
  GidBytes gid;
  std::memcpy(gid.data(), from->data(), gid.size());
  *from = from->subspan(gid.size());
  return gid;
}

std::byte* put(std::byte* to, const RailAddress& rail) {
  to = put(to, rail.gid);
  to = put(to, rail.queuePair);
  to = put(to, rail.firstPsn);
  to = put(to, rail.lid);
  to = put(to, rail.mtu);
  to = put(to, rail.linkLayer);
  return put(to, rail.readDepth);
}

RailAddress takeRail(std::span<const std::byte>* from) {
  RailAddress rail;
  rail.gid = takeGid(from);
  rail.queuePair = take<std::uint32_t>(from);
  rail.firstPsn = take<std::uint32_t>(from);
  rail.lid = take<std::uint16_t>(from);
  rail.mtu = take<std::uint8_t>(from);
  rail.linkLayer = take<std::uint8_t>(from);
  rail.readDepth = take<std::uint8_t>(from);
  return rail;
}

bool plausible(const RailAddress& rail) {
  return rail.queuePair <= kMax24Bits && rail.firstPsn <= kMax24Bits && rail.mtu >= 1 && rail.mtu <= 5 &&
         rail.readDepth >= 1;
}

bool plausible(const RdmaAddress& address) {
  if (address.controlPort == 0 || address.eagerBytes == 0 || address.eagerBytes > kMaxEagerBytes) return false;
  if (address.credits < 2 || address.credits > kMaxCredits || address.eagerWindow > kMaxEagerWindow) return false;
  return plausible(address.frames) && std::all_of(address.rails.begin(), address.rails.end(),
                                                  [](const RailAddress& rail) { return plausible(rail); });
}

}  // namespace

std::vector<std::byte> encodeRdmaAddress(const RdmaAddress& address) {
  GLOO_BYPASS_CHECK(!address.rails.empty() && address.rails.size() <= kMaxRails);
  std::vector<std::byte> bytes(kFixedBytes + (1 + address.rails.size()) * kRailBytes);
  std::byte* to = bytes.data();
  std::memcpy(to, kMagic.data(), kMagic.size());
  to = put(to + kMagic.size(), address.controlIp);
  to = put(to, address.controlPort);
  to = put(to, address.eagerBytes);
  to = put(to, address.credits);
  to = put(to, address.eagerWindow);
  to = put(to, static_cast<std::uint8_t>(address.rails.size()));
  to = put(to, address.frames);
  for (const RailAddress& rail : address.rails) to = put(to, rail);
  GLOO_BYPASS_CHECK(to == bytes.data() + bytes.size());
  return bytes;
}

Result<RdmaAddress> decodeRdmaAddress(std::span<const std::byte> bytes) {
  const Error malformed{ErrorScope::kSession, ErrorCode::kConfiguration,
                        "the peer's address is not one of the RDMA transport: are all ranks started with the same "
                        "GLOO_DEVICE_TRANSPORT and the same version of gloo-bypass?"};
  if (bytes.size() < kFixedBytes || std::memcmp(bytes.data(), kMagic.data(), kMagic.size()) != 0) return malformed;
  bytes = bytes.subspan(kMagic.size());
  RdmaAddress address;
  address.controlIp = takeGid(&bytes);
  address.controlPort = take<std::uint16_t>(&bytes);
  address.eagerBytes = take<std::uint32_t>(&bytes);
  address.credits = take<std::uint32_t>(&bytes);
  address.eagerWindow = take<std::uint64_t>(&bytes);
  const auto rails = take<std::uint8_t>(&bytes);
  if (rails == 0 || rails > kMaxRails || bytes.size() != (1 + std::size_t{rails}) * kRailBytes) return malformed;
  address.frames = takeRail(&bytes);
  for (unsigned i = 0; i < rails; ++i) address.rails.push_back(takeRail(&bytes));
  if (!plausible(address)) return malformed;
  return address;
}

}  // namespace gloo_bypass::verbs
