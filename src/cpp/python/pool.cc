#include "python/pool.h"

#include <memory>
#include <utility>
#include <vector>

#include "os/memory.h"
#include "python/errors.h"

namespace replay_buffer::python {
namespace {

constexpr const char* kCapsule = "replay_buffer.pooled_memory";

struct Pool {
  std::vector<os::Mapping> idle;  // oldest first
  std::size_t idle_bytes = 0;

  os::Mapping take(std::size_t bytes) {
    constexpr std::size_t kUnit = 64 * 1024;
    const std::size_t size = (bytes + kUnit - 1) / kUnit * kUnit;
    for (std::size_t i = idle.size(); i-- > 0;) {
      if (idle[i].size() == size) return remove(i);
    }
    return os::Mapping::reserve(size, true);
  }

  void give(os::Mapping memory) {
    idle_bytes += memory.size();
    idle.push_back(std::move(memory));
    while (idle_bytes > kMostIdle) remove(0);
  }

  os::Mapping remove(std::size_t i) {
    os::Mapping memory = std::move(idle[i]);
    idle.erase(idle.begin() + static_cast<std::ptrdiff_t>(i));
    idle_bytes -= memory.size();
    return memory;
  }
};

// Never destroyed: arrays may outlive everything else at exit.
Pool& pool() {
  static Pool* const one = new Pool;
  return *one;
}

void give_back(PyObject* capsule) {
  auto* memory = static_cast<os::Mapping*>(PyCapsule_GetPointer(capsule, kCapsule));
  pool().give(std::move(*memory));
  delete memory;
}

}  // namespace

PyObject* new_pooled_array(int dimensions, const npy_intp* shape, int numpy_type,
                           std::size_t bytes) try {
  auto memory = std::make_unique<os::Mapping>(pool().take(bytes));
  void* data = memory->data();
  PyObject* capsule = PyCapsule_New(memory.get(), kCapsule, give_back);
  if (capsule == nullptr) return nullptr;
  // The capsule has it now.
  [[maybe_unused]] const auto* owned = memory.release();
  PyObject* array = PyArray_New(&PyArray_Type, dimensions, shape, numpy_type, nullptr, data, 0,
                                NPY_ARRAY_CARRAY, nullptr);
  if (array == nullptr) {
    Py_DECREF(capsule);
    return nullptr;
  }
  if (PyArray_SetBaseObject(reinterpret_cast<PyArrayObject*>(array), capsule) <
      0) {  // takes the capsule
    Py_DECREF(array);
    return nullptr;
  }
  return array;
} catch (...) {
  set_current_error();
  return nullptr;
}

}  // namespace replay_buffer::python
