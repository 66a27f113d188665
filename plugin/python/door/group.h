// The ranks that call together: a gloo_bypass_group behind the table of c_api.h. The GIL is released while it waits.
#pragma once

#include "plugin/python/door/service.h"

namespace gloo_bypass::door {

bool makeGroupType(PyObject* module);
// create(address of the table, rank, size, timeout_ms, transport, interface, store) -> Group
PyObject* createGroup(PyObject* module, PyObject* arguments);

// An operation of the group is no longer under way. With the service's lock.
void operationHasEnded(Group* group);
// False in a forked child, where the group's threads are not.
bool belongsToThisProcess(const Group* group);

}  // namespace gloo_bypass::door
