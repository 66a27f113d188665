#include "plugin/python/door/operation.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>

#include "plugin/python/door/group.h"

namespace gloo_bypass::door {
namespace {

PyTypeObject* operationType = nullptr;
PyObject* errorClasses = nullptr;

Operation* of(PyObject* object) { return reinterpret_cast<Operation*>(object); }

// The exception of a failed operation; nullptr with an exception set if it cannot be made.
PyObject* exceptionOf(int failure, const char* error) {
  PyObject* const type = errorClasses == nullptr ? nullptr : PyTuple_GetItem(errorClasses, failure - 1);
  if (type == nullptr) PyErr_Clear();
  PyObject* const text = PyUnicode_DecodeUTF8(error, static_cast<Py_ssize_t>(std::strlen(error)), "replace");
  if (text == nullptr) return nullptr;
  PyObject* const exception = PyObject_CallFunctionObjArgs(type == nullptr ? PyExc_RuntimeError : type, text, nullptr);
  Py_DECREF(text);
  return exception;
}

bool isDone(Operation* operation) {
  const std::lock_guard lock(service().mutex);
  return operation->done;
}

// They run in the order in which operations ended. With the lock.
void queueCallbacks(Operation* operation) {
  Operation** end = &service().callbacks;
  while (*end != nullptr) end = &(*end)->next;
  operation->next = nullptr;
  *end = operation;
  service().work.notify_one();
}

// What ended while it was awaited has woken nobody else.
void dropKeepingException() {
  PyObject *type = nullptr, *value = nullptr, *traceback = nullptr;
  PyErr_Fetch(&type, &value, &traceback);
  dropFinished();
  PyErr_Restore(type, value, traceback);
}

int hasEnded(void* operation) { return isDone(static_cast<Operation*>(operation)) ? 1 : 0; }

// wait(timeout_ms): True if it is done, False if the time passed; 0: no limit. Raises if the operation failed.
PyObject* wait(PyObject* self, PyObject* argument) {
  Operation* const operation = of(self);
  const long long timeoutMs = PyLong_AsLongLong(argument);
  if (timeoutMs == -1 && PyErr_Occurred() != nullptr) return nullptr;
  if (!belongsToThisProcess(operation->group)) {
    setException(GLOO_BYPASS_ABORTED, "this process was forked, and its parent's operations stay there");
    return nullptr;
  }
  if (!isDone(operation) && refusesHandler(operation->group)) return nullptr;
  if (operation->changed == nullptr) operation->changed = new std::condition_variable;
  // Longer ones, such as timedelta.max, would overflow.
  constexpr std::chrono::milliseconds kLongest = std::chrono::years(100);
  const auto end = std::chrono::steady_clock::now() + std::min(std::chrono::milliseconds(timeoutMs), kLongest);
  bool done = false, late = false;
  while (!done && !late) {
    const auto look = std::chrono::steady_clock::now() + kLookForSignals;
    const auto until = timeoutMs > 0 && end < look ? end : look;
    {
      const Help help(operation->group);
      PyThreadState* const state = PyEval_SaveThread();
      {
        // From here on: who ends it may leave its references to this thread, rather than wake one that wants the GIL.
        const std::lock_guard lock(service().mutex);
        ++operation->waiters;
      }
      if (operation->task != Task::kCollective) {
        help.drive(hasEnded, operation, until);
      } else if (timeoutMs == 0) {
        help.assist(hasEnded, operation);
      } else {
        help.hasten();  // this thread must be back in time
      }
      {
        std::unique_lock lock(service().mutex);
        operation->changed->wait_until(lock, until, [&] { return operation->done; });
        --operation->waiters;
        done = operation->done;
      }
      PyEval_RestoreThread(state);
      // A signal's handler may have raised an exception, in assist or now: within this call of the group.
      if (PyErr_Occurred() != nullptr || (!done && runHandlers() != 0)) {
        // What is still under way would go on writing to the caller's memory, or take a message from a later call.
        if (done) {
          dropKeepingException();
        } else {
          abortKeepingException(operation->group);
        }
        return nullptr;
      }
    }
    late = timeoutMs > 0 && std::chrono::steady_clock::now() >= end;
  }
  if (!done) Py_RETURN_FALSE;
  dropFinished();
  if (operation->failure == 0) Py_RETURN_TRUE;
  setException(operation->failure, operation->error);
  return nullptr;
}

PyObject* done(PyObject* self, PyObject*) {
  const bool ended = isDone(of(self));
  if (!ended) hasten(of(self)->group);  // who looks again and again must see it end
  return PyBool_FromLong(ended ? 1 : 0);
}

PyObject* failure(PyObject* self, PyObject*) {
  if (!isDone(of(self)) || of(self)->failure == 0) Py_RETURN_NONE;
  return exceptionOf(of(self)->failure, of(self)->error);
}

PyObject* peer(PyObject* self, PyObject*) { return PyLong_FromLong(isDone(of(self)) ? of(self)->peer : -1); }

// on_done(callable): calls it with the operation, on a serving thread, or here and now if the operation is done.
PyObject* onDone(PyObject* self, PyObject* callable) {
  Operation* const operation = of(self);
  PyObject* const list = operation->callbacks == nullptr ? PyList_New(0) : operation->callbacks;
  if (list == nullptr) return nullptr;
  bool late = false;
  {
    const std::lock_guard lock(service().mutex);
    operation->callbacks = list;
    late = operation->done;
    if (!late && PyList_Append(list, callable) != 0) return nullptr;
  }
  if (late) return PyObject_CallFunctionObjArgs(callable, self, nullptr);
  hasten(operation->group);
  Py_RETURN_NONE;
}

void dealloc(PyObject* self) {
  Operation* const operation = of(self);
  Py_XDECREF(reinterpret_cast<PyObject*>(operation->group));
  Py_XDECREF(operation->keep);
  Py_XDECREF(operation->callbacks);
  std::free(operation->error);
  delete operation->changed;
  PyTypeObject* const type = Py_TYPE(self);
  PyObject_Free(self);
  Py_DECREF(reinterpret_cast<PyObject*>(type));
}

PyMethodDef operationMethods[] = {
    {"wait", wait, METH_O, "wait(timeout_ms) -> whether it is done; 0: no limit. Raises if it failed."},
    {"done", done, METH_NOARGS, "Whether it has ended."},
    {"failure", failure, METH_NOARGS, "The exception, or None."},
    {"peer", peer, METH_NOARGS, "The rank that sent what was received, or -1."},
    {"on_done", onDone, METH_O, "on_done(callable): calls it with this operation when it has ended."},
    {nullptr, nullptr, 0, nullptr}};

}  // namespace

bool makeOperationType(PyObject* module) {
  PyType_Slot slots[] = {
      {Py_tp_dealloc, reinterpret_cast<void*>(dealloc)}, {Py_tp_methods, operationMethods}, {0, nullptr}};
  PyType_Spec spec = {"gloo_bypass._door.Operation", sizeof(Operation), 0, Py_TPFLAGS_DEFAULT, slots};
  PyObject* const type = PyType_FromSpec(&spec);
  if (type == nullptr) return false;
  operationType = reinterpret_cast<PyTypeObject*>(type);
  return PyModule_AddObject(module, "Operation", type) == 0;
}

Operation* newOperation(Group* group, PyObject* keep, Task task) {
  Operation* const operation = PyObject_New(Operation, operationType);
  if (operation == nullptr) return nullptr;
  constexpr std::size_t kHead = offsetof(Operation, group);
  std::memset(reinterpret_cast<char*>(operation) + kHead, 0, sizeof(Operation) - kHead);
  Py_XINCREF(reinterpret_cast<PyObject*>(group));
  operation->group = group;
  Py_INCREF(keep);
  operation->keep = keep;
  operation->task = task;
  operation->peer = -1;
  Py_INCREF(reinterpret_cast<PyObject*>(operation));  // while it is under way
  return operation;
}

void finish(void* context, int failure, const char* error, int peer) {
  auto* const operation = static_cast<Operation*>(context);
  Service& own = service();
  const std::lock_guard lock(own.mutex);
  operation->failure = failure;
  operation->peer = peer;
  if (failure != 0) operation->error = strdup(error == nullptr ? "no reason given" : error);
  operation->done = true;
  operationHasEnded(operation->group, operation->task);
  if (operation->waiters > 0) operation->changed->notify_all();
  if (operation->callbacks != nullptr) {
    queueCallbacks(operation);
    return;
  }
  operation->next = own.finished;
  own.finished = operation;
  if (operation->waiters == 0 && operation->next == nullptr && own.awaitingAny > 0) own.work.notify_one();
}

PyObject* post(PyObject*, PyObject* callable) {
  PyObject* const list = PyList_New(0);
  if (list == nullptr) return nullptr;
  Operation* const none =
      PyList_Append(list, callable) == 0 ? newOperation(nullptr, Py_None, Task::kCollective) : nullptr;
  if (none == nullptr) {
    Py_DECREF(list);
    return nullptr;
  }
  none->callbacks = list;
  none->done = true;
  {
    const std::lock_guard lock(service().mutex);
    queueCallbacks(none);
  }
  Py_DECREF(reinterpret_cast<PyObject*>(none));
  Py_RETURN_NONE;
}

void letGo(Operation* operation) {
  Py_CLEAR(operation->keep);
  Py_DECREF(reinterpret_cast<PyObject*>(operation));
}

void runCallbacks(Operation* operation) {
  PyObject* callbacks = nullptr;
  {
    const std::lock_guard lock(service().mutex);
    std::swap(callbacks, operation->callbacks);
  }
  PyObject* const ended = operation->group == nullptr ? Py_None : reinterpret_cast<PyObject*>(operation);
  for (Py_ssize_t i = 0; callbacks != nullptr && i < PyList_Size(callbacks); ++i) {
    PyObject* const callable = PyList_GetItem(callbacks, i);
    PyObject* const result = PyObject_CallFunctionObjArgs(callable, ended, nullptr);
    if (result == nullptr) PyErr_WriteUnraisable(callable);
    Py_XDECREF(result);
  }
  Py_XDECREF(callbacks);
}

void setException(int failure, const char* error) {
  PyObject* const exception = exceptionOf(failure, error);
  if (exception == nullptr) return;
  PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(exception)), exception);
  Py_DECREF(exception);
}

PyObject* setErrors(PyObject*, PyObject* classes) {
  if (!PyTuple_Check(classes) || PyTuple_Size(classes) != GLOO_BYPASS_ARGUMENT) {
    PyErr_SetString(PyExc_TypeError, "errors() needs a class for each kind of failure");
    return nullptr;
  }
  Py_INCREF(classes);
  Py_XDECREF(errorClasses);
  errorClasses = classes;
  Py_RETURN_NONE;
}

}  // namespace gloo_bypass::door
