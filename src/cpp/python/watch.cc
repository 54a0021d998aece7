// Who has a segment open: for the command line, which looks at it from outside, and for warnings.
#include <nanobind/stl/string.h>

#include <algorithm>

#include "os/directory.h"
#include "os/file.h"
#include "os/process.h"
#include "python/local.h"
#include "replay_buffer/error.h"

namespace nb = nanobind;

namespace replay_buffer::python {
namespace {

Location named(const std::string& text) {
  const Location where = Location::parse(text);
  if (!where.named()) throw Error(ErrorCode::kInvalidArgument, text + " has no name");
  return where;
}

// Whether any process, this one included, has the segment open. Works for damaged ones too.
bool in_use(const std::string& location) {
  return !os::File::open(named(location).path(), os::Access::kRead).try_lock_exclusive();
}

// So many calls more, or fewer, wait in Python for the rate limiter. False when there is nobody to
// tell: no limiter, one for reading, or one that is closed.
bool count_waits(const Local& local, bool adds, int more) {
  if (!local.buffer || !local.buffer->writable() || !local.buffer->limiter().active()) return false;
  local.buffer->count_waits(adds ? Want::kAdd : Want::kDraw, more);
  return true;
}

}  // namespace

nb::list owners_of(const Local& local) {
  const Buffer& buffer = opened(local);
  const Owners& owners = buffer.owners();
  const Owner* slots = buffer.ring().segment->owners();
  nb::list found;
  for (std::size_t i = 0; i < kOwnerCount; ++i) {
    const Identity who{static_cast<std::uint16_t>(i),
                       static_cast<std::uint16_t>(
                           Owners::epoch_of(slots[i].activity.load(std::memory_order_acquire)))};
    const os::ProcessIdentity process = Owners::process_of(slots[i]);
    if (process.pid == 0) continue;
    const std::uint64_t before = slots[i].rows_before.load(std::memory_order_relaxed);
    const std::uint64_t added = slots[i].rows_added.load(std::memory_order_relaxed);
    found.append(nb::make_tuple(
        i, process.pid, !owners.dead(who), process.pid_namespace == os::self().pid_namespace,
        added - std::min(before, added), slots[i].waits.load(std::memory_order_relaxed)));
  }
  return found;
}

void bind_watch(nb::module_& m, nb::class_<Local>& local) {
  local.def("owners", &owners_of).def("count_waits", &count_waits);
  m.def("in_use", &in_use);
  m.def("segment_path", [](const std::string& location) { return named(location).path(); });
  m.def("remove_abandoned", [] { return os::remove_abandoned(os::shared_memory_dir()); });
}

}  // namespace replay_buffer::python
