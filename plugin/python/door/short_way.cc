#include "plugin/python/door/short_way.h"

#include <algorithm>
#include <array>
#include <cstring>

namespace gloo_bypass::door {
namespace {

// Of DLPack 1.x (dmlc/dlpack, include/dlpack/dlpack.h), whose layout its major version fixes.
struct DlTensor {
  void* data;
  std::int32_t deviceType, device;
  std::int32_t dimensions;
  std::uint8_t code, bits;
  std::uint16_t lanes;
  const std::int64_t *shape, *strides;
  std::uint64_t byteOffset;
};
using Describe = int (*)(void* tensor, DlTensor* out);
using CurrentStream = int (*)(std::int32_t deviceType, std::int32_t device, void** out);
constexpr std::int32_t kCpu = 1, kCuda = 2;
enum Code : std::uint8_t { kInt = 0, kUint = 1, kFloat = 2, kBfloat = 4, kBool = 6 };

struct ElementType {
  Code code;
  std::uint8_t bits, type;  // `type`: of c_api.h
};
constexpr ElementType kElementTypes[] = {{kFloat, 32, GLOO_BYPASS_FLOAT32}, {kBfloat, 16, GLOO_BYPASS_BFLOAT16},
                                         {kFloat, 16, GLOO_BYPASS_FLOAT16}, {kFloat, 64, GLOO_BYPASS_FLOAT64},
                                         {kInt, 64, GLOO_BYPASS_INT64},     {kInt, 32, GLOO_BYPASS_INT32},
                                         {kInt, 16, GLOO_BYPASS_INT16},     {kInt, 8, GLOO_BYPASS_INT8},
                                         {kUint, 8, GLOO_BYPASS_UINT8},     {kBool, 8, GLOO_BYPASS_BOOL}};

constexpr std::uint8_t kNoReduction = 255;

// Names of a tensor's attributes and methods.
enum Name : std::uint8_t { kDtype, kIsCpu, kLayout, kIsContiguous, kDataPtr, kNumel, kIsNeg, kNames };
constexpr const char* kWords[kNames] = {"dtype", "is_cpu", "layout", "is_contiguous", "data_ptr", "numel", "is_neg"};

// Set once, with the GIL.
struct Places {
  bool known = false;
  Describe describe = nullptr;  // null: this PyTorch has no such function
  CurrentStream currentStream = nullptr;
  bool (*profiles)() = nullptr;
  std::array<PyTypeObject*, 2> tensorTypes{};
  PyObject *elementTypes = nullptr, *strided = nullptr;  // {dtype: type of c_api.h}
  PyTypeObject* optionsType = nullptr;
  long long unsetTimeoutMs = 0;
  std::array<std::uint8_t, 16> reductions{};  // by the options' byte
  Py_ssize_t reductionAt = 0, timeoutAt = 0, asynchronousAt = 0;
  std::array<PyObject*, kNames> names{};
} places;

// An owned object, or null where there was an exception, which is dropped: the usual way raises it again.
class Found {
 public:
  explicit Found(PyObject* object) : object_(object) {
    if (object == nullptr) PyErr_Clear();
  }
  ~Found() { Py_XDECREF(object_); }
  Found(const Found&) = delete;
  Found& operator=(const Found&) = delete;
  PyObject* get() const { return object_; }

 private:
  PyObject* const object_;
};

PyObject* attributeOf(PyObject* tensor, Name name) { return PyObject_GetAttr(tensor, places.names[name]); }
PyObject* askedOf(PyObject* tensor, Name method) {
  return PyObject_CallMethodObjArgs(tensor, places.names[method], nullptr);
}

// A bound object begins with PyObject's head and the address of its C++ part.
const char* partOf(PyObject* object) {
  const char* part = nullptr;
  std::memcpy(&part, reinterpret_cast<const char*>(object) + sizeof(PyObject), sizeof(part));
  return part;
}

bool takeOptions(PyObject* options, long long timeoutMs, PlainAllReduce& call) {
  if (Py_TYPE(options) != places.optionsType) return false;
  const char* const part = partOf(options);
  if (part == nullptr) return false;  // it was made without __init__
  const auto reduction = static_cast<std::uint8_t>(part[places.reductionAt]);
  if (reduction >= places.reductions.size()) return false;
  call.isAsynchronous = part[places.asynchronousAt] != 0;
  std::int64_t limitMs = 0;
  std::memcpy(&limitMs, part + places.timeoutAt, sizeof(limitMs));
  call.timeoutMs = limitMs == places.unsetTimeoutMs ? timeoutMs : std::max<long long>(0, limitMs);
  call.reduction = places.reductions[reduction];
  return call.reduction != kNoReduction;
}

// In order and without gaps, as PyTorch's is_contiguous() has it; counts the elements.
bool isDense(const DlTensor& tensor, std::size_t& count) {
  std::int64_t elements = 1;
  for (std::int32_t i = tensor.dimensions - 1; i >= 0; --i) {
    if (tensor.shape[i] != 1 && tensor.strides[i] != elements) return false;
    elements *= tensor.shape[i];
  }
  count = static_cast<std::size_t>(elements);
  return elements > 0;
}

bool describedByDlpack(PyObject* tensor, PlainAllReduce& call) {
  DlTensor found;
  if (places.describe(tensor, &found) != 0) {  // a sparse one, or one without memory
    PyErr_Clear();
    return false;
  }
  if (found.data == nullptr || found.lanes != 1 || !isDense(found, call.count)) return false;
  if (found.deviceType != kCpu && found.deviceType != kCuda) return false;
  const auto* const type = std::ranges::find_if(
      kElementTypes, [&](const ElementType& one) { return one.code == found.code && one.bits == found.bits; });
  if (type == std::end(kElementTypes)) return false;
  call.data = static_cast<char*>(found.data) + found.byteOffset;
  call.type = type->type;
  call.size = call.count * (type->bits / 8u);
  call.gpu = found.deviceType == kCuda ? found.device : PlainAllReduce::kHost;
  return true;
}

bool describedByAttributes(PyObject* tensor, PlainAllReduce& call) {
  const Found isCpu(attributeOf(tensor, kIsCpu)), layout(attributeOf(tensor, kLayout));
  const Found dtype(attributeOf(tensor, kDtype));
  if (isCpu.get() != Py_True || layout.get() != places.strided || dtype.get() == nullptr) return false;
  PyObject* const type = PyDict_GetItemWithError(places.elementTypes, dtype.get());  // borrowed
  const Found isContiguous(askedOf(tensor, kIsContiguous)), data(askedOf(tensor, kDataPtr));
  const Found count(askedOf(tensor, kNumel));
  if (type == nullptr || isContiguous.get() != Py_True || data.get() == nullptr || count.get() == nullptr) return false;
  call.type = static_cast<std::uint8_t>(PyLong_AsLong(type));
  call.data = PyLong_AsVoidPtr(data.get());
  call.count = PyLong_AsSize_t(count.get());
  call.size = 0;  // of the host's memory nobody asks
  call.gpu = PlainAllReduce::kHost;
  return call.data != nullptr;
}

bool takeTensor(PyObject* tensor, PlainAllReduce& call) {
  if (std::ranges::find(places.tensorTypes, Py_TYPE(tensor)) == places.tensorTypes.end()) return false;
  if (!(places.describe != nullptr ? describedByDlpack(tensor, call) : describedByAttributes(tensor, call))) {
    return false;
  }
  // DLPack does not say whether PyTorch negates what it reads.
  return Found(askedOf(tensor, kIsNeg)).get() == Py_False;
}

}  // namespace

PyObject* setShortWay(PyObject*, PyObject* arguments) {
  unsigned long long describe = 0, stream = 0, profiles = 0;
  Places found;
  const char* reductions = nullptr;
  Py_ssize_t number = 0;
  PyObject *types = nullptr, *options = nullptr;
  if (!PyArg_ParseTuple(arguments, "KKKOOOOLy#nnn:short_way", &describe, &stream, &profiles, &types,
                        &found.elementTypes, &found.strided, &options, &found.unsetTimeoutMs, &reductions, &number,
                        &found.reductionAt, &found.timeoutAt, &found.asynchronousAt)) {
    return nullptr;
  }
  for (std::size_t i = 0; i < found.tensorTypes.size(); ++i) {
    PyObject* const type = PyTuple_GetItem(types, static_cast<Py_ssize_t>(i));
    if (type == nullptr) return nullptr;
    found.tensorTypes[i] = reinterpret_cast<PyTypeObject*>(type);
  }
  for (std::size_t i = 0; i < kNames; ++i) {
    found.names[i] = PyUnicode_InternFromString(kWords[i]);
    if (found.names[i] == nullptr) return nullptr;
  }
  found.reductions.fill(kNoReduction);
  std::memcpy(found.reductions.data(), reductions, std::min(static_cast<std::size_t>(number), found.reductions.size()));
  // They live as long as the process.
  for (PyObject* const one : {types, found.elementTypes, found.strided, options}) Py_INCREF(one);
  found.optionsType = reinterpret_cast<PyTypeObject*>(options);
  found.profiles = reinterpret_cast<bool (*)()>(profiles);
  found.describe = reinterpret_cast<Describe>(describe);
  found.currentStream = reinterpret_cast<CurrentStream>(stream);
  found.known = true;
  places = found;
  Py_RETURN_NONE;
}

bool takePlain(PyObject* tensors, PyObject* options, long long timeoutMs, PlainAllReduce& call) {
  if (!places.known || !PyList_CheckExact(tensors) || PyList_Size(tensors) != 1) return false;
  return takeOptions(options, timeoutMs, call) && !places.profiles() && takeTensor(PyList_GetItem(tensors, 0), call);
}

bool currentStream(int gpu, void*& stream) {
  if (places.currentStream == nullptr) return false;
  if (places.currentStream(kCuda, gpu, &stream) == 0) return true;
  PyErr_Clear();
  return false;
}

}  // namespace gloo_bypass::door
