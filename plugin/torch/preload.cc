// libgloo_bypass.so: the library for LD_PRELOAD, torch.ops.load_library and dlopen. It needs only the C library, and
// loads the plug-in beside it, libgloo_bypass_plugin.so, once the process has a use for it. LD_PRELOAD reaches every
// program that a rank starts, and the plug-in needs PyTorch and Gloo, which take 0.3 s of processor time to load.
//
//   libtorch_cpu.so is loaded already (torch.ops.load_library, a C++ program linked with it): at once
//   it comes later, or never (LD_PRELOAD of Python, of /bin/true): when PyTorch makes its first Gloo device
//   the program calls a C function of gloo_bypass.h: then, if libtorch_cpu.so is loaded
//
// PyTorch makes devices through c10d::GlooDeviceFactory. A preloaded library precedes it, so the calls come here first.
//
// Thread: any. No exceptions and no C++ library: the process may bring another one.
#include <dlfcn.h>
#include <link.h>
#include <pthread.h>

#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>

#include "collectives/c_api.h"
#include "plugin/torch/gloo_bypass.h"
#include "torch_soname.h"  // made from the plug-in: kTorchLibrary, "libtorch_cpu.so.1.13"

#define GLOO_BYPASS_VISIBLE __attribute__((visibility("default")))

namespace {

constexpr char kPlugin[] = "libgloo_bypass_plugin.so";
constexpr char kAnyTorch[] = "libtorch_cpu.so";

using CFunction = int(char*, size_t);

char ownPath[PATH_MAX];
void* plugin = nullptr;
char whyNot[PATH_MAX + 512];  // why there is no plug-in

const char* baseName(const char* path) {
  const char* const slash = std::strrchr(path, '/');
  return slash == nullptr ? path : slash + 1;
}

// The process's libtorch_cpu.so, from the dynamic linker's list; searches no files.
struct Torch {
  char path[PATH_MAX];
};
int keepTorch(dl_phdr_info* library, size_t, void* torch) {
  if (std::strncmp(baseName(library->dlpi_name), kAnyTorch, sizeof(kAnyTorch) - 1) != 0) return 0;
  std::snprintf(static_cast<Torch*>(torch)->path, PATH_MAX, "%s", library->dlpi_name);
  return 1;
}
bool findTorch(Torch& torch) { return dl_iterate_phdr(keepTorch, &torch) == 1; }

void loadOnce(const Torch& torch) {
  if (std::strcmp(baseName(torch.path), kTorchLibrary) != 0) {
    std::snprintf(whyNot, sizeof(whyNot), "%.2000s was built for %s, and this program has %.2000s: %s", ownPath,
                  kTorchLibrary, torch.path, "install gloo_bypass for this PyTorch (docs/pytorch.md)");
    return;
  }
  char path[PATH_MAX];
  const int folder = static_cast<int>(baseName(ownPath) - ownPath);
  std::snprintf(path, sizeof(path), "%.*s%s", folder, ownPath, kPlugin);
  plugin = dlopen(path, RTLD_NOW);
  if (plugin == nullptr) std::snprintf(whyNot, sizeof(whyNot), "%s", dlerror());
}

// The plug-in registers when it is loaded. Null: it cannot be loaded, or PyTorch is not there.
void* loadedPlugin() {
  static pthread_mutex_t mutex = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;  // its constructors may call this again
  pthread_mutex_lock(&mutex);
  static bool tried = false;
  Torch torch;
  if (!tried && findTorch(torch)) {
    tried = true;
    loadOnce(torch);
    if (plugin == nullptr) std::fprintf(stderr, "gloo-bypass: %s\n", whyNot);
  }
  pthread_mutex_unlock(&mutex);
  return plugin;
}

__attribute__((constructor)) void onLoad() {
  Dl_info own;
  if (dladdr(ownPath, &own) == 0 || realpath(own.dli_fname, ownPath) == nullptr) return;  // realpath: before any chdir
  (void)loadedPlugin();
}

int callPlugin(const char* function, char* buffer, size_t capacity) {
  void* const library = loadedPlugin();
  auto* const found = library == nullptr ? nullptr : reinterpret_cast<CFunction*>(dlsym(library, function));
  return found == nullptr ? -1 : found(buffer, capacity);
}

// PyTorch's own function of this name and type, in its library.
template <typename Function>
Function* ofPyTorch(Function* ours) {
  (void)loadedPlugin();
  Torch torch;
  Dl_info own;
  void* const library = findTorch(torch) ? dlopen(torch.path, RTLD_LAZY | RTLD_NOLOAD) : RTLD_NEXT;
  void* const theirs = dladdr(reinterpret_cast<void*>(ours), &own) == 0 ? nullptr : dlsym(library, own.dli_sname);
  if (theirs == nullptr) {
    std::fprintf(stderr, "gloo-bypass: %s finds no Gloo in PyTorch: leave it out of LD_PRELOAD\n", ownPath);
    std::abort();
  }
  return reinterpret_cast<Function*>(theirs);
}

}  // namespace

extern "C" {

GLOO_BYPASS_VISIBLE int gloo_bypass_stats_json(char* buffer, size_t capacity) {
  return callPlugin("gloo_bypass_stats_json", buffer, capacity);
}

GLOO_BYPASS_VISIBLE int gloo_bypass_available_json(char* buffer, size_t capacity) {
  return callPlugin("gloo_bypass_available_json", buffer, capacity);
}

GLOO_BYPASS_VISIBLE int gloo_bypass_register(char* buffer, size_t capacity) {
  if (loadedPlugin() != nullptr) return callPlugin("gloo_bypass_register", buffer, capacity);
  const char* const why =
      whyNot[0] != '\0' ? whyNot : "PyTorch (libtorch_cpu.so) is not loaded yet: call this again when it is";
  if (capacity > 0) std::snprintf(buffer, capacity, "%s", why);
  return static_cast<int>(std::strlen(why) + 1);
}

// Null: there is no plug-in.
GLOO_BYPASS_VISIBLE const gloo_bypass_collectives* gloo_bypass_collectives_v1(void) {
  using Function = const gloo_bypass_collectives*();
  void* const library = loadedPlugin();
  void* const found = library == nullptr ? nullptr : dlsym(library, "gloo_bypass_collectives_v1");
  return found == nullptr ? nullptr : reinterpret_cast<Function*>(found)();
}
}

namespace gloo::transport {
class Device;
}

// PyTorch's declaration; with `lazyInit` from 2.8 on.
namespace c10d {

class GLOO_BYPASS_VISIBLE GlooDeviceFactory {
 public:
  using DevicePointer = std::shared_ptr<::gloo::transport::Device>;
  static DevicePointer makeDeviceForInterface(const std::string& interface);
  static DevicePointer makeDeviceForInterface(const std::string& interface, bool lazyInit);
  static DevicePointer makeDeviceForHostname(const std::string& hostname);
  static DevicePointer makeDeviceForHostname(const std::string& hostname, bool lazyInit);

 private:
  using Plain = DevicePointer(const std::string&);
  using Lazy = DevicePointer(const std::string&, bool);
};

GlooDeviceFactory::DevicePointer GlooDeviceFactory::makeDeviceForInterface(const std::string& interface) {
  return ofPyTorch<Plain>(makeDeviceForInterface)(interface);
}

GlooDeviceFactory::DevicePointer GlooDeviceFactory::makeDeviceForInterface(const std::string& interface,
                                                                           bool lazyInit) {
  return ofPyTorch<Lazy>(makeDeviceForInterface)(interface, lazyInit);
}

GlooDeviceFactory::DevicePointer GlooDeviceFactory::makeDeviceForHostname(const std::string& hostname) {
  return ofPyTorch<Plain>(makeDeviceForHostname)(hostname);
}

GlooDeviceFactory::DevicePointer GlooDeviceFactory::makeDeviceForHostname(const std::string& hostname, bool lazyInit) {
  return ofPyTorch<Lazy>(makeDeviceForHostname)(hostname, lazyInit);
}

}  // namespace c10d
