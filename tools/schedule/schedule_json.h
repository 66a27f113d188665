// A schedule for programs: what tools/model computes times from.
#pragma once

#include <cstddef>

#include <nlohmann/json_fwd.hpp>

#include "collectives/schedule/catalogue.h"
#include "collectives/schedule/choices.h"
#include "collectives/schedule/schedule.h"

namespace gloo_bypass {

// {"schema": "gloo-bypass/schedule/1", "kind": "all-reduce", "algorithm": "ring", "ranks": 2, "bytes": 1024,
//  "parts": 2, "part_bytes": 1048576, "slices_under_way": 4,
//  "steps_of_ranks": [[{"round": 0, "action": "send", "parts": [1, 2], "peers": [1], "numbers": [0], "waits_for": 0,
//                       "before": [2]}, ...], ...]}
//
// The steps of each rank, with the names of schedule.h: parts from the first to before the last, "before" by place in
// the rank's list. Data beyond parts x part_bytes is done in slices, each by a run of all steps, so many at a time
// (more where a rank has nothing left to send). `row` is one of the catalogue's; place.rank is ignored.
nlohmann::json scheduleJson(const collectives::AlgorithmRow& row, const collectives::Place& place,
                            const collectives::Choice& choice, std::size_t bytes);

}  // namespace gloo_bypass
