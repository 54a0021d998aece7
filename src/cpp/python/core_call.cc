// Letting go of the GIL, and taking it back: what is rare in CoreCall.
#include <chrono>
#include <thread>

#include "os/clock.h"
#include "python/handle.h"

namespace replay_buffer::python {
namespace {

constexpr std::uint64_t kSlowNs = 5'000'000;  // Python's switch interval

}  // namespace

void CoreCall::let_go() noexcept {
  if (state_ != nullptr) return;
  ++times_let_go;
  state_ = PyEval_SaveThread();
}

// When Python is shutting down, taking the GIL back ends this thread by unwinding its stack, which
// must not pass through C++ frames that do not expect it. The thread stops here instead, until the
// process is gone.
void CoreCall::restore() {
  try {
    PyEval_RestoreThread(state_);
  } catch (...) {
    for (;;) std::this_thread::sleep_for(std::chrono::hours(1));
  }
}

void CoreCall::begin_on_disk(const Local& local) {
  disk_ = &local;
  start_ = os::coarse_ns();
  if (local.slow_disk.load(std::memory_order_relaxed)) let_go();
}

void CoreCall::end_on_disk() const {
  disk_->slow_disk.store(os::coarse_ns() - start_ > kSlowNs, std::memory_order_relaxed);
}

}  // namespace replay_buffer::python
