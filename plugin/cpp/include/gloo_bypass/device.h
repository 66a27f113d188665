// Gloo devices over gloo-bypass's transports, for C++ programs that use Gloo without PyTorch. Such a program calls
// createDevice in place of gloo::transport::tcp::CreateDevice; nothing else in it changes:
//
//   gloo_bypass::DeviceOptions options;                  // or DeviceOptions::fromEnvironment()
//   options.set(gloo_bypass::setting::kMemoryMib, 128);  // settings.h has every setting
//   auto device = gloo_bypass::createDevice("DPDK", options);
//   context->connectFullMesh(store, device);             // a gloo::rendezvous::Context
//
// Compile and link with what `pkg-config --cflags --libs gloo_bypass` prints. C++17 or later; the C++ library and the
// libgloo that gloo_bypass was built with.
//
// Ownership: a device is a light handle. All devices of one transport share one port or adapter, its memory and one
// engine thread; the first device makes them and they live until the process exits. So a process has one configuration
// for each transport. A program that loads the PyTorch plug-in as well (libgloo_bypass.so) makes its devices by one of
// them only: DPDK starts once a process. Threads: every function here may be called from any thread. The environment
// must not be changed meanwhile (getenv's rule). Make devices after fork(), not before: a child of a process that has
// made one cannot make another of that kind. Errors: exceptions of Gloo's types, so that one catch of gloo::Exception
// serves all transports. If a device cannot be made, createDevice throws gloo::InvalidOperationException with one line
// that says what is wrong and what to do; it never falls back to TCP.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include <gloo/transport/device.h>

#include <gloo_bypass/settings.h>
#include <gloo_bypass/version.h>

#define GLOO_BYPASS_EXPORT __attribute__((visibility("default")))

namespace gloo_bypass {

// The configuration of a device. A plain value: copy it and keep it as long as you like.
struct DeviceOptions {
  // Takes `settings` from the GLOO_BYPASS_* variables of the environment; what the program sets later overrides them.
  GLOO_BYPASS_EXPORT static DeviceOptions fromEnvironment();

  // Where to communicate, as in gloo::transport::tcp::attr. At most one need be given; with neither it is the address
  // of this machine's host name. UDP, and DPDK in its default link mode, ignore a host name: where no interface is
  // named they take the address of the route to MASTER_ADDR, or without that the default route's
  // (docs/links-and-rdma.md has the whole rule). DPDK's link netdev takes the interface of that route, and looks at a
  // host name where MASTER_ADDR is not set; memif and pci need neither.
  std::string interface;  // "eth0"
  std::string hostname;   // a name or IPv4 address of this machine

  // Settings by the names of docs/configuration.md, for example {"GLOO_BYPASS_LINK", "netdev"}. A setting that is
  // missing or empty has its default. createDevice refuses unknown names and values that are not allowed.
  std::map<std::string, std::string> settings;

  // Pairs connect when they are first used, as those of gloo::transport::tcp::CreateLazyDevice, instead of all at once.
  // Needs a Gloo whose contexts keep their store (2025 or later); with an earlier one all pairs connect at once all the
  // same.
  bool connectOnDemand = false;

  // The same, typed: set(setting::kSpinUs, 50us).
  void set(SettingName<std::int64_t> name, std::int64_t value) { settings[name.text] = std::to_string(value); }
  void set(SettingName<std::string_view> name, std::string_view value) { settings[name.text] = value; }
  void set(SettingName<std::chrono::microseconds> name, std::chrono::microseconds value) {
    settings[name.text] = std::to_string(value.count());
  }
  void set(SettingName<std::chrono::milliseconds> name, std::chrono::milliseconds value) {
    settings[name.text] = std::to_string(value.count());
  }
};

// `transport` is a name as GLOO_DEVICE_TRANSPORT has it: "DPDK", "UDP", "RDMA".
// Throws gloo::InvalidOperationException: there is no such transport; a setting is unknown or not allowed; the
// process's first device of this kind had other settings (both are named); an interface, adapter, right or library is
// missing; this build has no such transport; the process was forked from one that had made such a device. The first
// call takes tens of milliseconds.
GLOO_BYPASS_EXPORT std::shared_ptr<::gloo::transport::Device> createDevice(std::string_view transport,
                                                                           const DeviceOptions& options = {});

// The counters of this process's devices as a JSON object; "{}" before the first. With devices of several transports it
// has a member for each, by its name. Not to be called from within one of Gloo's callbacks.
GLOO_BYPASS_EXPORT std::string countersJson();

// The version of the library that runs, "0.1.0"; GLOO_BYPASS_VERSION is the one compiled against.
GLOO_BYPASS_EXPORT const char* version();

}  // namespace gloo_bypass
