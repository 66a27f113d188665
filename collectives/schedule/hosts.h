// Which ranks of a group share a host. Pure, and the same at all ranks but for where this one is.
//
//   host      0       1          A host is known by its lowest rank, and hosts are in the order of these.
//   place 0   0       1          Places within a host are in the order of ranks.
//   place 1   2       3          The leaders are the ranks of place 0.
//                                With as many ranks on every host, those of a place are a column.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "collectives/schedule/schedule.h"

namespace gloo_bypass::collectives {

class Hosts {
 public:
  // `hostOf`: for each rank, at least one, a number that ranks of the same host have in common.
  Hosts(int rank, std::span<const int> hostOf);
  explicit Hosts(const Place& place);

  int count() const { return static_cast<int>(hosts_.size()); }
  int mine() const { return mine_; }
  int place() const { return place_; }
  const std::vector<int>& ranks(int host) const { return hosts_[static_cast<std::size_t>(host)]; }
  const std::vector<int>& mates() const { return ranks(mine_); }  // of this rank's host, itself included
  const std::vector<int>& everyone() const { return everyone_; }
  const std::vector<int>& leaders() const { return leaders_; }
  // Of the host that has most of them.
  int mostRanks() const { return mostRanks_; }
  // Whether every host has the same number of ranks.
  bool even() const { return even_; }
  // The ranks of this rank's place, by host. Only if even().
  const std::vector<int>& column() const { return column_; }

  int hostOf(int rank) const;
  int placeOf(int rank) const;  // on its own host
  // One rank a host, by host: `root` for its own, else the leader.
  std::vector<int> representatives(int root) const;

 private:
  std::vector<std::vector<int>> hosts_;
  std::vector<int> everyone_, leaders_, column_;
  int mine_ = 0, place_ = 0, mostRanks_ = 0;
  bool even_ = true;
};

// For each rank the first one on its host, by its host's identity. A rank that does not know its host (empty) is alone
// on it.
std::vector<int> hostsOf(std::span<const std::string> identities);

}  // namespace gloo_bypass::collectives
