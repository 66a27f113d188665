// What the plug-in takes from Gloo and c10d, for examine.py: the symbols that this file leaves undefined are those that a wheel's
// libtorch_cpu must export. A test compares them with the plug-in's own.
#include <gloo/common/logging.h>
#include <gloo/transport/address.h>
#include <gloo/transport/buffer.h>
#include <gloo/transport/context.h>
#include <gloo/transport/device.h>
#include <gloo/transport/pair.h>
#include <gloo/transport/tcp/device.h>
#include <gloo/transport/unbound_buffer.h>

#include "compatibility/torch/device_registry.h"

// A key function each, so that the vtable is made here and names what it takes from its base.
template <typename Base>
struct Needed : Base {
  ~Needed() override;
};
template <typename Base>
Needed<Base>::~Needed() = default;

template struct Needed<::gloo::transport::Address>;
template struct Needed<::gloo::transport::Buffer>;
template struct Needed<::gloo::transport::Context>;
template struct Needed<::gloo::transport::Device>;
template struct Needed<::gloo::transport::Pair>;
template struct Needed<::gloo::transport::UnboundBuffer>;

struct MadeContext : ::gloo::transport::Context {
  MadeContext();
};
MadeContext::MadeContext() : Context(0, 1) {}

void require(bool condition) { GLOO_ENFORCE(condition); }
auto makeTcpDevice() { return ::gloo::transport::tcp::CreateDevice(::gloo::transport::tcp::attr()); }
auto registry() { return c10d::GlooDeviceRegistry(); }
