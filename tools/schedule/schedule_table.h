// A schedule as a table for people: a row a round, a column a rank.
#pragma once

#include <string>

#include "collectives/operation.h"
#include "collectives/schedule/catalogue.h"
#include "collectives/schedule/schedule.h"

namespace gloo_bypass {

// "3>1" sends part 3 to rank 1; "3<1" receives it from there; "3+0,2" adds what ranks 0 and 2 have of it; "0-2>1" means
// parts 0 to 2. Ends in a new line. `row` is one of the catalogue's; place.rank is ignored.
std::string scheduleTable(const collectives::AlgorithmRow& row, const collectives::Place& place);
// One algorithm a line, with its kind and cost.
std::string algorithmList();

}  // namespace gloo_bypass
