// Our own collectives (collectives/group.h) as the benchmark measures them.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "collectives/group.h"
#include "tools/all_reduce_perf/collective.h"
#include "transport/compatibility/gloo/rendezvous.h"

namespace gloo_bypass {

// Chooses this algorithm for all-reduces. kConfiguration: there is none of that name.
Result<collectives::ChoiceTable> choicesOf(std::string_view algorithm);

// What ranks are connected by: a transport on an interface, or on several with commas between. Empty: the settings'.
struct OwnLink {
  std::string_view transport, interface;
};

// The group of all ranks over this link, which meet in the store. `choices`: instead of the settings'. Throws
// ProgramError.
std::unique_ptr<collectives::Group> makeOwnGroup(const OwnLink& link, int rank, int size,
                                                 std::chrono::milliseconds timeout, gloo_version::StorePointer store,
                                                 const std::optional<collectives::ChoiceTable>& choices = {});

// As makeCollective. The group must outlive it. Throws ProgramError.
std::unique_ptr<Collective> makeOwnCollective(const CollectiveOptions& options, collectives::Group& group, void* data,
                                              std::size_t count);
// Throws ProgramError.
void ownBarrier(collectives::Group& group);

}  // namespace gloo_bypass
