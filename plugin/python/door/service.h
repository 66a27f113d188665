// What other threads want done under the GIL: completions with callbacks, and questions to the rendezvous store.
// Threads that Python has not made never touch Python, since it may have ended under them; they queue work here, and
// threads that Python has made (serve) take it.
//
// A callback may wait for other operations, as PowerSGD's hook does, so before a serving thread begins one, it asks for
// another thread if none is idle.
#pragma once

#define PY_SSIZE_T_CLEAN
#ifndef Py_LIMITED_API
#define Py_LIMITED_API 0x03090000
#endif
#include <Python.h>

#include <condition_variable>
#include <cstdint>
#include <mutex>

#include "collectives/c_api.h"

// The limited API has METH_FASTCALL from 3.10 on; 3.7 to 3.9 have the same flag and calling convention.
#ifndef METH_FASTCALL
#define METH_FASTCALL 0x0080
#endif

namespace gloo_bypass::door {

struct Operation;
struct Group;

// The module's one lock: of operations' states, of groups' counters, and of the queues. Never held while taking the
// GIL.
struct Service {
  std::mutex mutex;
  std::condition_variable work;   // for serving threads
  std::condition_variable ended;  // an operation is no longer under way, or a serving thread has ended
  // Operations that have ended. `finished` holds those that only have references to drop, which can wait.
  Operation* callbacks = nullptr;
  Operation* finished = nullptr;
  struct Question* questions = nullptr;
  int threads = 0, idle = 0;
  int awaitingAny = 0;  // of the idle ones, those that `finished` wakes; the others will look at it anyway
  bool closed = false;
  unsigned long mainThread = 0;  // Python's, by its ident: the one that runs the handlers of signals
  std::uint64_t generation = 0;  // + 1 in each forked child: its groups have no threads
};
Service& service();

// The body of a serving thread; `spawn` starts another one. close() ends all of them, and waits for that.
PyObject* serve(PyObject* module, PyObject* spawn);
PyObject* close(PyObject* module, PyObject*);
// is_asked(): for the callable of storeOf(), whether somebody still waits for its answer.
PyObject* isStillAsked(PyObject* module, PyObject*);
// In a forked child, where no other thread is.
PyObject* afterFork(PyObject* module, PyObject*);

// main_thread(ident), of threading.main_thread().
PyObject* setMainThread(PyObject* module, PyObject* ident);

// Runs the handlers of signals that have come, if this is Python's main thread. 1: one of them has raised an exception,
// as Ctrl-C's does, which is set once the thread has the GIL again. Without the GIL.
int isInterrupted();

// Drops what `finished` holds. With the GIL, without the lock.
void dropFinished();

// A gloo_bypass_store that asks `callable(what, key, value, timeout_ms)`; what: "set", "get" or "has". The group
// releases it. With the GIL.
gloo_bypass_store storeOf(PyObject* callable);

}  // namespace gloo_bypass::door
