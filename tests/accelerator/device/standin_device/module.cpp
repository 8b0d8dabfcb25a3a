// The functions that the Python package calls.
#include <Python.h>

#include "standin.h"

#include <ATen/EmptyTensor.h>
#include <ATen/core/Tensor.h>

#include <cstring>

namespace standin {
namespace {

// Does something without the interpreter's lock, and raises what it raises.
template <typename Function>
PyObject* called(Function function) {
  PyObject* kind = PyExc_RuntimeError;
  std::string message;
  decltype(function()) result{};
  PyThreadState* state = PyEval_SaveThread();
  try {
    result = function();
  } catch (const c10::Error& error) {
    message = error.what_without_backtrace();
  } catch (const std::exception& error) {
    message = error.what();
  }
  PyEval_RestoreThread(state);
  if (!message.empty()) {
    PyErr_SetString(kind, message.c_str());
    return nullptr;
  }
  return PyLong_FromLongLong(static_cast<long long>(result));
}

c10::DeviceIndex index_of(PyObject* argument) { return static_cast<c10::DeviceIndex>(PyLong_AsLong(argument)); }

PyObject* device_count(PyObject*, PyObject*) {
  return called([] { return settings().devices; });
}
PyObject* index_now(PyObject*, PyObject*) {
  return called([] { return current_device().index(); });
}
PyObject* set_device(PyObject*, PyObject* argument) {
  const c10::DeviceIndex index = index_of(argument);
  return called([index] {
    set_current_device(index);
    return 0;
  });
}
PyObject* wait(PyObject*, PyObject*) {
  return called([] {
    synchronize();
    return 0;
  });
}
PyObject* bad_fork(PyObject*, PyObject*) { return PyBool_FromLong(in_bad_fork()); }
PyObject* initialized(PyObject*, PyObject*) { return PyBool_FromLong(memory_in_use()); }

PyObject* seed(PyObject*, PyObject* arguments) {
  int index = 0;
  unsigned long long value = 0;
  if (!PyArg_ParseTuple(arguments, "iK", &index, &value)) {
    return nullptr;
  }
  return called([index, value] {
    default_generator(static_cast<c10::DeviceIndex>(index)).unsafeGetGeneratorImpl()->set_current_seed(value);
    return 0;
  });
}
PyObject* seed_of(PyObject*, PyObject* argument) {
  return PyLong_FromUnsignedLongLong(default_generator(index_of(argument)).unsafeGetGeneratorImpl()->current_seed());
}

PyObject* state_of(PyObject*, PyObject* argument) {
  const c10::DeviceIndex index = index_of(argument);
  at::Tensor state;
  PyObject* done = called([index, &state] {
    state = at::Tensor(default_generator(index).unsafeGetGeneratorImpl()->get_state());
    return 0;
  });
  if (done == nullptr) {
    return nullptr;
  }
  Py_DECREF(done);
  return PyBytes_FromStringAndSize(static_cast<const char*>(state.const_data_ptr()), state.numel());
}

PyObject* set_state(PyObject*, PyObject* arguments) {
  int index = 0;
  PyObject* state = nullptr;
  if (!PyArg_ParseTuple(arguments, "iS", &index, &state)) {
    return nullptr;
  }
  const char* bytes = PyBytes_AS_STRING(state);
  const Py_ssize_t length = PyBytes_GET_SIZE(state);
  return called([index, bytes, length] {
    at::Tensor tensor = at::detail::empty_cpu({length}, at::kByte);
    std::memcpy(tensor.mutable_data_ptr(), bytes, static_cast<size_t>(length));
    default_generator(static_cast<c10::DeviceIndex>(index))
        .unsafeGetGeneratorImpl()
        ->set_state(*tensor.unsafeGetTensorImpl());
    return 0;
  });
}

PyObject* counts_so_far(PyObject*, PyObject*) {
  const Counts counted = counts();
  return Py_BuildValue("(LLLL)", static_cast<long long>(counted.launches), static_cast<long long>(counted.to_device),
                       static_cast<long long>(counted.to_host), static_cast<long long>(counted.bytes));
}

PyMethodDef methods[] = {
    {"device_count", device_count, METH_NOARGS, nullptr},
    {"current_device", index_now, METH_NOARGS, nullptr},
    {"set_device", set_device, METH_O, nullptr},
    {"synchronize", wait, METH_NOARGS, nullptr},
    {"is_in_bad_fork", bad_fork, METH_NOARGS, nullptr},
    {"is_initialized", initialized, METH_NOARGS, nullptr},
    {"seed", seed, METH_VARARGS, nullptr},
    {"seed_of", seed_of, METH_O, nullptr},
    {"state_of", state_of, METH_O, nullptr},
    {"set_state", set_state, METH_VARARGS, nullptr},
    {"counts", counts_so_far, METH_NOARGS, nullptr},
    {nullptr, nullptr, 0, nullptr},
};

PyModuleDef definition{PyModuleDef_HEAD_INIT, "_device", nullptr, -1, methods, nullptr, nullptr, nullptr, nullptr};

}  // namespace
}  // namespace standin

extern "C" __attribute__((visibility("default"))) PyObject* PyInit__device() {
  return PyModule_Create(&standin::definition);
}
