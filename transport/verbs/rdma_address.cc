#include "transport/verbs/rdma_address.h"

#include <algorithm>

#include "transport/base/check.h"
#include "transport/base/fields.h"

namespace gloo_bypass::verbs {
namespace {

constexpr std::array<char, 4> kMagic = {'R', 'D', 'M', '1'};
constexpr std::uint32_t kMax24Bits = 0xffffff;
constexpr std::uint32_t kMaxEagerBytes = 1 << 20, kMaxCredits = 1 << 16;
constexpr std::uint64_t kMaxEagerWindow = 1ull << 40;

constexpr auto kRailFields = [](auto& fields, auto& rail) {
  fields(rail.gid, rail.queuePair, rail.firstPsn, rail.lid, rail.mtu, rail.linkLayer, rail.readDepth);
};
constexpr std::size_t kRailBytes = fieldBytes<RailAddress>(kRailFields);

// All before the rails: the first and the last field are not in RdmaAddress.
constexpr auto kFixedFields = [](auto& fields, auto& magic, auto& address, auto& rails) {
  fields(magic, address.controlIp, address.controlPort, address.eagerBytes, address.credits, address.eagerWindow,
         rails);
};
constexpr std::size_t kFixedBytes = 4 + 16 + 2 + 4 + 4 + 8 + 1;

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
  FieldWriter writer(bytes.data());
  const auto rails = static_cast<std::uint8_t>(address.rails.size());
  kFixedFields(writer, kMagic, address, rails);
  kRailFields(writer, address.frames);
  for (const RailAddress& rail : address.rails) kRailFields(writer, rail);
  GLOO_BYPASS_CHECK(writer.end() == bytes.data() + bytes.size());
  return bytes;
}

Result<RdmaAddress> decodeRdmaAddress(std::span<const std::byte> bytes) {
  const Error malformed{ErrorScope::kSession, ErrorCode::kConfiguration,
                        "the peer's address is not one of the RDMA transport: are all ranks started with the same "
                        "GLOO_DEVICE_TRANSPORT and the same version of gloo-bypass?"};
  if (bytes.size() < kFixedBytes) return malformed;
  FieldReader reader(bytes.data());
  auto magic = kMagic;
  RdmaAddress address;
  std::uint8_t rails = 0;
  kFixedFields(reader, magic, address, rails);
  if (magic != kMagic || rails == 0 || rails > kMaxRails) return malformed;
  if (bytes.size() != kFixedBytes + (1 + std::size_t{rails}) * kRailBytes) return malformed;
  kRailFields(reader, address.frames);
  address.rails.resize(rails);
  for (RailAddress& rail : address.rails) kRailFields(reader, rail);
  if (!plausible(address)) return malformed;
  return address;
}

}  // namespace gloo_bypass::verbs
