// The way in: a Gloo device over any of this project's transports. Everything that a program sees of it equals
// Gloo's TCP transport, except where transport/gloo/group.h says otherwise.
//
// Thread: Gloo's objects may be used from any thread, as over TCP.
// Errors: ::gloo::IoException names rank, peer and cause; ::gloo::InvalidOperationException and ::gloo::EnforceNotMet
// as over TCP. This folder is the only one that throws.
#pragma once

#include <memory>

#include <gloo/transport/device.h>

#include "transport/channel/message_channel.h"
#include "transport/gloo/connect_mode.h"

namespace gloo_bypass {

// A light handle: any number of devices may share one transport. The transport lives until the last device,
// context, pair and buffer made from it is gone.
//
// kOnDemand is for PyTorch's lazyInit: each pair connects when it is first used, through the store that the context was
// connected with, which the context keeps. A Gloo that cannot let a context keep its store (before 2025) connects all
// pairs at once all the same.
std::shared_ptr<::gloo::transport::Device> makeDevice(std::shared_ptr<Transport> transport,
                                                      ConnectMode mode = ConnectMode::kAtOnce);

}  // namespace gloo_bypass
