// The ranks that call together: a gloo_bypass_group behind the table of c_api.h. The GIL is released while it waits.
#pragma once

#include <chrono>

#include "plugin/python/door/service.h"

namespace gloo_bypass::door {

bool makeGroupType(PyObject* module);
// create(address of the table, rank, size, timeout_ms, transport, interface, store) -> Group
PyObject* createGroup(PyObject* module, PyObject* arguments);

// An operation of the group is no longer under way. With the service's lock.
void operationHasEnded(Group* group);
// False in a forked child, where the group's threads are not.
bool belongsToThisProcess(const Group* group);

// Wakes the group's thread for operations that nobody waits for. With the GIL.
void hasten(const Group* group);

// Does on a waiting thread what the group has to do, rather than wait until another thread wakes up for it. Made and
// destroyed with the GIL, as a call of the group; its functions are called without it. They may return before
// reached(data) is not 0.
class Help {
 public:
  explicit Help(Group* group);
  ~Help();
  Help(const Help&) = delete;
  Help& operator=(const Help&) = delete;
  // Messages.
  void drive(int (*reached)(void*), void* data, std::chrono::steady_clock::time_point until) const;
  // Collectives; may take as long as they may.
  void assist(int (*reached)(void*), void* data) const;
  void hasten() const;

 private:
  Group* const group_;  // nullptr: it is closed
};

}  // namespace gloo_bypass::door
