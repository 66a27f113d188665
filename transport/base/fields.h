// The fields of a structure on the wire, one after the other, little-endian. One list of them serves both directions:
//
//   constexpr auto kChunkFields = [](auto& fields, auto& chunk) { fields(chunk.id, chunk.offset); };
//   kChunkFields(writer, chunk);  kChunkFields(reader, chunk);
//
// A field is an integer, a bool, an enum, or an array of bytes. Whoever makes a reader or a writer has checked that the
// memory is long enough.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <span>
#include <type_traits>

#include "transport/base/byte_order.h"

namespace gloo_bypass {

class FieldWriter {
 public:
  explicit FieldWriter(std::byte* to) : to_(to) {}

  template <typename... T>
  void operator()(const T&... fields) {
    (put(fields), ...);
  }
  // As many as there are.
  void bytes(std::span<const std::byte> from) { to_ = std::copy(from.begin(), from.end(), to_); }
  // Reserved: zero.
  void skip(std::size_t bytes) {
    std::memset(to_, 0, bytes);
    to_ += bytes;
  }
  std::byte* end() const { return to_; }

 private:
  template <typename T>
  void put(const T& field) {
    if constexpr (std::is_integral_v<T> || std::is_enum_v<T>) {
      storeLittle(to_, field);
    } else {
      std::memcpy(to_, field.data(), sizeof(T));
    }
    to_ += sizeof(T);
  }

  std::byte* to_;
};

class FieldReader {
 public:
  explicit FieldReader(const std::byte* from) : from_(from) {}

  template <typename... T>
  void operator()(T&... fields) {
    (take(fields), ...);
  }
  void skip(std::size_t bytes) { from_ += bytes; }

 private:
  template <typename T>
  void take(T& field) {
    if constexpr (std::is_same_v<T, bool>) {
      field = *from_ != std::byte{0};
    } else if constexpr (std::is_integral_v<T>) {
      field = loadLittle<T>(from_);
    } else if constexpr (std::is_enum_v<T>) {
      field = static_cast<T>(loadLittle<std::underlying_type_t<T>>(from_));
    } else {
      std::memcpy(field.data(), from_, sizeof(T));
    }
    from_ += sizeof(T);
  }

  const std::byte* from_;
};

struct FieldCounter {
  template <typename... T>
  constexpr void operator()(const T&...) {
    bytes += (sizeof(T) + ...);
  }
  constexpr void skip(std::size_t skipped) { bytes += skipped; }

  std::size_t bytes = 0;
};

// How many bytes a list of fields takes.
template <typename Structure, typename List>
constexpr std::size_t fieldBytes(const List& list) {
  FieldCounter counter;
  Structure structure{};
  list(counter, structure);
  return counter.bytes;
}

}  // namespace gloo_bypass
