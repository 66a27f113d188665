#include "collectives/schedule/hosts.h"

#include <algorithm>
#include <cstddef>

namespace gloo_bypass::collectives {
namespace {

int indexOf(const std::vector<int>& ranks, int rank) {
  return static_cast<int>(std::find(ranks.begin(), ranks.end(), rank) - ranks.begin());
}

}  // namespace

Hosts::Hosts(int rank, std::span<const int> hostOf) {
  std::vector<int> known;  // host numbers, by host
  for (std::size_t one = 0; one < hostOf.size(); ++one) {
    const auto host = static_cast<std::size_t>(indexOf(known, hostOf[one]));
    if (host == known.size()) {
      known.push_back(hostOf[one]);
      hosts_.emplace_back();
    }
    hosts_[host].push_back(static_cast<int>(one));
    everyone_.push_back(static_cast<int>(one));
  }
  mine_ = this->hostOf(rank);
  place_ = indexOf(mates(), rank);
  for (const auto& ranks : hosts_) {
    leaders_.push_back(ranks.front());
    mostRanks_ = std::max(mostRanks_, static_cast<int>(ranks.size()));
    even_ = even_ && ranks.size() == mates().size();
  }
  if (!even_) return;
  for (const auto& ranks : hosts_) column_.push_back(ranks[static_cast<std::size_t>(place_)]);
}

Hosts::Hosts(const Place& place)
    : Hosts(place.rank, place.hostOf.empty() ? std::vector<int>(static_cast<std::size_t>(place.size))
                                             : std::vector<int>(place.hostOf.begin(), place.hostOf.end())) {}

int Hosts::hostOf(int rank) const {
  const auto holds = [&](const std::vector<int>& ranks) {
    return std::find(ranks.begin(), ranks.end(), rank) != ranks.end();
  };
  return static_cast<int>(std::find_if(hosts_.begin(), hosts_.end(), holds) - hosts_.begin());
}

int Hosts::placeOf(int rank) const { return indexOf(ranks(hostOf(rank)), rank); }

std::vector<int> Hosts::representatives(int root) const {
  std::vector<int> ranks = leaders_;
  ranks[static_cast<std::size_t>(hostOf(root))] = root;
  return ranks;
}

std::vector<int> hostsOf(std::span<const std::string> identities) {
  std::vector<int> hostOf;
  for (std::size_t rank = 0; rank < identities.size(); ++rank) {
    const auto same = [&](const std::string& other) { return !other.empty() && other == identities[rank]; };
    const auto first = std::find_if(identities.begin(), identities.begin() + static_cast<std::ptrdiff_t>(rank), same);
    hostOf.push_back(static_cast<int>(first - identities.begin()));
  }
  return hostOf;
}

}  // namespace gloo_bypass::collectives
