// Outcome of an operation that can fail. Errors inside the library are values; only
// transport/gloo turns them into ::gloo exceptions.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <variant>

namespace gloo_bypass {

// Grouped by what the error breaks.
enum class ErrorScope : unsigned char {
  kOperation,  // this send or receive; the session goes on
  kSession,    // everything to and from one peer
  kDevice,     // the port or the whole back-end
};

enum class ErrorCode : unsigned char {
  kInvalidArgument,       // the caller asked for something impossible
  kConfiguration,         // a configured value is wrong, or two ranks' values cannot talk
  kUnavailable,           // a device, file or right is missing
  kExhausted,             // a bound was reached that back-pressure cannot relieve
  kTimedOut,              // a bounded wait ran out
  kPeerVanished,          // the peer's process or path is gone
  kPeerClosed,            // the peer closed in good order
  kPeerViolatedProtocol,  // bytes from the peer that no correct peer sends
  kMessageTooLong,        // a message does not fit the receive it matched
  kCancelled,             // withdrawn by its owner
  kInternal,              // a fault of ours
};

struct Error {
  ErrorScope scope = ErrorScope::kOperation;
  ErrorCode code = ErrorCode::kInternal;
  std::string message;  // what, where, and what to do; one line

  // The peer or the path ended, and no one broke a rule: data that had arrived before is still valid.
  bool isLoss() const {
    return code == ErrorCode::kPeerVanished || code == ErrorCode::kPeerClosed || code == ErrorCode::kTimedOut ||
           code == ErrorCode::kUnavailable;
  }
};

class [[nodiscard]] Status {
 public:
  Status() = default;  // success
  Status(Error error) : error_(std::move(error)) {}
  Status(ErrorScope scope, ErrorCode code, std::string message) : error_(Error{scope, code, std::move(message)}) {}

  bool ok() const { return !error_.has_value(); }
  explicit operator bool() const { return ok(); }
  // Only when !ok().
  const Error& error() const { return *error_; }

 private:
  std::optional<Error> error_;
};

// A value or the error that kept it from being made.
template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::move(value)) {}
  Result(Error error) : state_(std::move(error)) {}
  Result(Status status) : state_(status.error()) {}

  bool ok() const { return state_.index() == 0; }
  explicit operator bool() const { return ok(); }
  T& value() & { return std::get<0>(state_); }
  const T& value() const& { return std::get<0>(state_); }
  T&& value() && { return std::get<0>(std::move(state_)); }
  const Error& error() const { return std::get<1>(state_); }

 private:
  std::variant<T, Error> state_;
};

}  // namespace gloo_bypass
