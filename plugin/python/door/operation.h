// An operation that was started: a collective, a send or a receive. Python may wait for it, or have callbacks run.
//
// While it is under way it holds a reference to itself, and through `keep` to the tensors: their memory stays until the
// group's thread no longer touches it, even if Python has forgotten the operation.
#pragma once

#include "plugin/python/door/service.h"

namespace gloo_bypass::door {

enum class Task : std::uint8_t { kCollective, kSend, kReceive };

struct Operation {
  PyObject_HEAD
      // With the GIL:
      Group* group;  // owned; nullptr: what post() made, which Python does not see
  PyObject* keep;    // owned; what must live until the end
  Task task;
  PyObject* callbacks;  // owned list; nullptr until there is one. Changed with the GIL and the lock
  // With the service's lock, or once `done` was seen to be true:
  bool done;
  int failure;  // 0, or an enum gloo_bypass_failure
  int peer;     // who sent; -1
  char* error;  // owned
  int waiters;
  std::condition_variable* changed;  // owned; nullptr until somebody waits
  Operation* next;                   // in one of the service's queues
};

bool makeOperationType(PyObject* module);

// One that is under way: the caller hands its gloo_bypass_done `finish` and the result as context. Steals no reference.
Operation* newOperation(Group* group, PyObject* keep, Task task);
// A gloo_bypass_done; on any thread.
void finish(void* operation, int failure, const char* error, int peer);
// Drops the reference of an operation that was under way. With the GIL.
void letGo(Operation* operation);
// With the GIL.
void runCallbacks(Operation* operation);
// post(callable): calls it with None on a serving thread, after the callbacks of operations that have ended.
PyObject* post(PyObject* module, PyObject* callable);

// Sets the exception for a failed call, of the class for `failure`.
void setException(int failure, const char* error);
// errors(tuple of 6 classes, in the order of enum gloo_bypass_failure)
PyObject* setErrors(PyObject* module, PyObject* classes);

}  // namespace gloo_bypass::door
