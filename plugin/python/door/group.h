// The ranks that call together: a gloo_bypass_group behind the table of c_api.h. The GIL is released while it waits.
#pragma once

#include <chrono>
#include <optional>

#include "plugin/python/door/service.h"

namespace gloo_bypass::door {

enum class Task : std::uint8_t;

// How often a waiting thread looks for signals, such as Ctrl-C.
inline constexpr std::chrono::milliseconds kLookForSignals{100};

bool makeGroupType(PyObject* module);
// create(address of the table, rank, size, timeout_ms, transport, interface, store) -> Group
PyObject* createGroup(PyObject* module, PyObject* arguments);

// An operation of the group is no longer under way. With the service's lock.
void operationHasEnded(Group* group, Task task);
// False in a forked child, where the group's threads are not.
bool belongsToThisProcess(const Group* group);

// Ends the group for all its ranks, and leaves the exception that is set as it is. With the GIL.
void abortKeepingException(Group* group);

// Wakes the group's thread for operations that nobody waits for. With the GIL.
void hasten(const Group* group);

// Handlers of signals run within a call of the main thread, and what they call must not wait for that call. Whether
// this thread is within a call of the group:
bool isWithinCallOf(const Group* group);
// The same, and then an exception is set. With the GIL.
bool refusesHandler(const Group* group);
// PyErr_CheckSignals(). Groups of this thread's calls know meanwhile that these are in a handler, which may wait for
// another thread that closes the group. With the GIL.
int runHandlers();

// A call of the group on this thread, from its beginning to its end. Made and destroyed with the GIL. The last one of a
// group that was closed while a handler ran within a call of it destroys the group.
class Inside {
 public:
  explicit Inside(Group* group);
  ~Inside();
  Inside(const Inside&) = delete;
  Inside& operator=(const Inside&) = delete;
  Group* group() const { return group_; }
  const Inside* outer() const { return outer_; }

 private:
  Group* const group_;
  const Inside* const outer_;  // of this thread; nullptr: none
};

// Does on a waiting thread what the group has to do, rather than wait until another thread wakes up for it. Made and
// destroyed with the GIL, as a call of the group; its functions are called without it. They may return before
// reached(data) is not 0.
class Help {
 public:
  explicit Help(Group* group);
  Help(const Help&) = delete;
  Help& operator=(const Help&) = delete;
  // Messages.
  void drive(int (*reached)(void*), void* data, std::chrono::steady_clock::time_point until) const;
  // Collectives; may take as long as they may.
  void assist(int (*reached)(void*), void* data) const;
  void hasten() const;

 private:
  Group* const group_;  // nullptr: it is closed
  std::optional<Inside> inside_;
};

}  // namespace gloo_bypass::door
