// Ranks of a network executor as threads of one process, over each medium.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "collectives/network/network_executor.h"
#include "tests/collectives/every_kind.h"
#include "tests/support/in_threads.h"
#include "tests/support/media/media.h"
#include "tests/support/memory_rendezvous.h"

namespace gloo_bypass::collectives::test {

using gloo_bypass::test::inThreads;
using gloo_bypass::test::Medium;
using gloo_bypass::test::MemoryRendezvous;

// In memory, over ports in memory that lose datagrams or not, and over every back-end.
std::vector<Medium> media();
inline std::string nameOf(const ::testing::TestParamInfo<Medium>& info) { return info.param.name; }

// Connected executors, by rank. `change` may set options.
using Change = std::function<void(NetworkOptions&)>;
std::vector<std::unique_ptr<NetworkExecutor>> connected(const Medium& medium, int size, const Change& change = {});
std::vector<std::unique_ptr<NetworkExecutor>> connected(const std::vector<std::shared_ptr<Transport>>& transports,
                                                        const Change& change = {});

}  // namespace gloo_bypass::collectives::test
