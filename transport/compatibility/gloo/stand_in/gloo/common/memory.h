// Stand-in for a header that Debian's libgloo-dev of December 2023 leaves out and gloo/transport/tcp/pair.h includes.
// It names what TCP's classes name, so that the compiler knows their virtual functions; nobody may make one of them or
// look at its members.
#pragma once

#include <memory>

namespace gloo {

using std::make_unique;

template <typename T>
class NonOwningPtr;

template <typename T>
class ShareableNonOwningPtr;

template <typename T>
class WeakNonOwningPtr {
 public:
  WeakNonOwningPtr() = default;
  explicit WeakNonOwningPtr(const ShareableNonOwningPtr<T>&);
};

template <typename T>
class ShareableNonOwningPtr {
 public:
  explicit ShareableNonOwningPtr(T*);
};

}  // namespace gloo
