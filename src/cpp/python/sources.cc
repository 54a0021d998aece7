#include "python/sources.h"

#include <algorithm>
#include <cmath>

namespace replay_buffer::python {

bool values_by_field(const Local& local, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames,
                     PyObject** values, Options& options) {
  const std::size_t fields = local.fields.size();
  const auto given = static_cast<std::size_t>(nargs);
  if (!local.buffer || given > fields) return false;
  std::copy_n(args, given, values);
  std::fill(values + given, values + fields, nullptr);
  std::size_t filled = given;
  const Py_ssize_t keywords = kwnames == nullptr ? 0 : PyTuple_GET_SIZE(kwnames);
  for (Py_ssize_t k = 0; k < keywords; ++k) {
    PyObject* name = PyTuple_GET_ITEM(kwnames, k);
    if (name == names.priority && local.weighted()) {
      options.priority = args[nargs + k];
      continue;
    }
    if (name == names.timeout) {
      options.timeout = args[nargs + k];
      continue;
    }
    if (name == names.final_obs && local.steps) {
      options.final_obs = args[nargs + k] == Py_None ? nullptr : args[nargs + k];
      continue;
    }
    std::size_t i = given;
    while (i < fields && local.fields[i].key != name) ++i;
    if (i == fields || values[i] != nullptr) return false;
    values[i] = args[nargs + k];
    ++filled;
  }
  return filled == fields;
}

bool read_priorities(PyObject* given, npy_intp n, std::vector<float>& raws) {
  raws.resize(static_cast<std::size_t>(n));
  return read_floats(given, n, raws.data()) && std::all_of(raws.begin(), raws.end(), [](float raw) {
           return raw >= 0 && std::isfinite(raw);
         });
}

}  // namespace replay_buffer::python
