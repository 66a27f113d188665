#include "plugin/python/door/group.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <string>
#include <vector>

#include "plugin/python/door/gpu.h"
#include "plugin/python/door/operation.h"
#include "plugin/python/door/short_way.h"

namespace gloo_bypass::door {

struct Group {
  PyObject_HEAD const gloo_bypass_collectives* table;
  gloo_bypass_group* group;  // owned; nullptr: closed
  PyObject* store;           // owned; the group asks it while it lives
  std::uint64_t generation;  // of the process that made it
  int running;               // calls on callers' threads; with the GIL
  int inHandlers;            // those within which a signal's handler runs; with the GIL
  int underWay;              // started and not ended; with the service's lock
  int owed;                  // of these all but receives: peers may need them; with the service's lock
  void* pinned;              // host memory for all-reduces of a GPU's vectors that go the short way; nullptr: none
  std::size_t pinnedBytes;   // bytes of it
  PyObject* pinnedBy;        // owned; has that memory
  bool pinnedIsInUse;        // with the GIL
  bool closing;
  bool leaves;  // close() could not wait for a call of it, which destroys the group when it returns
};

namespace {

constexpr std::size_t kErrorBytes = 1024;
constexpr int kBlocksOnStack = 16;

PyTypeObject* groupType = nullptr;

Group* of(PyObject* object) { return reinterpret_cast<Group*>(object); }

thread_local const Inside* innermost = nullptr;

// Whether the group can be called; otherwise an exception is set.
bool isUsable(const Group* group) {
  const char* why = nullptr;
  if (group->generation != service().generation) why = "this process was forked, and its parent's groups stay there";
  if (group->group == nullptr || group->closing) why = "the group was shut down";
  if (why != nullptr) setException(GLOO_BYPASS_ABORTED, why);
  return why == nullptr && !refusesHandler(group);
}

bool isInteger(PyObject* object, long long& value) {
  value = PyLong_AsLongLong(object);
  return value != -1 || PyErr_Occurred() == nullptr;
}
bool isPointer(PyObject* object, void*& value) {
  value = PyLong_AsVoidPtr(object);
  return value != nullptr || PyErr_Occurred() == nullptr;
}

bool argumentsAre(Py_ssize_t number, Py_ssize_t wanted, const char* signature) {
  if (number == wanted) return true;
  PyErr_Format(PyExc_TypeError, "%s", signature);
  return false;
}

// Blocks from a tuple (address, count, address, count, ...).
class Blocks {
 public:
  bool take(PyObject* tuple) {
    const Py_ssize_t words = PyTuple_Size(tuple);
    if (words < 0) return false;
    number_ = static_cast<std::size_t>(words / 2);
    if (number_ > kBlocksOnStack) many_.resize(number_);
    gloo_bypass_block* const blocks = many_.empty() ? few_ : many_.data();
    for (std::size_t i = 0; i < number_; ++i) {
      long long count = 0;
      const auto at = static_cast<Py_ssize_t>(2 * i);
      if (!isPointer(PyTuple_GetItem(tuple, at), blocks[i].data)) return false;
      if (!isInteger(PyTuple_GetItem(tuple, at + 1), count)) return false;
      blocks[i].count = static_cast<std::size_t>(count);
    }
    return true;
  }
  const gloo_bypass_block* data() const { return many_.empty() ? few_ : many_.data(); }
  std::size_t size() const { return number_; }

 private:
  gloo_bypass_block few_[kBlocksOnStack];
  std::vector<gloo_bypass_block> many_;
  std::size_t number_ = 0;
};

constexpr int kCallArguments = 8;
constexpr char kCallSignature[] = "(kind, type, reduction, root, uneven, timeout_ms, inputs, outputs) are needed";
constexpr char kRunSignature[] =
    "(kind, type, reduction, root, uneven, timeout_ms, inputs, outputs[, whole_count]) are needed";

bool takeCall(PyObject* const* arguments, gloo_bypass_call& call, Blocks& inputs, Blocks& outputs) {
  long long values[6];
  for (int i = 0; i < 6; ++i) {
    if (!isInteger(arguments[i], values[i])) return false;
  }
  if (!inputs.take(arguments[6]) || !outputs.take(arguments[7])) return false;
  call = {.kind = static_cast<std::uint8_t>(values[0]),
          .type = static_cast<std::uint8_t>(values[1]),
          .reduction = static_cast<std::uint8_t>(values[2]),
          .uneven = static_cast<std::uint8_t>(values[4]),
          .root = static_cast<std::int32_t>(values[3]),
          .timeout_ms = values[5],
          .inputs = inputs.data(),
          .outputs = outputs.data(),
          .input_blocks = inputs.size(),
          .output_blocks = outputs.size()};
  return true;
}

PyObject* runWithoutGil(Group* group, const gloo_bypass_call& call) {
  char error[kErrorBytes];
  error[0] = '\0';
  int failure = 0;
  {
    const Inside inside(group);
    PyThreadState* const state = PyEval_SaveThread();
    failure = group->table->run(group->group, &call, error, sizeof(error));
    PyEval_RestoreThread(state);
  }
  if (PyErr_Occurred() != nullptr) return nullptr;  // a signal's handler has raised it
  if (failure == 0) Py_RETURN_NONE;
  setException(failure, error);
  return nullptr;
}

PyObject* run(PyObject* self, PyObject* const* arguments, Py_ssize_t number) {
  gloo_bypass_call call;
  Blocks inputs, outputs;
  const bool isPiece = number == kCallArguments + 1;
  if (!isPiece && !argumentsAre(number, kCallArguments, kRunSignature)) return nullptr;
  if (!isUsable(of(self)) || !takeCall(arguments, call, inputs, outputs)) return nullptr;
  if (isPiece) {
    long long whole = 0;
    if (!isInteger(arguments[kCallArguments], whole)) return nullptr;
    call.whole_count = static_cast<std::uint64_t>(whole);
  }
  return runWithoutGil(of(self), call);
}

// Begins what `begin` begins, with `finish` and the operation; the result is the operation.
template <typename Begin>
PyObject* startOperation(Group* group, PyObject* keep, Task task, Begin begin) {
  Operation* const operation = newOperation(group, keep, task);
  if (operation == nullptr) return nullptr;
  {
    const std::lock_guard lock(service().mutex);
    ++group->underWay;
    group->owed += task != Task::kReceive;
  }
  const Inside inside(group);  // it may end before begin() returns
  PyThreadState* const state = PyEval_SaveThread();
  begin(operation);
  PyEval_RestoreThread(state);
  return reinterpret_cast<PyObject*>(operation);
}

PyObject* start(PyObject* self, PyObject* const* arguments, Py_ssize_t number) {
  dropFinished();  // may run Python, which may close the group
  gloo_bypass_call call;
  Blocks inputs, outputs;
  if (!argumentsAre(number, kCallArguments + 1, kCallSignature) || !isUsable(of(self))) return nullptr;
  if (!takeCall(arguments, call, inputs, outputs)) return nullptr;
  Group* const group = of(self);
  return startOperation(group, arguments[kCallArguments], Task::kCollective,
                        [&](Operation* operation) { group->table->start(group->group, &call, finish, operation); });
}

// pin(address, size, keep): host memory for vectors of a GPU that go the short way, one at a time; at least 64 KiB.
PyObject* pin(PyObject* self, PyObject* arguments) {
  unsigned long long address = 0;
  Py_ssize_t size = 0;
  PyObject* keep = nullptr;
  if (!PyArg_ParseTuple(arguments, "KnO:pin", &address, &size, &keep)) return nullptr;
  Group* const group = of(self);
  if (group->pinnedBy != nullptr) Py_RETURN_NONE;  // one is enough, whatever the GPU
  Py_INCREF(keep);
  group->pinnedBy = keep;
  group->pinned = reinterpret_cast<void*>(address);
  group->pinnedBytes = static_cast<std::size_t>(size);
  Py_RETURN_NONE;
}

// The same as allReduce(), of a GPU's vector: on PyTorch's current stream, through pinned memory. What the stream has
// to do takes as long as the program lets it, so a group may close meanwhile: the copies are no part of its calls.
PyObject* allReduceOnGpu(Group* group, const PlainAllReduce& found, gloo_bypass_call call) {
  GpuStream stream = nullptr;
  if (group->pinned == nullptr || group->pinnedIsInUse || found.size > group->pinnedBytes || found.isAsynchronous ||
      !isCurrentGpu(found.gpu) || !currentStream(found.gpu, stream)) {
    Py_RETURN_FALSE;
  }
  if (!isUsable(group)) return nullptr;
  const gloo_bypass_block block = {.data = group->pinned, .count = found.count};
  call.inputs = call.outputs = &block;
  group->pinnedIsInUse = true;
  PyThreadState* state = PyEval_SaveThread();
  bool isCopied = copyFromGpu(stream, group->pinned, found.data, found.size);
  PyEval_RestoreThread(state);
  PyObject* result = nullptr;
  if (!isCopied) {
    result = PyBool_FromLong(0);  // the usual way says what is wrong
  } else if (isUsable(group)) {
    result = runWithoutGil(group, call);
  }
  if (isCopied && result != nullptr) {
    Py_DECREF(result);
    state = PyEval_SaveThread();
    isCopied = copyToGpu(stream, found.data, group->pinned, found.size);
    PyEval_RestoreThread(state);
    result = isCopied ? PyBool_FromLong(1) : nullptr;
    if (!isCopied) setException(GLOO_BYPASS_FAILED, "CUDA's driver refuses to copy the result to the GPU");
  }
  group->pinnedIsInUse = false;
  return result;
}

// all_reduce(tensors, options, timeout_ms): the call that must cost least. False where it is not one for the short way;
// True where it has ended, else the operation.
PyObject* allReduce(PyObject* self, PyObject* const* arguments, Py_ssize_t number) {
  long long timeoutMs = 0;
  if (!argumentsAre(number, 3, "(tensors, options, timeout_ms) are needed")) return nullptr;
  if (!isInteger(arguments[2], timeoutMs)) return nullptr;
  PlainAllReduce found;
  if (!takePlain(arguments[0], arguments[1], timeoutMs, found)) Py_RETURN_FALSE;
  Group* const group = of(self);
  const gloo_bypass_block block = {.data = found.data, .count = found.count};
  const gloo_bypass_call call = {.kind = GLOO_BYPASS_ALL_REDUCE,
                                 .type = found.type,
                                 .reduction = found.reduction,
                                 .timeout_ms = found.timeoutMs,
                                 .inputs = &block,
                                 .outputs = &block,
                                 .input_blocks = 1,
                                 .output_blocks = 1};
  // Another thread, or what dropFinished() runs, may change the list.
  PyObject* const tensor = PyList_GetItem(arguments[0], 0);
  Py_INCREF(tensor);
  PyObject* result = nullptr;
  if (found.gpu != PlainAllReduce::kHost) {
    result = allReduceOnGpu(group, found, call);
  } else if (!found.isAsynchronous) {
    PyObject* const done = isUsable(group) ? runWithoutGil(group, call) : nullptr;
    if (done != nullptr) result = PyBool_FromLong(1);
    Py_XDECREF(done);
  } else {
    dropFinished();  // may run Python, which may close the group
    if (isUsable(group)) {
      result = startOperation(group, tensor, Task::kCollective, [&](Operation* operation) {
        group->table->start(group->group, &call, finish, operation);
      });
    }
  }
  Py_DECREF(tensor);
  return result;
}

bool takeMessage(PyObject* const* arguments, Py_ssize_t number, gloo_bypass_message& message) {
  long long peer = 0, tag = 0, bytes = 0;
  if (!argumentsAre(number, 5, "(peer, tag, address, bytes, keep) are needed")) return false;
  if (!isInteger(arguments[0], peer) || !isInteger(arguments[1], tag) || !isInteger(arguments[3], bytes)) return false;
  message = {.peer = static_cast<std::int32_t>(peer),
             .tag = static_cast<std::uint32_t>(tag),
             .bytes = static_cast<std::size_t>(bytes)};
  return isPointer(arguments[2], message.data);
}

PyObject* send(PyObject* self, PyObject* const* arguments, Py_ssize_t number) {
  dropFinished();
  gloo_bypass_message message;
  if (!isUsable(of(self)) || !takeMessage(arguments, number, message)) return nullptr;
  Group* const group = of(self);
  return startOperation(group, arguments[4], Task::kSend,
                        [&](Operation* operation) { group->table->send(group->group, &message, finish, operation); });
}

PyObject* receive(PyObject* self, PyObject* const* arguments, Py_ssize_t number) {
  dropFinished();
  gloo_bypass_message message;
  if (!isUsable(of(self)) || !takeMessage(arguments, number, message)) return nullptr;
  Group* const group = of(self);
  return startOperation(group, arguments[4], Task::kReceive, [&](Operation* operation) {
    group->table->receive(group->group, &message, finish, operation);
  });
}

PyObject* abortGroup(PyObject* self, PyObject*) {
  Group* const group = of(self);
  if (group->group != nullptr && group->generation == service().generation) {
    ++group->running;
    PyThreadState* const state = PyEval_SaveThread();
    group->table->abort(group->group);
    PyEval_RestoreThread(state);
    --group->running;
  }
  Py_RETURN_NONE;
}

// drain(limit_ms): waits until collectives and sends that were started have ended, since peers may still need them; not
// while a call of the group waits for one, as the group's end is to end that call.
PyObject* drain(PyObject* self, PyObject* argument) {
  Group* const group = of(self);
  long long limitMs = 0;
  if (!isInteger(argument, limitMs)) return nullptr;
  if (group->group == nullptr || group->closing || group->running > 0 || !belongsToThisProcess(group)) Py_RETURN_NONE;
  const Inside inside(group);
  const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(limitMs);
  for (auto now = std::chrono::steady_clock::now(); now < end; now = std::chrono::steady_clock::now()) {
    hasten(group);
    bool drained = false;
    PyThreadState* const state = PyEval_SaveThread();
    {
      std::unique_lock lock(service().mutex);
      const auto until = std::min(end, now + kLookForSignals);
      drained = service().ended.wait_until(lock, until, [group] { return group->owed == 0; });
    }
    PyEval_RestoreThread(state);
    if (runHandlers() != 0) return nullptr;
    if (drained || group->closing) break;
  }
  Py_RETURN_NONE;
}

PyObject* describe(PyObject* self, PyObject*) {
  Group* const group = of(self);
  if (!isUsable(group)) return nullptr;
  std::vector<char> text(256);
  const int needed = group->table->describe(group->group, text.data(), text.size());
  if (needed > static_cast<int>(text.size())) {
    text.resize(static_cast<std::size_t>(needed));
    group->table->describe(group->group, text.data(), text.size());
  }
  return needed < 0 ? PyUnicode_FromString("") : PyUnicode_FromString(text.data());
}

int underWay(const Group* group) {
  const std::lock_guard lock(service().mutex);
  return group->underWay + group->running;
}

// What other ranks, or threads of this process, may wait for. A receive that nobody waits in ends with the group.
int stillAwaited(const Group* group) {
  const std::lock_guard lock(service().mutex);
  return group->owed + group->running;
}

// Destroys a group that is closing, once the calls under way have ended. If one of them is in a signal's handler, which
// may wait for this thread, that call does it when it returns. With the GIL.
void leave(Group* group) {
  group->leaves = false;
  while (stillAwaited(group) > 0) {
    if (group->inHandlers > 0) {
      group->leaves = true;
      return;
    }
    // `running` changes with the GIL only, but the calls that it counts end by themselves now: look again until they
    // have.
    PyThreadState* const waiting = PyEval_SaveThread();
    {
      std::unique_lock lock(service().mutex);
      service().ended.wait_for(lock, std::chrono::milliseconds(1));
    }
    PyEval_RestoreThread(waiting);
  }
  gloo_bypass_group* const last = group->group;
  group->group = nullptr;
  PyThreadState* const destroying = PyEval_SaveThread();
  group->table->destroy(last);
  PyEval_RestoreThread(destroying);
  Py_CLEAR(group->store);  // a connection to the store's server, which whoever still holds the group does not need
}

// close(): aborts collectives, sends and calls that are under way, and destroys the group; while a signal's handler
// runs within a call of this group, that call destroys it.
PyObject* closeGroup(PyObject* self, PyObject*) {
  Group* const group = of(self);
  if (group->group == nullptr || group->closing || group->generation != service().generation) Py_RETURN_NONE;
  group->closing = true;
  PyThreadState* const state = PyEval_SaveThread();
  if (stillAwaited(group) > 0) group->table->abort(group->group);
  PyEval_RestoreThread(state);
  if (isWithinCallOf(group)) {
    group->leaves = true;
  } else {
    leave(group);
  }
  Py_RETURN_NONE;
}

PyObject* isBusy(PyObject* self, PyObject*) { return PyBool_FromLong(underWay(of(self)) > 0 ? 1 : 0); }

void dealloc(PyObject* self) {
  Group* const group = of(self);
  Py_XDECREF(closeGroup(self, nullptr));
  // A forked child leaves its parent's group alone: its memory and threads are the parent's.
  if (group->group == nullptr) {
    Py_XDECREF(group->store);
    Py_XDECREF(group->pinnedBy);
  }
  PyTypeObject* const type = Py_TYPE(self);
  PyObject_Free(self);
  Py_DECREF(reinterpret_cast<PyObject*>(type));
}

template <typename Function>
PyCFunction fast(Function* function) {
  return reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(function));
}

PyMethodDef groupMethods[] = {
    {"run", fast(run), METH_FASTCALL, "Runs a collective on this thread."},
    {"all_reduce", fast(allReduce), METH_FASTCALL,
     "all_reduce(tensors, options, timeout_ms): the short way, if it is one -> False, True: it has ended, Operation."},
    {"pin", pin, METH_VARARGS, "pin(address, size, keep): host memory for short vectors of a GPU."},
    {"start", fast(start), METH_FASTCALL, "Starts a collective -> Operation."},
    {"send", fast(send), METH_FASTCALL, "Starts to send a message -> Operation."},
    {"receive", fast(receive), METH_FASTCALL, "Starts to receive a message -> Operation."},
    {"busy", isBusy, METH_NOARGS, "Whether a call is under way."},
    {"abort", abortGroup, METH_NOARGS, "Ends every wait, here and in the peers."},
    {"drain", drain, METH_O, "drain(limit_ms): waits for collectives and sends that were started."},
    {"close", closeGroup, METH_NOARGS, "Leaves the group; aborts what is under way."},
    {"describe", describe, METH_NOARGS, "How the ranks are connected."},
    {nullptr, nullptr, 0, nullptr}};

}  // namespace

bool makeGroupType(PyObject* module) {
  PyType_Slot slots[] = {
      {Py_tp_dealloc, reinterpret_cast<void*>(dealloc)}, {Py_tp_methods, groupMethods}, {0, nullptr}};
  PyType_Spec spec = {"gloo_bypass._door.Group", sizeof(Group), 0, Py_TPFLAGS_DEFAULT, slots};
  PyObject* const type = PyType_FromSpec(&spec);
  if (type == nullptr) return false;
  groupType = reinterpret_cast<PyTypeObject*>(type);
  return PyModule_AddObject(module, "Group", type) == 0;
}

void operationHasEnded(Group* group, Task task) {
  --group->underWay;
  group->owed -= task != Task::kReceive;
  service().ended.notify_all();
}

bool belongsToThisProcess(const Group* group) { return group->generation == service().generation; }

PyObject* createGroup(PyObject*, PyObject* arguments) {
  unsigned long long address = 0;
  int rank = 0, size = 0;
  long long timeoutMs = 0;
  const char *transport = "", *interface = "";
  PyObject* store = nullptr;
  if (!PyArg_ParseTuple(arguments, "KiiLssO:create", &address, &rank, &size, &timeoutMs, &transport, &interface,
                        &store)) {
    return nullptr;
  }
  const auto* const table = reinterpret_cast<const gloo_bypass_collectives*>(address);
  if (table == nullptr || table->version != GLOO_BYPASS_COLLECTIVES_VERSION) {
    PyErr_SetString(PyExc_ImportError, "gloo_bypass: the plug-in's collectives are of another version: install again");
    return nullptr;
  }
  table->set_interruption(isInterrupted);
  Group* const group = PyObject_New(Group, groupType);
  if (group == nullptr) return nullptr;
  constexpr std::size_t kHead = offsetof(Group, table);
  std::memset(reinterpret_cast<char*>(group) + kHead, 0, sizeof(Group) - kHead);
  group->table = table;
  Py_INCREF(store);
  group->store = store;
  group->generation = service().generation;
  const gloo_bypass_store asked = storeOf(store);
  char error[kErrorBytes];
  error[0] = '\0';
  int failure = 0;
  const std::string path = transport, name = interface;
  PyThreadState* const state = PyEval_SaveThread();
  group->group =
      table->create(rank, size, timeoutMs, path.c_str(), name.c_str(), &asked, error, sizeof(error), &failure);
  PyEval_RestoreThread(state);
  if (PyErr_Occurred() == nullptr) {
    if (group->group != nullptr) return reinterpret_cast<PyObject*>(group);
    setException(failure == 0 ? GLOO_BYPASS_FAILED : failure, error);
  }
  Py_DECREF(reinterpret_cast<PyObject*>(group));
  return nullptr;
}

void abortKeepingException(Group* group) {
  PyObject *type = nullptr, *value = nullptr, *traceback = nullptr;
  PyErr_Fetch(&type, &value, &traceback);
  Py_XDECREF(abortGroup(reinterpret_cast<PyObject*>(group), nullptr));
  PyErr_Restore(type, value, traceback);
}

void hasten(const Group* group) {
  if (group->group != nullptr && !group->closing && belongsToThisProcess(group)) group->table->hasten(group->group);
}

bool isWithinCallOf(const Group* group) {
  const Inside* call = innermost;
  while (call != nullptr && call->group() != group) call = call->outer();
  return call != nullptr;
}

int runHandlers() {
  for (const Inside* call = innermost; call != nullptr; call = call->outer()) ++call->group()->inHandlers;
  const int result = PyErr_CheckSignals();
  for (const Inside* call = innermost; call != nullptr; call = call->outer()) --call->group()->inHandlers;
  return result;
}

bool refusesHandler(const Group* group) {
  if (!isWithinCallOf(group)) return false;
  setException(GLOO_BYPASS_FAILED,
               "called from a signal's handler within a call of this group: return from the handler first, or use "
               "another group there");
  return true;
}

Inside::Inside(Group* group) : group_(group), outer_(innermost) {
  ++group_->running;
  innermost = this;
}

Inside::~Inside() {
  innermost = outer_;
  --group_->running;
  if (group_->leaves && !isWithinCallOf(group_)) leave(group_);
}

Help::Help(Group* group) : group_(group->group == nullptr || group->closing ? nullptr : group) {
  if (group_ != nullptr) inside_.emplace(group_);
}

void Help::drive(int (*reached)(void*), void* data, std::chrono::steady_clock::time_point until) const {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - std::chrono::steady_clock::now());
  if (group_ != nullptr && left.count() > 0) group_->table->wait(group_->group, reached, data, left.count());
}

void Help::assist(int (*reached)(void*), void* data) const {
  if (group_ != nullptr) group_->table->assist(group_->group, reached, data);
}

void Help::hasten() const {
  if (group_ != nullptr) group_->table->hasten(group_->group);
}

}  // namespace gloo_bypass::door
