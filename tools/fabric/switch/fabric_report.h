// What a fabric has counted, as a table for people and as JSON for programs. Pure: nothing here reads a clock or a
// file.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "tools/fabric/core/description.h"
#include "tools/fabric/switch/fabric_switch.h"

namespace gloo_bypass::fabric {

class FabricReport {
 public:
  // Both outlive it.
  FabricReport(const Description& description, const FabricSwitch& fabricSwitch, TimePoint start)
      : description_(description),
        switch_(fabricSwitch),
        start_(start),
        lastBytes_(description.edges.size()),
        lastOffered_(description.edges.size()) {}

  // A line for each edge that has been used, at most `maxEdges` of them, those with the most bytes. Rates are of the
  // time since the last call.
  std::string table(TimePoint now, std::size_t maxEdges);
  // Lines for what went wrong at hosts: frames lost outside the emulated edges, each with what to do. Empty: nothing.
  std::string complaints() const;
  // Everything. The README of this folder lists the keys.
  nlohmann::ordered_json json(TimePoint now) const;
  // One line of the samples: the counters that grow, of the edges that have been used since the last call.
  nlohmann::ordered_json sample(TimePoint now);

 private:
  std::vector<EdgeId> usedEdges() const;
  nlohmann::ordered_json edgeJson(EdgeId row, TimePoint now) const;
  nlohmann::ordered_json hostJson(std::size_t host) const;

  const Description& description_;
  const FabricSwitch& switch_;
  const TimePoint start_;
  TimePoint last_{};
  std::vector<std::uint64_t> lastBytes_;    // delivered, by edge, at the last table
  std::vector<std::uint64_t> lastOffered_;  // by edge, at the last sample
};

}  // namespace gloo_bypass::fabric
