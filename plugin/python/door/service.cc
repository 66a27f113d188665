#include "plugin/python/door/service.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>
#include <string>

#include "plugin/python/door/group.h"
#include "plugin/python/door/operation.h"

namespace gloo_bypass::door {

// A question to the store, on the heap: whoever asks may give up, if Python has ended and nobody will answer.
struct Question {
  const char* what = "";
  std::string key, value;
  std::int64_t timeoutMs = 0;
  PyObject* callable = nullptr;  // borrowed, from whoever asks: may be gone once it has given up
  bool answered = false, failed = false;
  std::string answer;  // or why not
  std::condition_variable changed;
  int holders = 2;  // who asks, and the queue
  Question* next = nullptr;
};

namespace {

// A wait that ends by notification; the bound only makes it look again. (condition_variable::wait needs glibc 2.35's
// libstdc++, wait_for does not.)
constexpr std::chrono::hours kLong{1};
constexpr int kMostThreads = 64;  // nested waits in callbacks; more of them wait for a thread
// How long references of a finished operation wait for the next call before a serving thread drops them.
constexpr std::chrono::milliseconds kDropAfter{20};
// How long the end of the program waits for callbacks that have begun.
constexpr std::chrono::seconds kLastCallbacks{5};
// How much longer than the store's own timeout to wait for a thread that asks it.
constexpr std::chrono::seconds kAnswerGrace{10};

// What this serving thread answers.
thread_local Question* beingAnswered = nullptr;

bool isAsked(const Question* question) {
  const std::lock_guard lock(service().mutex);
  return question->holders == 2 && !service().closed;
}

void release(std::unique_lock<std::mutex>& lock, Question* question) {
  const bool last = --question->holders == 0;
  lock.unlock();
  if (last) delete question;
}

std::string textOfError() {
  PyObject *type = nullptr, *value = nullptr, *trace = nullptr;
  PyErr_Fetch(&type, &value, &trace);
  PyObject* const text = value == nullptr ? nullptr : PyObject_Str(value);
  PyObject* const bytes = text == nullptr ? nullptr : PyUnicode_AsUTF8String(text);
  std::string result = bytes == nullptr ? "unknown error" : PyBytes_AsString(bytes);
  PyErr_Clear();
  for (PyObject* object : {type, value, trace, text, bytes}) Py_XDECREF(object);
  std::replace(result.begin(), result.end(), '\n', ' ');
  return result;
}

// With the GIL.
void answer(Question& question, bool& failed, std::string& text) {
  failed = true;
  // Who gives up needs the GIL to drop the callable, so it is there until then.
  if (!isAsked(&question)) return;
  PyObject* const callable = question.callable;
  Py_INCREF(callable);
  beingAnswered = &question;
  PyObject* const result =
      PyObject_CallFunction(callable, "ssy#L", question.what, question.key.c_str(), question.value.data(),
                            static_cast<Py_ssize_t>(question.value.size()), static_cast<long long>(question.timeoutMs));
  beingAnswered = nullptr;
  char* bytes = nullptr;
  Py_ssize_t length = 0;
  failed = result == nullptr || PyBytes_AsStringAndSize(result, &bytes, &length) != 0;
  text = failed ? textOfError() : std::string(bytes, static_cast<std::size_t>(length));
  Py_XDECREF(result);
  Py_DECREF(callable);
}

// Asks a serving thread, and waits. False: `text` says why not.
bool ask(void* context, const char* what, const char* key, const void* value, std::size_t length,
         std::int64_t timeoutMs, std::string& text) {
  auto* const question = new Question;
  question->what = what;
  question->key = key;
  if (length > 0) question->value.assign(static_cast<const char*>(value), length);
  question->timeoutMs = timeoutMs;
  question->callable = static_cast<PyObject*>(context);
  Service& own = service();
  std::unique_lock lock(own.mutex);
  if (own.closed) {
    delete question;
    text = "the program is ending";
    return false;
  }
  question->next = own.questions;
  own.questions = question;
  own.work.notify_one();
  const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(timeoutMs) + kAnswerGrace;
  bool interrupted = false;
  while (!question->answered && !own.closed && !interrupted && std::chrono::steady_clock::now() < end) {
    const auto look = std::min(end, std::chrono::steady_clock::now() + kLookForSignals);
    if (question->changed.wait_until(lock, look, [&] { return question->answered || own.closed; })) break;
    lock.unlock();
    interrupted = isInterrupted() != 0;
    lock.lock();
  }
  const bool succeeded = question->answered && !question->failed;
  text = question->answered ? question->answer : "the store gave no answer";
  release(lock, question);
  return succeeded;
}

int failed(const std::string& text, char* error, std::size_t capacity, int result) {
  if (capacity > 0) std::snprintf(error, capacity, "%s", text.c_str());
  return result;
}

constexpr std::int64_t kShortMs = 60'000;  // of a set or a look, which wait for the store's server only

int setInStore(void* context, const char* key, const void* value, size_t length, char* error, size_t capacity) {
  std::string text;
  return ask(context, "set", key, value, length, kShortMs, text) ? 0 : failed(text, error, capacity, 1);
}

int getFromStore(void* context, const char* key, std::int64_t timeoutMs, void (*take)(void*, const void*, size_t),
                 void* taker, char* error, size_t capacity) {
  std::string text;
  if (!ask(context, "get", key, nullptr, 0, timeoutMs, text)) return failed(text, error, capacity, 1);
  take(taker, text.data(), text.size());
  return 0;
}

int isInStore(void* context, const char* key, char* error, size_t capacity) {
  std::string text;
  if (!ask(context, "has", key, nullptr, 0, kShortMs, text)) return failed(text, error, capacity, -1);
  return text == "1" ? 1 : 0;
}

// The callable belongs to the Group's Python object, which outlives the group.
void releaseStore(void*) {}

// Another serving thread, if none is left to wait. With the GIL.
void spawnIfNoneIsIdle(PyObject* spawn) {
  bool needed = false;
  {
    const std::lock_guard lock(service().mutex);
    needed = service().idle == 0 && service().threads < kMostThreads && !service().closed;
  }
  if (!needed) return;
  PyObject* const result = PyObject_CallObject(spawn, nullptr);
  if (result == nullptr) PyErr_Clear();  // the program is ending
  Py_XDECREF(result);
}

// Waits for something to do, without the GIL. False: the end, or enough others are idle.
bool waitForWork(std::unique_lock<std::mutex>& lock) {
  Service& own = service();
  const auto urgent = [&] { return own.closed || own.callbacks != nullptr || own.questions != nullptr; };
  if (urgent()) return !own.closed;
  if (own.idle >= 2) return false;
  ++own.idle;
  ++own.awaitingAny;
  if (own.finished == nullptr) own.work.wait_for(lock, kLong, [&] { return urgent() || own.finished != nullptr; });
  --own.awaitingAny;
  if (!urgent()) own.work.wait_for(lock, kDropAfter, urgent);
  --own.idle;
  return !own.closed;
}

}  // namespace

Service& service() {
  static Service* const only = new Service;  // never destroyed: other threads may outlive main()
  return *only;
}

void dropFinished() {
  Operation* list = nullptr;
  {
    const std::lock_guard lock(service().mutex);
    std::swap(list, service().finished);
  }
  while (list != nullptr) {
    Operation* const next = list->next;
    list->next = nullptr;
    letGo(list);
    list = next;
  }
}

PyObject* setMainThread(PyObject*, PyObject* ident) {
  const unsigned long number = PyLong_AsUnsignedLong(ident);
  if (PyErr_Occurred() != nullptr) return nullptr;
  service().mainThread = number;
  Py_RETURN_NONE;
}

int isInterrupted() {
  if (PyThread_get_thread_ident() != service().mainThread) return 0;
  const PyGILState_STATE state = PyGILState_Ensure();
  // An earlier wait of the same call may have raised it: a handler that ran now would lose it.
  const bool raised = PyErr_Occurred() != nullptr || runHandlers() != 0;
  PyGILState_Release(state);
  return raised ? 1 : 0;
}

PyObject* serve(PyObject*, PyObject* spawn) {
  PyThreadState* state = PyEval_SaveThread();
  Service& own = service();
  std::unique_lock lock(own.mutex);
  ++own.threads;
  while (waitForWork(lock)) {
    Question* const question = own.questions;
    Operation* const operation = question == nullptr ? own.callbacks : nullptr;
    if (question != nullptr) own.questions = question->next;
    if (operation != nullptr) own.callbacks = operation->next;
    lock.unlock();
    PyEval_RestoreThread(state);
    if (question != nullptr || operation != nullptr) spawnIfNoneIsIdle(spawn);
    bool failedToAnswer = false;
    std::string text;
    if (question != nullptr) answer(*question, failedToAnswer, text);
    if (operation != nullptr) {
      operation->next = nullptr;
      runCallbacks(operation);
      letGo(operation);
    }
    dropFinished();
    state = PyEval_SaveThread();
    lock.lock();
    if (question == nullptr) continue;
    question->failed = failedToAnswer;
    question->answer = std::move(text);
    question->answered = true;
    question->changed.notify_all();
    release(lock, question);
    lock.lock();
  }
  --own.threads;
  own.ended.notify_all();
  lock.unlock();
  PyEval_RestoreThread(state);
  Py_RETURN_NONE;
}

PyObject* isStillAsked(PyObject*, PyObject*) {
  return PyBool_FromLong(beingAnswered != nullptr && isAsked(beingAnswered) ? 1 : 0);
}

PyObject* close(PyObject*, PyObject*) {
  Service& own = service();
  PyThreadState* const state = PyEval_SaveThread();
  {
    std::unique_lock lock(own.mutex);
    own.closed = true;
    own.work.notify_all();
    for (Question* question = own.questions; question != nullptr; question = question->next) {
      question->changed.notify_all();
    }
    // Python ends a thread that comes back from PyTorch's C++ after the interpreter has ended, and C++ calls
    // terminate().
    own.ended.wait_for(lock, kLastCallbacks, [&] { return own.threads == 0; });
  }
  PyEval_RestoreThread(state);
  Py_RETURN_NONE;
}

PyObject* afterFork(PyObject*, PyObject*) {
  Service& own = service();
  const std::uint64_t generation = own.generation + 1;
  new (&own) Service;  // another thread may have held the lock; what it had queued is the parent's
  own.generation = generation;
  own.mainThread = PyThread_get_thread_ident();  // to Python it is now
  Py_RETURN_NONE;
}

gloo_bypass_store storeOf(PyObject* callable) {
  return {.context = callable, .set = setInStore, .get = getFromStore, .has = isInStore, .release = releaseStore};
}

}  // namespace gloo_bypass::door
