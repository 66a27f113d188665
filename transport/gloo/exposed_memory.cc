#include "transport/gloo/exposed_memory.h"

#include <random>

namespace gloo_bypass::adapter {

std::uint64_t ExposedMemory::draw() const {
  std::random_device random;
  std::uint64_t id = 0;
  while (id == 0 || regions_.contains(id)) id = (static_cast<std::uint64_t>(random()) << 32) | random();
  return id;
}

std::uint64_t ExposedMemory::expose(std::byte* data, std::size_t size) {
  if (context_ == 0) context_ = draw();
  const std::uint64_t region = draw();
  regions_[region] = {data, size, 0, false};
  return region;
}

void ExposedMemory::conceal(std::uint64_t region) {
  const auto found = regions_.find(region);
  if (found != regions_.end()) found->second.concealed = true;
}

void ExposedMemory::forget(std::uint64_t region) { regions_.erase(region); }

ExposedMemory::Place ExposedMemory::find(const RemoteMessage& request) const {
  if (context_ == 0 || request.context != context_) return {nullptr, RemoteRefusal::kOtherContext};
  const auto found = regions_.find(request.region);
  if (found == regions_.end() || found->second.concealed) return {nullptr, RemoteRefusal::kNoSuchMemory};
  const Region& region = found->second;
  if (request.offset > region.size || request.length > region.size - request.offset) {
    return {nullptr, RemoteRefusal::kOutOfRange};
  }
  return {request.length == 0 ? region.data : region.data + request.offset, RemoteRefusal::kNone};
}

void ExposedMemory::begin(std::uint64_t region) { regions_.at(region).underWay++; }

void ExposedMemory::end(std::uint64_t region) {
  const auto found = regions_.find(region);
  if (found != regions_.end()) found->second.underWay--;
}

bool ExposedMemory::inUse(std::uint64_t region) const {
  const auto found = regions_.find(region);
  return found != regions_.end() && found->second.underWay > 0;
}

}  // namespace gloo_bypass::adapter
