#include "plugin/wheel/verification.h"

#include <cxxabi.h>
#include <dlfcn.h>
#include <link.h>

#include <cstddef>
#include <cstdlib>
#include <memory>
#include <new>
#include <span>
#include <stdexcept>
#include <typeinfo>

#include <fmt/format.h>
#include <gloo/rendezvous/prefix_store.h>
#include <gloo/transport/context.h>
#include <gloo/transport/tcp/address.h>
#include <gloo/transport/tcp/buffer.h>
#include <gloo/transport/tcp/context.h>
#include <gloo/transport/tcp/device.h>
#include <gloo/transport/tcp/pair.h>
#include <gloo/transport/tcp/unbound_buffer.h>

namespace gloo_bypass {

// A class that adds no virtual function has its base's virtual table, except for the destructors. The instantiation
// below makes the table here; adapter_symbols.map keeps it visible.
template <typename Base>
struct LayoutOf : Base {
  ~LayoutOf() override = default;
};

// Gloo's classes with virtual tables that PyTorch's wheels export. TCP's represent the abstract classes they derive
// from; the store represents those that an adapter receives.
template struct LayoutOf<::gloo::rendezvous::PrefixStore>;
template struct LayoutOf<::gloo::transport::Context>;
template struct LayoutOf<::gloo::transport::tcp::Address>;
template struct LayoutOf<::gloo::transport::tcp::Buffer>;
template struct LayoutOf<::gloo::transport::tcp::Context>;
template struct LayoutOf<::gloo::transport::tcp::Device>;
template struct LayoutOf<::gloo::transport::tcp::Pair>;
template struct LayoutOf<::gloo::transport::tcp::UnboundBuffer>;

namespace {

std::string readable(const std::type_info& type) {
  int status = 0;
  const std::unique_ptr<char, decltype(&std::free)> text(abi::__cxa_demangle(type.name(), nullptr, nullptr, &status),
                                                         std::free);
  return status == 0 ? text.get() : type.name();
}

// A virtual table in memory: pointers to functions, and to the whole object and its type. Empty: no library exports it.
using VirtualTable = std::span<const void* const>;

// Looks symbols up in this library and those that it is linked with, PyTorch's among them.
class Symbols {
 public:
  Symbols() {
    Dl_info here{};
    if (::dladdr(reinterpret_cast<void*>(&whatDoesNotFit), &here) == 0) return;
    base_ = here.dli_fbase;
    handle_.reset(::dlopen(here.dli_fname, RTLD_LAZY | RTLD_NOLOAD));
  }

  VirtualTable tableOf(const std::type_info& type) const {
    const void* const table = handle_ ? ::dlsym(handle_.get(), fmt::format("_ZTV{}", type.name()).c_str()) : nullptr;
    Dl_info where{};
    ElfW(Sym)* symbol = nullptr;
    if (table == nullptr || ::dladdr1(table, &where, reinterpret_cast<void**>(&symbol), RTLD_DL_SYMENT) == 0) return {};
    if (symbol == nullptr || where.dli_saddr != table) return {};
    return {static_cast<const void* const*>(table), symbol->st_size / sizeof(void*)};
  }

  bool inAnotherLibrary(const void* address) const {
    Dl_info where{};
    return ::dladdr(address, &where) != 0 && where.dli_fbase != base_;
  }

 private:
  struct Close {
    void operator()(void* handle) const { ::dlclose(handle); }
  };
  const void* base_ = nullptr;
  std::unique_ptr<void, Close> handle_;
};

template <typename Class>
std::string misfit(const Symbols& symbols) {
  const VirtualTable theirs = symbols.tableOf(typeid(Class));
  const VirtualTable ours = symbols.tableOf(typeid(LayoutOf<Class>));
  if (theirs.size() != ours.size() || ours.empty()) {
    return fmt::format("the virtual table of {} has {} entries in this PyTorch, {} are known", readable(typeid(Class)),
                       theirs.size(), ours.size());
  }
  // A function that was not compiled here is PyTorch's. It must be at the same position in PyTorch's table, by name.
  for (std::size_t i = 0; i < ours.size(); ++i) {
    if (ours[i] != theirs[i] && symbols.inAnotherLibrary(ours[i])) {
      return fmt::format("entry {} of the virtual table of {} is another function in this PyTorch", i,
                         readable(typeid(Class)));
    }
  }
  return "";
}

struct BareContext : ::gloo::transport::Context {
  BareContext() : Context(kRank, kSize) {}
  std::unique_ptr<::gloo::transport::Pair>& createPair(int) override { throw std::logic_error("not a real context"); }
  std::unique_ptr<::gloo::transport::UnboundBuffer> createUnboundBuffer(void*, std::size_t) override {
    throw std::logic_error("not a real context");
  }
  static constexpr int kRank = 3;
  static constexpr int kSize = 5;
};

// PyTorch's code constructs the context in this library's memory: the last byte that it writes shows the size it
// assumes.
std::string misfitOfContext() {
  constexpr std::size_t kRoom = 4096;
  static_assert(sizeof(BareContext) <= kRoom / 2);
  // Volatile: otherwise the compiler ignores what lies there before the constructor runs. Two patterns also catch a
  // byte that the constructor happens to set to one of them.
  alignas(std::max_align_t) volatile unsigned char room[kRoom];
  std::size_t written = 0;
  bool rightNumbers = true;
  for (const unsigned char pattern : {0x5a, 0xa5}) {
    for (auto& byte : room) byte = pattern;
    auto* const context = new (const_cast<unsigned char*>(room)) BareContext;
    for (std::size_t i = written; i < kRoom; ++i) {
      if (room[i] != pattern) written = i + 1;
    }
    rightNumbers = rightNumbers && context->rank == BareContext::kRank && context->size == BareContext::kSize;
    context->~BareContext();
  }
  if (!rightNumbers) return "a gloo::transport::Context has its rank and size elsewhere in this PyTorch";
  if (written <= sizeof(BareContext) && written + alignof(void*) > sizeof(BareContext)) return "";
  return fmt::format("this PyTorch writes {} bytes of a gloo::transport::Context, which has {} as it is known", written,
                     sizeof(BareContext));
}

}  // namespace

std::string whatDoesNotFit() {
  const Symbols symbols;
  using namespace ::gloo::transport;
  for (const auto check :
       {misfit<::gloo::rendezvous::PrefixStore>, misfit<Context>, misfit<tcp::Address>, misfit<tcp::Buffer>,
        misfit<tcp::Context>, misfit<tcp::Device>, misfit<tcp::Pair>, misfit<tcp::UnboundBuffer>}) {
    if (std::string text = check(symbols); !text.empty()) return text;
  }
  return misfitOfContext();  // last: it runs PyTorch's code
}

}  // namespace gloo_bypass
