// gloo_bypass._door: collectives for Python, through the limited API, so that one build serves every Python. It links
// with no library of ours: _process_group.py passes the address of the plug-in's table (collectives/c_api.h).
#include "plugin/python/door/group.h"
#include "plugin/python/door/operation.h"
#include "plugin/python/door/service.h"
#include "plugin/python/door/short_way.h"

namespace gloo_bypass::door {
namespace {

PyMethodDef moduleMethods[] = {
    {"create", createGroup, METH_VARARGS, "Makes a group; blocks until all ranks have come."},
    {"errors", setErrors, METH_O, "errors(classes): the exception for each enum gloo_bypass_failure."},
    {"short_way", setShortWay, METH_VARARGS, "Where PyTorch has what an all-reduce needs; see _short_way.py."},
    {"main_thread", setMainThread, METH_O, "main_thread(ident): the thread that runs handlers of signals."},
    {"post", post, METH_O, "post(callable): calls it with None on a thread that runs serve(), soon."},
    {"serve", serve, METH_O, "serve(spawn): runs callbacks and asks stores, until close() or too many threads do."},
    {"close", close, METH_NOARGS, "Ends all serve()."},
    {"is_asked", isStillAsked, METH_NOARGS, "Within what create() was given: whether its answer is still wanted."},
    {"after_fork", afterFork, METH_NOARGS, "To be called in a forked child."},
    {nullptr, nullptr, 0, nullptr}};

PyModuleDef definition = {PyModuleDef_HEAD_INIT,
                          "_door",
                          "Collectives for gloo_bypass._process_group.",
                          -1,
                          moduleMethods,
                          nullptr,
                          nullptr,
                          nullptr,
                          nullptr};

}  // namespace
}  // namespace gloo_bypass::door

PyMODINIT_FUNC PyInit__door(void) {
  PyObject* const module = PyModule_Create(&gloo_bypass::door::definition);
  if (module == nullptr) return nullptr;
  if (gloo_bypass::door::makeOperationType(module) && gloo_bypass::door::makeGroupType(module)) return module;
  Py_DECREF(module);
  return nullptr;
}
