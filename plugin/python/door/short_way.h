// The short way of an all-reduce of one plain tensor: what it needs of PyTorch, without a call into PyTorch's bindings.
// Between two all-reduces a program computes, and the processor's caches forget the code of these: each call costs one
// to five microseconds then, and there were ten.
//
// _short_way.py says at import where things are, or nothing if this PyTorch has no such places.
#pragma once

#include "plugin/python/door/service.h"

namespace gloo_bypass::door {

// short_way(describe, stream, profiles, types, options type, unset timeout, reductions, places); see _short_way.py.
PyObject* setShortWay(PyObject* module, PyObject* arguments);

struct PlainAllReduce {
  void* data;
  std::size_t count, size;  // elements, bytes
  std::uint8_t type, reduction;
  bool isAsynchronous;
  int gpu;              // whose memory `data` is; kHost: this host's
  long long timeoutMs;  // the options', or `timeoutMs` of takePlain() where they say nothing

  static constexpr int kHost = -1;
};

// Whether the call is one for the short way: of a list of one dense tensor of this host or of a GPU, of a type that can
// be reduced, while no profiler records. `tensors`, `options`: borrowed. Sets no exception. With the GIL.
bool takePlain(PyObject* tensors, PyObject* options, long long timeoutMs, PlainAllReduce& call);

// PyTorch's current stream of this GPU. False: it does not say. With the GIL.
bool currentStream(int gpu, void*& stream);

}  // namespace gloo_bypass::door
