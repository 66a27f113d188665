// Replaces a header that Debian's libgloo-dev of December 2023 lacks and gloo/transport/tcp/pair.h includes. It
// declares the names that TCP's classes use, so that the compiler knows their virtual functions; do not create such
// objects or use their members.
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
