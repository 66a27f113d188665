#include "transport/verbs/rdma_address.h"

#include <algorithm>

#include "transport/base/check.h"
#include "transport/base/fields.h"

namespace gloo_bypass::verbs {
namespace {

constexpr std::array<char, 4> kPlainMagic = {'R', 'D', 'M', '1'}, kServedMagic = {'R', 'D', 'M', '2'};
constexpr std::uint32_t kMax24Bits = 0xffffff;
constexpr std::uint32_t kMaxEagerBytes = 1 << 20, kMaxCredits = 1 << 16;
constexpr std::uint64_t kMaxEagerWindow = 1ull << 40;

constexpr auto kRailFields = [](auto& fields, auto& rail) {
  fields(rail.gid, rail.queuePair, rail.firstPsn, rail.lid, rail.mtu, rail.linkLayer, rail.readDepth);
};
constexpr std::size_t kRailBytes = fieldBytes<RailAddress>(kRailFields);

constexpr auto kServedFields = [](auto& fields, auto& served) { fields(served.number, served.firstPsn); };
constexpr std::size_t kServedBytes = fieldBytes<ServedQueuePair>(kServedFields);

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

bool plausible(const ServedQueuePair& served) { return served.number <= kMax24Bits && served.firstPsn <= kMax24Bits; }

bool plausible(const RdmaAddress& address) {
  if (address.controlPort == 0 || address.eagerBytes == 0 || address.eagerBytes > kMaxEagerBytes) return false;
  if (address.credits < 2 || address.credits > kMaxCredits || address.eagerWindow > kMaxEagerWindow) return false;
  const auto each = [](const auto& all) {
    return std::all_of(all.begin(), all.end(), [](const auto& one) { return plausible(one); });
  };
  return plausible(address.frames) && each(address.rails) && each(address.served);
}

}  // namespace

std::vector<std::byte> encodeRdmaAddress(const RdmaAddress& address) {
  GLOO_BYPASS_CHECK(!address.rails.empty() && address.rails.size() <= kMaxRails);
  GLOO_BYPASS_CHECK(address.served.empty() || address.served.size() == address.rails.size());
  std::vector<std::byte> bytes(kFixedBytes + (1 + address.rails.size()) * kRailBytes +
                               address.served.size() * kServedBytes);
  FieldWriter writer(bytes.data());
  const auto rails = static_cast<std::uint8_t>(address.rails.size());
  kFixedFields(writer, address.served.empty() ? kPlainMagic : kServedMagic, address, rails);
  kRailFields(writer, address.frames);
  for (const RailAddress& rail : address.rails) kRailFields(writer, rail);
  for (const ServedQueuePair& served : address.served) kServedFields(writer, served);
  GLOO_BYPASS_CHECK(writer.end() == bytes.data() + bytes.size());
  return bytes;
}

Result<RdmaAddress> decodeRdmaAddress(std::span<const std::byte> bytes) {
  const Error malformed{ErrorScope::kSession, ErrorCode::kConfiguration,
                        "the peer's address is not one of the RDMA transport: are all ranks started with the same "
                        "GLOO_DEVICE_TRANSPORT and the same version of gloo-bypass?"};
  if (bytes.size() < kFixedBytes) return malformed;
  FieldReader reader(bytes.data());
  auto magic = kPlainMagic;
  RdmaAddress address;
  std::uint8_t rails = 0;
  kFixedFields(reader, magic, address, rails);
  if ((magic != kPlainMagic && magic != kServedMagic) || rails == 0 || rails > kMaxRails) return malformed;
  const std::size_t served = magic == kServedMagic ? rails : 0;
  if (bytes.size() != kFixedBytes + (1 + std::size_t{rails}) * kRailBytes + served * kServedBytes) return malformed;
  kRailFields(reader, address.frames);
  address.rails.resize(rails);
  for (RailAddress& rail : address.rails) kRailFields(reader, rail);
  address.served.resize(served);
  for (ServedQueuePair& pair : address.served) kServedFields(reader, pair);
  if (!plausible(address)) return malformed;
  return address;
}

}  // namespace gloo_bypass::verbs
