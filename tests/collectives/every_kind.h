// What every Executor must do, whatever it runs over: operations of all kinds, and their plain results. An executor's
// test makes the ranks, as threads of one process, and runs cases on them.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <vector>

#include "collectives/executor.h"
#include "collectives/operation.h"
#include "tools/simulation/worlds/operation_case.h"
#include "transport/base/time.h"

namespace gloo_bypass::collectives::test {

inline constexpr std::chrono::seconds kPatience{30};  // long enough for a loaded machine
TimePoint soon();                                     // kPatience from now

inline constexpr ElementType kTypes[] = {ElementType::kFloat32, ElementType::kBfloat16, ElementType::kInt64,
                                         ElementType::kUint8};

using Buffers = OperationBuffers;
using Case = OperationCase;

// Of several counts and types, each root in turn.
std::vector<Case> casesOf(Kind kind, int size);
// Runs the case's part of `rank`, and compares what it gives with a plain loop.
::testing::AssertionResult runsRight(Executor& executor, const Case& c, int rank, Reduction reduction);
// Averages float16: each rank has 38,400, and so has the result. Two of them already add up to more than float16 holds.
::testing::AssertionResult averagesLargeHalves(Executor& executor, const Case& c, int rank);

}  // namespace gloo_bypass::collectives::test
